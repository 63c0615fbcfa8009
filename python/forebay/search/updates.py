# SPDX-License-Identifier: Apache-2.0
"""Streaming changes of an index of the mode ``pq``: inserts, deletes, consolidation, and the flush that keeps them.

It follows FreshDiskANN (Singh et al., 2021, arXiv:2105.09613). Records are written in place at once. What says which
of them count (the number of ids, what is live, the codes) changes in memory first, and on the drives by ``flush``.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.search._arrays import OnCpu
from forebay.search.build_options import Progress
from forebay.search.exact import NO_NEIGHBOUR
from forebay.search.index_file import Meta, live_words
from forebay.search.journal import Journal
from forebay.search.pq_mode import PqSearcher, navigation_graph, navigation_size
from forebay.search.prepared import code_rows
from forebay.search.pruning import diverse, once
from forebay.search.quantiser import decode, encode
from forebay.search.record_file import RecordFile
from forebay.storage import Storage

_BATCH = 512  # vectors that are inserted together
_CANDIDATES_LEAST = 48  # that a search for neighbours finds; for large degrees one and a half times the degree
_MATES = 32  # candidates of a vector among those that are inserted with it
_PIECE_BYTES = 8 << 20
_CANDIDATE_NUMBERS = 1 << 22  # components or names of candidates that are compared at a time

Slots = npt.NDArray[np.uint32]
Search = Callable[[npt.NDArray[Any], npt.NDArray[np.uint32], int], npt.NDArray[np.uint32]]
"""Returns the slots of the nearest vectors of queries; of those whose bits are set; so many."""


class Updates:
    """Changes of one index. One thread at a time may use it; ``Index`` sees to that."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        meta: Meta,
        live: npt.NDArray[np.bool_],
        searcher: PqSearcher,
        search: Search,
    ) -> None:
        """Takes the index.

        Args:
            storage: Where the index is.
            name: The name of the index.
            meta: Its meta.
            live: For each slot whether its vector can be found; it is changed.
            searcher: The parts in memory; they are changed.
            search: Finds candidates.
        """
        self.meta = meta
        self._storage, self._name, self._live = storage, name, live
        self._searcher, self._search = searcher, search
        self._records = RecordFile(storage, name, meta)
        self._arrays = OnCpu()
        self._by_product = meta.metric == "inner_product"
        self._new_codes: list[Slots] = []
        self._navigation: npt.NDArray[np.uint32] | None = None  # if it is new
        self._pending = False
        self._take_unflushed()

    def insert(self, vectors: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """Inserts vectors that were checked. ``Index.insert`` describes the rest."""
        if _has_uneven_chunks(self.meta):
            remedy = "has chunks of different lengths, for which no code can be made: build it again, then insert"
            raise RefusedInput("index", self.meta.builder, remedy)
        room = self.meta.slots - self.meta.count
        if len(vectors) > room:
            remedy = f"are too many: there is room for {room} more; build the index again with a larger capacity"
            raise RefusedInput("vectors", f"{len(vectors)} vectors", remedy)
        begin = self.meta.count
        for first in range(0, len(vectors), _BATCH):
            self._insert_batch(vectors[first : first + _BATCH])
        return np.arange(begin, begin + len(vectors), dtype=np.uint32)

    def delete(self, ids: npt.NDArray[Any]) -> None:
        """Deletes vectors. ``Index.delete`` describes the rest."""
        if ids.size == 0:
            return
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            raise RefusedInput("ids", f"{ids.dtype} of shape {ids.shape}", "must be whole numbers of shape (ids,)")
        unknown = (ids < 0) | (ids >= self.meta.count)
        if unknown.any():
            remedy = f"was never given out: ids are 0 to {self.meta.count - 1}; leave it out"
            raise RefusedInput("ids", ids[unknown][0], remedy)
        different, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            raise RefusedInput("ids", different[counts > 1][0], "stands there twice: give each id once")
        slots = self.meta.map.of(ids)
        gone = ~self._live[slots]
        if gone.any():
            raise RefusedInput("ids", ids[gone][0], "is deleted already; leave it out")
        self._live[slots] = False
        self._pending = True

    def flush(self) -> None:
        """Makes all changes durable. ``Index.flush`` describes the rest."""
        if not self._pending:
            return
        self._storage.flush()  # first: the journal makes records count that must be whole by then
        slots = np.unique(np.concatenate([np.zeros(0, np.uint32), *self._new_codes]))
        parts = {"live": live_words(self._live)}
        if self._navigation is not None:
            parts["navigation"] = self._navigation
        meta = self.meta.with_checksums(codes=self._searcher.codes, **parts)
        journal = Journal(meta, slots, self._searcher.codes[slots], parts)
        journal.write(self._storage, self._name)
        journal.apply(self._storage, self._name)
        self.meta = meta
        self._new_codes, self._navigation, self._pending = [], None, False

    def consolidate(self, progress: Progress | None) -> None:
        """Takes deleted vectors out of all lists. ``Index.consolidate`` describes the rest."""
        # First: a list must not lose a vector that would be live again after a crash.
        self.flush()
        piece = max(1, _PIECE_BYTES // self._records.layout.size_bytes)
        for first in range(0, self.meta.slots, piece):
            end = min(first + piece, self.meta.slots)
            slots = (first + np.flatnonzero(self._live[first:end])).astype(np.uint32)
            self._consolidate_piece(slots)
            if progress:
                progress("consolidate", end, self.meta.slots)
        self._renew_navigation()
        self.flush()

    def _take_unflushed(self) -> None:
        """Gives their codes back to vectors that were inserted and never flushed, as far as lists may name them.

        They are not live, as deleted ones are not. With the code of zeros, all of them would be as near to a query as
        one vector, and could fill the candidates of a search.
        """
        meta = self.meta
        first = meta.count
        number = 1  # of an index without such vectors, no more than one record is read
        while first < meta.slots:
            slots = meta.map.of(np.arange(first, min(first + number, meta.slots)))
            order = np.argsort(slots)
            records, sound = self._records.read_any(slots[order])
            slots, records = slots[order][sound], records[sound]
            if len(slots):
                vectors = self._records.layout.vectors(records, np.dtype(meta.dtype), meta.dimension)
                self._searcher.set_codes(slots, encode(vectors, self._searcher.codebook, metric=meta.metric))
                self._new_codes.append(slots)
            # Ids are given out in order, and lists name a batch when all of its records are there: none comes after.
            if not sound.all():
                return
            first, number = first + number, _BATCH

    def _insert_batch(self, vectors: npt.NDArray[Any]) -> None:
        meta = self.meta
        slots = meta.map.of(np.arange(meta.count, meta.count + len(vectors)))
        order = np.argsort(slots)
        slots, vectors = slots[order], np.ascontiguousarray(vectors[order])
        rows = code_rows(vectors, meta.metric)
        candidates = self._candidates(vectors, rows, slots)
        self._searcher.set_codes(slots, encode(vectors, self._searcher.codebook, metric=meta.metric))
        self._new_codes.append(slots)
        self._pending = True
        lists = self._chosen(rows, candidates)
        targets, records, changed = self._with_reverse(slots, lists)
        self._records.write(slots, self._records.layout.pack(slots, vectors, lists))
        # Before any list names a new record, that record is durable: so no list leads to one that was never written.
        self._storage.flush()
        self._write_lists(targets, records, changed)
        self._live[slots] = True
        self.meta = dataclasses.replace(meta, count=meta.count + len(vectors))

    def _candidates(self, vectors: npt.NDArray[Any], rows: npt.NDArray[np.float32], slots: Slots) -> Slots:
        """The slots of vectors near each new one: live ones, deleted ones if there are few, and other new ones."""
        meta = self.meta
        wanted = max(_CANDIDATES_LEAST, meta.graph_degree * 3 // 2)
        found = self._search(vectors, live_words(self._live), wanted)
        if (found == NO_NEIGHBOUR).all(1).any():
            # Where all around is deleted, searches go through deleted vectors, so these must lead to the new one.
            linked = np.zeros(len(self._live), bool)
            linked[meta.map.of(np.arange(meta.count))] = True
            found = np.concatenate([found, self._search(vectors, live_words(linked), wanted)], axis=1)
        mates = min(_MATES, len(slots) - 1)
        if not mates:
            return found
        products = rows @ rows.T
        squares = np.diagonal(products)
        distances = -products if self._by_product else squares[:, None] + squares[None] - 2 * products
        np.fill_diagonal(distances, np.inf)
        return np.concatenate([found, slots[np.argpartition(distances, mates - 1, axis=1)[:, :mates]]], axis=1)

    def _chosen(self, rows: npt.NDArray[np.float32], names: Slots) -> Slots:
        """Of candidates of each row those that become its neighbours: those in different directions, then the nearest.

        Their vectors are those that their codes stand for, so that no record is read for it.

        Args:
            rows: As ``code_rows`` returns them, of shape ``(rows, dimension)``.
            names: Slots, of shape ``(rows, candidates)``, in any order and maybe twice; ``NO_NEIGHBOUR`` for none.

        Returns:
            Slots, of shape ``(rows, graph_degree)``, with ``NO_NEIGHBOUR`` after the last of each.
        """
        degree = self.meta.graph_degree
        most = max(3 * degree, _CANDIDATES_LEAST + _MATES)
        lists = np.full((len(rows), degree), NO_NEIGHBOUR, np.uint32)
        wide = names.shape[1]
        step = max(1, _CANDIDATE_NUMBERS // (min(wide, most) * (self.meta.dimension + min(wide, most)) + wide))
        for first in range(0, len(rows), step):
            some = slice(first, first + step)
            lists[some] = self._chosen_of(rows[some], names[some].astype(np.int64), degree, most)
        return lists

    def _chosen_of(
        self, rows: npt.NDArray[np.float32], names: npt.NDArray[np.int64], degree: int, most: int
    ) -> npt.NDArray[np.uint32]:
        names = once(self._arrays, names, names.shape[1])
        names = names[:, : max(1, int((names != NO_NEIGHBOUR).sum(1).max(initial=0)))]
        direct = np.full(names.shape, np.inf, np.float32)
        for row, line in enumerate(names):  # of one row at a time: there may be many candidates
            count = int((line != NO_NEIGHBOUR).sum())
            direct[row, :count] = self._distances(rows[row], self._vectors(line[:count]))
        order = np.argsort(direct, axis=1, kind="stable")[:, :most]
        names, direct = np.take_along_axis(names, order, 1), np.take_along_axis(direct, order, 1)
        given = names != NO_NEIGHBOUR
        others = self._vectors(np.where(given, names, 0))
        picks = diverse(self._arrays, others, direct, given, degree, by_product=self._by_product)
        picked = np.where(picks >= 0, np.take_along_axis(names, np.maximum(picks, 0), 1), NO_NEIGHBOUR)
        kept: npt.NDArray[np.int64] = once(self._arrays, np.concatenate([picked, names], axis=1), degree)
        return kept.astype(np.uint32)

    def _vectors(self, slots: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """What the codes of slots stand for, with one more axis."""
        searcher = self._searcher
        rows = decode(searcher.codes[slots.reshape(-1)], searcher.codebook, self.meta.dimension)
        return rows.reshape(*slots.shape, self.meta.dimension)

    def _distances(self, row: npt.NDArray[np.float32], others: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self._by_product:
            return -(others @ row)
        difference = others - row[None]
        squares: npt.NDArray[np.float32] = np.einsum("ij,ij->i", difference, difference)
        return squares

    def _with_reverse(self, slots: Slots, lists: Slots) -> tuple[Slots, npt.NDArray[np.uint32], Slots]:
        """Makes the vectors that new ones name name them too; new lists are changed in place.

        Returns:
            The slots of older vectors that are to change, their records, and their new lists.
        """
        degree = self.meta.graph_degree
        sources, places = np.nonzero(lists != NO_NEIGHBOUR)
        names = lists[sources, places]
        targets = np.setdiff1d(names, slots)
        records = self._records.read(targets)
        layout = self._records.layout
        owners = np.concatenate([targets, slots])
        before = np.concatenate([layout.neighbours(records), lists])
        by_owner = np.argsort(owners)
        owner = by_owner[np.searchsorted(owners, names, sorter=by_owner)]
        order = np.argsort(owner, kind="stable")
        owner, added = owner[order], slots[sources[order]]
        rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
        behind = np.full((len(owners), int(rank.max(initial=-1)) + 1), NO_NEIGHBOUR, np.uint32)
        behind[owner, rank] = added
        joined = np.concatenate([before, behind], axis=1).astype(np.int64)
        width = joined.shape[1]
        after = np.empty_like(before)
        step = max(1, _CANDIDATE_NUMBERS // max(1, width))
        for first in range(0, len(owners), step):
            some = slice(first, first + step)
            merged = once(self._arrays, joined[some], width)
            full = (merged != NO_NEIGHBOUR).sum(1) > degree
            after[some] = merged[:, :degree].astype(np.uint32)
            if full.any():
                rows = first + np.flatnonzero(full)
                after[rows] = self._chosen(self._vectors(owners[rows]), merged[full].astype(np.uint32))
        self._lead_to(slots, lists, owners, after)
        lists[:] = after[len(targets) :]
        return targets, records, after[: len(targets)]

    def _lead_to(self, slots: Slots, forward: Slots, owners: Slots, lists: Slots) -> None:
        """Sees to it that some list names each new vector: else no search would find it."""
        lost = np.flatnonzero(~np.isin(slots, lists))
        by_owner = np.argsort(owners)
        for new in lost.tolist():
            names = forward[new][forward[new] != NO_NEIGHBOUR]
            for owner in by_owner[np.searchsorted(owners, names, sorter=by_owner)].tolist():
                old = np.flatnonzero(~np.isin(lists[owner], slots))
                if len(old):
                    lists[owner, old[-1]] = slots[new]
                    break

    def _write_lists(self, slots: Slots, records: npt.NDArray[np.uint32], lists: Slots) -> None:
        """Writes records again, with other lists."""
        layout = self._records.layout
        vectors = layout.vectors(records, np.dtype(self.meta.dtype), self.meta.dimension)
        self._records.write(slots, layout.pack(slots, vectors, lists))

    def _consolidate_piece(self, slots: Slots) -> None:
        records = self._records.read(slots)
        lists = self._records.layout.neighbours(records)
        rows = np.flatnonzero(self._dead(lists).any(1))
        degree = self.meta.graph_degree
        for some in _pieces(rows, max(1, _CANDIDATE_NUMBERS // (degree * self._records.layout.words))):
            own = lists[some].astype(np.int64)
            dead = self._dead(own)
            number = int(dead.sum(1).max())
            first = np.argsort(~dead, axis=1, kind="stable")[:, :number]
            gone = np.where(np.take_along_axis(dead, first, 1), np.take_along_axis(own, first, 1), NO_NEIGHBOUR)
            names = np.unique(gone[gone != NO_NEIGHBOUR]).astype(np.uint32)
            behind = np.full((len(names) + 1, degree), NO_NEIGHBOUR, np.uint32)
            behind[:-1] = self._records.layout.neighbours(self._records.read(names))
            at = np.where(gone == NO_NEIGHBOUR, len(names), np.searchsorted(names, gone))
            candidates = np.concatenate([own, behind[at].reshape(len(some), -1)], axis=1)
            candidates[self._dead(candidates) | (candidates == slots[some, None])] = NO_NEIGHBOUR
            vectors = self._records.layout.vectors(records[some], np.dtype(self.meta.dtype), self.meta.dimension)
            chosen = self._chosen(code_rows(vectors, self.meta.metric), candidates.astype(np.uint32))
            self._write_lists(slots[some], records[some], chosen)

    def _dead(self, names: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        given = names != NO_NEIGHBOUR
        dead: npt.NDArray[np.bool_] = given & ~self._live[np.where(given, names, 0)]
        return dead

    def _renew_navigation(self) -> None:
        """Takes a new sample if the old one has deleted vectors, or is far too small by now."""
        sample = self._searcher.navigation_slots
        there = np.flatnonzero(self._live)
        wanted = navigation_size(len(there))
        kept = sample[self._live[sample]]
        if not len(there) or (len(kept) == len(sample) and wanted <= 2 * len(sample)):
            return
        random = np.random.default_rng([self.meta.seed, self.meta.count])
        others = random.permutation(np.setdiff1d(there, kept))[: max(0, wanted - len(kept))]
        sample = random.permutation(np.concatenate([kept[:wanted], others])).astype(np.uint32)
        order = np.argsort(sample)
        vectors = np.empty((len(sample), self.meta.dimension), self.meta.dtype)
        for some in _pieces(order, max(1, _PIECE_BYTES // self._records.layout.size_bytes)):
            records = self._records.read(sample[some])
            vectors[some] = self._records.layout.vectors(records, vectors.dtype, self.meta.dimension)
        around = navigation_graph(vectors, self.meta.metric, seed=self.meta.seed)
        self._navigation = np.concatenate([sample, around.reshape(-1)]).astype("<u4")
        self.meta = dataclasses.replace(self.meta, navigation_vertices=len(sample), navigation_degree=around.shape[1])
        self._searcher.set_navigation(self.meta, self._navigation)
        self._pending = True


def checked_for_updates(mode: str, memory: str) -> None:
    """Refuses an index that cannot be changed.

    Raises:
        RefusedInput: It is of the mode ``exact``, or its records were copied to memory.
    """
    if mode != "pq":
        raise RefusedInput("mode", mode, "cannot be changed: build the index again, or use the mode pq")
    if memory != "storage":
        raise RefusedInput("memory", memory, "is a copy, which cannot be changed: open the index with memory='storage'")


def _has_uneven_chunks(meta: Meta) -> bool:
    """Whether the codes cut a vector in another way than ``encode`` does: those of DiskANN may."""
    width = -(-meta.dimension // meta.chunks)
    return meta.chunk_offsets != [min(meta.dimension, chunk * width) for chunk in range(meta.chunks + 1)]


def _pieces(array: npt.NDArray[np.intp], size: int) -> Iterator[npt.NDArray[np.intp]]:
    for first in range(0, len(array), size):
        yield array[first : first + size]
