# SPDX-License-Identifier: Apache-2.0
"""Breadth-first search of a graph whose edge list lies on a drive."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._native import core, interruptible
from forebay.bench import MAX_IN_FLIGHT
from forebay.errors import OperationFailed, RefusedInput
from forebay.graph.csr import Graph
from forebay.storage import Storage

UNREACHED = np.uint32(0xFFFFFFFF)
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class BfsResult:
    """What one search found, and what it took."""

    distances: npt.NDArray[np.uint32]  # UNREACHED where no path leads
    frontier: list[int]  # vertices at distance 0, 1, ...
    seconds: float
    reads: int
    bytes_read: int
    bytes_needed: int
    clat_ns: dict[str, Any]  # fio's shape
    threads: int
    reads_per_thread: int
    request_bytes: int

    @property
    def reached(self) -> int:
        """How many vertices have a distance."""
        return sum(self.frontier)

    @property
    def iops(self) -> float:
        """Reads a second, over the whole search."""
        return self.reads / self.seconds

    @property
    def read_amplification(self) -> float:
        """Bytes read for each byte needed."""
        return self.bytes_read / self.bytes_needed if self.bytes_needed else 0.0

    def figures(self) -> dict[str, Any]:
        """All but the distances, for a JSON document."""
        return {
            "seconds": self.seconds,
            "reached": self.reached,
            "reads": self.reads,
            "iops": self.iops,
            "bytes_read": self.bytes_read,
            "bytes_needed": self.bytes_needed,
            "read_amplification": self.read_amplification,
            "clat_ns": self.clat_ns,
            "frontier": self.frontier,
            "gpu_threads": self.threads,
            "reads_per_thread": self.reads_per_thread,
            "request_bytes": self.request_bytes,
        }


def default_launch(storage: Storage, threads: int | None = None, iodepth: int | None = None) -> tuple[int, int]:
    """Threads, and reads in flight of all of them, where the caller leaves either open.

    On the CPU executor one core is left to the threads of emulated drives, and each other core gets one warp.
    """
    for field, value in (("--gpu-threads", threads), ("--iodepth", iodepth)):
        if value is not None and not 1 <= value <= MAX_IN_FLIGHT:
            raise RefusedInput(field, value, f"must be at least 1 and at most {MAX_IN_FLIGHT}")
    if threads is None:
        cores = len(os.sched_getaffinity(0))
        on_cpu = storage.report()["device"] == "cpu"
        threads = 32 * max(1, cores - 1) if on_cpu else 4096
    if iodepth is None:
        iodepth = 4 * threads
    threads = min(threads, iodepth)
    if iodepth % threads:
        raise RefusedInput("--iodepth", iodepth, f"must be a multiple of the threads, of which there are {threads}")
    return threads, iodepth


def write_edges(
    storage: Storage,
    graph: Graph,
    extent: str = "edges",
    tell: Callable[[float], None] | None = None,
    *,
    replace: bool = False,
) -> None:
    """Writes the neighbour lists to a new extent, in place of one of its name where `replace` says so.

    `tell` is called with the share of it that is done.
    """
    if not graph.arcs:
        raise RefusedInput("graph", f"{graph.vertices} vertices", "has no edge: there is nothing to read from a drive")
    data = memoryview(graph.neighbours.astype("<i4", copy=False)).cast("B")
    with storage.new_extent(extent, len(data), replace=replace) as write:
        for at in range(0, len(data), _CHUNK_BYTES):
            write(data[at : at + _CHUNK_BYTES], at)
            if tell:
                tell(min(at + _CHUNK_BYTES, len(data)) / len(data))


def require_edges(storage: Storage, graph: Graph, extent: str = "edges") -> None:
    """Refuses an extent that does not hold the neighbour lists of `graph`, but of another one, say."""
    data = memoryview(graph.neighbours.astype("<i4", copy=False)).cast("B")
    found = next(known for known in storage.extents() if known["name"] == extent)["bytes"]
    remedy = "search its own graph, write this one under another --extent, or free the name with `forebay drive rm`"
    if found != len(data):
        raise RefusedInput("--extent", extent, f"has {found} bytes, this graph's edge list {len(data)}; {remedy}")
    chunk = bytearray(min(_CHUNK_BYTES, len(data)))
    for at in range(0, len(data), _CHUNK_BYTES):
        expected = data[at : at + _CHUNK_BYTES]
        view = memoryview(chunk)[: len(expected)]
        storage.read_extent(extent, view, at)
        if view != expected:
            raise RefusedInput("--extent", extent, f"holds the edges of another graph; {remedy}")


def bfs(
    storage: Storage,
    graph: Graph,
    source: int,
    *,
    extent: str = "edges",
    threads: int | None = None,
    reads_per_thread: int = 4,
    request_bytes: int = 0,
    tell: Callable[[int, int], None] | None = None,
) -> BfsResult:
    """Searches from `source`; neighbour lists are read from `extent`, row pointers and distances are in memory.

    `tell` is called before each level with its number and the size of its frontier.
    """
    if not 0 <= source < graph.vertices:
        raise RefusedInput("source", source, f"must be a vertex, 0 to {graph.vertices - 1}")
    if threads is None:
        threads, _ = default_launch(storage)
    distances, figures = interruptible(
        core().run_bfs,
        storage.native,
        extent,
        graph.row_begin.astype(np.uint64),
        source,
        threads=threads,
        reads_per_thread=reads_per_thread,
        request_bytes=request_bytes,
        tell=tell,
    )
    return BfsResult(distances=distances, **json.loads(figures))


def reference_distances(graph: Graph, source: int) -> npt.NDArray[np.uint32]:
    """The same distances by SciPy."""
    try:
        from scipy.sparse import csgraph, csr_array
    except ImportError as error:
        raise OperationFailed(f"SciPy checks the answers: {error}; pip install 'forebay[graph]'") from None
    shape = (graph.vertices, graph.vertices)
    matrix = csr_array((np.ones(graph.arcs, np.int8), graph.neighbours, graph.row_begin), shape=shape)
    found = csgraph.dijkstra(matrix, unweighted=True, indices=source)
    return np.where(np.isfinite(found), found, float(UNREACHED)).astype(np.uint32)


def verify_distances(graph: Graph, source: int, result: BfsResult) -> int:
    """How many distances differ from SciPy's, frontier sizes included."""
    wanted = reference_distances(graph, source)
    wrong = int(np.count_nonzero(wanted != result.distances))
    levels = np.bincount(wanted[wanted != UNREACHED])
    return wrong + (levels.tolist() != result.frontier)
