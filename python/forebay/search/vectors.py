# SPDX-License-Identifier: Apache-2.0
"""Files of vectors: ``.fbin``, ``.u8bin``, ``.i8bin`` and ``.ibin``, as the big-ann-benchmarks have them.

A file begins with two numbers of 4 bytes, little-endian: how many vectors there are, and how many components each has.
The vectors follow, one after the other.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.files import check_file_to_write, reading, size_of, writing

SUFFIXES: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"),
    ".u8bin": np.dtype("u1"),
    ".i8bin": np.dtype("i1"),
    ".ibin": np.dtype("<i4"),
}
"""The type of a component, by the end of a file's name. ``.ibin`` holds ids of neighbours."""
DIMENSION_MAX = 1 << 16
VECTORS_MAX = (1 << 31) - 1
_HEADER = struct.Struct("<II")
_FIELD = "vector file"
_PIECE_BYTES = 1 << 24


def read_vectors(path: Path | str) -> npt.NDArray[Any]:
    """Maps a file of vectors into memory. Nothing is read before it is used.

    Args:
        path: The file. The end of its name says what it holds: ``.fbin`` float32, ``.u8bin`` uint8, ``.i8bin`` int8,
            ``.ibin`` int32.

    Returns:
        The vectors, of shape ``(vectors, dimension)``, read-only. A file that is cut shorter while they are in use ends
        the process, as any mapped file does.

    Raises:
        RefusedInput: The file cannot be read, its name or its header is wrong, or it has another size than the header
            says.
    """
    path = Path(path)
    kind = _kind_of(path)
    with reading(_FIELD, path) as file:
        size, header = size_of(file), file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise RefusedInput(f"{path}: size", size, f"a header has {_HEADER.size} bytes; get all of the file")
        count, dimension = _HEADER.unpack(header)
        if count > VECTORS_MAX:
            raise RefusedInput(f"{path}: vectors", count, f"must be 0 to {VECTORS_MAX}; the header is wrong")
        if not 1 <= dimension <= DIMENSION_MAX:
            raise RefusedInput(f"{path}: dimension", dimension, f"must be 1 to {DIMENSION_MAX}; the header is wrong")
        wanted = _HEADER.size + count * dimension * kind.itemsize
        if size != wanted:
            what = f"{count} vectors of {dimension} components of {kind.itemsize} bytes make {wanted}"
            raise RefusedInput(f"{path}: size", size, f"{what}; get all of the file, or give it the right name")
        if not count:
            return np.empty((0, dimension), kind)
        return np.memmap(file, kind, "r", _HEADER.size, (count, dimension))


def write_vectors(vectors: npt.ArrayLike, path: Path | str) -> None:
    """Writes a file of vectors, in place of a file that exists.

    Args:
        vectors: The vectors, of shape ``(vectors, dimension)`` and of the type that the name of the file stands for.
            They are not converted.
        path: The file.

    Raises:
        RefusedInput: The shape, the type or the file's name is wrong, or the file cannot be written to. Nothing was
            written.
        OperationFailed: The disk is full, or fails.
    """
    path = Path(path)
    kind, array = _kind_of(path), np.asarray(vectors)
    if array.ndim != 2 or not 1 <= array.shape[1] <= DIMENSION_MAX or len(array) > VECTORS_MAX:
        remedy = (
            f"must have the shape (vectors, dimension), with up to {VECTORS_MAX} vectors and {DIMENSION_MAX} components"
        )
        raise RefusedInput("vectors", f"shape {array.shape}", remedy)
    if array.dtype != kind:
        remedy = f"{path.suffix} holds {kind.name}; convert them, or give the file another name: {_known()}"
        raise RefusedInput("vectors", array.dtype, remedy)
    check_file_to_write(_FIELD, path)
    rows = max(1, _PIECE_BYTES // (array.shape[1] * kind.itemsize))
    with writing(_FIELD, path) as out:
        out.write(_HEADER.pack(*array.shape))
        for first in range(0, len(array), rows):
            out.write(array[first : first + rows].astype(kind, copy=False).tobytes())


def _kind_of(path: Path) -> np.dtype[Any]:
    kind = SUFFIXES.get(path.suffix)
    if kind is None:
        raise RefusedInput(_FIELD, path, f"the name must end in one of {_known()}")
    return kind


def _known() -> str:
    return ", ".join(f"{suffix} ({kind.name})" for suffix, kind in SUFFIXES.items())
