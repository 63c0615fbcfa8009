# SPDX-License-Identifier: Apache-2.0
"""Clusters of vectors, by Lloyd's algorithm."""

from forebay.search._arrays import Array, Arrays

_FIXED_POINT = float(1 << 20)  # sums of whole numbers do not depend on their order


def squared_distances(left: Array, right: Array) -> Array:
    """Returns how far each row of ``left`` is from each of ``right``: ``float32`` of shape ``(left, right)``.

    It leaves out the squares of the rows of ``left``, which change no order among a row's distances.
    """
    return (right * right).sum(-1)[None] - 2 * (left @ right.T)


def nearest_centres(arrays: Arrays, rows: Array, centres: Array, batch: int) -> Array:
    """Returns the number of the nearest centre of each row, ``int64``."""
    labels = arrays.full((len(rows),), 0)
    for first in range(0, len(rows), batch):
        some = arrays.floats(rows[first : first + batch])
        labels[first : first + batch] = arrays.least(squared_distances(some, centres))
    return labels


def centres_of(arrays: Arrays, rows: Array, first: Array, iterations: int, batch: int) -> Array:
    """Returns centres of clusters. The same arguments give the same centres.

    Args:
        arrays: Where to compute.
        rows: ``float32`` of shape ``(rows, dimension)``.
        first: The centres to begin with, of shape ``(centres, dimension)``.
        iterations: How often centres move.
        batch: How many rows are compared with all centres at a time.
    """
    centres = first
    greatest = float(abs(rows).max())
    scale = _FIXED_POINT / greatest if greatest > 0 else 1.0
    whole = arrays.longs(rows * scale)
    for _ in range(iterations):
        labels = nearest_centres(arrays, rows, centres, batch)
        members = arrays.counts(labels, len(centres))[:, None]
        none = members == 0
        means = arrays.floats(arrays.sums(whole, labels, len(centres))) / arrays.floats(members + none) / scale
        keeps = arrays.floats(none)
        centres = centres * keeps + means * (1 - keeps)
    return centres
