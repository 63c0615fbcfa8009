# SPDX-License-Identifier: Apache-2.0
"""What an index has on its drives for each vector: a record, which one read brings.

A record consists of words of 4 bytes, little-endian: the vector, with zeros up to a whole word; how many neighbours it
has; their slots; zeros; and in the last word a checksum. ``apps/search/record.hpp`` has the same layout.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.search.exact import NO_NEIGHBOUR

_SLOT_FACTOR, _SLOT_OFFSET, _WORD_FACTOR = 0x9E3779B1, 0x46424E31, 0x85EBCA6B
DEGREE_MAX = 512
"""How many neighbours a vector has at most."""
_FIXED_WORDS = 2  # the number of neighbours, and the checksum

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class RecordLayout:
    """Where the parts of a record are.

    Attributes:
        words: The words of a record.
        vector_words: The words of its vector, which come first.
        degree_max: How many neighbours it has room for.
    """

    words: int
    vector_words: int
    degree_max: int

    @property
    def size_bytes(self) -> int:
        """The bytes of a record."""
        return 4 * self.words

    @staticmethod
    def of(dtype: np.dtype[Any], dimension: int, graph_degree: int, block_bytes: int) -> "RecordLayout":
        """Returns the layout with the smallest records of whole blocks.

        Args:
            dtype: The type of a vector's components.
            dimension: How many a vector has.
            graph_degree: How many neighbours a record must have room for, 1 to 512.
            block_bytes: The block of the drives.

        Raises:
            RefusedInput: The degree is out of range.
        """
        require_degree(graph_degree)
        vector_words = -(-dimension * dtype.itemsize // 4)
        needed_bytes = 4 * (vector_words + _FIXED_WORDS + graph_degree)
        return RecordLayout(-(-needed_bytes // block_bytes) * block_bytes // 4, vector_words, graph_degree)

    def pack(self, slots: npt.NDArray[np.integer], vectors: npt.NDArray[Any], neighbours: Words) -> Words:
        """Makes records.

        Args:
            slots: Where each record will be, of shape ``(records,)``.
            vectors: Of shape ``(records, dimension)``.
            neighbours: Slots, of shape ``(records, degree)``; ``NO_NEIGHBOUR`` after the last of each.

        Returns:
            The words, of shape ``(records, words)``.
        """
        records = np.zeros((len(slots), self.words), "<u4")
        rows = np.ascontiguousarray(vectors).view("u1").reshape(len(slots), -1)
        records.view("u1").reshape(len(slots), -1)[:, : rows.shape[1]] = rows
        given = neighbours != NO_NEIGHBOUR
        first = self.vector_words + 1
        records[:, self.vector_words] = given.sum(1)
        records[:, first : first + neighbours.shape[1]] = np.where(given, neighbours, 0)
        records[:, -1] = checksums(slots, records)
        return records

    def vectors(self, records: Words, dtype: np.dtype[Any], dimension: int) -> npt.NDArray[Any]:
        """Returns the vectors of records, of shape ``(records, dimension)``."""
        rows = np.ascontiguousarray(records[:, : self.vector_words]).view(dtype)
        return rows.reshape(len(records), -1)[:, :dimension]

    def neighbours(self, records: Words) -> Words:
        """Returns the neighbours of records, of shape ``(records, degree_max)``, with ``NO_NEIGHBOUR`` at the end."""
        first = self.vector_words + 1
        lists = records[:, first : first + self.degree_max].copy()
        lists[np.arange(self.degree_max)[None] >= records[:, self.vector_words, None]] = NO_NEIGHBOUR
        return lists

    def sound(self, slots: npt.NDArray[np.integer], records: Words) -> npt.NDArray[np.bool_]:
        """Returns for each record whether it is what was written to its slot."""
        right: npt.NDArray[np.bool_] = records[:, -1] == checksums(slots, records)
        return right & (records[:, self.vector_words] <= self.degree_max)


def require_degree(graph_degree: int) -> None:
    """Refuses a degree that is out of range."""
    if not 1 <= graph_degree <= DEGREE_MAX:
        raise RefusedInput("graph_degree", graph_degree, f"must be 1 to {DEGREE_MAX}")


def checksums(slots: npt.NDArray[np.integer], records: Words) -> Words:
    """Returns the checksum that belongs into the last word of each record, of shape ``(records,)``.

    Each word has an odd factor of its own, so any change of one word shows. The slot counts, so that a record in the
    wrong place shows, and so does one that was never written.
    """
    return word_sums(slots, records[:, :-1])


def word_sums(slots: npt.NDArray[np.integer], words: Words) -> Words:
    """Returns the sum that is a checksum, over all words of each row."""
    factors = (2 * np.arange(words.shape[1], dtype=np.uint32) + 1) * np.uint32(_WORD_FACTOR)
    sums = (words * factors).sum(1, dtype=np.uint32)
    return sums + slots.astype(np.uint32) * np.uint32(_SLOT_FACTOR) + np.uint32(_SLOT_OFFSET)
