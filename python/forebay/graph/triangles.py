# SPDX-License-Identifier: Apache-2.0
"""The triangles of a graph whose neighbour lists lie in memory or on a drive."""

from collections.abc import Sequence

import numpy as np

from forebay._native import interruptible
from forebay.graph.checks import resolve_check, scipy_sparse
from forebay.graph.csr import Graph
from forebay.graph.memory import resolve_device
from forebay.graph.placed import Placed, in_plain_memory, require_undirected
from forebay.graph.reorder import reorder
from forebay.graph.results import TrianglesResult
from forebay.storage import Storage

_WEDGES_OF_A_STEP = 1 << 24  # that SciPy closes in one product, which needs some 12 bytes for each


def triangles(
    graph: Graph,
    memory: str | Storage = "host",
    *,
    device: str = "auto",
    drives: Sequence[str] = (),
    extent: str = "edges",
    iodepth: int | None = None,
    request_bytes: int = 0,
) -> TrianglesResult:
    """Counts the triangles of an undirected graph: the sets of three vertices with an edge between each two of them.

    Vertices of a high degree with small numbers make it faster: ``reorder(graph, "degree")``.

    Args:
        graph: The graph, which is undirected.
        memory: Where the lists lie, as ``Placed`` takes it.
        device: As for ``Placed``.
        drives: As for ``Placed``.
        extent: As for ``Placed``.
        iodepth: As for ``Placed``.
        request_bytes: As for ``Placed``.

    Returns:
        The number of triangles, and what it took to count them.

    Raises:
        RefusedInput: The graph is directed, or as ``Placed``.
        OperationFailed: A read fails, a list names a vertex that the graph does not have, or does not ascend.
    """
    require_undirected(graph)
    with Placed(
        graph, memory, device=device, drives=drives, extent=extent, iodepth=iodepth, request_bytes=request_bytes
    ) as placed:
        return placed.triangles()


def reference_triangles(graph: Graph) -> int:
    """Counts the triangles in memory, by SciPy.

    It is the sum of ``(A A) * A`` over 6, where ``A`` is the matrix of the graph and ``*`` multiplies element by
    element. Of each edge only the arc to the vertex of the higher degree is left, so that each triangle counts once,
    and no row is long.

    Args:
        graph: The graph, which is undirected.

    Returns:
        The number of triangles.

    Raises:
        RefusedInput: The graph is directed.
        OperationFailed: SciPy is not installed.
    """
    require_undirected(graph)
    sparse = scipy_sparse()
    rank = np.empty(graph.vertices, np.int64)
    rank[np.argsort(graph.degrees, kind="stable")] = np.arange(graph.vertices)
    rows = np.repeat(rank, graph.degrees)
    columns = rank[graph.neighbours]
    up = rows < columns
    shape = (graph.vertices, graph.vertices)
    matrix = sparse.csr_array((np.ones(int(up.sum()), np.int64), (rows[up], columns[up])), shape=shape)
    lengths = np.diff(matrix.indptr)
    entries = np.repeat(np.arange(graph.vertices), lengths)
    wedges = np.cumsum(np.bincount(entries, weights=lengths[matrix.indices], minlength=graph.vertices))
    count = first = 0
    while first < graph.vertices:
        before = wedges[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(wedges, before + _WEDGES_OF_A_STEP)))
        part = matrix[first:last]
        count += int((part @ matrix).multiply(part).sum())
        first = last
    return count


def verify_triangles(graph: Graph, result: TrianglesResult, *, by: str | None = None, device: str = "auto") -> int:
    """Checks the number of triangles of a graph.

    Args:
        graph: The graph.
        result: What ``triangles`` returned.
        by: ``scipy`` compares with ``reference_triangles``. ``device`` counts again over lists in memory of a device,
            after the vertices have got other numbers, so that all lists are others. None: ``scipy`` for graphs of at
            most 2^20 vertices.
        device: The device of that check, as for ``Placed``.

    Returns:
        By how much the number is off. 0 says that it is right.

    Raises:
        RefusedInput: The graph is directed, the check is unknown, or there is too little memory.
        OperationFailed: SciPy is not installed, or the extension module does not load.
    """
    require_undirected(graph)
    if resolve_check(graph, by) == "device":
        other, _ = reorder(graph, "degree")
        wanted, _ = interruptible(in_plain_memory(other, resolve_device(device)).triangles)
    else:
        wanted = reference_triangles(graph)
    return abs(int(wanted) - result.triangles)
