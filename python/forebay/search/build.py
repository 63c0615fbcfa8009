# SPDX-License-Identifier: Apache-2.0
"""Builds an index, and writes it to drives."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import text, whole
from forebay.errors import OperationFailed, RefusedInput
from forebay.search import exact_mode, pq_mode
from forebay.search.build_options import BuildOptions, Progress
from forebay.search.exact import NO_NEIGHBOUR, checked_vectors
from forebay.search.exact_records import ExactLayout
from forebay.search.index_file import MODES, Meta, extent_sizes, live_words, write_whole
from forebay.search.proximity_graph import build_graph
from forebay.search.records import RecordLayout
from forebay.search.slots import Slots
from forebay.storage import Storage

DIMENSION_MAX = 16384
SLOTS_MAX = 2**31 - 1
DEGREE_DEFAULT = 64
_CHUNKS_MAX = 1024
_EXTENT_ALIGNMENT = 1 << 20
_PARTS = (
    *("meta", "live", "journal"),
    *("nodes", "codes", "codebook", "navigation"),  # of the mode pq
    *("vectors", "lists", "entries"),  # of the mode exact
)


def default_chunks(dimension: int) -> int:
    """Returns how many bytes a code has by default: one for four components, at most 64, and a multiple of 4."""
    return max(4, min(64, dimension // 4 // 4 * 4))


def write_index(
    storage: Storage,
    name: str,
    vectors: npt.ArrayLike,
    *,
    mode: str,
    metric: str,
    graph_degree: int | None,
    chunks: int | None,
    capacity: int | None,
    graph: npt.NDArray[np.uint32] | None,
    seed: int,
    device: str,
    replace: bool,
    checkpoints: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> None:
    """Builds an index and writes its extents, the meta last. ``Index.build`` describes the arguments and the errors."""
    if mode not in MODES:
        raise RefusedInput("mode", mode, f"must be {' or '.join(MODES)}")
    base = checked_vectors("vectors", vectors, metric)
    count, dimension = base.shape
    if not count:
        raise RefusedInput("vectors", "0 vectors", "has no vector; there is nothing to index")
    if dimension > DIMENSION_MAX:
        raise RefusedInput("vectors", f"dimension {dimension}", f"must have at most {DIMENSION_MAX} components")
    degree = whole("graph_degree", DEGREE_DEFAULT if graph_degree is None else graph_degree)
    if graph is not None:
        if checkpoints is not None:
            remedy = "is for the steps that find a graph, and one is given: leave one of them out"
            raise RefusedInput("checkpoints", checkpoints, remedy)
        degree = max(_checked_graph(graph, count), degree if graph_degree is not None else 0)
    options = BuildOptions(
        chunks=_checked_chunks(chunks, dimension),
        seed=whole("seed", seed),
        device=text("device", device),
        replace=bool(replace),
        progress=progress,
    )
    room = whole("capacity", count if capacity is None else capacity)
    if not count <= room <= SLOTS_MAX:
        remedy = f"must be at least the number of vectors, {count}, and at most {SLOTS_MAX}"
        raise RefusedInput("capacity", room, remedy)
    slots = Slots.spread(room, options.seed)
    words, slot_bytes = slot_layout(mode, base.dtype, dimension, degree, storage.block_bytes, options.chunks)
    require_name(storage, name, replace=options.replace)
    require_room(storage, name, part_sizes(mode, count, room, slot_bytes, dimension, options.chunks))

    if graph is None:
        graph = build_graph(
            base,
            metric=metric,
            graph_degree=degree,
            seed=options.seed,
            device=options.device,
            checkpoints=None if checkpoints is None else Path(checkpoints),
            progress=progress,
        )
    meta = Meta(
        mode=mode,
        dtype=base.dtype.name,
        dimension=dimension,
        metric=metric,
        count=count,
        slots=room,
        slot_factor=slots.factor,
        slot_offset=slots.offset,
        record_words=words[0],
        vector_words=words[1],
        graph_degree=degree,
        chunk_offsets=[],
        chunk_dimension=0,
        navigation_vertices=0,
        navigation_degree=0,
        seed=options.seed,
        builder="forebay",
        checksums={},
    )
    remove_old(storage, name, replace=options.replace)
    with whole_or_nothing(storage, name):
        meta = (pq_mode if mode == "pq" else exact_mode).write(storage, name, base, graph, meta, options)
        live = live_words(slots.ids(np.arange(room)) < count)
        write_whole(storage, f"{name}/live", live, replace=options.replace)
        write_whole(storage, f"{name}/meta", meta.with_checksums(live=live).to_bytes(), replace=options.replace)


def remove_old(storage: Storage, name: str, *, replace: bool) -> None:
    """Makes an index that is to be replaced none, before its parts are written over: it loses its meta first.

    Its journal, which could be left of a former index of that name, must not change this one.
    """
    for extent in (f"{name}/meta", f"{name}/journal"):
        if (replace or extent.endswith("/journal")) and extent in extent_sizes(storage):
            storage.remove_extent(extent)


def slot_layout(
    mode: str, dtype: np.dtype[Any], dimension: int, degree: int, block_bytes: int, chunks: int
) -> tuple[tuple[int, int], int]:
    """Returns the words of a record or a list, those of a vector, and the bytes that a slot needs on the drives."""
    if mode == "pq":
        record = RecordLayout.of(dtype, dimension, degree, block_bytes)
        return (record.words, record.vector_words), record.size_bytes + chunks
    exact = ExactLayout.of(dtype, dimension, degree, block_bytes)
    return (exact.list_words, exact.vector_words), 4 * (exact.list_words + exact.vector_words)


def _checked_chunks(chunks: int | None, dimension: int) -> int:
    number = whole("chunks", default_chunks(dimension) if chunks is None else chunks)
    most = min(_CHUNKS_MAX, max(4, dimension))
    if not 4 <= number <= most or number % 4:
        raise RefusedInput("chunks", number, f"must be a multiple of 4, from 4 to {most}")
    return number


def _checked_graph(graph: npt.NDArray[np.uint32], count: int) -> int:
    what = f"must be uint32 of shape ({count}, graph_degree)"
    if not isinstance(graph, np.ndarray):
        raise RefusedInput("graph", type(graph).__name__, what)
    if graph.ndim != 2 or len(graph) != count or graph.dtype != np.uint32 or not graph.shape[1]:
        raise RefusedInput("graph", f"{graph.dtype} of shape {graph.shape}", what)
    bad = (graph >= count) & (graph != NO_NEIGHBOUR)
    if bad.any():
        raise RefusedInput("graph", graph[bad][0], f"must be ids, 0 to {count - 1}")
    given = graph != NO_NEIGHBOUR
    if (given[:, 1:] > given[:, :-1]).any():
        raise RefusedInput("graph", NO_NEIGHBOUR, "must have it only after the last neighbour of a row")
    in_order = np.sort(graph, axis=1)
    twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] != NO_NEIGHBOUR)
    if twice.any():
        raise RefusedInput("graph", in_order[:, 1:][twice][0], "stands in a row twice: give each neighbour once")
    return graph.shape[1]


def require_name(storage: Storage, name: str, *, replace: bool) -> None:
    """Refuses a name that no index can have, or one that is in use and not to be replaced."""
    text("name", name)
    if not name or "/" in name:
        raise RefusedInput("name", name, "must be a name without '/', and not empty")
    there = extent_sizes(storage).keys() & _parts_of(name)
    if there and not replace:
        what = "is in use" if f"{name}/meta" in there else "has parts of an index that was not finished"
        raise RefusedInput("name", name, f"{what}: choose another, or replace it (--replace)")


def require_room(storage: Storage, name: str, parts: Sequence[int]) -> None:
    """Refuses drives that have no room for parts of so many bytes, each in an extent, besides what others have."""
    others = sum(_with_gap(size) for extent, size in extent_sizes(storage).items() if extent not in _parts_of(name))
    needed, free = drive_bytes(parts), max(0, storage.size_bytes - others)
    if needed > free:
        remedy = f"is too small for the index, which needs {needed} bytes where {free} are free"
        raise RefusedInput("storage", f"{storage.size_bytes} bytes", f"{remedy}: use larger drives, or remove extents")


@contextlib.contextmanager
def whole_or_nothing(storage: Storage, name: str) -> Iterator[None]:
    """Removes all parts of an index from the drives if they are not all written."""
    try:
        yield
    except BaseException:
        for extent in extent_sizes(storage).keys() & _parts_of(name):
            # A drive that fails may keep them: they are no index without its meta.
            with contextlib.suppress(OperationFailed, RefusedInput):
                storage.remove_extent(extent)
        raise


def drive_bytes(parts: Sequence[int]) -> int:
    """Returns how large drives must be for parts of so many bytes, with the catalogue in the first MiB."""
    return _EXTENT_ALIGNMENT + sum(map(_with_gap, parts))


def part_sizes(mode: str, count: int, room: int, slot_bytes: int, dimension: int, chunks: int) -> list[int]:
    """Returns the bytes of the parts of an index, or a little more."""
    live = -(-room // 32) * 4
    if mode != "pq":
        # Vectors and lists share `slot_bytes`; the second one is for the gap between them, the others are small.
        return [room * slot_bytes, _EXTENT_ALIGNMENT, _EXTENT_ALIGNMENT, live, _EXTENT_ALIGNMENT]
    navigation = (count // 100 + 64) * 41 * 4
    codebook = 256 * (dimension + chunks) * 4
    return [room * (slot_bytes - chunks), room * chunks, codebook, navigation, live, _EXTENT_ALIGNMENT]


def _with_gap(size_bytes: int) -> int:
    return -(-size_bytes // _EXTENT_ALIGNMENT) * _EXTENT_ALIGNMENT


def _parts_of(name: str) -> set[str]:
    return {f"{name}/{part}" for part in _PARTS}
