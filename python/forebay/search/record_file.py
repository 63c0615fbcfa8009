# SPDX-License-Identifier: Apache-2.0
"""Reads and writes records of an index by their slots, many with one transfer where they lie together."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from forebay.errors import OperationFailed
from forebay.search.index_file import Meta
from forebay.search.pq_mode import layout_of
from forebay.search.records import Words
from forebay.storage import Storage

_READ_GAP_BYTES = 16 << 10  # that are read in vain rather than begin another read
_TRANSFER_BYTES = 1 << 20


class RecordFile:
    """The records of an index of the mode ``pq``."""

    def __init__(self, storage: Storage, name: str, meta: Meta) -> None:
        """Takes the extent of the records.

        Args:
            storage: Where the index is.
            name: The name of the index.
            meta: Its meta.
        """
        self._storage, self._extent, self._map = storage, f"{name}/nodes", meta.map
        self.layout = layout_of(meta)

    def read(self, slots: npt.NDArray[np.uint32]) -> Words:
        """Returns the records of slots, of shape ``(slots, words)``.

        Args:
            slots: Ascending, each once.

        Raises:
            OperationFailed: A read fails, or a record is not what was written.
        """
        records, sound = self.read_any(slots)
        if not sound.all():
            slot = slots[~sound][:1]
            vector = int(self._map.ids(slot)[0])
            raise OperationFailed(f"record {int(slot[0])}, of vector {vector}, is not what was written to it")
        return records

    def read_any(self, slots: npt.NDArray[np.uint32]) -> tuple[Words, npt.NDArray[np.bool_]]:
        """Returns what is at slots, of shape ``(slots, words)``, and whether each is a record that was written there.

        Args:
            slots: Ascending, each once.

        Raises:
            OperationFailed: A read fails.
        """
        records = np.empty((len(slots), self.layout.words), "<u4")
        gap = max(1, _READ_GAP_BYTES // self.layout.size_bytes)
        for first, end in self._runs(slots, gap):
            low = int(slots[first])
            piece = np.empty((int(slots[end - 1]) + 1 - low, self.layout.words), "<u4")
            self._storage.read_extent(self._extent, piece, low * self.layout.size_bytes)
            records[first:end] = piece[slots[first:end] - low]
        return records, self.layout.sound(slots, records)

    def write(self, slots: npt.NDArray[np.uint32], records: Words) -> None:
        """Writes whole records to slots.

        Args:
            slots: Ascending, each once.
            records: Of shape ``(slots, words)``, with their checksums.

        Raises:
            RefusedInput: The storage is read-only.
            OperationFailed: A write fails.
        """
        for first, end in self._runs(slots, 1):
            at = int(slots[first]) * self.layout.size_bytes
            self._storage.write_extent(self._extent, np.ascontiguousarray(records[first:end]), at)

    def _runs(self, slots: npt.NDArray[np.uint32], gap: int) -> Iterator[tuple[int, int]]:
        """Ranges of places whose slots are one transfer: no two next ones are more than ``gap`` apart."""
        most = max(1, _TRANSFER_BYTES // self.layout.size_bytes)
        first = 0
        numbers = slots.tolist()
        for place in range(1, len(numbers) + 1):
            if (
                place == len(numbers)
                or numbers[place] - numbers[place - 1] > gap
                or (numbers[place] - numbers[first] >= most)
            ):
                yield first, place
                first = place
