# SPDX-License-Identifier: Apache-2.0
"""Which vectors become the neighbours of a vector: near ones in all directions, and some farther ones."""

import numpy as np
import numpy.typing as npt

from forebay.search._arrays import Array, Arrays
from forebay.search._lists import Lists
from forebay.search._rows import Rows
from forebay.search.exact import NO_NEIGHBOUR
from forebay.search.pruning import diverse, once

_WHOLE_LISTS = 28
_COMPARED_MAX = 4096  # of these lists, at most
_OF_FARTHER_LISTS = 8  # members of each
_ANYWHERE = 512  # members of any lists
_FARTHER, _FARTHEST = 40, 20  # how many of the nearest of these are candidates


class Neighbourhoods:
    """Chooses the edges of each vector.

    The candidates are the nearest members of the lists around its own, the nearest of a sample of farther lists, and
    the nearest of a sample of all. The samples give edges between clusters that are apart. Each list has samples of its
    own: if all had the same, all would name these few, and these could name only some of them in return.

    Of the candidates those in different directions become edges. Places that are left go to the nearest others.
    """

    def __init__(self, arrays: Arrays, rows: Rows, lists: Lists, candidates: int, degree: int, seed: int) -> None:
        """Plans the batches.

        Args:
            arrays: Where to compute.
            rows: The vectors.
            lists: The lists that hold them.
            candidates: How many near vectors a vector chooses from.
            degree: How many edges it gets at most.
            seed: Chooses the samples.
        """
        self._arrays, self._rows, self._lists = arrays, rows, lists
        self._candidates, self._degree, self._seed = candidates, degree, seed
        self._lengths = np.diff(lists.begin)
        # Lists of about equal lengths go together, because the shorter ones are filled up.
        order = np.argsort(self._lengths, kind="stable")
        compared = min(_COMPARED_MAX, len(rows))
        self.batches: list[npt.NDArray[np.intp]] = []
        end = len(order)
        while end:
            size = max(1, arrays.numbers // (int(self._lengths[order[end - 1]]) * compared))
            self.batches.append(order[max(0, end - size) : end])
            end -= len(self.batches[-1])

    def edges(self, batch: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns the vectors of a batch of lists, and the edges of each: the best first, -1 after the last.

        Args:
            batch: The number of the batch.
        """
        chosen = self.batches[batch]
        lengths = self._lengths[chosen]
        random = np.random.default_rng([self._seed, 1, batch])
        near = self._lists.near[chosen]
        rings = [(self._members_of(near[:, :_WHOLE_LISTS]), self._candidates + 1)]  # one of them is the vector itself
        if near.shape[1] > _WHOLE_LISTS:
            rings.append((self._sampled(near[:, _WHOLE_LISTS:], random), _FARTHER))
            rings.append((self._anywhere(len(chosen), random), _FARTHEST))
        of_list, place = np.nonzero(np.arange(int(lengths.max())) < lengths[:, None])
        asked = self._lists.members[self._lists.begin[chosen][of_list] + place]

        distances, ids = self._nearest(rings, int(lengths.max()))
        on_device = self._arrays.put(of_list), self._arrays.put(place)
        distances, ids = distances[on_device], ids[on_device]
        distances = self._arrays.chosen(ids != self._arrays.put(asked)[:, None], distances, float("inf"))
        order = self._arrays.order(distances)
        distances, ids = self._arrays.along(distances, order), self._arrays.along(ids, order)
        step = max(1, self._arrays.numbers // ids.shape[1] ** 2)
        pieces = [self._pruned(distances[at : at + step], ids[at : at + step]) for at in range(0, len(asked), step)]
        return asked, np.concatenate(pieces)

    def _members_of(self, near: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The members of lists, one list after the other, in each row those of a row; -1 after the last."""
        after = np.minimum(np.cumsum(self._lengths[near], axis=1), _COMPARED_MAX)
        lengths = np.diff(after, axis=1, prepend=0).reshape(-1)
        begin, ends = self._lists.begin[near].reshape(-1), np.cumsum(lengths)
        places = np.arange(ends[-1]) + np.repeat(begin - (ends - lengths), lengths)
        found = np.full((len(near), int(after[:, -1].max())), -1, np.int32)
        found[np.arange(found.shape[1]) < after[:, -1:]] = self._lists.members[places]
        return found

    def _sampled(self, lists: npt.NDArray[np.int32], random: np.random.Generator) -> npt.NDArray[np.int32]:
        """Some members of each list."""
        parts = np.arange(_OF_FARTHER_LISTS) + random.random((*lists.shape, _OF_FARTHER_LISTS))
        places = self._lengths[lists][..., None] * parts // _OF_FARTHER_LISTS
        ids = self._lists.members[self._lists.begin[lists][..., None] + places.astype(np.int64)]
        return ids.reshape(len(lists), -1)

    def _anywhere(self, count: int, random: np.random.Generator) -> npt.NDArray[np.int32]:
        return random.integers(0, len(self._rows), (count, _ANYWHERE), np.int32)

    def _nearest(self, rings: list[tuple[npt.NDArray[np.int32], int]], asking: int) -> tuple[Array, Array]:
        """The distances of the first vectors of the first ring to the nearest ones of each ring, and their ids."""
        arrays = self._arrays
        parts: list[tuple[Array, Array]] = []
        for ring, count in rings:
            ids = arrays.put(np.maximum(ring, 0))
            vectors = self._rows.of(ids)
            lengths = (vectors * vectors).sum(-1)
            if not parts:
                own, own_lengths = vectors[:, :asking] * -2.0, lengths[:, :asking, None]
            distances = own @ vectors.swapaxes(1, 2)
            distances += arrays.chosen(arrays.put(ring >= 0), lengths, float("inf"))[:, None, :]
            found, places = arrays.smallest(distances, min(count, ring.shape[1]))
            places = places + (arrays.arange(len(ring)) * ring.shape[1])[:, None, None]
            parts.append((found + own_lengths, ids.reshape(-1)[places]))
        return arrays.joined([found for found, _ in parts], -1), arrays.joined([ids for _, ids in parts], -1)

    def _pruned(self, distances: Array, ids: Array) -> npt.NDArray[np.int32]:
        """The edges that candidates in the order of their distances make: those in different directions first."""
        arrays = self._arrays
        there = distances < float("inf")
        picks = diverse(arrays, self._rows.of(ids), distances, there, self._degree, by_product=False)
        names = arrays.chosen(there, arrays.longs(ids), NO_NEIGHBOUR)
        picked = arrays.chosen(picks >= 0, arrays.along(names, picks * (picks >= 0)), NO_NEIGHBOUR)
        edges = arrays.get(once(arrays, arrays.joined([picked, names], 1), self._degree))
        return edges.astype(np.uint32).view(np.int32)
