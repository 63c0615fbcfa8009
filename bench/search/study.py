# SPDX-License-Identifier: Apache-2.0
"""Measures vector search: which drive it needs.

study.py OUT STEP [...] runs steps and writes OUT/STEP.json for each; a file that is there is not written again.
Vectors, graph and true neighbours are kept in --work. `scripts/gpu_search` runs all steps.

data           draws the vectors, builds the graph, finds the true neighbours
memory         the index in the GPU's memory and in page-locked host memory: recall and QPS for each list size and width
drive-RATE     the index on a drive of RATE IOPS, for the list sizes that reach a recall of 0.90 and 0.95
drives-N-RATE  the same over N drives of RATE each
profile-NAME   the same on a drive with a profile behind PCIe 5.0 x4
exact-memory   the mode exact in the GPU's memory: for each width the least iterations with a recall of 0.95
exact-RATE     the mode exact on a drive of RATE IOPS, for batches of queries and widths
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from forebay import Storage, build_info
from forebay.search import Index, local_intrinsic_dimension, recall, synthetic_vectors
from forebay.search.proximity_graph import build_graph

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]

DIMENSION, DEGREE, K = 128, 64, 10
CHUNKS = 32  # bytes of a code
ALL_CHUNKS = {"memory": (32, 64), "drive-10M": (32, 64), "drive-40M": (32, 64)}
QUERIES = 10_000
CHECKED = 2000  # queries whose true neighbours are known
SIZES = (10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 96, 128, 160, 192, 256)
WIDTHS: tuple[int | str, ...] = (1, 2, 4, 8, 16, "auto")
CONCURRENCY_MIN = 200
RECALLS = (0.90, 0.95)
EXACT_VECTORS = 1_000_000
EXACT_WIDTHS = (1, 2, 4, 8)
EXACT_BATCHES = (4, 16, 64, 256)
LATENCY_US = 50
NAVIGATION = 16


def tell(text: str) -> None:
    """Says what goes on, on standard error."""
    print(text, file=sys.stderr, flush=True)


class Data:
    """Vectors, queries, their true neighbours and the graph, each made once and kept in a folder."""

    def __init__(self, folder: Path, count: int, device: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.count, self._device = folder, count, device

    def _kept(self, name: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        path = self._folder / f"{name}-{self.count}.npy"
        if not path.exists():
            begin = time.monotonic()
            made = make()
            np.save(path.with_suffix(".part.npy"), made)
            path.with_suffix(".part.npy").rename(path)
            tell(f"  {name}: {time.monotonic() - begin:.1f} s")
        return np.load(path, mmap_mode="r")

    @property
    def base(self) -> npt.NDArray[np.uint8]:
        """The vectors of the index."""
        return self._kept("base", lambda: synthetic_vectors(self.count, DIMENSION))

    @property
    def queries(self) -> npt.NDArray[np.uint8]:
        """Vectors that are not in the index."""
        return self._kept("queries", lambda: synthetic_vectors(QUERIES, DIMENSION, queries=True))

    @property
    def graph(self) -> npt.NDArray[np.uint32]:
        """The neighbours of each vector."""
        return self._kept("graph", lambda: build_graph(self.base, graph_degree=DEGREE, device=self._device))

    @property
    def true(self) -> npt.NDArray[np.uint32]:
        """The true neighbours of the first queries."""
        return self._kept("true", self._nearest)

    def _nearest(self) -> npt.NDArray[np.uint32]:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False  # products of bytes are whole numbers below 2^24
        queries = torch.from_numpy(np.array(self.queries[:CHECKED])).to(self._device).float()
        best = [torch.empty((CHECKED, 0), device=self._device) for _ in range(2)]
        for first in range(0, self.count, 1 << 20):
            block = torch.from_numpy(np.array(self.base[first : first + (1 << 20)])).to(self._device).float()
            squares = (block * block).sum(1)
            found = []
            for at in range(0, CHECKED, 500):
                distances = squares[None] - 2 * (queries[at : at + 500] @ block.T)
                found.append(torch.topk(distances, K, largest=False))
            best[0] = torch.cat([best[0], torch.cat([each.values for each in found])], 1)
            best[1] = torch.cat([best[1], torch.cat([each.indices for each in found]).double() + first], 1)
            order = torch.sort(best[0], dim=1, stable=True).indices[:, :K]
            best = [torch.gather(each, 1, order) for each in best]
        return best[1].cpu().numpy().astype(np.uint32)

    def recall(self, ids: npt.NDArray[np.uint32]) -> float:
        """The recall of the first queries."""
        return recall(self.base, np.array(self.queries[:CHECKED]), ids[:CHECKED], self.true)


def searched(index: Index, data: Data, storage: Storage | None, *, repeat: int = 1, **options: Any) -> Row:  # noqa: ANN401
    """A row of what a search took. With a storage, its drives' report of that search alone."""
    queries = np.tile(data.queries, (repeat, 1))
    index.search(queries[:512], K, **options)  # the first launch of a kernel loads it
    if storage:
        storage.reset_statistics()
    result = index.search(queries, K, **options)
    row: Row = {**options, "recall": data.recall(result.ids), **result.figures()}
    if storage:
        report = storage.report()
        row["fidelity"] = report["fidelity"]
        row["drives"] = [
            {
                "uri": drive["uri"],
                "fidelity": drive["fidelity"],
                "link": drive["link"],
                "residency": drive["residency"],
                "lateness": drive["lateness"],
                "target_ns": drive["latency"]["target"],
                "read_commands": drive["statistics"]["read_commands"],
                "bytes_read": drive["statistics"]["bytes_read"],
            }
            for drive in report["drives"]
        ]
        row["bytes_per_second"] = sum(each["bytes_read"] for each in row["drives"]) / result.seconds
    keys = ("itopk_size", "search_width", "max_iterations", "batch", "concurrency", "fidelity")
    shown = {key: row.get(key) for key in keys}
    tell(
        f"  {shown} recall {row['recall']:.4f}, {row['qps']:,.0f} QPS, {row['reads_per_query']:.1f} reads, "
        f"{row['qps'] * row['reads_per_query'] / 1e6:.2f} M reads/s, p99 {row['latency_ns']['p99'] / 1e3:.0f} us"
    )
    return row


def drive_uris(rate: str, drives: int, size_bytes: int, given: argparse.Namespace, profile: str = "") -> list[str]:
    """The URIs of served drives with room for an index."""
    size = size_bytes // drives // 2**20 * 21 // 20 + 64
    timing = f"profile={profile},link=gen5x4" if profile else f"iops={rate},latency_us={LATENCY_US},link={given.link}"
    more = f",{given.drive_options}" if given.drive_options else ""
    return [
        f"emulated:size={size}M,{timing},backing={given.backing},residency={given.residency},"
        f"sms={given.sms // drives}{more},seed={number}"  # URIs that are alike name one drive of the daemon
        for number in range(drives)
    ]


def opened(uris: Sequence[str], given: argparse.Namespace) -> Storage:
    """The drives as one storage."""
    return Storage(*uris, device=given.device, queues_per_drive=given.queues)


def built(storage: Storage, data: Data, chunks: int, device: str) -> Index:
    """An index with codes of so many bytes, in place of what the storage had: it has no room for both."""
    for extent in storage.extents():
        storage.remove_extent(extent["name"])
    return Index.build(storage, data.base, graph=data.graph, chunks=chunks, device=device)


def sizes_for(out: Path, chunks: int) -> dict[tuple[float, Any], int]:
    """For each recall and width the least list size that reaches it, by the step `memory`."""
    rows = json.loads((out / "memory.json").read_text())["rows"]
    found: dict[tuple[float, Any], int] = {}
    for row in rows:
        for wanted in RECALLS:
            if (row["memory"], row["chunks"]) == ("hbm", chunks) and row["recall"] >= wanted:
                found.setdefault((wanted, row["search_width"]), row["itopk_size"])
    return found


def effort(size: int, width: int | str) -> Row:
    """The options of a search: a query begins half of its reads together."""
    refill = 1 if isinstance(width, str) else max(1, width // 2)
    return {"itopk_size": size, "search_width": width, "refill_size": refill, "navigation_size": NAVIGATION}


def step_data(given: argparse.Namespace, _: str) -> list[Row]:
    """What the data are."""
    data = Data(given.work, given.vectors, given.device)
    begin = time.monotonic()
    shape = data.graph.shape
    nearest = data.true
    some = np.array(data.base[nearest[:1000]], np.float64) - np.array(data.queries[:1000], np.float64)[:, None]
    distances = np.sqrt((some**2).sum(2))
    dimension = local_intrinsic_dimension(distances)
    tell(f"  local intrinsic dimension {dimension:.2f}")
    return [
        {
            "vectors": data.count,
            "graph": list(shape),
            "seconds": time.monotonic() - begin,
            "local_intrinsic_dimension": dimension,
        }
    ]


def step_memory(given: argparse.Namespace, _: str) -> list[Row]:
    """Records in memory."""
    data = Data(given.work, given.vectors, given.device)
    rows: list[Row] = []
    with opened(
        [f"emulated:size={data.count * 600 // 2**20 + 200}M,backing=hbm,residency=in_process"], given
    ) as storage:
        for chunks in ALL_CHUNKS["memory"]:
            tell(f" codes of {chunks} bytes")
            built(storage, data, chunks, given.device).close()
            for memory in ("hbm", "host") if chunks == CHUNKS else ("hbm",):
                with Index(storage, memory=memory) as index:
                    for width in WIDTHS if memory == "hbm" else (1, 8):
                        for size in SIZES:
                            row = searched(index, data, None, **effort(size, width))
                            rows.append({"memory": memory, "chunks": chunks, **row})
                            if row["recall"] >= max(RECALLS) + 0.01:
                                break
    return rows


def until_in_time(index: Index, data: Data, storage: Storage, given: argparse.Namespace, options: Row) -> list[Row]:
    """A search, and the same with half of the queries at a time, until no drive is late."""
    rows = [searched(index, data, storage, repeat=given.repeat, **options)]
    while rows[-1]["fidelity"] != "ok" and (fewer := rows[-1]["concurrency"] // 2) >= CONCURRENCY_MIN:
        rows.append(searched(index, data, storage, repeat=given.repeat, **options, concurrency=fewer))
    return rows


def on_drives(given: argparse.Namespace, uris: list[str], all_chunks: Sequence[int] = (CHUNKS,)) -> list[Row]:
    """The list sizes that `memory` found, on drives."""
    data = Data(given.work, given.vectors, given.device)
    rows: list[Row] = []
    with opened(uris, given) as storage:
        for chunks in all_chunks:
            begin = time.monotonic()
            with built(storage, data, chunks, given.device) as index:
                tell(f"  codes of {chunks} bytes, built in {time.monotonic() - begin:.0f} s")
                measured: dict[tuple[int, Any], list[Row]] = {}
                for (wanted, width), size in sizes_for(given.out, chunks).items():
                    if (size, width) not in measured:
                        measured[size, width] = until_in_time(index, data, storage, given, effort(size, width))
                    rows += [{"wanted": wanted, "chunks": chunks, **row} for row in measured[size, width]]
    return rows


def step_drive(given: argparse.Namespace, name: str) -> list[Row]:
    """One drive."""
    uris = drive_uris(name, 1, given.vectors * 600, given)
    return on_drives(given, uris, ALL_CHUNKS.get(f"drive-{name}", (CHUNKS,)))


def step_drives(given: argparse.Namespace, name: str) -> list[Row]:
    """Several drives."""
    number, _, rate = name.partition("-")
    return on_drives(given, drive_uris(rate, int(number), given.vectors * 600, given))


def step_profile(given: argparse.Namespace, name: str) -> list[Row]:
    """A drive with a profile."""
    return on_drives(given, drive_uris("", 1, given.vectors * 600, given, name))


def step_exact_memory(given: argparse.Namespace, _: str) -> list[Row]:
    """The least iterations for each width."""
    data = Data(given.work, min(given.vectors, EXACT_VECTORS), given.device)
    rows = []
    with (
        opened(
            [f"emulated:size={data.count * 1100 // 2**20 + 200}M,backing=hbm,residency=in_process"], given
        ) as storage,
        Index.build(storage, data.base, mode="exact", graph=data.graph, memory="hbm") as index,
    ):
        for width in EXACT_WIDTHS:
            for iterations in range(2, 65):
                options = {"itopk_size": 64, "search_width": width, "max_iterations": iterations, "batch": 256}
                rows.append(searched(index, data, None, **options))
                if rows[-1]["recall"] >= 0.95:
                    break
    return rows


def step_exact(given: argparse.Namespace, name: str) -> list[Row]:
    """The mode exact on a drive."""
    least: dict[int, int] = {}
    for row in json.loads((given.out / "exact-memory.json").read_text())["rows"]:
        if row["recall"] >= 0.95:
            least.setdefault(row["search_width"], row["max_iterations"])
    data = Data(given.work, min(given.vectors, EXACT_VECTORS), given.device)
    rows = []
    with (
        opened(drive_uris(name, 1, data.count * 1100, given), given) as storage,
        Index.build(storage, data.base, mode="exact", graph=data.graph, replace=True) as index,
    ):
        for batch in EXACT_BATCHES:
            for width, iterations in least.items():
                options = {"itopk_size": 64, "search_width": width, "max_iterations": iterations, "batch": batch}
                few = Few(data, 20 * batch if batch < 256 else QUERIES // 4)
                rows.append(searched(index, few, storage, **options))
    return rows


class Few:
    """The first queries of some data: small batches take long."""

    def __init__(self, data: Data, count: int) -> None:
        self._data = data
        self.queries = data.queries[: max(count, 80)]

    def recall(self, ids: npt.NDArray[np.uint32]) -> float:
        """The recall of the first queries."""
        count = min(len(ids), CHECKED)
        data = self._data
        return recall(data.base, np.array(data.queries[:count]), ids[:count], data.true[:count])


STEPS = {
    "data": step_data,
    "memory": step_memory,
    "exact-memory": step_exact_memory,
    "exact": step_exact,
    "drives": step_drives,
    "drive": step_drive,
    "profile": step_profile,
}


def step_of(name: str) -> tuple[Callable[[argparse.Namespace, str], list[Row]], str]:
    """The function of a step, and what stands behind the hyphen."""
    if name in STEPS:
        return STEPS[name], ""
    kind, _, rest = name.partition("-")
    if kind not in STEPS or not rest:
        sys.exit(f"study.py: there is no step {name!r}: see --help")
    return STEPS[kind], rest


def _output_of(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> int:
    """Runs the steps that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder for the results")
    parser.add_argument("steps", nargs="+")
    parser.add_argument("--work", type=Path, default=Path("/tmp/forebay-search"), help="keeps vectors and graphs")  # noqa: S108
    parser.add_argument("--vectors", type=int, default=10_000_000)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--residency", default="served")
    parser.add_argument("--backing", default="hbm", help="where the drives lie: hbm, or peer:1 for a second GPU")
    parser.add_argument("--sms", type=int, default=32, help="multiprocessors of all drives together")
    parser.add_argument("--link", default="gen5x16")
    parser.add_argument("--queues", type=int, default=0, help="queue pairs of each drive for the search")
    parser.add_argument("--drive-options", default="", help="more keys of the drives, such as queues=512")
    parser.add_argument("--repeat", type=int, default=4, help="how often all queries are asked, on drives")
    parser.add_argument("--commit", help="what results name; without, git's answer")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.steps:
        step, rest = step_of(name)
        target = given.out / f"{name}.json"
        if target.exists():
            continue
        tell(f"== {name}")
        begin = time.monotonic()
        rows = step(given, rest)
        document = {
            "command": " ".join(["bench/search/study.py", "OUT", name, *sys.argv[1 + 1 + len(given.steps) :]]),
            "commit": given.commit or _output_of("git", "rev-parse", "--short", "HEAD"),
            "gpu": _output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
            "client_percent_of_multiprocessors": os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
            "build": build_info(),
            "vectors": min(given.vectors, EXACT_VECTORS) if name.startswith("exact") else given.vectors,
            "dimension": DIMENSION,
            "seconds": time.monotonic() - begin,
            "rows": rows,
        }
        target.write_text(json.dumps(document, indent=1) + "\n")
        tell(f"== {name}: {document['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
