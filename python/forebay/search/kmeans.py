# SPDX-License-Identifier: Apache-2.0
"""Clusters of rows, by Lloyd's algorithm."""

import numpy as np

from forebay.search._arrays import Array, Arrays


def nearest_centres(arrays: Arrays, rows: Array, centres: Array) -> Array:
    """Returns the number of the nearest centre of each row, ``int64``.

    Args:
        arrays: Where to compute.
        rows: ``float32`` of shape ``(rows, dimension)``.
        centres: ``float32`` of shape ``(centres, dimension)``.
    """
    # The square of the row changes no order among its distances.
    squares, turned = (centres * centres).sum(-1), -2 * centres.swapaxes(0, 1)
    labels = arrays.arange(len(rows))
    batch = max(1, arrays.numbers // len(centres))
    for first in range(0, len(rows), batch):
        distances = rows[first : first + batch] @ turned
        distances += squares
        labels[first : first + batch] = distances.argmin(-1)
    return labels


def centres_of(arrays: Arrays, rows: Array, count: int, iterations: int, random: np.random.Generator) -> Array:
    """Returns the centres of clusters. The same rows and the same random numbers give the same centres.

    Args:
        arrays: Where to compute.
        rows: ``float32`` of shape ``(rows, dimension)``, with no component above 256 in magnitude.
        count: How many centres. They repeat each other if there are fewer rows.
        iterations: How often they move.
        random: Chooses the rows with which they begin.

    Returns:
        ``float32`` of shape ``(count, dimension)``.
    """
    centres = rows[arrays.put(np.resize(random.permutation(len(rows)), count))]
    for _ in range(iterations):
        labels = nearest_centres(arrays, rows, centres)
        members = arrays.counts(labels, count)[:, None]
        empty = arrays.floats(members == 0)  # such a centre stays where it is
        centres = centres * empty + arrays.sums(rows, labels, count) / (arrays.floats(members) + empty)
    return centres
