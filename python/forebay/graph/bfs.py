# SPDX-License-Identifier: Apache-2.0
"""Breadth-first search of a graph whose neighbour lists lie in memory or on a drive."""

import json
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from forebay._native import core, interruptible
from forebay.errors import RefusedInput
from forebay.graph.checks import arc_numbers, resolve_check, scipy_sparse
from forebay.graph.csr import Graph
from forebay.graph.extents import default_iodepth
from forebay.graph.memory import resolve_device
from forebay.graph.placed import Placed, in_plain_memory, resolve_direction
from forebay.graph.results import UNREACHED, BfsResult
from forebay.storage import Storage


def bfs(
    graph: Graph,
    source: int,
    memory: str | Storage = "host",
    *,
    device: str = "auto",
    drives: Sequence[str] = (),
    extent: str = "edges",
    iodepth: int | None = None,
    request_bytes: int = 0,
    wide_ids: bool = False,
    direction: str = "auto",
    tell: Callable[[int, int], None] | None = None,
) -> BfsResult:
    """Finds the distance of each vertex from a source, breadth first, by a kernel that reads the lists where they lie.

    Row pointers and distances are in the device's memory. Ctrl-C ends the call, but not the search, which goes on in
    the background; the drives are shut down after it has ended. For several searches make one ``Placed``.

    An open storage without a cache must have the lists already, as ``write_edges`` writes them; they are searched as
    they are. Such a search goes from above, unless ``direction`` is ``below``.

    Args:
        graph: The graph. Of an open storage without a cache only its row pointers are used.
        source: The vertex to start from.
        memory: Where the lists lie, as ``Placed`` takes it.
        device: As for ``Placed``.
        drives: As for ``Placed``.
        extent: As for ``Placed``.
        iodepth: As for ``Placed``.
        request_bytes: As for ``Placed``.
        wide_ids: As for ``Placed``.
        direction: As for ``Placed.bfs``.
        tell: As for ``Placed.bfs``.

    Returns:
        What the search found, and what it took.

    Raises:
        RefusedInput: The source is not a vertex, a number is out of range, or as ``Placed``.
        OperationFailed: A read fails, a list names a vertex that the graph does not have, a storage is closed, or this
            process is a fork.
    """
    past_cache = isinstance(memory, Storage) and memory.report()["cache"] is None
    if past_cache and not wide_ids and resolve_direction(graph, direction) != "below":
        return _written_bfs(memory, graph, source, extent, iodepth, request_bytes, tell)
    with Placed(
        graph,
        memory,
        device=device,
        drives=drives,
        extent=extent,
        iodepth=iodepth,
        request_bytes=request_bytes,
        wide_ids=wide_ids,
    ) as placed:
        return placed.bfs(source, direction=direction, tell=tell)


def _written_bfs(
    storage: Storage,
    graph: Graph,
    source: int,
    extent: str,
    iodepth: int | None,
    request_bytes: int,
    tell: Callable[[int, int], None] | None,
) -> BfsResult:
    if not 0 <= source < graph.vertices:
        raise RefusedInput("source", source, f"must be a vertex, 0 to {graph.vertices - 1}")
    iodepth = default_iodepth(storage, iodepth)
    distance, predecessor, figures = interruptible(
        core().run_bfs,
        storage._native,
        extent,
        graph.row_begin.astype(np.uint64),
        source,
        iodepth=iodepth,
        request_bytes=request_bytes,
        tell=tell,
    )
    return BfsResult(distance=distance, predecessor=predecessor, iodepth=iodepth, **json.loads(figures))


def reference_distances(graph: Graph, source: int) -> npt.NDArray[np.uint32]:
    """Computes the distances in memory, by SciPy.

    Args:
        graph: The graph.
        source: The vertex to start from.

    Returns:
        The distances, in the form of ``BfsResult.distance``.

    Raises:
        OperationFailed: SciPy is not installed.
    """
    sparse = scipy_sparse()
    shape = (graph.vertices, graph.vertices)
    matrix = sparse.csr_array((np.ones(graph.arcs, np.int8), graph.neighbours, graph.row_begin), shape=shape)
    found = sparse.csgraph.dijkstra(matrix, unweighted=True, indices=source)
    return np.where(np.isfinite(found), found, float(UNREACHED)).astype(np.uint32)


def verify_distances(
    graph: Graph, source: int, result: BfsResult, *, by: str | None = None, device: str = "auto"
) -> int:
    """Checks the result of a search, its predecessors too.

    ``scipy`` compares it with ``reference_distances``. ``device`` reads the lists in memory of a device, and checks by
    the rules of Graph500 that no arc and no predecessor contradicts the distances.

    Args:
        graph: The graph.
        source: The vertex that the search started from.
        result: What ``bfs`` returned.
        by: ``scipy`` or ``device``. None: ``scipy`` for graphs of at most 2^20 vertices.
        device: The device of that check, as for ``Placed``.

    Returns:
        The number of vertices whose distance differs, or whose predecessor is not one step nearer to the source with an
        arc to the vertex; on a device, of arcs and vertices with a contradiction. 1 more if the sizes of the frontiers
        differ. 0 says that all is right.

    Raises:
        RefusedInput: The check is unknown, or the device's memory has no room.
        OperationFailed: SciPy is not installed, or the extension module does not load.
    """
    if resolve_check(graph, by) == "device":
        lists = in_plain_memory(graph, resolve_device(device))
        wrong_there = interruptible(lists.check_bfs, source, result.distance, result.predecessor)
        return int(wrong_there) + (_frontier(result.distance) != result.frontier)
    wanted = reference_distances(graph, source)
    wrong = wanted != result.distance
    before = result.predecessor
    has_one = (wanted != UNREACHED) & (wanted != 0)
    wrong |= has_one != (before != UNREACHED)
    some = np.flatnonzero(has_one & (before < graph.vertices))
    wrong |= has_one & (before >= graph.vertices)
    wrong[some] |= wanted[before[some]] + 1 != wanted[some]
    wrong[some] |= arc_numbers(graph, before[some], some) < 0
    return int(np.count_nonzero(wrong)) + (_frontier(wanted) != result.frontier)


def _frontier(distance: npt.NDArray[np.uint32]) -> list[int]:
    """How many vertices there are at each distance."""
    reached = distance[distance != UNREACHED]
    if len(reached) and int(reached.max()) >= len(distance):  # a false distance, which would take any room
        return []
    return np.bincount(reached).tolist()
