# SPDX-License-Identifier: Apache-2.0
"""Other numbers for the vertices of a graph, so that neighbour lists that are read together lie together, or do not."""

import difflib
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay.errors import OperationFailed, RefusedInput
from forebay.graph.csr import Graph

REORDERINGS = ("degree", "rcm", "random")
_PIECE_ARCS = 1 << 18  # that are moved in one step
_BYTES_A_VERTEX, _BYTES_AN_ARC, _BYTES_AN_ARC_OF_A_PIECE = 48, 4, 48
_SCIPY_BYTES_AN_ARC = 16
_INDEX_MAX = np.iinfo(np.int32).max


def reorder(graph: Graph, order: str, seed: int = 1) -> tuple[Graph, npt.NDArray[np.int64]]:
    """Gives the vertices of a graph other numbers.

    Args:
        graph: The graph. It stays as it is.
        order: One of ``REORDERINGS``. ``degree``: the vertex with the most arcs first; of equals, the one with the
            smaller number. ``rcm``: SciPy's reverse Cuthill-McKee, which numbers neighbours close to each other.
            ``random``: any order is as likely.
        seed: Of ``random``: 0 or more. The others do not use it.

    Returns:
        The graph with the new numbers, its weights and its ``incoming`` included, and the new number of each old
        vertex, ``int64`` of shape ``(vertices,)``.

    Raises:
        RefusedInput: The order is unknown, the seed is negative, or the graph is too large for this machine's memory
            or, with ``rcm``, for SciPy.
        OperationFailed: ``rcm`` needs SciPy, and it is not installed.
    """
    require_reordering("order", order)
    if seed < 0:
        raise RefusedInput("seed", seed, "must be 0 or more")
    arcs = graph.arcs + (0 if graph.incoming is None else graph.incoming.arcs)
    needed = graph.vertices * _BYTES_A_VERTEX + min(arcs, _PIECE_ARCS) * _BYTES_AN_ARC_OF_A_PIECE
    needed += arcs * _BYTES_AN_ARC * (1 if graph.weights is None else 2)
    if order == "rcm":
        needed += graph.arcs * _SCIPY_BYTES_AN_ARC
    remedy = "use a smaller graph, or a larger machine"
    memory.require(needed, "graph", f"{graph.vertices} vertices", f"{graph.arcs} arcs in another order", remedy)
    if order == "degree":
        old = np.argsort(-graph.degrees, kind="stable")
    elif order == "rcm":
        old = _reverse_cuthill_mckee(graph)
    else:
        old = np.random.default_rng(seed).permutation(graph.vertices)
    new = np.empty(graph.vertices, np.int64)
    new[old] = np.arange(graph.vertices)
    incoming = None if graph.incoming is None else _renumbered(graph.incoming, old, new)
    return replace(_renumbered(graph, old, new), incoming=incoming), new


def require_reordering(field: str, order: str) -> None:
    """Refuses a name that is none of ``REORDERINGS``, and says which one is the nearest."""
    if order not in REORDERINGS:
        near = difflib.get_close_matches(order.lower(), REORDERINGS, 1, 0.0)[0]
        raise RefusedInput(field, order, f"must be one of {', '.join(REORDERINGS)}; did you mean {near}?")


def _reverse_cuthill_mckee(graph: Graph) -> npt.NDArray[np.int64]:
    try:
        from scipy.sparse import csgraph, csr_array
    except ImportError as error:
        raise OperationFailed(
            f"SciPy, which computes the order rcm, does not load: {error}; pip install 'forebay[graph]'"
        ) from None
    if graph.vertices == 0:  # which SciPy does not order
        return np.empty(0, np.int64)
    # SciPy adds the inverse of a directed graph, and counts the arcs of both in 32 bits.
    if graph.arcs * (2 if graph.directed else 1) > _INDEX_MAX:
        remedy = f"has more arcs than SciPy counts, {_INDEX_MAX}; use a smaller graph, or the order degree"
        raise RefusedInput("graph", f"{graph.arcs} arcs", remedy)
    shape = (graph.vertices, graph.vertices)
    matrix = csr_array(
        (np.ones(graph.arcs, np.int8), graph.neighbours, graph.row_begin.astype(np.int32)), shape=shape, copy=False
    )
    return csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=not graph.directed).astype(np.int64)


def _renumbered(graph: Graph, old: npt.NDArray[np.int64], new: npt.NDArray[np.int64]) -> Graph:
    """The graph in which vertex ``v`` is the one that was ``old[v]``, and so ``new[old[v]]`` is ``v``."""
    degrees = graph.degrees[old]
    row_begin = np.zeros_like(graph.row_begin)
    np.cumsum(degrees, out=row_begin[1:])
    neighbours = np.empty_like(graph.neighbours)
    weights = None if graph.weights is None else np.empty_like(graph.weights)
    first = 0
    while first < graph.vertices:
        end = int(np.searchsorted(row_begin, row_begin[first] + _PIECE_ARCS, side="right")) - 1
        end = max(first + 1, min(end, first + _PIECE_ARCS))  # a row is moved as a whole
        begin, stop = int(row_begin[first]), int(row_begin[end])
        counts = degrees[first:end]
        shift = graph.row_begin[old[first:end]] - row_begin[first:end]
        at = np.arange(begin, stop) + np.repeat(shift, counts)
        # Arcs sort by their row and then by their target.
        keys = np.repeat(np.arange(end - first, dtype=np.int64) << 32, counts) | new[graph.neighbours[at]]
        if weights is None or graph.weights is None:
            keys.sort()
        else:
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            weights[begin:stop] = graph.weights[at[order]]
        neighbours[begin:stop] = keys & 0xFFFFFFFF
        first = end
    return Graph(row_begin, neighbours, graph.directed, weights)
