# SPDX-License-Identifier: Apache-2.0
"""What an index for searches by exact distances has on its drives for each vector: a list and a vector, apart.

A list consists of words of 4 bytes, little-endian: how many neighbours there are; their slots, with room for as many as
any list has; half a word for each of them, the short checksum of its vector; zeros; and in the last word a checksum. A
vector fills whole blocks, with zeros at its end. ``apps/search/exact_record.hpp`` has the same layout.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.search.exact import NO_NEIGHBOUR
from forebay.search.records import checksums, require_degree, word_sums

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ExactLayout:
    """Where the parts of a list are.

    Attributes:
        list_words: The words of a list.
        vector_words: The words of a vector, of whole blocks.
        degree_max: How many neighbours a list has room for.
    """

    list_words: int
    vector_words: int
    degree_max: int

    @staticmethod
    def of(dtype: np.dtype[Any], dimension: int, graph_degree: int, block_bytes: int) -> "ExactLayout":
        """Returns the layout with the fewest blocks.

        Args:
            dtype: The type of a vector's components.
            dimension: How many a vector has.
            graph_degree: How many neighbours a list must have room for, 1 to 512.
            block_bytes: The block of the drives.

        Raises:
            RefusedInput: The degree is out of range.
        """
        require_degree(graph_degree)
        list_words = 2 + graph_degree + (graph_degree + 1) // 2
        return ExactLayout(
            -(-4 * list_words // block_bytes) * block_bytes // 4,
            -(-dimension * dtype.itemsize // block_bytes) * block_bytes // 4,
            graph_degree,
        )

    def pack_vectors(self, vectors: npt.NDArray[Any]) -> Words:
        """Makes the blocks of vectors, of shape ``(vectors, vector_words)``."""
        blocks = np.zeros((len(vectors), self.vector_words), "<u4")
        rows = np.ascontiguousarray(vectors).view("u1").reshape(len(vectors), -1)
        blocks.view("u1").reshape(len(vectors), -1)[:, : rows.shape[1]] = rows
        return blocks

    def pack_lists(self, slots: npt.NDArray[np.integer], neighbours: Words, short: npt.NDArray[np.uint16]) -> Words:
        """Makes lists.

        Args:
            slots: Whose lists they are, of shape ``(lists,)``.
            neighbours: Slots, of shape ``(lists, degree)``; ``NO_NEIGHBOUR`` after the last of each.
            short: The short checksum of the vector at each slot of the index.

        Returns:
            The words, of shape ``(lists, list_words)``.
        """
        lists = np.zeros((len(slots), self.list_words), "<u4")
        given = neighbours != NO_NEIGHBOUR
        degree = neighbours.shape[1]
        lists[:, 0] = given.sum(1)
        lists[:, 1 : 1 + degree] = np.where(given, neighbours, 0)
        halves = lists.view("<u2")[:, 2 * (1 + self.degree_max) :]
        halves[:, :degree] = np.where(given, short[np.where(given, neighbours, 0)], 0)
        lists[:, -1] = checksums(slots, lists)
        return lists


def short_checksums(slots: npt.NDArray[np.integer], vectors: Words) -> npt.NDArray[np.uint16]:
    """Returns half of the checksum of each vector at its slot, of shape ``(vectors,)``."""
    whole = word_sums(slots, vectors)
    return ((whole >> 16 ^ whole) & 0xFFFF).astype(np.uint16)
