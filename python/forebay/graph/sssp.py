# SPDX-License-Identifier: Apache-2.0
"""Shortest paths in a graph with weights, whose neighbour lists lie in memory or on a drive."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay._native import interruptible
from forebay.errors import RefusedInput
from forebay.graph.checks import arc_numbers, resolve_check, scipy_sparse
from forebay.graph.csr import Graph
from forebay.graph.memory import resolve_device
from forebay.graph.placed import Placed, in_plain_memory
from forebay.graph.results import UNREACHED, UNREACHED_WEIGHTED, SsspResult
from forebay.storage import Storage


def sssp(
    graph: Graph,
    source: int,
    memory: str | Storage = "host",
    *,
    device: str = "auto",
    drives: Sequence[str] = (),
    extent: str = "edges",
    iodepth: int | None = None,
    request_bytes: int = 0,
    delta: int = 1,
) -> SsspResult:
    """Finds the shortest paths from a source to all vertices, by delta-stepping, where the lists lie.

    For several searches make one ``Placed``, with ``weighted=True``.

    Args:
        graph: The graph; it has weights.
        source: The vertex to start from.
        memory: Where the lists lie, as ``Placed`` takes it.
        device: As for ``Placed``.
        drives: As for ``Placed``.
        extent: As for ``Placed``: the lists are in the extent of this name with ``_weighted`` behind it.
        iodepth: As for ``Placed``.
        request_bytes: As for ``Placed``.
        delta: The width of a bucket, as for ``Placed.sssp``.

    Returns:
        What the search found, and what it took.

    Raises:
        RefusedInput: The graph has no weights, the source is not a vertex, a number is out of range, or as ``Placed``.
        OperationFailed: A read fails, or a list holds what the graph does not have.
    """
    with Placed(
        graph,
        memory,
        device=device,
        drives=drives,
        extent=extent,
        iodepth=iodepth,
        request_bytes=request_bytes,
        weighted=True,
    ) as placed:
        return placed.sssp(source, delta=delta)


def reference_paths(graph: Graph, source: int) -> npt.NDArray[np.uint64]:
    """Computes the distances in memory, by SciPy's Dijkstra. They are exact below 2^53.

    Args:
        graph: The graph; it has weights.
        source: The vertex to start from.

    Returns:
        The distances, in the form of ``SsspResult.distance``.

    Raises:
        RefusedInput: The graph has no weights.
        OperationFailed: SciPy is not installed.
    """
    sparse = scipy_sparse()
    weights = _weights(graph).astype(np.float64)
    shape = (graph.vertices, graph.vertices)
    # SciPy takes the entries that are there for arcs, those of weight 0 too.
    matrix = sparse.csr_array((weights, graph.neighbours, graph.row_begin), shape=shape)
    found = sparse.csgraph.dijkstra(matrix, indices=source)
    reached = np.isfinite(found)
    return np.where(reached, np.where(reached, found, 0).astype(np.uint64), UNREACHED_WEIGHTED)


def verify_paths(graph: Graph, source: int, result: SsspResult, *, by: str | None = None, device: str = "auto") -> int:
    """Checks the result of a search for shortest paths, its predecessors too.

    Args:
        graph: The graph; it has weights.
        source: The vertex that the search started from.
        result: What ``sssp`` returned.
        by: ``scipy`` compares with ``reference_paths``; ``device`` checks by the rules of Graph500. None: ``scipy`` for
            graphs of at most 2^20 vertices.
        device: The device of that check, as for ``Placed``.

    Returns:
        The number of vertices whose distance differs, or whose predecessor has no arc to the vertex that explains its
        distance, or does not lead to the source. On a device also of arcs that are shorter than the distances say. 0
        says that all is right.

    Raises:
        RefusedInput: The check is unknown, the graph has no weights, or the device's memory has no room.
        OperationFailed: SciPy is not installed, or the extension module does not load.
    """
    weights = _weights(graph)
    if resolve_check(graph, by) == "device":
        lists = in_plain_memory(graph, resolve_device(device), weighted=True)
        return int(interruptible(lists.check_sssp, source, result.distance, result.predecessor))
    wanted = reference_paths(graph, source)
    wrong = wanted != result.distance
    before = result.predecessor
    has_one = wanted != UNREACHED_WEIGHTED
    has_one[source] = False
    wrong |= has_one != (before != UNREACHED)
    wrong |= has_one & (before >= graph.vertices)
    some = np.flatnonzero(has_one & (before < graph.vertices))
    arcs = arc_numbers(graph, before[some], some)
    there = arcs >= 0
    wrong[some] |= ~there
    some, arcs = some[there], arcs[there]
    wrong[some] |= wanted[before[some]] + weights[arcs].astype(np.uint64) != wanted[some]
    return int(np.count_nonzero(wrong | _astray(before, source, has_one)))


def _weights(graph: Graph) -> npt.NDArray[np.int32]:
    if graph.weights is None:
        remedy = "has no weights; use graph.with_unit_weights(), or generate it with weights"
        raise RefusedInput("graph", f"{graph.arcs} arcs", remedy)
    return graph.weights


def _astray(before: npt.NDArray[np.uint32], source: int, has_one: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which vertices' predecessors go in a circle, as they can along arcs of weight 0. Each step doubles the way."""
    vertices = len(before)
    above = np.arange(vertices)
    right = has_one & (before < vertices)
    above[right] = before[right]
    for _ in range(vertices.bit_length()):
        above = above[above]
    return right & (above != source)
