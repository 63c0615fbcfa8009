# SPDX-License-Identifier: Apache-2.0
"""Connected components of a graph whose neighbour lists lie in memory or on a drive."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay._native import interruptible
from forebay.graph.checks import resolve_check, scipy_sparse
from forebay.graph.csr import Graph
from forebay.graph.memory import resolve_device
from forebay.graph.placed import Placed, in_plain_memory
from forebay.graph.results import ComponentsResult
from forebay.storage import Storage


def components(
    graph: Graph,
    memory: str | Storage = "host",
    *,
    device: str = "auto",
    drives: Sequence[str] = (),
    extent: str = "edges",
    iodepth: int | None = None,
    request_bytes: int = 0,
) -> ComponentsResult:
    """Finds the connected components; of a directed graph the weakly connected ones. It reads all lists once.

    Args:
        graph: The graph.
        memory: Where the lists lie, as ``Placed`` takes it.
        device: As for ``Placed``.
        drives: As for ``Placed``.
        extent: As for ``Placed``.
        iodepth: As for ``Placed``.
        request_bytes: As for ``Placed``.

    Returns:
        The component of each vertex, and what it took to find them.

    Raises:
        RefusedInput: As ``Placed``.
        OperationFailed: A read fails, or a list names a vertex that the graph does not have.
    """
    with Placed(
        graph, memory, device=device, drives=drives, extent=extent, iodepth=iodepth, request_bytes=request_bytes
    ) as placed:
        return placed.components()


def reference_components(graph: Graph) -> npt.NDArray[np.uint32]:
    """Finds the components in memory, by SciPy.

    Args:
        graph: The graph.

    Returns:
        The smallest vertex of each vertex's component, in the form of ``ComponentsResult.label``.

    Raises:
        OperationFailed: SciPy is not installed.
    """
    sparse = scipy_sparse()
    shape = (graph.vertices, graph.vertices)
    matrix = sparse.csr_array((np.ones(graph.arcs, np.int8), graph.neighbours, graph.row_begin), shape=shape)
    _, number = sparse.csgraph.connected_components(matrix, directed=graph.directed, connection="weak")
    _, smallest, of = np.unique(number, return_index=True, return_inverse=True)
    return smallest[of].astype(np.uint32)


def verify_components(graph: Graph, result: ComponentsResult, *, by: str | None = None, device: str = "auto") -> int:
    """Checks the components of a graph.

    Args:
        graph: The graph.
        result: What ``components`` returned.
        by: ``scipy`` compares with ``reference_components``; ``device`` reads the lists in memory of a device, and
            checks that arcs join vertices of one component, and that no two components are one. None: ``scipy`` for
            graphs of at most 2^20 vertices.
        device: The device of that check, as for ``Placed``.

    Returns:
        The number of vertices whose label is wrong; on a device, of arcs and labels with a contradiction. 1 more if the
        number of components is wrong. 0 says that all is right.

    Raises:
        RefusedInput: The check is unknown, or the device's memory has no room.
        OperationFailed: SciPy is not installed, or the extension module does not load.
    """
    if resolve_check(graph, by) == "device":
        lists = in_plain_memory(graph, resolve_device(device))
        wrong = int(interruptible(lists.check_components, result.label))
    else:
        wrong = int(np.count_nonzero(reference_components(graph) != result.label))
    return wrong + (int(np.count_nonzero(result.label == result.vertex)) != result.components)
