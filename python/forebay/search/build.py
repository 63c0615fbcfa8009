# SPDX-License-Identifier: Apache-2.0
"""Builds an index, and writes it to drives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import text, whole
from forebay.errors import RefusedInput
from forebay.search.exact import NO_NEIGHBOUR, checked_vectors
from forebay.search.index_file import PARTS, Meta, checksum, extent_sizes, write_whole
from forebay.search.proximity_graph import build_graph
from forebay.search.quantiser import encode, train_codebook
from forebay.search.records import RecordLayout
from forebay.search.slots import Slots
from forebay.storage import Storage

Progress = Callable[[str, int, int], None]
"""Called now and then with the name of a step, and how much of how much of it is done."""

DIMENSION_MAX = 16384
SLOTS_MAX = 2**31 - 1
_DEGREE_DEFAULT = 64
_NAVIGATION_DEGREE = 32
_NAVIGATION_SHARE, _NAVIGATION_LEAST = 100, 64
_CHUNKS_MAX = 1024
_PIECE_BYTES = 32 << 20


def default_chunks(dimension: int) -> int:
    """Returns how many bytes a code has by default: one for four components, at most 64, and a multiple of 4."""
    return max(4, min(64, dimension // 4 // 4 * 4))


def write_index(
    storage: Storage,
    name: str,
    vectors: npt.ArrayLike,
    *,
    metric: str = "l2",
    graph_degree: int | None = None,
    chunks: int | None = None,
    capacity: int | None = None,
    graph: npt.NDArray[np.uint32] | None = None,
    seed: int = 0,
    device: str = "cpu",
    replace: bool = False,
    progress: Progress | None = None,
) -> None:
    """Builds an index and writes its extents. ``Index.build`` describes the arguments and the errors."""
    base = checked_vectors("vectors", vectors, metric)
    count, dimension = base.shape
    if not count:
        raise RefusedInput("vectors", "0 vectors", "has no vector; there is nothing to index")
    if dimension > DIMENSION_MAX:
        raise RefusedInput("vectors", f"dimension {dimension}", f"must have at most {DIMENSION_MAX} components")
    text("name", name)
    degree = whole("graph_degree", _DEGREE_DEFAULT if graph_degree is None else graph_degree)
    if graph is not None:
        degree = _checked_graph(graph, count) if graph_degree is None else degree
    pieces = whole("chunks", default_chunks(dimension) if chunks is None else chunks)
    if not 4 <= pieces <= min(_CHUNKS_MAX, max(4, dimension)) or pieces % 4:
        most = min(_CHUNKS_MAX, max(4, dimension))
        raise RefusedInput("chunks", pieces, f"must be a multiple of 4, from 4 to {most}")
    room = whole("capacity", count if capacity is None else capacity)
    if not count <= room <= SLOTS_MAX:
        raise RefusedInput(
            "capacity", room, f"must be at least the number of vectors, {count}, and at most {SLOTS_MAX}"
        )
    layout = RecordLayout.of(base.dtype, dimension, degree, storage.block_bytes)
    _require_names(storage, name, replace=replace)
    _require_room(storage, layout.size_bytes * room + pieces * room)

    tell = progress or (lambda _step, _done, _total: None)
    if graph is None:
        graph = build_graph(base, metric=metric, graph_degree=degree, seed=seed, device=device, progress=progress)
    codebook = train_codebook(base, pieces, metric=metric, seed=seed, device=device, progress=progress)
    codes_by_id = encode(base, codebook, metric=metric, device=device, progress=progress)
    slots = Slots.spread(room, seed)
    codes = np.zeros((room, pieces), np.uint8)
    codes[slots.of(np.arange(count))] = codes_by_id
    sample, around = _navigation(base, metric, seed, device)
    navigation = np.concatenate([slots.of(sample), around.reshape(-1)]).astype("<u4")
    width = codebook.shape[2]
    meta = Meta(
        dtype=base.dtype.name,
        dimension=dimension,
        metric=metric,
        count=count,
        slots=room,
        slot_factor=slots.factor,
        slot_offset=slots.offset,
        record_words=layout.words,
        vector_words=layout.vector_words,
        graph_degree=degree,
        chunk_offsets=[min(dimension, chunk * width) for chunk in range(pieces + 1)],
        chunk_dimension=width,
        navigation_vertices=len(sample),
        navigation_degree=around.shape[1],
        seed=seed,
        builder="forebay",
        checksums={},
    )
    live = live_words(room, slots.of(np.arange(count)))
    write_parts(storage, name, meta, base, graph, codes, codebook, navigation, live, replace=replace, tell=tell)


def write_parts(
    storage: Storage,
    name: str,
    meta: Meta,
    vectors: npt.NDArray[Any],
    graph: npt.NDArray[np.uint32],
    codes: npt.NDArray[np.uint8],
    codebook: npt.NDArray[np.float32],
    navigation: npt.NDArray[np.uint32],
    live: npt.NDArray[np.uint32],
    *,
    replace: bool,
    tell: Progress,
) -> None:
    """Writes the extents of an index, the meta last: without it there is no index.

    Args:
        storage: Where to.
        name: The name of the index.
        meta: Without checksums.
        vectors: By id.
        graph: The ids of neighbours, by id; ``NO_NEIGHBOUR`` after the last of each.
        codes: By slot.
        codebook: Of shape ``(chunks, 256, chunk_dimension)``.
        navigation: As the extent has it.
        live: As the extent has it.
        replace: Take the place of an index of that name.
        tell: Called with the progress.

    Raises:
        RefusedInput: As ``Storage.new_extent``.
        OperationFailed: As ``Storage.new_extent``.
    """
    for extent in (f"{name}/meta", f"{name}/journal"):
        if replace and extent in extent_sizes(storage):
            storage.remove_extent(extent)
    layout, where = meta.layout, meta.map
    with storage.new_extent(f"{name}/nodes", layout.size_bytes * meta.slots, replace=replace) as write:
        piece = max(1, _PIECE_BYTES // layout.size_bytes)
        for first in range(0, meta.slots, piece):
            slots = np.arange(first, min(first + piece, meta.slots))
            ids = where.ids(slots)
            used = ids < len(vectors)
            records = np.zeros((len(slots), layout.words), "<u4")
            lists = graph[ids[used]]
            given = lists != NO_NEIGHBOUR
            lists = np.where(given, where.of(np.where(given, lists, 0)), NO_NEIGHBOUR).astype(np.uint32)
            records[used] = layout.pack(slots[used], vectors[ids[used]], lists)
            write(records, first * layout.size_bytes)
            tell("write", int(slots[-1]) + 1, meta.slots)
    parts: dict[str, npt.NDArray[Any]] = {
        "codes": codes,
        "codebook": codebook.astype("<f4"),
        "navigation": navigation,
        "live": live,
    }
    for part in PARTS:
        write_whole(storage, f"{name}/{part}", parts[part], replace=replace)
    sums = {part: checksum(array) for part, array in parts.items()}
    whole_meta = Meta(**{**vars(meta), "checksums": sums})
    write_whole(storage, f"{name}/meta", whole_meta.to_bytes(), replace=replace)


def live_words(slots: int, used: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Returns a bit for each slot, in words of 32: 1 for those in ``used``."""
    bits = np.zeros(-(-slots // 32) * 32, np.uint8)
    bits[used] = 1
    return np.packbits(bits, bitorder="little").view("<u4")


def _checked_graph(graph: npt.NDArray[np.uint32], count: int) -> int:
    if graph.ndim != 2 or len(graph) != count or graph.dtype != np.uint32 or not graph.shape[1]:
        raise RefusedInput(
            "graph", f"{graph.dtype} of shape {graph.shape}", f"must be uint32 of shape ({count}, graph_degree)"
        )
    bad = (graph >= count) & (graph != NO_NEIGHBOUR)
    if bad.any():
        raise RefusedInput("graph", graph[bad][0], f"must be ids, 0 to {count - 1}")
    return graph.shape[1]


def _require_names(storage: Storage, name: str, *, replace: bool) -> None:
    if not name or "/" in name:
        raise RefusedInput("name", name, "must be a name without '/', and not empty")
    taken = f"{name}/meta" in extent_sizes(storage)
    if taken and not replace:
        raise RefusedInput("name", name, "is in use: choose another, or replace that index")


def _require_room(storage: Storage, needed_bytes: int) -> None:
    if needed_bytes > storage.size_bytes:
        raise RefusedInput(
            "storage",
            f"{storage.size_bytes} bytes",
            f"is too small for the index, which needs {needed_bytes} bytes and some MiB: use larger drives",
        )


def _navigation(
    base: npt.NDArray[Any], metric: str, seed: int, device: str
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The ids of a sample, and the neighbours of each within the sample."""
    count = len(base)
    size = min(count, max(_NAVIGATION_LEAST, count // _NAVIGATION_SHARE))
    sample = np.random.default_rng(seed).permutation(count)[:size].astype(np.uint32)
    degree = min(_NAVIGATION_DEGREE, max(1, size - 1))
    vectors = base[np.sort(sample)][np.argsort(np.argsort(sample))]
    return sample, build_graph(vectors, metric=metric, graph_degree=degree, seed=seed, device=device)
