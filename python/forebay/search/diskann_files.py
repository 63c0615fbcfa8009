# SPDX-License-Identifier: Apache-2.0
"""The files of a disk index of DiskANN, as version 0.5 and later write them.

``PREFIX_disk.index`` consists of sectors of 4096 bytes. The first begins with two numbers of 4 bytes, 9 and 1, and nine
of 8 bytes: how many nodes there are, the dimension, the node where a search begins, the bytes of a node, the nodes of a
sector, the number of frozen points, where they are, whether there is a second copy of the vectors, and the bytes of the
file. The nodes follow. A sector holds whole nodes; if a node is longer than a sector, each begins a sector and the
number of nodes of a sector is 0. A node is a vector, the number of its neighbours (4 bytes) and the neighbours.

The other files consist of matrices: the numbers of rows and of columns, 4 bytes each, and the elements row by row.
``PREFIX_pq_compressed.bin`` has a code of each node. ``PREFIX_pq_pivots.bin`` has in its first 4096 bytes a matrix of
offsets; there begin the matrices of 256 pivots, of their centroid, and of the first component of each chunk.

Numbers are little-endian.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.files import reading, size_of

SECTOR_BYTES = 4096
PIVOTS = 256
DTYPES = ("float32", "int8", "uint8")
"""The types of components. Their places are the numbers that ``PREFIX_metadata.bin`` has for them."""
DISK_FILE, PIVOTS_FILE, CODES_FILE, METADATA_FILE = (
    "_disk.index",
    "_pq_pivots.bin",
    "_pq_compressed.bin",
    "_metadata.bin",
)
_HEADER = struct.Struct("<II9Q")
_HEADER_NUMBERS = 9
_SHAPE = struct.Struct("<II")
_PIECE_BYTES = 32 << 20
_NODES_MAX = 2**31 - 1
_DIMENSION_MAX = 16384
_METRICS = ("l2", "mips", "cosine")
_GET_ALL = "get all of the file, or build the index again"
_BUILD_AGAIN = "build the index again"
_OTHERS = {
    "_disk.index_pq_pivots.bin": "has codes in place of vectors: build the index with pq_disk_bytes=0",
    "_disk.index_max_base_norm.bin": "is an index for inner products: build it for the metric l2",
    "_pq_pivots.bin_rotation_matrix.bin": "has codes of rotated vectors: build the index without OPQ",
}


@dataclass(frozen=True)
class Quantiser:
    """What DiskANN's codes mean.

    Attributes:
        centres: What is nearest to a vector in each chunk, ``float32`` of shape ``(256, dimension)``.
        chunk_offsets: Where the components of each chunk begin, and where the last ends.
    """

    centres: npt.NDArray[np.float32]
    chunk_offsets: list[int]

    @property
    def chunks(self) -> int:
        """How many bytes a code has."""
        return len(self.chunk_offsets) - 1


class Nodes:
    """The nodes of a disk index, mapped into memory. A file that is cut shorter while it is in use ends the process.

    Attributes:
        count: How many there are.
        dimension: How many components a vector has.
        dtype: Their type.
        degree: How many neighbours a node has room for.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        """Opens the file and checks its header.

        Args:
            path: The file.
            dtype: The type of components, which the file does not tell.

        Raises:
            RefusedInput: The file cannot be read, its header is wrong, it is not as long as that says, or the nodes do
                not have the length that the type makes.
        """
        with reading("disk index", path) as file:
            size, header = size_of(file), file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise RefusedInput(f"{path}: size", size, f"a header has {_HEADER.size} bytes; {_GET_ALL}")
            numbers, columns, *values = _HEADER.unpack(header)
            self.count, self.dimension, begin, self._length, self._per_sector, frozen, _, second, said = map(
                int, values
            )
            if (numbers, columns) != (_HEADER_NUMBERS, 1):
                remedy = (
                    f"must be {_HEADER_NUMBERS} x 1: it is no disk index, or one of another version; build it again"
                )
                raise RefusedInput(f"{path}: header", f"{numbers} x {columns}", remedy)
            self.dtype = dtype
            self._vector_bytes = self.dimension * dtype.itemsize
            self._require_header(path, size, said)
            if frozen or second:
                what, value = ("frozen points", frozen) if frozen else ("second copy of the vectors", second)
                raise RefusedInput(f"{path}: {what}", value, f"cannot be taken over; {_BUILD_AGAIN} without it")
            if begin >= self.count:
                raise RefusedInput(f"{path}: first node", begin, f"must be below {self.count}; {_BUILD_AGAIN}")
            self.degree = (self._length - self._vector_bytes) // 4 - 1
            file_bytes = np.memmap(file, "u1", "r")
        if self._per_sector:
            sectors = -(-self.count // self._per_sector)
            shape, strides = (sectors, self._per_sector, self._length), (SECTOR_BYTES, self._length, 1)
        else:
            shape, strides = (self.count, 1, self._length), (self._sectors_per_node * SECTOR_BYTES, self._length, 1)
        self._nodes: npt.NDArray[np.uint8] = np.ndarray(shape, np.uint8, file_bytes, SECTOR_BYTES, strides)

    @property
    def _sectors_per_node(self) -> int:
        return -(-self._length // SECTOR_BYTES)

    def _require_header(self, path: Path, size: int, said: int) -> None:
        if not 1 <= self.count <= _NODES_MAX:
            raise RefusedInput(f"{path}: nodes", self.count, f"must be 1 to {_NODES_MAX}; {_BUILD_AGAIN}")
        if not 1 <= self.dimension <= _DIMENSION_MAX:
            raise RefusedInput(f"{path}: dimension", self.dimension, f"must be 1 to {_DIMENSION_MAX}; {_BUILD_AGAIN}")
        room = self._length - self._vector_bytes
        if room < 8 or room % 4:
            what = f"{self.dimension} components of {self.dtype.name} and a list of neighbours do not make it"
            raise RefusedInput(f"{path}: bytes of a node", self._length, f"{what}; give the type of the vectors")
        if self._per_sector != SECTOR_BYTES // self._length:
            remedy = f"must be {SECTOR_BYTES // self._length}, as a node has {self._length} bytes; {_BUILD_AGAIN}"
            raise RefusedInput(f"{path}: nodes of a sector", self._per_sector, remedy)
        sectors = -(-self.count // self._per_sector) if self._per_sector else self.count * self._sectors_per_node
        wanted = (1 + sectors) * SECTOR_BYTES
        if said != wanted:
            what = f"must be {wanted}, as there are {self.count} nodes of {self._length} bytes"
            raise RefusedInput(f"{path}: size in the header", said, f"{what}; {_BUILD_AGAIN}")
        if size != wanted:
            raise RefusedInput(f"{path}: size", size, f"the header says {wanted}; {_GET_ALL}")

    def check(self, path: Path) -> Iterator[int]:
        """Reads all nodes once, and yields now and then how many.

        Raises:
            RefusedInput: A node has too many neighbours, a neighbour that is no node or stands there twice, or a
                component that is not finite.
        """
        step = max(1, _PIECE_BYTES // self._length)
        for first in range(0, self.count, step):
            ids = np.arange(first, min(first + step, self.count))
            nodes = self._at(ids)
            degrees, lists = self._degrees(nodes), self._lists(nodes)
            if (wrong := degrees > self.degree).any():
                node = int(ids[wrong][0])
                remedy = f"must be at most {self.degree}; give the type of the vectors, or build the index again"
                raise RefusedInput(f"{path}: neighbours of node {node}", int(degrees[wrong][0]), remedy)
            given = np.arange(self.degree)[None] < degrees[:, None]
            if (wrong := given & (lists >= self.count)).any():
                node = int(ids[wrong.any(1)][0])
                remedy = f"must be below {self.count}; {_GET_ALL}"
                raise RefusedInput(f"{path}: a neighbour of node {node}", int(lists[wrong][0]), remedy)
            # Entries after the last differ from one another and from any node.
            ordered = np.sort(np.where(given, lists, self.count + np.arange(self.degree)[None]), axis=1)
            if (wrong := ordered[:, 1:] == ordered[:, :-1]).any():
                node = int(ids[wrong.any(1)][0])
                remedy = f"stands there twice; {_BUILD_AGAIN}"
                raise RefusedInput(f"{path}: a neighbour of node {node}", int(ordered[:, 1:][wrong][0]), remedy)
            if self.dtype.kind == "f" and (wrong := ~np.isfinite(self._vectors(nodes)).all(1)).any():
                remedy = f"has a component that is not finite; {_BUILD_AGAIN}"
                raise RefusedInput(f"{path}: vector", int(ids[wrong][0]), remedy)
            yield int(ids[-1]) + 1

    def vectors(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Returns the vectors of nodes, of shape ``(nodes, dimension)``."""
        return self._vectors(self._at(ids))

    def neighbours(self, ids: npt.NDArray[np.integer[Any]], none: int) -> npt.NDArray[np.uint32]:
        """Returns the neighbours of nodes, of shape ``(nodes, degree)``; ``none`` after the last of each."""
        nodes = self._at(ids)
        lists = self._lists(nodes)
        lists[np.arange(self.degree)[None] >= self._degrees(nodes)[:, None]] = none
        return lists

    def _at(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint8]:
        places = ids.astype(np.int64)
        per_sector = self._nodes.shape[1]
        nodes: npt.NDArray[np.uint8] = self._nodes[places // per_sector, places % per_sector]
        return nodes

    def _vectors(self, nodes: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(nodes[:, : self._vector_bytes]).view(self.dtype.newbyteorder("<"))

    def _degrees(self, nodes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        end = self._vector_bytes + 4
        return np.ascontiguousarray(nodes[:, self._vector_bytes : end]).view("<u4")[:, 0]

    def _lists(self, nodes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        return np.ascontiguousarray(nodes[:, self._vector_bytes + 4 :]).view("<u4")


def require_plain(prefix: str, dtype: np.dtype[Any]) -> None:
    """Refuses an index that is more than vectors, their graph and their codes, or other than it is said to be.

    Args:
        prefix: How the names of its files begin.
        dtype: The type that the caller gives.

    Raises:
        RefusedInput: There is a file of a kind of index that cannot be taken over, or the metadata, which diskannpy
            writes and DiskANN's own programs do not, has another type or metric.
    """
    for ending, remedy in _OTHERS.items():
        if os.path.lexists(prefix + ending):
            raise RefusedInput("prefix", prefix, remedy)
    path = Path(prefix + METADATA_FILE)
    if not os.path.lexists(path):
        return
    with reading("metadata", path) as file:
        size, data = size_of(file), file.read(32)
    if size != 32:
        raise RefusedInput(f"{path}: size", size, f"must be 32; {_GET_ALL}")
    kind, metric, _, _ = struct.unpack("<4Q", data)
    if metric:
        shown = _METRICS[metric] if metric < len(_METRICS) else metric
        raise RefusedInput(f"{path}: metric", shown, "cannot be taken over: build the index for the metric l2")
    if kind >= len(DTYPES) or DTYPES[kind] != dtype.name:
        shown = DTYPES[kind] if kind < len(DTYPES) else kind
        raise RefusedInput("dtype", dtype.name, f"{path} says that it is {shown}; give that")


def read_quantiser(path: Path, dimension: int) -> Quantiser:
    """Reads what codes mean.

    Args:
        path: The file of pivots.
        dimension: How many components a vector has.

    Raises:
        RefusedInput: The file cannot be read, is cut, or its parts do not fit each other or the dimension.
    """
    with reading("pivots", path) as file:
        size = size_of(file)
        offsets = _Matrices(path, file.read(), size)
    table = offsets.at(0, "<u8", "offsets")
    if table.shape != (4, 1):
        remedy = "must be 4 x 1: it is of another version of DiskANN; build the index again"
        raise RefusedInput(f"{path}: offsets", f"{table.shape[0]} x {table.shape[1]}", remedy)
    pivots, centroid, chunks, end = table[:, 0].tolist()
    if end != size:
        raise RefusedInput(f"{path}: size", size, f"the offsets say {end}; {_GET_ALL}")
    values = offsets.at(pivots, "<f4", "pivots", (PIVOTS, dimension))
    mean = offsets.at(centroid, "<f4", "centroid", (dimension, 1))
    begins = offsets.at(chunks, "<u4", "chunks", (None, 1))[:, 0].tolist()
    if len(begins) < 2 or begins[0] or begins[-1] != dimension or begins != sorted(begins):
        remedy = f"must rise from 0 to the dimension, {dimension}; {_BUILD_AGAIN}"
        raise RefusedInput(f"{path}: chunks", " ".join(map(str, begins[:8])), remedy)
    centres = values + mean[:, 0]
    if not np.isfinite(centres).all():
        raise RefusedInput(f"{path}: pivots", "not finite", f"must be finite numbers; {_BUILD_AGAIN}")
    return Quantiser(centres, begins)


def map_codes(path: Path, count: int, chunks: int) -> npt.NDArray[np.uint8]:
    """Maps the codes of all nodes into memory, ``uint8`` of shape ``(count, chunks)``.

    Raises:
        RefusedInput: The file cannot be read, or it has another shape or size.
    """
    with reading("codes", path) as file:
        size, header = size_of(file), file.read(_SHAPE.size)
        if len(header) < _SHAPE.size:
            raise RefusedInput(f"{path}: size", size, f"a header has {_SHAPE.size} bytes; {_GET_ALL}")
        shape = _SHAPE.unpack(header)
        if shape != (count, chunks):
            remedy = f"must be {count} x {chunks}, as the other files have it; take all files of one index"
            raise RefusedInput(f"{path}: shape", f"{shape[0]} x {shape[1]}", remedy)
        wanted = _SHAPE.size + count * chunks
        if size != wanted:
            raise RefusedInput(f"{path}: size", size, f"its shape makes {wanted}; {_GET_ALL}")
        return np.memmap(file, np.uint8, "r", _SHAPE.size, (count, chunks))


@dataclass(frozen=True)
class _Matrices:
    """A small file of several matrices."""

    path: Path
    data: bytes
    size: int

    def at(self, offset: int, dtype: str, what: str, shape: tuple[int | None, int] | None = None) -> npt.NDArray[Any]:
        """Returns the matrix that begins at an offset, if it has that shape and the file all of it."""
        cut = f"ends beyond the {self.size} bytes of the file; {_GET_ALL}"
        if offset + _SHAPE.size > self.size:
            raise RefusedInput(f"{self.path}: {what}", offset, cut)
        rows, columns = _SHAPE.unpack_from(self.data, offset)
        if shape and (shape[1] != columns or shape[0] not in (None, rows)):
            remedy = f"must be {'N' if shape[0] is None else shape[0]} x {shape[1]}; take all files of one index"
            raise RefusedInput(f"{self.path}: {what}", f"{rows} x {columns}", remedy)
        first = offset + _SHAPE.size
        if first + rows * columns * np.dtype(dtype).itemsize > self.size:
            raise RefusedInput(f"{self.path}: {what}", offset, cut)
        return np.frombuffer(self.data, dtype, rows * columns, first).reshape(rows, columns)
