# SPDX-License-Identifier: Apache-2.0
"""Takes disk indexes of DiskANN over, and has diskannpy build them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import text, whole
from forebay.errors import OperationFailed, RefusedInput
from forebay.search import diskann_files
from forebay.search.build import SLOTS_MAX, part_sizes, remove_old, require_name, require_room, whole_or_nothing
from forebay.search.build_options import BuildOptions, Progress
from forebay.search.diskann_files import CODES_FILE, DISK_FILE, PIVOTS, PIVOTS_FILE, Nodes, Quantiser
from forebay.search.exact import NO_NEIGHBOUR, checked_vectors
from forebay.search.index import Index
from forebay.search.index_file import Meta, live_words, write_whole
from forebay.search.pq_mode import navigation_of, write_records
from forebay.search.records import DEGREE_MAX, RecordLayout, require_degree
from forebay.search.slots import Slots
from forebay.search.vectors import SUFFIXES, write_vectors
from forebay.storage import Storage

_CHUNKS_MAX = 512  # DiskANN's
_PROBE_S = 60
# DiskANN keeps so much of the memory for a search back for its cache, if the rest is more than the second number.
_CACHE_GIB, _LEAST_FOR_CACHE_GIB = 0.25, 1.0
_BUILD = """
import json, sys
import diskannpy, numpy
options = json.loads(sys.argv[1])
options["vector_dtype"] = getattr(numpy, options["vector_dtype"])
diskannpy.build_disk_index(**options)
"""


def import_diskann(
    storage: Storage,
    prefix: str | os.PathLike[str],
    name: str = "index",
    *,
    dtype: npt.DTypeLike,
    metric: str = "l2",
    capacity: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    replace: bool = False,
    progress: Progress | None = None,
    memory: str = "storage",
) -> Index:
    """Takes over a disk index of DiskANN: its vectors, its graph and its codes. The ids stay the same.

    It reads ``PREFIX_disk.index``, ``PREFIX_pq_pivots.bin`` and ``PREFIX_pq_compressed.bin``, and if it is there
    ``PREFIX_metadata.bin``. Vectors and graph are read twice: once to check them, once to write records, some MiB at a
    time. The codes are in memory as a whole. Only the graph of the sample in which a search begins is made anew.

    Args:
        storage: Where the index goes.
        prefix: How the names of the files begin, such as ``folder/ann``.
        name: The name of the index.
        dtype: The type of a component: ``float32``, ``int8`` or ``uint8``. DiskANN's own files do not tell it.
        metric: Must be ``l2``. For inner products DiskANN stores other vectors than it was given, and a disk index for
            the cosine it cannot make: build the index for ``l2`` from vectors of length 1.
        capacity: How many vectors there is to be room for. None: for these.
        seed: The sample is drawn from it.
        device: ``cpu``, or ``cuda:N``, where PyTorch computes the graph of the sample.
        replace: Take the place of an index of that name.
        progress: Called now and then with the name of a step, and how much of how much of it is done.
        memory: As for ``Index``.

    Returns:
        The index, open.

    Raises:
        RefusedInput: An argument is wrong, a file is missing, cut, of another version or does not fit the others, or
            the drives have no room. Nothing was written then.
        OperationFailed: A drive fails, or an extension module does not load.
    """
    start = os.fspath(prefix)
    kind = _checked_dtype(dtype)
    if metric != "l2":
        remedy = "must be l2; for the cosine build DiskANN's index for l2 from vectors of length 1"
        raise RefusedInput("metric", metric, remedy)
    options = BuildOptions(0, whole("seed", seed), text("device", device), bool(replace), progress)
    require_name(storage, name, replace=options.replace)
    diskann_files.require_plain(start, kind)
    disk = Path(start + DISK_FILE)
    nodes = Nodes(disk, kind)
    quantiser = diskann_files.read_quantiser(Path(start + PIVOTS_FILE), nodes.dimension)
    codes = diskann_files.map_codes(Path(start + CODES_FILE), nodes.count, quantiser.chunks)
    room = whole("capacity", nodes.count if capacity is None else capacity)
    if not nodes.count <= room <= SLOTS_MAX:
        remedy = f"must be at least the number of vectors, {nodes.count}, and at most {SLOTS_MAX}"
        raise RefusedInput("capacity", room, remedy)
    if nodes.degree > DEGREE_MAX:
        remedy = f"must be at most {DEGREE_MAX}: build DiskANN's index with a lower graph_degree"
        raise RefusedInput(f"{disk}: degree", nodes.degree, remedy)
    layout = RecordLayout.of(kind, nodes.dimension, nodes.degree, storage.block_bytes)
    codebook, chunk_offsets = _codebook_of(quantiser)
    chunks = len(codebook)
    sizes = part_sizes("pq", nodes.count, room, layout.size_bytes + chunks, nodes.dimension, chunks)
    require_room(storage, name, sizes)
    for done in nodes.check(disk):
        options.tell("check", done, nodes.count)

    slots = Slots.spread(room, options.seed)
    vectors, graph = (
        _Asked(nodes.count, nodes.vectors),
        _Asked(nodes.count, lambda ids: nodes.neighbours(ids, NO_NEIGHBOUR)),
    )
    sample, around = navigation_of(vectors, metric, options)
    meta = Meta(
        mode="pq",
        dtype=kind.name,
        dimension=nodes.dimension,
        metric=metric,
        count=nodes.count,
        slots=room,
        slot_factor=slots.factor,
        slot_offset=slots.offset,
        record_words=layout.words,
        vector_words=layout.vector_words,
        graph_degree=nodes.degree,
        chunk_offsets=chunk_offsets,
        chunk_dimension=codebook.shape[2],
        navigation_vertices=len(sample),
        navigation_degree=around.shape[1],
        seed=options.seed,
        builder="diskann",
        checksums={},
    )
    by_slot = np.zeros((room, len(codebook)), np.uint8)
    by_slot[slots.of(np.arange(nodes.count)), : quantiser.chunks] = codes
    parts: dict[str, npt.NDArray[Any]] = {
        "codes": by_slot,
        "codebook": codebook,
        "navigation": np.concatenate([slots.of(sample), around.reshape(-1)]).astype("<u4"),
        "live": live_words(slots.ids(np.arange(room)) < nodes.count),
    }
    remove_old(storage, name, replace=options.replace)
    with whole_or_nothing(storage, name):
        write_records(storage, name, vectors, graph, meta, replace=options.replace, tell=options.tell)
        for part, array in parts.items():
            write_whole(storage, f"{name}/{part}", array, replace=options.replace)
        write_whole(storage, f"{name}/meta", meta.with_checksums(**parts).to_bytes(), replace=options.replace)
    return Index(storage, name, memory=memory)


def build_with_diskann(
    vectors: npt.ArrayLike,
    folder: str | os.PathLike[str],
    *,
    prefix: str = "ann",
    graph_degree: int = 64,
    complexity: int = 100,
    chunks: int | None = None,
    build_memory_gib: float = 4,
    threads: int = 0,
    python: str | os.PathLike[str] = sys.executable,
) -> Path:
    """Has diskannpy build a disk index for ``l2``, in a process of its own. ``import_diskann`` takes it over.

    diskannpy 0.7.0 asks for NumPy 1.25, which Forebay does not take. It works with later ones, too: ``pip install
    --no-deps diskannpy==0.7.0`` installs it beside Forebay. Or name an interpreter of another environment that has it.

    Args:
        vectors: ``float32``, ``int8`` or ``uint8`` of shape ``(vectors, dimension)``. It may be a ``numpy.memmap``.
        folder: Where the files go. It is made if there is none. While diskannpy builds, it holds the vectors, too.
        prefix: How the names of the files begin.
        graph_degree: How many neighbours a vector has at most, 1 to 512.
        complexity: How many candidates the build keeps for each vector, at least ``graph_degree``.
        chunks: The bytes of a code, 1 to the dimension, at most 512. None: one for each four components, from 4 to 64.
        build_memory_gib: How much memory the build may use, in GiB.
        threads: How many threads it has. 0: one for each processor.
        python: The interpreter that has diskannpy.

    Returns:
        The prefix of the files with their folder, for ``import_diskann``.

    Raises:
        RefusedInput: An argument is wrong, the folder has such an index, or the interpreter has no diskannpy. Nothing
            was built then.
        OperationFailed: The disk is full, or diskannpy fails; its last words are in the message.
    """
    base = checked_vectors("vectors", vectors, "l2")
    kind = _checked_dtype(base.dtype)
    count, dimension = base.shape
    if not count:
        raise RefusedInput("vectors", "0 vectors", "has no vector; there is nothing to index")
    degree, kept = whole("graph_degree", graph_degree), whole("complexity", complexity, 2**31 - 1)
    require_degree(degree)
    if kept < degree:
        raise RefusedInput("complexity", kept, f"must be at least the graph_degree, {degree}")
    most = min(_CHUNKS_MAX, dimension)
    code_bytes = whole("chunks", min(most, max(4, min(64, dimension // 4))) if chunks is None else chunks)
    if not 1 <= code_bytes <= most:
        raise RefusedInput("chunks", code_bytes, f"must be 1 to {most}")
    if not build_memory_gib > 0:
        raise RefusedInput("build_memory_gib", build_memory_gib, "must be more than 0")
    if not text("prefix", prefix) or "/" in prefix:
        raise RefusedInput("prefix", prefix, "must be the beginning of a file's name: no '/', and not empty")
    workers = whole("threads", threads, 2**31 - 1)
    place = Path(folder)
    if os.path.lexists(place / (prefix + DISK_FILE)):
        raise RefusedInput("folder", place, f"has an index {prefix}: name another folder or prefix")
    _require_diskannpy(python)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedInput("folder", place, f"cannot be made: {error.strerror}; name another") from None

    suffix = next(ending for ending, dtype in SUFFIXES.items() if dtype == kind)
    data = place / f"{prefix}_to_build{suffix}"
    try:
        write_vectors(base, data)
        options = {
            "data": str(data),
            "distance_metric": "l2",
            "index_directory": str(place),
            "index_prefix": prefix,
            "vector_dtype": kind.name,
            "complexity": kept,
            "graph_degree": degree,
            "search_memory_maximum": _memory_for_codes_gib(count, code_bytes),
            "build_memory_maximum": build_memory_gib,
            "num_threads": workers,
        }
        built = subprocess.run([os.fspath(python), "-c", _BUILD, json.dumps(options)], capture_output=True, text=True)
    finally:
        data.unlink(missing_ok=True)
    if built.returncode:
        said = (built.stderr.strip() or built.stdout.strip() or "nothing").splitlines()[-1]
        raise OperationFailed(f"diskannpy ended with status {built.returncode}; it said: {said}")
    try:
        diskann_files.map_codes(place / (prefix + CODES_FILE), count, code_bytes)
    except RefusedInput as error:
        raise OperationFailed(f"diskannpy built other codes than it was asked for: {error}") from None
    return place / prefix


@dataclass(frozen=True)
class _Asked:
    """The rows of a file, of which a function returns those that are asked for."""

    count: int
    read: Callable[[npt.NDArray[np.integer[Any]]], npt.NDArray[Any]]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: npt.NDArray[np.integer[Any]], /) -> npt.NDArray[Any]:
        return self.read(rows)


def _checked_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    remedy = f"must be one of {', '.join(diskann_files.DTYPES)}, which DiskANN has"
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise RefusedInput("dtype", dtype, remedy) from None
    if kind.name not in diskann_files.DTYPES:
        raise RefusedInput("dtype", kind.name, remedy)
    return kind.newbyteorder("=")


def _codebook_of(quantiser: Quantiser) -> tuple[npt.NDArray[np.float32], list[int]]:
    """The codebook as an index has it, with chunks of no components up to a multiple of 4, and where chunks begin."""
    offsets = quantiser.chunk_offsets + [quantiser.chunk_offsets[-1]] * (-quantiser.chunks % 4)
    widest = max(end - first for first, end in pairwise(offsets))
    codebook = np.zeros((len(offsets) - 1, PIVOTS, widest), "<f4")
    for chunk, (first, end) in enumerate(pairwise(offsets)):
        codebook[chunk, :, : end - first] = quantiser.centres[:, first:end]
    return codebook, offsets


def _memory_for_codes_gib(count: int, chunks: int) -> float:
    """The memory for a search from which DiskANN concludes that codes are to have so many bytes."""
    wanted = count * (chunks + 0.5) / 2**30  # it rounds down
    return wanted + _CACHE_GIB if wanted - _CACHE_GIB > _LEAST_FOR_CACHE_GIB else wanted


def _require_diskannpy(python: str | os.PathLike[str]) -> None:
    path = os.fspath(python)
    try:
        probe = subprocess.run([path, "-c", "import diskannpy"], capture_output=True, text=True, timeout=_PROBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or f"it takes more than {_PROBE_S} s to import diskannpy"
        raise RefusedInput("python", path, f"cannot be used: {why}; name an interpreter that has diskannpy") from None
    if probe.returncode:
        said = (probe.stderr.strip() or "nothing").splitlines()[-1]
        remedy = "pip install --no-deps diskannpy==0.7.0, or name an interpreter that has it"
        raise RefusedInput("python", path, f"has no diskannpy that works ({said}): {remedy}")
