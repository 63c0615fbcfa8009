# SPDX-License-Identifier: Apache-2.0
"""Which of some near vectors become neighbours: those in different directions, and each of them once."""

from forebay.search._arrays import Array, Arrays
from forebay.search.exact import NO_NEIGHBOUR

_ALPHA = 1.2


def diverse(arrays: Arrays, others: Array, direct: Array, given: Array, degree: int, *, by_product: bool) -> Array:
    """Picks of each row of candidates the nearest ones that lie in different directions.

    A candidate is left out if one that is taken is nearer to it than the row's own vector is, by the factor ``_ALPHA``
    of the squares (the pruning of DiskANN: Subramanya et al., NeurIPS 2019, algorithm 2).

    Args:
        arrays: Where to compute.
        others: The candidates' vectors, ``float32`` of shape ``(rows, candidates, dimension)``, the nearest first.
        direct: How far each is from the row's own vector, of shape ``(rows, candidates)``.
        given: Which candidates there are, ``bool`` of that shape.
        degree: How many are picked at most.
        by_product: Whether distances are inner products with their sign turned round, and not squares.

    Returns:
        Places of candidates, ``int64`` of shape ``(rows, picks)``, ``picks`` being ``degree`` or less; -1 where a row
        has no more.
    """
    between = others @ arrays.swapped(others)
    if by_product:
        between *= -1
    else:
        squares = (others * others).sum(-1)
        between *= -2
        between += squares[:, :, None]
        between += squares[:, None, :]
    width = given.shape[1]
    rows = arrays.arange(len(given))
    left = given
    taken = []
    for number in range(min(degree, width)):
        pick = arrays.first_true(left)
        is_one = left[rows, pick]
        if number % 8 == 0 and not bool(is_one.any()):
            break
        taken.append(arrays.longs(is_one) * (arrays.longs(pick) + 1) - 1)
        bound = direct / _ALPHA if not by_product else direct
        left = left & (between[rows, pick] > bound) & (arrays.arange(width)[None] != pick[:, None])
    return arrays.joined([each[:, None] for each in taken], 1) if taken else arrays.full((len(given), 0), -1)


def once(arrays: Arrays, names: Array, degree: int) -> Array:
    """The first ``degree`` different names of each row, ``int64``, with ``NO_NEIGHBOUR`` after the last."""
    order = arrays.order(names)
    in_order = arrays.along(names, order)
    drop = in_order == NO_NEIGHBOUR
    drop[:, 1:] |= in_order[:, 1:] == in_order[:, :-1]
    # Each sorted place goes back to where it came from.
    dropped = arrays.along(arrays.longs(drop), arrays.order(order))
    places = arrays.order(dropped)[:, :degree]
    kept = arrays.along(names, places)
    kept[arrays.along(dropped, places) != 0] = NO_NEIGHBOUR
    if kept.shape[1] == degree:
        return kept
    return arrays.joined([kept, arrays.full((len(kept), degree - kept.shape[1]), NO_NEIGHBOUR)], 1)
