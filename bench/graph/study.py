# SPDX-License-Identifier: Apache-2.0
"""Searches graphs that lie in every place where neighbour lists can lie, on a GPU, and writes what each took.

study.py OUT [STEP ...]: each step writes OUT/STEP.json, unless it is there already. A step takes a few minutes at most.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from forebay import Storage, build_info
from forebay._native import graph_core

DEVICE = "cuda:0"
# The host memory of the paper on external graph memory (arXiv 2312.03113): PCI Express 4, lines of 128 bytes.
HOST_GEN4 = "alignment=32,request_max=128,lines=on,link=24G,outstanding=768"
HOST_GEN4_LATENCY_US = 1.2
MEMORY_MAX_BYTES = 40 << 30


class Lists:
    """The lists of one generated graph, in memory of the host, to be put into places."""

    def __init__(self, kind: str, scale: int, entry: str) -> None:
        begin = time.monotonic()
        self.name, self.kind, self.scale, self.entry = f"{kind}{scale}", kind, scale, entry
        self.row_begin, self.entries = graph_core().generate(
            kind, scale, 16, generator="gap", seed=1, entry=entry, device=DEVICE, memory_max_bytes=MEMORY_MAX_BYTES
        )
        self.arcs = int(self.row_begin[-1])
        degrees = np.diff(self.row_begin)
        candidates = np.flatnonzero(degrees)
        self.sources = [int(v) for v in np.random.default_rng(1).choice(candidates, 8)]
        self.generated_s = time.monotonic() - begin
        tell(f"{self.name} of {entry}: {self.arcs} entries, generated in {self.generated_s:.1f} s")

    @property
    def bytes(self) -> int:
        return len(self.entries)

    def in_memory(self, kind: str, external: str = "") -> Any:
        return graph_core().Lists(
            self.row_begin, self.entries, None, entry=self.entry, kind=kind, device=DEVICE, node=-1, external=external
        )

    @contextlib.contextmanager
    def on_drive(self, drive: str, cache_bytes: int = 0, page_bytes: int = 4096) -> Iterator[tuple[Any, Storage]]:
        size = (self.bytes >> 20) + 16
        uri = f"emulated:backing=hbm,size={size}M,{drive}"
        with Storage(
            uri, device=DEVICE, cache_bytes=cache_bytes, page_bytes=page_bytes if cache_bytes else 0
        ) as drives:
            drives.create_extent("lists", self.bytes)
            drives.write_extent("lists", self.entries)
            drives._native.reset_statistics()
            yield (
                graph_core().Lists.on_drives(
                    drives._native,
                    self.row_begin,
                    entry=self.entry,
                    entries="lists",
                    values=None,
                    iodepth=65536,
                    request_bytes=page_bytes,
                ),
                drives,
            )


def tell(line: str) -> None:
    print(line, flush=True)


def figures_of(text: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(text)
    latency = figures.pop("clat_ns", None)
    figures["latency_us"] = latency["mean"] / 1e3 if latency else None
    return figures


def search(lists: Any, entry: str, source: int, delta: int = 16) -> tuple[tuple[Any, Any], dict[str, Any]]:
    if entry == "weighted":
        distances, before, text = lists.sssp(source, delta=delta)
    else:
        distances, before, text = lists.bfs(source, direction="above", tell=None)
    return (distances, before), figures_of(text)


def timed(lists: Any, graph: Lists, trials: int = 3, checker: Any = None, cold: bool = False) -> dict[str, Any]:
    """Searches from several sources; the first one twice, since the first launch of a kernel loads it."""
    search(lists, graph.entry, graph.sources[0])
    rows = []
    for source in graph.sources[:trials]:
        if cold:
            lists.make_cold()
        found, figures = search(lists, graph.entry, source)
        if checker is not None:
            check = checker.check_sssp if graph.entry == "weighted" else checker.check_bfs
            figures["wrong"] = check(source, *found)
        rows.append(figures)
    middle = sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2]
    return {
        "seconds": [row["seconds"] for row in rows],
        "wrong": sum(r.get("wrong", 0) for r in rows),
        **{
            key: middle[key]
            for key in ("reads", "bytes_read", "bytes_needed", "loads", "late", "latency_us")
            if key in middle
        },
        "levels": middle.get("levels"),
        "median_s": middle["seconds"],
    }


def describe(name: str, row: dict[str, Any]) -> None:
    read = row.get("bytes_read")
    late = 100 * row["late"] / row["loads"] if row.get("late") is not None and row.get("loads") else None
    tell(
        f"  {name:60s} {1e3 * row['median_s']:10.2f} ms"
        + (
            f"  {row['reads'] / row['median_s'] / 1e6:8.1f} M/s, {read / row['median_s'] / 1e9:6.2f} GB/s, "
            f"RAF {read / row['bytes_needed']:.3f}"
            if read
            else ""
        )
        + (f", late {late:.3f} %" if late is not None else "")
        + (f", WRONG {row['wrong']}" if row.get("wrong") else "")
    )


def external(latency_us: float, rest: str) -> str:
    return f"latency_us={latency_us:g},{rest}"


def kinds(scale: int, trials: int) -> list[dict[str, Any]]:
    """Breadth-first search and shortest paths in every place."""
    rows = []
    for kind in ("uniform", "kronecker"):
        for entry in ("id", "weighted"):
            graph = Lists(kind, scale, entry)
            checker = graph.in_memory("hbm")

            def add(name: str, lists: Any, graph: Lists = graph, checker: Any = checker, **more: Any) -> None:
                row = timed(lists, graph, trials, checker, cold=more.pop("cold", False))
                rows.append({"graph": graph.name, "entry": graph.entry, "place": name, **more, **row})
                describe(f"{graph.name} {graph.entry} {name}", row)

            add("hbm", checker)
            add("host", graph.in_memory("host"))
            add("uvm", graph.in_memory("uvm"))
            for text in (external(2, "alignment=32"), external(HOST_GEN4_LATENCY_US, HOST_GEN4)):
                add(f"external:{text}", graph.in_memory("external", text), external=text)
            for iops in ("40M",):
                drive = f"iops={iops},latency_us=50,sms=32"
                for cache in (0, graph.bytes // 4 >> 20 << 20):
                    with graph.on_drive(drive, cache) as (lists, drives):
                        name = f"storage, a quarter in the cache, {drive}" if cache else f"storage_direct, {drive}"
                        add(name, lists, drive=drive, cold=cache != 0)
                        report = json.loads(drives._native.report())
                        rows[-1]["fidelity"] = report["fidelity"]
                        rows[-1]["link"] = report["drives"][0].get("link")
            del checker
    return rows


def algorithms(scale: int) -> list[dict[str, Any]]:
    """All six algorithms in every place, checked."""
    rows = []
    for kind in ("uniform", "kronecker"):
        graph, weighted = Lists(kind, scale, "id"), Lists(kind, scale, "weighted")
        hbm, hbm_weighted = graph.in_memory("hbm"), weighted.in_memory("hbm")
        x = np.ones(len(graph.row_begin) - 1, np.float32)
        degrees = np.diff(graph.row_begin).astype(np.float32)
        triangles = None
        source = graph.sources[0]

        def every(place: str, lists: Any, arcs: Any) -> None:
            nonlocal triangles
            runs: dict[str, Callable[[], tuple[str, Any]]] = {}

            def bfs() -> tuple[str, Any]:
                found = lists.bfs(source, direction="above", tell=None)
                return found[2], hbm.check_bfs(source, *found[:2])

            def sssp() -> tuple[str, Any]:
                found = arcs.sssp(source, delta=16)
                return found[2], hbm_weighted.check_sssp(source, *found[:2])

            def pagerank() -> tuple[str, Any]:
                scores, text = lists.pagerank(None, damping=0.85, tolerance=1e-4, iterations=20, share_dangling=False)
                residual = hbm.check_pagerank(None, scores, damping=0.85, share_dangling=False)
                return text, int(not residual < 1e-4)

            def components() -> tuple[str, Any]:
                labels, text = lists.components()
                return text, hbm.check_components(labels)

            def count() -> tuple[str, Any]:
                nonlocal triangles
                found, text = lists.triangles()
                triangles = found if triangles is None else triangles
                return text, int(found != triangles)

            def spmv() -> tuple[str, Any]:
                y, text = lists.spmv(x)
                return text, int(np.count_nonzero(y != degrees))

            runs = {"bfs": bfs, "sssp": sssp, "pr": pagerank, "cc": components, "tc": count, "spmv": spmv}
            for name, run in runs.items():
                text, wrong = run()
                figures = figures_of(text)
                figures.pop("levels", None)
                rows.append({"graph": graph.name, "place": place, "algorithm": name, "wrong": wrong, **figures})
                tell(f"  {graph.name} {place:44s} {name:5s} {1e3 * figures['seconds']:10.2f} ms  wrong {wrong}")

        for place in ("hbm", "host", "uvm"):
            every(place, graph.in_memory(place), weighted.in_memory(place))
        text = external(2, "alignment=32")
        every(f"external:{text}", graph.in_memory("external", text), weighted.in_memory("external", text))
        for cache in (0, graph.bytes // 4 >> 20 << 20):
            with (
                graph.on_drive("iops=40M,latency_us=50,sms=16", cache) as (lists, _),
                weighted.on_drive("iops=40M,latency_us=50,sms=16", 2 * cache) as (arcs, _),
            ):
                every("storage, a quarter in the cache" if cache else "storage_direct", lists, arcs)
    return rows


def paper(scale: int, trials: int) -> list[dict[str, Any]]:
    """A drive of 6 MIOPS and external memory of 16 B at 176 MIOPS, over the emulated host of the paper."""
    rows = []
    for kind in ("uniform", "kronecker"):
        for entry in ("wide_id", "weighted"):
            graph = Lists(kind, scale, entry)
            host = external(HOST_GEN4_LATENCY_US, HOST_GEN4)
            flash = external(5, "alignment=16,request_max=2K,link=24G,outstanding=none,iops=11M,devices=16")
            for name, text in (("host", host), ("flash", flash)):
                row = timed(graph.in_memory("external", text), graph, trials)
                rows.append({"graph": graph.name, "entry": entry, "place": name, "external": text, **row})
                describe(f"{graph.name} {entry} {name}", row)
            narrow = Lists(kind, scale, "id") if entry == "wide_id" else graph
            for cached in (False, True):
                with narrow.on_drive(
                    "iops=6M,latency_us=50,link=gen4x16,sms=32", narrow.bytes // 4 >> 20 << 20 if cached else 0
                ) as (lists, drives):
                    row = timed(lists, narrow, 1, cold=cached)
                    report = json.loads(drives._native.report())
                    name = "drive, a quarter in the cache" if cached else "drive"
                    rows.append(
                        {
                            "graph": graph.name,
                            "entry": narrow.entry,
                            "place": name,
                            "fidelity": report["fidelity"],
                            **row,
                        }
                    )
                    describe(f"{graph.name} {narrow.entry} {name} {report['fidelity']}", row)
    return rows


def alignment(scale: int) -> list[dict[str, Any]]:
    """Time and read amplification against the alignment, bounded by nothing but the link."""
    rows = []
    for entry in ("wide_id", "weighted"):
        graph = Lists("uniform", scale, entry)
        for block in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
            text = external(HOST_GEN4_LATENCY_US, f"alignment={block},link=24G,outstanding=none")
            row = timed(graph.in_memory("external", text), graph, 1)
            rows.append({"graph": graph.name, "entry": entry, "alignment": block, "external": text, **row})
            describe(f"{graph.name} {entry} alignment {block}", row)
    return rows


LINKS = {"gen3x16": ("12G", 256), "gen4x16": ("24G", 768), "gen5x16": ("48G", 768)}


def latency(scale: int) -> list[dict[str, Any]]:
    """Time against the latency, with the limit on requests in flight and without, for three links."""
    rows = []
    for entry in ("wide_id", "weighted"):
        graph = Lists("uniform", scale, entry)
        for link, (rate, limit) in LINKS.items():
            for outstanding in (str(limit), "none"):
                for latency_us in (1.2, 1.7, 2.2, 3.2, 4.2, 5.2, 9.2, 17.2, 33.2):
                    text = external(
                        latency_us,
                        f"alignment=32,request_max=128,lines=on,link={rate},outstanding={outstanding}",
                    )
                    row = timed(graph.in_memory("external", text), graph, 1)
                    rows.append(
                        {
                            "graph": graph.name,
                            "entry": entry,
                            "link": link,
                            "link_bytes_per_second": float(rate[:-1]) * 1e9,
                            "outstanding": None if outstanding == "none" else limit,
                            "latency_us": latency_us,
                            "external": text,
                            **{k: v for k, v in row.items() if k != "latency_us"},
                        }
                    )
                    describe(f"{graph.name} {entry} {link} {outstanding} {latency_us} us", row)
    return rows


def modes(scale: int) -> list[dict[str, Any]]:
    """The same parameters with the lists in the GPU's memory and in the host's."""
    rows = []
    graph = Lists("uniform", scale, "wide_id")
    for place in ("hbm", "host"):
        row = timed(graph.in_memory(place), graph)
        rows.append({"graph": graph.name, "place": place, **row})
        describe(f"{graph.name} {place}", row)
    for latency_us in (1.2, 2.4, 4.8, 9.6):
        for mode in ("device", "pinned"):
            text = external(latency_us, HOST_GEN4 + f",mode={mode}")
            row = timed(graph.in_memory("external", text), graph)
            rows.append({"graph": graph.name, "place": mode, "latency_us": latency_us, "external": text, **row})
            describe(f"{graph.name} {text}", row)
    return rows


def plain(scale: int) -> list[dict[str, Any]]:
    """The tuned search beside one that reads `neighbours[i]`."""
    rows = []
    graph = Lists("uniform", scale, "id")

    def both(place: str, lists: Any, report: Callable[[], Any] = lambda: None, cold: bool = False) -> None:
        for name in ("tuned", "plain"):
            source = graph.sources[0]
            seconds = []
            for _ in range(2):
                if cold:
                    lists.make_cold()
                text = (
                    lists.bfs(source, direction="above", tell=None) if name == "tuned" else lists.plain_bfs(source)
                )[2]
                figures = figures_of(text)
                seconds.append(figures["seconds"])
            figures.pop("levels")
            rows.append(
                {
                    "graph": graph.name,
                    "place": place,
                    "search": name,
                    **figures,
                    "seconds": seconds,
                    "fidelity": report(),
                }
            )
            tell(f"  {graph.name} {place:50s} {name} {1e3 * seconds[-1]:10.2f} ms {rows[-1]['fidelity'] or ''}")

    for place in ("hbm", "host"):
        both(place, graph.in_memory(place))
    for text in (external(HOST_GEN4_LATENCY_US, HOST_GEN4),):
        both(f"external:{text}", graph.in_memory("external", text))
    for share in (1, 4):
        with graph.on_drive("iops=40M,latency_us=50,link=gen5x16,sms=32", (graph.bytes // share >> 20) + 64 << 20) as (
            lists,
            drives,
        ):
            both(
                f"storage, 1/{share} in the cache",
                lists,
                lambda drives=drives: json.loads(drives._native.report())["fidelity"],
                cold=True,
            )
    return rows


def largest(scale: int) -> list[dict[str, Any]]:
    """One search of the largest graph, checked on the device."""
    graph = Lists("kronecker", scale, "id")
    hbm = graph.in_memory("hbm")
    row = timed(hbm, graph, 1, hbm)
    describe(f"{graph.name} hbm", row)
    rows = [{"graph": graph.name, "arcs": graph.arcs, "generated_s": graph.generated_s, "place": "hbm", **row}]
    row = timed(graph.in_memory("host"), graph, 1, hbm)
    describe(f"{graph.name} host", row)
    return [*rows, {"graph": graph.name, "arcs": graph.arcs, "place": "host", **row}]


def products(scale: int) -> list[dict[str, Any]]:
    """An iteration of PageRank beside cuSPARSE's product of the same matrix, in turn."""
    import cupy
    import cupyx.scipy.sparse

    rows = []
    for kind in ("uniform", "kronecker"):
        graph = Lists(kind, scale, "id")
        lists = graph.in_memory("hbm")
        vertices = len(graph.row_begin) - 1
        matrix = cupyx.scipy.sparse.csr_matrix(
            (
                cupy.ones(graph.arcs, cupy.float32),
                cupy.asarray(graph.entries.view(np.int32)),
                cupy.asarray(graph.row_begin.astype(np.int32)),
            ),
            shape=(vertices, vertices),
        )
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
        row = {"graph": graph.name, "pagerank_iteration_s": ours, "cusparse_product_s": theirs}
        row["factor"] = float(np.median(ours) / np.median(theirs))
        rows.append(row)
        tell(
            f"  {graph.name} iteration {1e6 * np.median(ours):.0f} us, cuSPARSE {1e6 * np.median(theirs):.0f} us, {row['factor']:.3f}"
        )
    return rows


STEPS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "algorithms22": lambda: algorithms(22),
    "modes22": lambda: modes(22),
    "products22": lambda: products(22),
    "latency23": lambda: latency(23),
    "alignment23": lambda: alignment(23),
    "kinds25": lambda: kinds(25, 2),
    "paper25": lambda: paper(25, 2),
    "plain25": lambda: plain(25),
    "largest27": lambda: largest(27),
    "small": lambda: [*modes(16), *alignment(16), *plain(16), *kinds(16, 1), *paper(16, 1), *products(16)],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    for name in given.steps or [step for step in STEPS if step != "small"]:
        target = given.out / f"{name}.json"
        if target.exists():
            continue
        begin = time.monotonic()
        tell(f"== {name}")
        rows = STEPS[name]()
        seconds = time.monotonic() - begin
        document = {
            "command": f"bench/graph/study.py OUT {name}",
            "gpu": gpu,
            "build": build_info(),
            "seconds": seconds,
            "rows": rows,
        }
        target.write_text(json.dumps(document, indent=1) + "\n")
        tell(f"== {name}: {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
