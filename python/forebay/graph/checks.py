# SPDX-License-Identifier: Apache-2.0
"""What the checks of all algorithms share: which of them is made, and what SciPy needs."""

from types import ModuleType

import numpy as np
import numpy.typing as npt

from forebay.errors import OperationFailed, RefusedInput
from forebay.graph.csr import Graph

SCIPY_VERTICES_MAX = 1 << 20
"""Results of graphs with more vertices are checked on the device: SciPy takes minutes and tens of gigabytes."""
CHECKS = ("scipy", "device")
_ROUNDING = 2.0**-24  # half of the distance of two numbers of 4 bytes, over the smaller one


def verified_by(graph: Graph) -> str:
    """Returns what checks the results of a graph: ``scipy`` up to ``SCIPY_VERTICES_MAX`` vertices, else ``device``."""
    return "scipy" if graph.vertices <= SCIPY_VERTICES_MAX else "device"


def resolve_check(graph: Graph, by: str | None) -> str:
    """Returns the check that is wanted, or the one that suits the graph where it is None."""
    if by is None:
        return verified_by(graph)
    if by not in CHECKS:
        raise RefusedInput("by", by, f"must be {' or '.join(CHECKS)}")
    return by


def scipy_sparse() -> ModuleType:
    """Returns ``scipy.sparse``, with ``csgraph`` loaded.

    Raises:
        OperationFailed: It is not installed.
    """
    try:
        import scipy.sparse
        import scipy.sparse.csgraph
    except ImportError as error:
        raise OperationFailed(
            f"SciPy, which computes the results to compare with, does not load: {error}; pip install 'forebay[graph]'"
        ) from None
    return scipy.sparse


def arc_numbers(
    graph: Graph, sources: npt.NDArray[np.integer], targets: npt.NDArray[np.integer]
) -> npt.NDArray[np.int64]:
    """Returns the number of each arc, or -1 where the graph has none. Lists ascend, so each is searched by halving.

    Args:
        graph: The graph.
        sources: Where each arc starts: vertices, of shape ``(count,)``.
        targets: Where each arc ends, of the same shape.
    """
    low, end = graph.row_begin[sources].copy(), graph.row_begin[sources.astype(np.int64) + 1]
    if not graph.arcs:
        return np.full(len(low), -1, np.int64)
    high = end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        less = (low < high) & (graph.neighbours[np.minimum(middle, graph.arcs - 1)] < targets)
        high = np.where((low < high) & ~less, middle, high)
        low = np.where(less, middle + 1, low)
    found = (low < end) & (graph.neighbours[np.minimum(low, graph.arcs - 1)] == targets)
    return np.where(found, low, -1)


def rounding_of_sums(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Returns by how much sums of products, computed with 4 bytes, may differ from exact ones, relative to the sums.

    No summand is negative, so the relative errors of the additions add up at most. A kernel adds up parts of a row side
    by side, 512 entries at a time, so that no summand takes part in more than 64 + n / 256 additions. Each of them, and
    the product itself, is off by at most ``2^-24``. The 8 is for what follows the sum.

    Args:
        counts: How many products each sum has.
    """
    return (np.minimum(counts, 64 + counts // 256) + 8) * _ROUNDING
