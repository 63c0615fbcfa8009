# SPDX-License-Identifier: Apache-2.0
"""The product of the sparse matrix of a graph and a vector. The matrix lies in memory or on a drive."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay.graph.checks import rounding_of_sums, scipy_sparse
from forebay.graph.csr import Graph
from forebay.graph.placed import Placed
from forebay.graph.results import SpmvResult
from forebay.storage import Storage


def spmv(
    graph: Graph,
    x: npt.ArrayLike,
    memory: str | Storage = "host",
    *,
    device: str = "auto",
    drives: Sequence[str] = (),
    extent: str = "edges",
    iodepth: int | None = None,
    request_bytes: int = 0,
) -> SpmvResult:
    """Multiplies the matrix of a graph by a vector. Row ``v`` has the weight of each arc from ``v`` in its column.

    Args:
        graph: The graph. Where it has no weights, all values of the matrix are 1.
        x: The vector, which is taken as ``float32``, of shape ``(vertices,)``.
        memory: Where the lists and the values lie, as ``Placed`` takes it.
        device: As for ``Placed``.
        drives: As for ``Placed``.
        extent: As for ``Placed``: the values are in the extent of this name with ``_values`` behind it.
        iodepth: As for ``Placed``.
        request_bytes: As for ``Placed``.

    Returns:
        The product, and what it took.

    Raises:
        RefusedInput: The vector has another shape, or as ``Placed``.
        OperationFailed: A read fails, or a list names a vertex that the graph does not have.
    """
    with Placed(
        graph,
        memory,
        device=device,
        drives=drives,
        extent=extent,
        iodepth=iodepth,
        request_bytes=request_bytes,
        values=values_of(graph),
    ) as placed:
        return placed.spmv(x)


def values_of(graph: Graph) -> npt.NDArray[np.float32] | None:
    """Returns the weights of a graph as values of a matrix, ``float32``; None if it has none, and all are 1."""
    return None if graph.weights is None else graph.weights.astype(np.float32)


def verify_product(graph: Graph, x: npt.ArrayLike, result: SpmvResult) -> int:
    """Compares a product with SciPy's, which is computed with 8 bytes of the same values of 4 bytes.

    Args:
        graph: The graph.
        x: The vector.
        result: What ``spmv`` returned.

    Returns:
        The number of rows that are further off than rounding explains: a row of n entries may be off by n / 256 + 72
        roundings of ``2^-24`` of the sum of its absolute products, or n + 8 roundings if those are fewer. 0 says that
        all is right.

    Raises:
        OperationFailed: SciPy is not installed.
    """
    sparse = scipy_sparse()
    vector = np.asarray(x, np.float32).astype(np.float64)
    values = values_of(graph)
    exact = np.ones(graph.arcs) if values is None else values.astype(np.float64)
    shape = (graph.vertices, graph.vertices)
    matrix = sparse.csr_array((exact, graph.neighbours, graph.row_begin), shape=shape)
    allowed = rounding_of_sums(graph.degrees) * (matrix @ np.abs(vector))
    return int(np.count_nonzero(~(np.abs(result.y - matrix @ vector) <= allowed)))
