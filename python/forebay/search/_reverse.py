# SPDX-License-Identifier: Apache-2.0
"""Edges in the other direction: a vertex that only others are near to is found through them."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from forebay.search._arrays import Array, Arrays
from forebay.search.exact import NO_NEIGHBOUR
from forebay.search.pruning import once


def with_reverse_edges(
    arrays: Arrays, forward: npt.NDArray[np.int32], tell: Callable[[int, int], None]
) -> npt.NDArray[np.int32]:
    """Returns a graph in which up to half of the edges of a vertex lead to those that have an edge to it.

    The first half are its own best edges. Then come the reverse ones, by their place in the row they come from. Its
    other edges take the places that are left.

    Args:
        arrays: Where to compute.
        forward: The edges of each vertex, the best first, -1 after the last: of shape ``(vertices, degree)``.
        tell: Told how much of how much is done.

    Returns:
        Edges of the same shape, none twice in a row.
    """
    count, degree = forward.shape
    kept = (degree + 1) // 2
    reverse = _reversed(arrays, forward, tell)
    graph = np.empty_like(forward)
    step = max(1, arrays.numbers // (4 * degree))
    for first in range(0, count, step):
        some = slice(first, first + step)
        own, others = arrays.put(forward[some]), reverse[some]
        parts = [own[:, :kept], others[:, : degree - kept], own[:, kept:], others[:, degree - kept :]]
        names = arrays.longs(arrays.joined(parts, 1)) & NO_NEIGHBOUR  # -1 becomes the number that stands for none
        graph[some] = arrays.get(once(arrays, names, degree)).astype(np.uint32).view(np.int32)
        tell(count + min(first + step, count), 2 * count)
    return graph


def _reversed(arrays: Arrays, forward: npt.NDArray[np.int32], tell: Callable[[int, int], None]) -> Array:
    count, degree = forward.shape
    reverse = arrays.no_ids((count, degree))
    taken = arrays.counts(arrays.arange(0), count)
    for rank in range(degree):
        targets = arrays.put(np.ascontiguousarray(forward[:, rank]))
        order = arrays.order(targets)
        order = order[targets[order] >= 0]  # the sources of the edges, by their targets
        targets = targets[order]
        counts = arrays.counts(targets, count)
        among_equal = arrays.arange(len(targets)) - (counts.cumsum(0) - counts)[targets]
        places = taken[targets] + among_equal
        free = places < degree
        reverse[targets[free], places[free]] = arrays.ids(order[free])
        taken += counts
        tell(count * (rank + 1) // degree, 2 * count)
    return reverse
