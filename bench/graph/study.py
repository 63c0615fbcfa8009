# SPDX-License-Identifier: Apache-2.0
"""Searches graphs that lie in every place where neighbour lists can lie, on a GPU, and writes what each took.

study.py OUT [STEP ...]: each step writes OUT/STEP.json, unless it is there already. A step takes a few minutes at most.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from forebay import Storage, build_info
from study_lists import HOST_GEN4, HOST_GEN4_LATENCY_US, KINDS, GraphLists, external, tell
from study_runs import EveryAlgorithm, Row, describe, fidelity_of, figures_of, timed

if TYPE_CHECKING:
    from forebay._graph import Lists

LINKS = {"gen3x16": ("12G", 256), "gen4x16": ("24G", 768), "gen5x16": ("48G", 768)}
FAST_DRIVE = "iops=40M,latency_us=50,link=gen5x16,sms=32"
PUBLISHED_DRIVE = "iops=6M,latency_us=50,link=gen4x16,sms=32"
ROOT = Path(__file__).resolve().parents[2]


def kinds(scale: int, trials: int, device: str) -> list[Row]:
    """Breadth-first search and shortest paths in every place."""
    rows: list[Row] = []
    for kind in KINDS:
        for entry in ("id", "weighted"):
            graph = GraphLists(kind, scale, entry, device)
            checker = graph.in_memory(graph.nearest)
            about = {"graph": graph.name, "entry": entry}
            for place in graph.memories:
                lists = checker if place == graph.nearest else graph.in_memory(place)
                rows.append({**about, "place": place, **timed(lists, graph, trials, checker)})
                describe(f"{graph.name} {entry} {place}", rows[-1])
            for text in (external(2, "alignment=32"), external(HOST_GEN4_LATENCY_US, HOST_GEN4)):
                row = timed(graph.in_memory("external", text), graph, trials, checker)
                rows.append({**about, "place": f"external:{text}", "external": text, **row})
                describe(f"{graph.name} {entry} external:{text}", rows[-1])
            drive = "iops=40M,latency_us=50,sms=32"
            for cache in (0, graph.quarter_bytes):
                place = f"storage, a quarter in the cache, {drive}" if cache else f"storage_direct, {drive}"
                with graph.on_drive(drive, cache) as (lists, drives):
                    row = timed(lists, graph, trials, checker, cold=cache != 0)
                    report = drives.report()
                    more = {"fidelity": report["fidelity"], "link": report["drives"][0].get("link")}
                    rows.append({**about, "place": place, "drive": drive, **row, **more})
                    del lists
                describe(f"{graph.name} {entry} {place}", rows[-1])
            del checker
    return rows


def algorithms(scale: int, device: str) -> list[Row]:
    """All six algorithms in every place, checked."""
    rows: list[Row] = []
    for kind in KINDS:
        graph, weighted = GraphLists(kind, scale, "id", device), GraphLists(kind, scale, "weighted", device)
        every = EveryAlgorithm(graph, weighted)
        for place in graph.memories:
            rows += every.over(place, graph.in_memory(place), weighted.in_memory(place))
        text = external(2, "alignment=32")
        rows += every.over(f"external:{text}", graph.in_memory("external", text), weighted.in_memory("external", text))
        for cache in (0, graph.quarter_bytes):
            drive = "iops=40M,latency_us=50,sms=16"
            with graph.on_drive(drive, cache) as (lists, _), weighted.on_drive(drive, 2 * cache) as (arcs, _):
                rows += every.over("storage, a quarter in the cache" if cache else "storage_direct", lists, arcs)
                del lists, arcs
    return rows


def paper(scale: int, trials: int, device: str) -> list[Row]:
    """A drive of 6 MIOPS and external memory of 16 B at 176 MIOPS, over the emulated host of the paper."""
    rows: list[Row] = []
    host = external(HOST_GEN4_LATENCY_US, HOST_GEN4)
    flash = external(5, "alignment=16,request_max=2K,link=24G,outstanding=none,iops=11M,devices=16")
    for kind in KINDS:
        for entry in ("wide_id", "weighted"):
            graph = GraphLists(kind, scale, entry, device)
            for name, text in (("host", host), ("flash", flash)):
                row = timed(graph.in_memory("external", text), graph, trials)
                rows.append({"graph": graph.name, "entry": entry, "place": name, "external": text, **row})
                describe(f"{graph.name} {entry} {name}", row)
            narrow = GraphLists(kind, scale, "id", device) if entry == "wide_id" else graph
            for cached in (False, True):
                place = "drive, a quarter in the cache" if cached else "drive"
                with narrow.on_drive(PUBLISHED_DRIVE, narrow.quarter_bytes if cached else 0) as (lists, drives):
                    row = timed(lists, narrow, 1, cold=cached)
                    about = {"graph": graph.name, "entry": narrow.entry, "place": place, "drive": PUBLISHED_DRIVE}
                    rows.append({**about, "fidelity": fidelity_of(drives), **row})
                    del lists
                describe(f"{graph.name} {narrow.entry} {place}", rows[-1])
    return rows


def rates(scale: int, device: str) -> list[Row]:
    """Drives of several rates, read past the cache, behind a link of PCI Express 5."""
    rows: list[Row] = []
    graph = GraphLists("uniform", scale, "id", device)
    checker = graph.in_memory(graph.nearest)
    for iops in ("2.47M", "6M", "40M", "100M"):
        drive = f"iops={iops},latency_us=50,link=gen5x16,sms=32"
        with graph.on_drive(drive) as (lists, drives):
            row = timed(lists, graph, 1, checker)
            about = {"graph": graph.name, "entry": "id", "place": f"storage_direct, {drive}", "drive": drive}
            rows.append({**about, "link": "gen5x16", "fidelity": fidelity_of(drives), **row})
            del lists
        describe(f"{graph.name} drive of {iops}", rows[-1])
    return rows


def alignment(scale: int, device: str) -> list[Row]:
    """Time and read amplification against the alignment, bounded by nothing but the link."""
    rows: list[Row] = []
    for entry in ("wide_id", "weighted"):
        graph = GraphLists("uniform", scale, entry, device)
        for block in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
            text = external(HOST_GEN4_LATENCY_US, f"alignment={block},link=24G,outstanding=none")
            row = timed(graph.in_memory("external", text), graph, 1)
            rows.append({"graph": graph.name, "entry": entry, "alignment": block, "external": text, **row})
            describe(f"{graph.name} {entry} alignment {block}", row)
    return rows


def latency(scale: int, device: str) -> list[Row]:
    """Time against the latency, with the limit on requests in flight and without, for three links."""
    rows: list[Row] = []
    for entry in ("wide_id", "weighted"):
        graph = GraphLists("uniform", scale, entry, device)
        for link, (rate, most) in LINKS.items():
            for limit in (most, None):
                for latency_us in (1.2, 1.7, 2.2, 3.2, 4.2, 5.2, 9.2, 17.2, 33.2):
                    rest = f"alignment=32,request_max=128,lines=on,link={rate},outstanding={limit or 'none'}"
                    text = external(latency_us, rest)
                    row = timed(graph.in_memory("external", text), graph, 1)
                    row.pop("latency_us", None)  # of reads of drives, which these are not
                    rows.append(
                        {
                            "graph": graph.name,
                            "entry": entry,
                            "link": link,
                            "link_bytes_per_second": float(rate[:-1]) * 1e9,
                            "outstanding": limit,
                            "latency_us": latency_us,
                            "external": text,
                            **row,
                        }
                    )
                    describe(f"{graph.name} {entry} {link} {limit or 'no limit'} {latency_us} us", row)
    return rows


def modes(scale: int, device: str) -> list[Row]:
    """The same parameters with the lists in the GPU's memory and in the host's."""
    rows: list[Row] = []
    graph = GraphLists("uniform", scale, "wide_id", device)
    for place in graph.memories:
        if place != "uvm":
            rows.append({"graph": graph.name, "place": place, **timed(graph.in_memory(place), graph)})
            describe(f"{graph.name} {place}", rows[-1])
    for latency_us in (1.2, 2.4, 4.8, 9.6):
        for mode in ("device", "pinned"):
            text = external(latency_us, f"{HOST_GEN4},mode={mode}")
            row = timed(graph.in_memory("external", text), graph)
            row["latency_us"] = latency_us
            rows.append({"graph": graph.name, "place": mode, "external": text, **row})
            describe(f"{graph.name} {text}", rows[-1])
    return rows


def plain(scale: int, drive: str, device: str) -> list[Row]:
    """The tuned search beside one that reads `neighbours[i]`."""
    rows: list[Row] = []
    graph = GraphLists("uniform", scale, "id", device)
    for place in graph.memories:
        if place != "uvm":
            rows += _tuned_and_plain(graph, place, graph.in_memory(place))
    text = external(HOST_GEN4_LATENCY_US, HOST_GEN4)
    rows += _tuned_and_plain(graph, f"external:{text}", graph.in_memory("external", text))
    for share in (1, 4):
        with graph.on_drive(drive, (graph.bytes // share >> 20) + 64 << 20) as (lists, drives):
            rows += _tuned_and_plain(graph, f"storage, 1/{share} in the cache", lists, drives)
            del lists
    return rows


def _tuned_and_plain(graph: GraphLists, place: str, lists: "Lists", drives: Storage | None = None) -> list[Row]:
    rows = []
    source = graph.sources[0]
    for name in ("tuned", "plain"):
        seconds, figures = [], {}
        for _ in range(2):
            if drives is not None:
                lists.make_cold()
            found = lists.bfs(source, direction="above", tell=None) if name == "tuned" else lists.plain_bfs(source)
            figures = figures_of(found[2])
            seconds.append(figures["seconds"])
        figures.pop("levels")
        figures["seconds"] = seconds
        fidelity = None if drives is None else fidelity_of(drives)
        rows.append({"graph": graph.name, "place": place, "search": name, **figures, "fidelity": fidelity})
        tell(f"  {graph.name} {place:50s} {name} {1e3 * seconds[-1]:10.2f} ms {fidelity or ''}")
    return rows


def largest(scale: int, device: str) -> list[Row]:
    """One search of the largest graph, checked on the device."""
    graph = GraphLists("kronecker", scale, "id", device)
    checker = graph.in_memory(graph.nearest)
    about = {"graph": graph.name, "arcs": graph.arcs, "generated_s": graph.generated_s}
    rows = []
    for place in graph.memories:
        if place != "uvm":
            lists = checker if place == graph.nearest else graph.in_memory(place)
            rows.append({**about, "place": place, **timed(lists, graph, 1, checker)})
            describe(f"{graph.name} {place}", rows[-1])
    return rows


def products(scale: int, device: str) -> list[Row]:
    """An iteration of PageRank beside cuSPARSE's product of the same matrix, in turn."""
    import cupy
    import cupyx.scipy.sparse

    rows: list[Row] = []
    for kind in KINDS:
        graph = GraphLists(kind, scale, "id", device)
        lists = graph.in_memory("hbm")
        vertices = len(graph.row_begin) - 1
        values, columns = cupy.ones(graph.arcs, cupy.float32), cupy.asarray(graph.ids)
        row_begin = cupy.asarray(graph.row_begin.astype(np.int32))
        matrix = cupyx.scipy.sparse.csr_matrix((values, columns, row_begin), shape=(vertices, vertices))
        x = cupy.ones(vertices, cupy.float32)
        _ = matrix @ x
        ours, theirs = [], []
        for _ in range(7):
            _, text = lists.pagerank(None, damping=0.85, tolerance=0.0, iterations=20, share_dangling=False)
            figures = json.loads(text)
            ours.append(figures["seconds"] / figures["iterations"])
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            for _ in range(20):
                _ = matrix @ x
            end.record()
            end.synchronize()
            theirs.append(cupy.cuda.get_elapsed_time(begin, end) / 20 / 1e3)
        factor = float(np.median(ours) / np.median(theirs))
        rows.append({"graph": graph.name, "pagerank_iteration_s": ours, "cusparse_product_s": theirs, "factor": factor})
        both = f"iteration {1e6 * np.median(ours):.0f} us, cuSPARSE {1e6 * np.median(theirs):.0f} us"
        tell(f"  {graph.name} {both}, {factor:.3f}")
    return rows


def small(device: str) -> list[Row]:
    """Everything, over graphs that take no time: to see that it runs."""
    scale = 8 if device == "cpu" else 16
    rows = [
        *algorithms(scale, device),
        *modes(scale, device),
        *alignment(scale, device),
        *plain(scale, FAST_DRIVE, device),
    ]
    rows += [*kinds(scale, 1, device), *paper(scale, 1, device), *rates(scale, device), *largest(scale, device)]
    return rows if device == "cpu" else rows + products(scale, device)


STEPS: dict[str, Callable[[str], list[Row]]] = {
    "algorithms22": lambda device: algorithms(22, device),
    "modes22": lambda device: modes(22, device),
    "products22": lambda device: products(22, device),
    "latency23": lambda device: latency(23, device),
    "alignment23": lambda device: alignment(23, device),
    "rates24": lambda device: rates(24, device),
    "kinds25": lambda device: kinds(25, 2, device),
    "paper25": lambda device: paper(25, 2, device),
    "plain25": lambda device: plain(25, FAST_DRIVE, device),
    "plain-published25": lambda device: plain(25, PUBLISHED_DRIVE, device),
    "largest27": lambda device: largest(27, device),
    "small": small,
}


def _output_of(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> int:
    """Runs the steps that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder for the results")
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}; none: all but small")
    parser.add_argument("--device", default="cuda:0", help="the GPU; or cpu, to try the step small without one")
    parser.add_argument("--commit", help="what results name; without, git's answer")
    given = parser.parse_args()
    for name in given.steps:
        if name not in STEPS:
            parser.error(f"there is no step {name!r}; the steps are {', '.join(STEPS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    gpu = _output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    for name in given.steps or [step for step in STEPS if step != "small"]:
        target = given.out / f"{name}.json"
        if target.exists():
            continue
        begin = time.monotonic()
        tell(f"== {name}")
        rows = STEPS[name](given.device)
        seconds = time.monotonic() - begin
        document = {
            "command": f"bench/graph/study.py OUT {name}",
            "commit": given.commit or _output_of("git", "rev-parse", "--short", "HEAD"),
            "device": given.device,
            "gpu": gpu if given.device != "cpu" else None,
            "build": build_info(),
            "seconds": seconds,
            "rows": rows,
        }
        target.write_text(json.dumps(document, indent=1) + "\n")
        tell(f"== {name}: {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
