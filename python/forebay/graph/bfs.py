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
"""The distance of a vertex to which no path leads."""
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class BfsResult:
    """What one search found, and what it took.

    Attributes:
        distances: The distance of each vertex from the source, in arcs: ``uint32`` of shape ``(vertices,)``;
            ``UNREACHED`` where no path leads.
        predecessors: The vertex before each vertex on a shortest path from the source, of the same type and shape;
            ``UNREACHED`` for the source, and where no path leads.
        frontier: How many vertices are at distance 0, 1, 2 and so on.
        seconds: The time from the start of the first level to the end of the last.
        reads: How many reads the search made.
        bytes_read: How many bytes these reads moved: whole blocks.
        bytes_needed: How many of them were neighbours of vertices that were reached, 4 bytes each.
        clat_ns: The latency of the reads in nanoseconds, from the submission until the thread saw the completion:
            ``min``, ``max``, ``mean``, ``stddev``, ``N`` and ``percentile``, as fio has them.
        iodepth: How many reads were in flight at most, each of a thread of its own.
        request_bytes: The length of the longest read, in bytes.
    """

    distances: npt.NDArray[np.uint32]
    predecessors: npt.NDArray[np.uint32]
    frontier: list[int]
    seconds: float
    reads: int
    bytes_read: int
    bytes_needed: int
    clat_ns: dict[str, Any]
    iodepth: int
    request_bytes: int

    @property
    def reached(self) -> int:
        """The number of vertices that have a distance, the source among them."""
        return sum(self.frontier)

    @property
    def iops(self) -> float:
        """The number of reads a second, over the whole search."""
        return self.reads / self.seconds

    @property
    def read_amplification(self) -> float:
        """The number of bytes read for each byte needed; 0 if none was needed."""
        return self.bytes_read / self.bytes_needed if self.bytes_needed else 0.0

    def figures(self) -> dict[str, Any]:
        """Returns everything but distances and predecessors, as a dictionary for a JSON document."""
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
            "iodepth": self.iodepth,
            "request_bytes": self.request_bytes,
        }


def default_iodepth(storage: Storage, iodepth: int | None = None) -> int:
    """Chooses how many reads a search has in flight.

    Args:
        storage: The storage that is searched.
        iodepth: The number; None for 16,384 on a GPU. On the CPU executor one core is left to the threads of emulated
            drives, and each other core gets 128 threads, which have a read in flight each.

    Returns:
        The number.

    Raises:
        RefusedInput: It is out of range.
        OperationFailed: The storage is closed, or this process is a fork.
    """
    if iodepth is None:
        cores = len(os.sched_getaffinity(0))
        on_cpu = storage.report()["device"] == "cpu"
        iodepth = min(128 * max(1, cores - 1), MAX_IN_FLIGHT) if on_cpu else 16384
    if not 1 <= iodepth <= MAX_IN_FLIGHT:
        raise RefusedInput("--iodepth", iodepth, f"must be at least 1 and at most {MAX_IN_FLIGHT}")
    return iodepth


def write_edges(
    storage: Storage,
    graph: Graph,
    extent: str = "edges",
    tell: Callable[[float], None] | None = None,
    *,
    replace: bool = False,
) -> None:
    """Writes the neighbours of a graph to a new extent, where ``bfs`` reads them: little-endian ``int32``.

    Args:
        storage: Where to write.
        graph: The graph; it has at least one arc.
        extent: The name of the extent.
        tell: Called now and then with the share that is written, more than 0 and at most 1.
        replace: Allow a name that is in use, as ``Storage.new_extent`` does.

    Raises:
        RefusedInput: The graph has no arc, or as ``Storage.new_extent``.
        OperationFailed: As ``Storage.new_extent``.
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
    """Checks that an extent holds the neighbours of a graph, byte by byte.

    Args:
        storage: Where the extent is.
        graph: The graph.
        extent: The name of an extent that exists.

    Raises:
        RefusedInput: It holds something else, such as the neighbours of another graph.
        OperationFailed: As ``Storage.read_extent``.
    """
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
    iodepth: int | None = None,
    request_bytes: int = 0,
    tell: Callable[[int, int], None] | None = None,
) -> BfsResult:
    """Finds the distance of each vertex from a source, breadth first, with a kernel that reads the drive.

    Row pointers and distances are in the device's memory; the neighbours are read from the extent. Ctrl-C ends the
    call, but not the search, which goes on in the background; the drives are shut down after it has ended.

    Args:
        storage: The storage that holds the neighbours.
        graph: The graph. Only its row pointers are used.
        source: The vertex to start from.
        extent: The name of the extent that ``write_edges`` wrote.
        iodepth: How many reads are in flight at most, 1 to 1,048,576: each is of a thread of its own. None for 16,384
            on a GPU, and on the CPU for 128 on each core but one.
        request_bytes: The length of the longest read: the storage's ``block_bytes`` times a power of two, at most
            131,072. 0 means one block. Longer reads suit graphs in which vertices have many neighbours.
        tell: Called before each level with its number and the number of vertices in its frontier, on another thread
            than the caller's.

    Returns:
        What the search found, and what it took.

    Raises:
        RefusedInput: The source is not a vertex, there is no such extent, it is too short for the graph, or a number is
            out of range.
        OperationFailed: A read fails, the extent names a vertex that the graph does not have, the storage is closed, or
            this process is a fork.
    """
    if not 0 <= source < graph.vertices:
        raise RefusedInput("source", source, f"must be a vertex, 0 to {graph.vertices - 1}")
    iodepth = default_iodepth(storage, iodepth)
    distances, predecessors, figures = interruptible(
        core().run_bfs,
        storage._native,
        extent,
        graph.row_begin.astype(np.uint64),
        source,
        iodepth=iodepth,
        request_bytes=request_bytes,
        tell=tell,
    )
    return BfsResult(distances=distances, predecessors=predecessors, iodepth=iodepth, **json.loads(figures))


def reference_distances(graph: Graph, source: int) -> npt.NDArray[np.uint32]:
    """Computes the distances in memory, by SciPy.

    Args:
        graph: The graph.
        source: The vertex to start from.

    Returns:
        The distances, in the form of ``BfsResult.distances``.

    Raises:
        OperationFailed: SciPy is not installed.
    """
    try:
        from scipy.sparse import csgraph, csr_array
    except ImportError as error:
        raise OperationFailed(
            f"SciPy, which computes the distances to compare with, does not load: {error}; pip install 'forebay[graph]'"
        ) from None
    shape = (graph.vertices, graph.vertices)
    matrix = csr_array((np.ones(graph.arcs, np.int8), graph.neighbours, graph.row_begin), shape=shape)
    found = csgraph.dijkstra(matrix, unweighted=True, indices=source)
    return np.where(np.isfinite(found), found, float(UNREACHED)).astype(np.uint32)


def verify_distances(graph: Graph, source: int, result: BfsResult) -> int:
    """Compares the result of a search with ``reference_distances``, and checks the predecessors.

    Args:
        graph: The graph.
        source: The vertex that the search started from.
        result: What ``bfs`` returned.

    Returns:
        The number of vertices whose distance differs, or whose predecessor is not one step nearer to the source with an
        arc to the vertex. 1 more if the sizes of the frontiers differ. 0 says that all is right.

    Raises:
        OperationFailed: SciPy is not installed.
    """
    wanted = reference_distances(graph, source)
    wrong = wanted != result.distances
    before = result.predecessors
    has_one = (wanted != UNREACHED) & (wanted != 0)
    wrong |= has_one != (before != UNREACHED)
    some = np.flatnonzero(has_one & (before < graph.vertices))
    wrong |= has_one & (before >= graph.vertices)
    wrong[some] |= wanted[before[some]] + 1 != wanted[some]
    wrong[some] |= ~_has_arcs(graph, before[some], some)
    levels = np.bincount(wanted[wanted != UNREACHED])
    return int(np.count_nonzero(wrong)) + (levels.tolist() != result.frontier)


def _has_arcs(graph: Graph, sources: npt.NDArray[np.uint32], targets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Returns whether the graph has each arc. Lists ascend, so each is searched by halving."""
    low, end = graph.row_begin[sources].copy(), graph.row_begin[sources.astype(np.int64) + 1]
    high = end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        less = (low < high) & (graph.neighbours[np.minimum(middle, graph.arcs - 1)] < targets)
        high = np.where((low < high) & ~less, middle, high)
        low = np.where(less, middle + 1, low)
    found: npt.NDArray[np.bool_] = (low < end) & (graph.neighbours[np.minimum(low, graph.arcs - 1)] == targets)
    return found
