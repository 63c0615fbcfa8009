# SPDX-License-Identifier: Apache-2.0
"""The mode ``exact``: a search reads the list of each vector that it looks at, and the vectors of all its neighbours.

It is the layout of SwarmIO's study of vector search: it needs next to no memory of the device, and many small reads.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._native import interruptible, search_core
from forebay.errors import RefusedInput
from forebay.search.build_options import BuildOptions
from forebay.search.exact_records import ExactLayout, short_checksums
from forebay.search.index_file import Meta, read_part, write_whole
from forebay.search.prepared import prepare_exact
from forebay.storage import Storage

_ENTRIES = 512
_PIECE_BYTES = 32 << 20


def layout_of(meta: Meta) -> ExactLayout:
    """Returns where the parts of a list are."""
    return ExactLayout(meta.record_words, meta.vector_words, meta.graph_degree)


def write(
    storage: Storage,
    name: str,
    vectors: npt.NDArray[Any],
    graph: npt.NDArray[np.uint32],
    meta: Meta,
    options: BuildOptions,
) -> Meta:
    """Writes all extents of an index but its meta and what is live. The arguments are those of ``pq_mode.write``."""
    layout, where = layout_of(meta), meta.map
    short = np.zeros(meta.slots, np.uint16)
    vector_bytes, list_bytes = 4 * layout.vector_words, 4 * layout.list_words
    with storage.new_extent(f"{name}/vectors", vector_bytes * meta.slots, replace=options.replace) as write_piece:
        for slots, ids, used in _pieces(meta, len(vectors), vector_bytes):
            blocks = np.zeros((len(slots), layout.vector_words), "<u4")
            blocks[used] = layout.pack_vectors(vectors[ids[used]])
            short[slots] = short_checksums(slots, blocks)
            write_piece(blocks, int(slots[0]) * vector_bytes)
            options.tell("write vectors", int(slots[-1]) + 1, meta.slots)
    with storage.new_extent(f"{name}/lists", list_bytes * meta.slots, replace=options.replace) as write_piece:
        for slots, ids, used in _pieces(meta, len(vectors), list_bytes):
            lists = np.zeros((len(slots), layout.list_words), "<u4")
            lists[used] = layout.pack_lists(slots[used], where.of_lists(graph[ids[used]]), short)
            write_piece(lists, int(slots[0]) * list_bytes)
            options.tell("write lists", int(slots[-1]) + 1, meta.slots)
    count = min(len(vectors), _ENTRIES)
    begin = where.of(np.random.default_rng(options.seed).permutation(len(vectors))[:count])
    entries = np.concatenate([begin, short[begin]]).astype("<u4")
    write_whole(storage, f"{name}/entries", entries, replace=options.replace)
    return dataclasses.replace(meta, navigation_vertices=count).with_checksums(entries=entries)


def _pieces(meta: Meta, count: int, item_bytes: int) -> Any:  # noqa: ANN401 (tuples of arrays)
    piece = max(1, _PIECE_BYTES // item_bytes)
    for first in range(0, meta.slots, piece):
        slots = np.arange(first, min(first + piece, meta.slots))
        ids = meta.map.ids(slots)
        yield slots, ids, ids < count


class ExactSearcher:
    """The entry points of an index in the device's memory. Several threads may search; the searches take turns."""

    def __init__(self, storage: Storage, name: str, meta: Meta, memory: str) -> None:
        """Reads the entry points and copies them to the device. ``Index`` describes the errors."""
        self._meta = meta
        self._entries: npt.NDArray[np.uint32] = read_part(storage, name, meta, "entries")
        layout = layout_of(meta)
        parts = {
            "shape": search_core().ExactShape(
                dtype=meta.dtype,
                metric=meta.metric,
                slots=meta.slots,
                list_words=layout.list_words,
                vector_words=layout.vector_words,
                degree_max=layout.degree_max,
            ),
            "entry_slots": self._entries[: meta.navigation_vertices],
            "entry_checksums": self._entries[meta.navigation_vertices :],
        }
        index = search_core().ExactIndex
        lists, vectors = f"{name}/lists", f"{name}/vectors"
        if memory == "storage":
            self._native: Any = index.on_drives(storage._native, lists, vectors, **parts)
        else:
            copies = [np.empty(meta.slots * words, "<u4") for words in (layout.list_words, layout.vector_words)]
            for extent, copy in zip((lists, vectors), copies, strict=True):
                storage.read_extent(extent, copy)
            self._native = index.in_memory(*copies, memory, device=storage.report()["device"], **parts)

    @property
    def device_bytes(self) -> int:
        """The bytes in the device's memory."""
        return self._entries.nbytes

    def search(
        self,
        queries: npt.NDArray[Any],
        *,
        filter_bits: npt.NDArray[np.uint32],
        list_size: int,
        width: int,
        refill: int,
        begin_with: int,
        iterations: int,
        **options: float,
    ) -> dict[str, Any]:
        """Searches. ``Index.search`` describes the arguments, and the module ``_search`` the result."""
        if not width:
            raise RefusedInput("search_width", "auto", "an index of the mode exact needs a number, 1 to 8")
        if refill != 1:
            raise RefusedInput("refill_size", refill, "an index of the mode exact reads step by step; leave it out")
        words, norms = prepare_exact(queries, self._meta.vector_words)
        found: dict[str, Any] = interruptible(
            self._native.search,
            len(queries),
            words=words.reshape(-1),
            norms=norms,
            filter_bits=filter_bits,
            list_size=list_size,
            width=width,
            entries=begin_with,
            iterations=iterations,
            **options,
        )
        return found
