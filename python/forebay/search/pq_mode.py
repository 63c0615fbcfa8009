# SPDX-License-Identifier: Apache-2.0
"""The mode ``pq``: codes in the device's memory lead a search. It reads one record for each vector that it looks at."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from forebay._native import interruptible, search_core
from forebay.errors import RefusedInput
from forebay.search.build_options import BuildOptions, Progress
from forebay.search.index_file import Meta, read_part, write_whole
from forebay.search.prepared import prepare
from forebay.search.proximity_graph import build_graph
from forebay.search.quantiser import CENTROIDS, encode, train_codebook
from forebay.search.records import RecordLayout
from forebay.storage import Storage

_NAVIGATION_DEGREE = 32
_NAVIGATION_SHARE, _NAVIGATION_LEAST = 100, 64
_PIECE_BYTES = 32 << 20


class Rows(Protocol):
    """Rows of which some are asked for at a time: an array, or what reads them from a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: npt.NDArray[np.integer[Any]], /) -> npt.NDArray[Any]: ...


def layout_of(meta: Meta) -> RecordLayout:
    """Returns where the parts of a record are."""
    return RecordLayout(meta.record_words, meta.vector_words, meta.graph_degree)


def write(
    storage: Storage,
    name: str,
    vectors: npt.NDArray[Any],
    graph: npt.NDArray[np.uint32],
    meta: Meta,
    options: BuildOptions,
) -> Meta:
    """Writes all extents of an index but its meta and what is live.

    Args:
        storage: Where to.
        name: The name of the index.
        vectors: By id.
        graph: The ids of neighbours, by id; ``NO_NEIGHBOUR`` after the last of each.
        meta: What is known before the codes are.
        options: The options of the build.

    Returns:
        The meta, with what is known now.
    """
    codebook = train_codebook(
        vectors,
        options.chunks,
        metric=meta.metric,
        seed=options.seed,
        device=options.device,
        progress=options.progress,
    )
    codes = np.zeros((meta.slots, options.chunks), np.uint8)
    codes[meta.map.of(np.arange(len(vectors)))] = encode(
        vectors, codebook, metric=meta.metric, device=options.device, progress=options.progress
    )
    sample, around = navigation_of(vectors, meta.metric, options)
    width = codebook.shape[2]
    meta = dataclasses.replace(
        meta,
        chunk_offsets=[min(meta.dimension, chunk * width) for chunk in range(options.chunks + 1)],
        chunk_dimension=width,
        navigation_vertices=len(sample),
        navigation_degree=around.shape[1],
    )
    write_records(storage, name, vectors, graph, meta, replace=options.replace, tell=options.tell)
    parts: dict[str, npt.NDArray[Any]] = {
        "codes": codes,
        "codebook": codebook.astype("<f4"),
        "navigation": np.concatenate([meta.map.of(sample), around.reshape(-1)]).astype("<u4"),
    }
    for part, array in parts.items():
        write_whole(storage, f"{name}/{part}", array, replace=options.replace)
    return meta.with_checksums(**parts)


def write_records(
    storage: Storage,
    name: str,
    vectors: Rows,
    graph: Rows,
    meta: Meta,
    *,
    replace: bool,
    tell: Progress,
) -> None:
    """Writes a record for each slot, some MiB at a time."""
    layout = layout_of(meta)
    with storage.new_extent(f"{name}/nodes", layout.size_bytes * meta.slots, replace=replace) as write_piece:
        piece = max(1, _PIECE_BYTES // layout.size_bytes)
        for first in range(0, meta.slots, piece):
            slots = np.arange(first, min(first + piece, meta.slots))
            ids = meta.map.ids(slots)
            used = ids < len(vectors)
            records = np.zeros((len(slots), layout.words), "<u4")
            records[used] = layout.pack(slots[used], vectors[ids[used]], meta.map.of_lists(graph[ids[used]]))
            write_piece(records, first * layout.size_bytes)
            tell("write", int(slots[-1]) + 1, meta.slots)


def navigation_of(
    vectors: Rows, metric: str, options: BuildOptions
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Returns the ids of a sample in a random order, and the neighbours of each within the sample."""
    count = len(vectors)
    size = navigation_size(count)
    sample = np.random.default_rng(options.seed).permutation(count)[:size].astype(np.uint32)
    return sample, navigation_graph(vectors[sample], metric, seed=options.seed, device=options.device)


def navigation_size(count: int) -> int:
    """Returns how many of so many vectors are in the sample."""
    return min(count, max(_NAVIGATION_LEAST, count // _NAVIGATION_SHARE))


def navigation_graph(
    sample: npt.NDArray[Any], metric: str, *, seed: int, device: str = "cpu"
) -> npt.NDArray[np.uint32]:
    """Returns the neighbours of each vector of a sample within it, as numbers of the sample."""
    degree = min(_NAVIGATION_DEGREE, max(1, len(sample) - 1))
    return build_graph(sample, metric=metric, graph_degree=degree, seed=seed, device=device)


class PqSearcher:
    """The parts of an index in the device's memory. Several threads may search; the searches take turns."""

    def __init__(
        self, storage: Storage, name: str, meta: Meta, memory: str, given: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None:
        """Takes or reads the parts and copies them to the device. ``Index`` describes the errors.

        Args:
            storage: Where the index is.
            name: The name of the index.
            meta: Its meta.
            memory: One of ``MEMORIES``.
            given: Parts that are newer than those of the storage, by their names.
        """
        given = given or {}
        self._meta = meta
        self._stale = False
        codes = given["codes"] if "codes" in given else read_part(storage, name, meta, "codes")
        self.codes: npt.NDArray[np.uint8] = codes.reshape(meta.slots, meta.chunks)
        self.codebook: npt.NDArray[np.float32] = read_part(storage, name, meta, "codebook").reshape(
            meta.chunks, CENTROIDS, meta.chunk_dimension
        )
        self._navigation: npt.NDArray[np.uint32] = (
            given["navigation"] if "navigation" in given else read_part(storage, name, meta, "navigation")
        )
        self._storage, self._name, self._memory = storage, name, memory
        self.place()

    @property
    def device_bytes(self) -> int:
        """The bytes in the device's memory."""
        return self.codes.nbytes + self.codebook.nbytes + self._navigation.nbytes

    @property
    def navigation_slots(self) -> npt.NDArray[np.uint32]:
        """The slots of the sample."""
        return self._navigation[: self._meta.navigation_vertices]

    def set_codes(self, slots: npt.NDArray[np.uint32], codes: npt.NDArray[np.uint8]) -> None:
        """Changes the codes of slots. The device gets them before the next search."""
        self.codes[slots] = codes
        self._stale = True

    def set_navigation(self, meta: Meta, navigation: npt.NDArray[np.uint32]) -> None:
        """Takes another graph of a sample, whose numbers the meta has. The device gets it before the next search."""
        self._meta, self._navigation = meta, navigation
        self._stale = True

    def place(self) -> None:
        """Copies the codes to the device, and all records if they are to be in memory."""
        meta = self._meta
        parts = {
            "shape": search_core().Shape(
                dtype=meta.dtype,
                metric=meta.metric,
                slots=meta.slots,
                record_words=meta.record_words,
                vector_words=meta.vector_words,
                degree_max=meta.graph_degree,
                chunks=meta.chunks,
                chunk_dimension=meta.chunk_dimension,
                navigation_degree=meta.navigation_degree,
            ),
            "codes": self.codes.reshape(-1),
            "codebook": np.ascontiguousarray(self.codebook.transpose(0, 2, 1)).reshape(-1),
            "navigation_slots": self.navigation_slots,
            "navigation_neighbours": self._navigation[meta.navigation_vertices :],
        }
        index = search_core().Index
        nodes = f"{self._name}/nodes"
        if self._memory == "storage":
            self._native: Any = index.on_drives(self._storage._native, nodes, **parts)
        else:
            records = np.empty(meta.slots * meta.record_words, "<u4")
            self._storage.read_extent(nodes, records)
            device = self._storage.report()["device"]
            self._native = index.in_memory(records, self._memory, device=device, **parts)

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
        if iterations:
            raise RefusedInput("max_iterations", iterations, "only an index of the mode exact has it; leave it out")
        if self._stale:
            self._native = None  # first: the device may have no room for both
            self.place()
            self._stale = False
        meta = self._meta
        prepared = prepare(queries, meta.metric, meta.vector_words, self.codebook, meta.chunk_offsets)
        found: dict[str, Any] = interruptible(
            self._native.search,
            len(queries),
            words=prepared.words.reshape(-1),
            norms=prepared.norms,
            components=prepared.components.reshape(-1),
            offsets_and_scales=prepared.offsets_and_scales.reshape(-1),
            filter_bits=filter_bits,
            list_size=list_size,
            width=width,
            refill=refill,
            navigation_size=begin_with,
            **options,
        )
        return found
