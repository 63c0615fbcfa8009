# SPDX-License-Identifier: Apache-2.0
"""How an index lies in the extents of a storage.

The extents of the index ``NAME``:

=====================  =========  ====================================================================================
``NAME/meta``                     what the others hold, with their checksums, as JSON
``NAME/live``                     a bit for each slot: whether a vector is there and not deleted
``NAME/nodes``         ``pq``     a record for each slot
``NAME/codes``         ``pq``     a code for each slot, ``uint8`` of shape ``(slots, chunks)``
``NAME/codebook``      ``pq``     what codes mean, ``float32`` of shape ``(chunks, 256, chunk_dimension)``
``NAME/navigation``    ``pq``     a graph over a sample: its slots, then their neighbours, ``uint32``
``NAME/lists``         ``exact``  a list of neighbours for each slot
``NAME/vectors``       ``exact``  a vector for each slot
``NAME/entries``       ``exact``  where searches begin: slots, then the short checksums of their vectors, ``uint32``
``NAME/journal``       ``pq``     while a flush is under way: what it changes
=====================  =========  ====================================================================================

Numbers are little-endian.
"""

import dataclasses
import json
import math
import zlib
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.search.exact import METRICS
from forebay.search.slots import Slots
from forebay.storage import Storage

VERSION = 1
MODES = ("pq", "exact")
"""How an index is searched: led by codes, or by exact distances alone."""
_MAGIC = b"FBINDEX\n"
_HEADER_BYTES = 24
_REBUILD = "build the index again"
_DTYPES = ("uint8", "int8", "float16", "float32")
_NUMBERS = (
    *("dimension", "count", "slots", "slot_factor", "slot_offset", "record_words", "vector_words", "graph_degree"),
    *("chunk_dimension", "navigation_vertices", "navigation_degree", "seed"),
)


@dataclasses.dataclass(frozen=True)
class Meta:
    """What the meta extent says.

    Attributes:
        mode: One of ``MODES``.
        dtype: The type of a component: ``uint8``, ``int8``, ``float16`` or ``float32``.
        dimension: How many components a vector has.
        metric: One of ``METRICS``.
        count: How many ids were given out. The ids are 0 to count - 1.
        slots: How many vectors there is room for.
        slot_factor: See ``Slots``.
        slot_offset: See ``Slots``.
        record_words: The words of a record, or of a list of neighbours.
        vector_words: The words of a vector.
        graph_degree: How many neighbours a vector has at most.
        chunk_offsets: Where the components of each chunk of the codes begin, and where the last ends.
        chunk_dimension: The components of the longest chunk.
        navigation_vertices: How many the sample has; in the mode ``exact``, how many entry points there are.
        navigation_degree: How many neighbours each of them has at most.
        seed: The seed of the build.
        builder: What built the graph.
        checksums: Of each part that is read whole, by its name: CRC-32.
    """

    mode: str
    dtype: str
    dimension: int
    metric: str
    count: int
    slots: int
    slot_factor: int
    slot_offset: int
    record_words: int
    vector_words: int
    graph_degree: int
    chunk_offsets: list[int]
    chunk_dimension: int
    navigation_vertices: int
    navigation_degree: int
    seed: int
    builder: str
    checksums: dict[str, int]

    @property
    def chunks(self) -> int:
        """How many bytes a code has."""
        return max(0, len(self.chunk_offsets) - 1)

    @property
    def map(self) -> Slots:
        """Where each id lies."""
        return Slots(self.slots, self.slot_factor, self.slot_offset)

    def part_shapes(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """The type and the number of elements of each part that is read whole."""
        live = (np.dtype("<u4"), -(-self.slots // 32))
        if self.mode == "exact":
            return {"entries": (np.dtype("<u4"), 2 * self.navigation_vertices), "live": live}
        return {
            "codes": (np.dtype("u1"), self.slots * self.chunks),
            "codebook": (np.dtype("<f4"), self.chunks * 256 * self.chunk_dimension),
            "navigation": (np.dtype("<u4"), self.navigation_vertices * (1 + self.navigation_degree)),
            "live": live,
        }

    def with_checksums(self, **parts: npt.NDArray[Any]) -> Self:
        """Returns this meta with the checksums of other parts."""
        return dataclasses.replace(self, checksums=self.checksums | {k: checksum(v) for k, v in parts.items()})

    def to_bytes(self) -> bytes:
        """What the extent holds."""
        text = json.dumps(dataclasses.asdict(self)).encode()
        numbers = np.array([VERSION, len(text), zlib.crc32(text), 0], "<u4")
        return _MAGIC + numbers.tobytes() + text

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Reads what ``to_bytes`` made.

        Args:
            data: The bytes of the extent; there may be more after them.
            name: The name of the index, for errors.

        Raises:
            RefusedInput: It is no meta, one of another version, or it was changed or cut.
        """
        where = f"{name}/meta"
        if data[:8] != _MAGIC:
            raise RefusedInput("index", where, "is no index of Forebay: name another, or build one")
        version, length, crc, _ = np.frombuffer(data, "<u4", 4, 8).tolist()
        if version != VERSION:
            raise RefusedInput("index", where, f"has version {version}, and this program reads {VERSION}; {_REBUILD}")
        text = data[_HEADER_BYTES : _HEADER_BYTES + length]
        if len(text) != length or zlib.crc32(text) != crc:
            raise RefusedInput("index", where, f"was changed or cut since it was written; {_REBUILD}")
        try:
            meta = cls(**json.loads(text))
            wrong = meta._wrong()
        except (TypeError, ValueError) as error:
            raise RefusedInput("index", where, f"does not say what it must ({error}); {_REBUILD}") from None
        if wrong:
            raise RefusedInput("index", where, f"has a wrong {wrong}: {getattr(meta, wrong)}; {_REBUILD}")
        return meta

    def _wrong(self) -> str | None:
        """The name of a member that no index can have; None if there is none.

        Raises:
            TypeError: A member is of another type.
        """
        offsets, sums = self.chunk_offsets, self.checksums
        numbers = [getattr(self, name) for name in _NUMBERS] + list(offsets) + list(sums.values())
        if not all(type(number) is int for number in numbers):
            raise TypeError("a number is none")
        is_pq = self.mode == "pq"
        vector_bytes = self.dimension * np.dtype(self.dtype).itemsize if self.dtype in _DTYPES else 0
        ascends = all(first <= end for first, end in pairwise(offsets))
        checks = {
            "mode": self.mode in MODES,
            "dtype": self.dtype in _DTYPES,
            "metric": self.metric in METRICS,
            "dimension": self.dimension >= 1,
            "slots": 1 <= self.slots < 2**31,
            "count": 0 <= self.count <= self.slots,
            "slot_factor": self.slot_factor >= 1 and math.gcd(self.slot_factor, self.slots) == 1,
            "slot_offset": 0 <= self.slot_offset < max(1, self.slots),
            "graph_degree": 1 <= self.graph_degree < 2**16,
            "vector_words": vector_bytes <= 4 * self.vector_words < 2**22,
            "record_words": self.graph_degree + 2 <= self.record_words < 2**20,
            "chunk_offsets": ascends and (not is_pq or (offsets[:1] == [0] and offsets[-1] == self.dimension)),
            "chunk_dimension": not is_pq or self.chunk_dimension >= max(np.diff(offsets), default=0),
            "navigation_vertices": 1 <= self.navigation_vertices <= self.slots,
            "navigation_degree": 0 <= self.navigation_degree < 2**16,
        }
        return next((name for name, holds in checks.items() if not holds), None)


def checksum(part: npt.NDArray[Any]) -> int:
    """Returns the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(part).view("u1").reshape(-1).data)


def live_words(live: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Returns what the live extent holds: a bit for each slot, in words of 32.

    Args:
        live: Whether the bit of each slot is 1. There may be more, up to a multiple of 32.
    """
    bits = np.zeros(-(-len(live) // 32) * 32, bool)
    bits[: len(live)] = live
    return np.packbits(bits, bitorder="little").view("<u4")


def extent_sizes(storage: Storage) -> dict[str, int]:
    """Returns the size of each extent of a storage by its name, in bytes."""
    return {extent["name"]: extent["bytes"] for extent in storage.extents()}


def write_whole(storage: Storage, extent: str, data: npt.NDArray[Any] | bytes, *, replace: bool) -> None:
    """Makes an extent that holds an array and nothing else.

    Raises:
        RefusedInput: As ``Storage.new_extent``.
        OperationFailed: As ``Storage.new_extent``.
    """
    array = np.frombuffer(data, "u1") if isinstance(data, bytes) else np.ascontiguousarray(data).view("u1").reshape(-1)
    with storage.new_extent(extent, array.nbytes, replace=replace) as write:
        write(array, 0)


def read_meta(storage: Storage, name: str) -> Meta:
    """Reads the meta of an index.

    Raises:
        RefusedInput: There is no such index, or its meta is not what was written.
        OperationFailed: A drive fails, or the storage is closed.
    """
    size = extent_sizes(storage).get(f"{name}/meta")
    if size is None:
        known = sorted(each.removesuffix("/meta") for each in extent_sizes(storage) if each.endswith("/meta"))
        there = f"the drives have {', '.join(known)}" if known else "the drives have none"
        raise RefusedInput("index", name, f"is no index of these drives; {there}")
    data = bytearray(size)
    storage.read_extent(f"{name}/meta", data)
    return Meta.from_bytes(bytes(data), name)


def read_part(storage: Storage, name: str, meta: Meta, part: str) -> npt.NDArray[Any]:
    """Reads one of the parts that are read whole, and compares it with its checksum. Returns it flat.

    Raises:
        RefusedInput: It is missing, too short, or not what was written.
        OperationFailed: A drive fails, or the storage is closed.
    """
    dtype, count = meta.part_shapes()[part]
    where = f"{name}/{part}"
    size = extent_sizes(storage).get(where)
    if size is None:
        raise RefusedInput("index", where, f"is missing; {_REBUILD}")
    if size < count * dtype.itemsize:
        raise RefusedInput("index", where, f"has {size} bytes of {count * dtype.itemsize}: it was cut; {_REBUILD}")
    array = np.empty(count, dtype)
    storage.read_extent(where, array)
    if checksum(array) != meta.checksums.get(part):
        raise RefusedInput("index", where, f"was changed since it was written; {_REBUILD}")
    return array
