# SPDX-License-Identifier: Apache-2.0
"""The journal of a flush: all that it changes, so that a flush that was cut off can be done again from the start.

The extent ``NAME/journal`` appears when all of it is durable, and goes when all it tells of is. It holds a header of 24
bytes: 8 bytes of magic, the version, the length of a description, and the CRC-32 of what follows the header; then the
description as JSON; then the parts that the description lists, one after the other. Numbers are little-endian.
"""

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.search.index_file import Meta, checksum, extent_sizes, write_whole
from forebay.storage import Storage

_MAGIC = b"FBREDO\n\0"
_VERSION = 1
_HEADER_BYTES = 24
_RUN_BYTES = 1 << 20


@dataclass(frozen=True)
class Journal:
    """What a flush changes.

    Attributes:
        meta: The new meta, with the checksums of the new parts.
        slots: Those with new codes, ascending: ``uint32``.
        codes: Their codes, ``uint8`` of shape ``(slots, chunks)``.
        whole: Parts that are new as a whole, ``uint32``, by their names: ``live``, and maybe ``navigation``.
    """

    meta: Meta
    slots: npt.NDArray[np.uint32]
    codes: npt.NDArray[np.uint8]
    whole: dict[str, npt.NDArray[np.uint32]] = field(default_factory=dict)

    def write(self, storage: Storage, name: str) -> None:
        """Makes the journal durable. It takes the place of one that is there.

        Raises:
            RefusedInput: The drives have no room for it, or the storage is read-only.
            OperationFailed: A drive fails.
        """
        meta = self.meta.to_bytes()
        described = json.dumps(
            {
                "meta": len(meta),
                "slots": len(self.slots),
                "whole": {part: len(array) for part, array in self.whole.items()},
            }
        ).encode()
        parts = [array.astype("<u4").tobytes() for array in (self.slots, *self.whole.values())]
        body = b"".join([described, meta, self.codes.tobytes(), *parts])
        numbers = np.array([_VERSION, len(described), zlib.crc32(body), 0], "<u4")
        write_whole(storage, f"{name}/journal", _MAGIC + numbers.tobytes() + body, replace=True)

    @classmethod
    def read(cls, storage: Storage, name: str) -> "Journal | None":
        """Returns the journal of an index, or None if there is none.

        Raises:
            RefusedInput: It is not what was written.
            OperationFailed: A drive fails.
        """
        where = f"{name}/journal"
        size = extent_sizes(storage).get(where)
        if size is None:
            return None
        buffer = bytearray(size)
        storage.read_extent(where, buffer)
        data = bytes(buffer)
        again = "build the index again"
        if size < _HEADER_BYTES or data[:8] != _MAGIC:
            raise RefusedInput("index", where, f"is no journal of Forebay; {again}")
        version, length, crc, _ = np.frombuffer(data, "<u4", 4, 8).tolist()
        if version != _VERSION:
            raise RefusedInput("index", where, f"has version {version}, and this program reads {_VERSION}; {again}")
        if zlib.crc32(data[_HEADER_BYTES:]) != crc:
            raise RefusedInput("index", where, f"was changed or cut since it was written; {again}")
        described = json.loads(data[_HEADER_BYTES : _HEADER_BYTES + length])
        at = _HEADER_BYTES + length

        def take(size_bytes: int) -> bytes:
            nonlocal at
            at += size_bytes
            return data[at - size_bytes : at]

        meta = Meta.from_bytes(take(described["meta"]), name)
        slots = described["slots"]
        codes = np.frombuffer(take(slots * meta.chunks), np.uint8).reshape(slots, meta.chunks)
        first, *others = (np.frombuffer(take(4 * n), "<u4") for n in (slots, *described["whole"].values()))
        return cls(meta, first, codes, dict(zip(described["whole"], others, strict=True)))

    def apply(self, storage: Storage, name: str) -> None:
        """Writes what it tells of to its places, makes it durable, and removes the journal.

        It may be applied to an index to which a part of it was applied.

        Raises:
            RefusedInput: The storage is read-only, or the drives have no room for a copy of a small part.
            OperationFailed: A drive fails.
        """
        width = self.meta.chunks
        most = max(1, _RUN_BYTES // max(1, width))
        breaks = np.flatnonzero(np.diff(self.slots.astype(np.int64)) != 1) + 1
        for run in np.split(np.arange(len(self.slots)), breaks):
            for first in range(0, len(run), most):
                some = run[first : first + most]
                storage.write_extent(f"{name}/codes", self.codes[some], int(self.slots[some[0]]) * width)
        for part, array in self.whole.items():
            write_whole(storage, f"{name}/{part}", array, replace=True)
        write_whole(storage, f"{name}/meta", self.meta.to_bytes(), replace=True)
        storage.flush()
        storage.remove_extent(f"{name}/journal")

    def parts(self, storage: Storage, name: str) -> dict[str, npt.NDArray[Any]]:
        """Returns the new parts without writing anything: ``codes`` of shape ``(slots, chunks)``, and those of `whole`.

        Raises:
            RefusedInput: The codes are not those that the journal was written for.
            OperationFailed: A drive fails.
        """
        codes = np.empty((self.meta.slots, self.meta.chunks), np.uint8)
        storage.read_extent(f"{name}/codes", codes)
        codes[self.slots] = self.codes
        if checksum(codes) != self.meta.checksums["codes"]:
            raise RefusedInput("index", f"{name}/codes", "was changed since it was written; build the index again")
        return {"codes": codes, **self.whole}
