# SPDX-License-Identifier: Apache-2.0
"""Lists of vectors that are near each other, none of them long, and which lists are near which."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forebay.search._arrays import Array, Arrays
from forebay.search._rows import Rows
from forebay.search.kmeans import centres_of, nearest_centres

_LENGTH = 128  # of a list, about
_LENGTH_MAX = 2 * _LENGTH
_TRAINED_PER_LIST = 48
_ITERATIONS = 6
_NEAR = 256
_POLES = 1 << 14  # members of a long list among which two that are far apart are looked for


@dataclass(frozen=True)
class Lists:
    """Lists that hold each vector once.

    Attributes:
        members: The vectors, list after list: ``int32`` of shape ``(vectors,)``.
        begin: Where each list begins, and the number of vectors: ``int64`` of shape ``(lists + 1,)``.
        near: For each list itself and then the nearest others, ``int32`` of shape ``(lists, up to 256)``.
    """

    members: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    near: npt.NDArray[np.int32]


def lists_of(arrays: Arrays, rows: Rows, seed: int, tell: Callable[[int, int], None]) -> Lists:
    """Sorts vectors into lists.

    Args:
        arrays: Where to compute.
        rows: The vectors, at least one.
        seed: Chooses those with which the clusters are trained.
        tell: Told how many vectors of how many are in a list.
    """
    count = len(rows)
    wanted = -(-count // _LENGTH)
    random = np.random.default_rng([seed, 0])
    trained = np.sort(random.permutation(count)[: wanted * _TRAINED_PER_LIST])
    centres = centres_of(arrays, rows.of(arrays.put(trained)), wanted, _ITERATIONS, random)
    labels = np.empty(count, np.int32)
    batch = max(1, arrays.numbers // rows.dimension)
    for first in range(0, count, batch):
        end = min(first + batch, count)
        labels[first:end] = arrays.get(nearest_centres(arrays, rows.between(first, end), centres))
        tell(end, count)
    members = np.argsort(labels, kind="stable").astype(np.int32)
    begin = np.searchsorted(labels[members], np.arange(wanted + 1))
    members, begin, middles = _short(arrays, rows, members, begin, centres)
    return Lists(members, begin, _near(arrays, middles))


def _short(
    arrays: Arrays, rows: Rows, members: npt.NDArray[np.int32], begin: npt.NDArray[np.int64], centres: Array
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Cuts long lists, drops those that are empty, and returns where the middle of each list is."""
    lengths = np.diff(begin)
    usual = np.flatnonzero((lengths > 0) & (lengths <= _LENGTH_MAX))
    starts, middles = [begin[usual]], [arrays.get(centres)[usual]]
    for one in np.flatnonzero(lengths > _LENGTH_MAX):
        part = slice(begin[one], begin[one + 1])
        members[part], cuts, of_pieces = _cut(arrays, rows, members[part])
        starts.append(begin[one] + cuts)
        middles.append(of_pieces)
    start = np.concatenate(starts)
    order = np.argsort(start)
    return members, np.append(start[order], len(members)), np.concatenate(middles)[order]


def _cut(
    arrays: Arrays, rows: Rows, members: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Sorts the members of a long list along a line through two that are far apart, and cuts it into equal pieces.

    Equal vectors have no clusters, but they can be cut.
    """
    poles = rows.of(arrays.put(members[:_POLES]))
    one = poles[_farthest(poles, poles.sum(0) / len(poles))]
    line = poles[_farthest(poles, one)] - one
    batch = max(1, arrays.numbers // rows.dimension)
    blocks = range(0, len(members), batch)
    along = [arrays.get(rows.of(arrays.put(members[first : first + batch])) @ line) for first in blocks]
    members = members[np.argsort(np.concatenate(along), kind="stable")]
    pieces = -(-len(members) // _LENGTH)
    cuts = np.arange(pieces + 1, dtype=np.int64) * len(members) // pieces
    of_piece = np.repeat(np.arange(pieces), np.diff(cuts))
    total = np.zeros((pieces, rows.dimension), np.float32)
    for first in blocks:
        some = slice(first, first + batch)
        total += arrays.get(arrays.sums(rows.of(arrays.put(members[some])), arrays.put(of_piece[some]), pieces))
    return members, cuts[:-1], (total / np.diff(cuts)[:, None]).astype(np.float32)


def _farthest(rows: Array, one: Array) -> int:
    apart = rows - one
    return int((apart * apart).sum(-1).argmax())


def _near(arrays: Arrays, middles: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    on_device = arrays.put(middles)
    squares, turned = (on_device * on_device).sum(-1), -2 * on_device.swapaxes(0, 1)
    near = np.empty((len(middles), min(_NEAR, len(middles))), np.int32)
    batch = max(1, arrays.numbers // len(middles))
    for first in range(0, len(middles), batch):
        distances = on_device[first : first + batch] @ turned
        distances += squares
        own = arrays.arange(len(distances))
        distances[own, own + first] = -float("inf")  # the first, even among equal ones
        near[first : first + batch] = arrays.get(arrays.smallest(distances, near.shape[1])[1])
    return near
