# SPDX-License-Identifier: Apache-2.0
"""Where the vectors of an index lie: neighbouring ids lie far apart, so that no drive gets all reads of a region."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.search.exact import NO_NEIGHBOUR

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Slots:
    """A one-to-one map between ids and slots, ``slot = (id * factor + offset) mod count``.

    Attributes:
        count: How many slots there are, 1 to 2^31 - 1.
        factor: Has no divisor in common with the count.
        offset: The slot of id 0.
    """

    count: int
    factor: int
    offset: int

    @staticmethod
    def spread(count: int, seed: int = 0) -> "Slots":
        """Returns a map whose factor is about the golden part of the count (Knuth, TAOCP 6.4, multiplicative hashing).

        Args:
            count: How many slots there are.
            seed: Chooses the offset.
        """
        factor = max(1, round(count * _GOLDEN))
        while math.gcd(factor, count) != 1:
            factor += 1
        return Slots(count, factor, seed % count)

    def of(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint32]:
        """Returns the slots of ids."""
        numbers = ids.astype(np.uint64) * np.uint64(self.factor) + np.uint64(self.offset)
        return (numbers % np.uint64(self.count)).astype(np.uint32)

    def of_lists(self, lists: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Returns the slots of ids, and ``NO_NEIGHBOUR`` for ``NO_NEIGHBOUR``, in any shape."""
        given = lists != NO_NEIGHBOUR
        return np.where(given, self.of(np.where(given, lists, 0)), NO_NEIGHBOUR).astype(np.uint32)

    def ids_of_lists(self, lists: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Returns the ids of slots, and ``NO_NEIGHBOUR`` for ``NO_NEIGHBOUR``, in any shape."""
        given = lists != NO_NEIGHBOUR
        return np.where(given, self.ids(np.where(given, lists, 0)), NO_NEIGHBOUR).astype(np.uint32)

    def ids(self, slots: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint32]:
        """Returns the ids of slots."""
        inverse = pow(self.factor, -1, self.count) if self.count > 1 else 0
        numbers = slots.astype(np.uint64) + np.uint64(self.count - self.offset)
        return (numbers % np.uint64(self.count) * np.uint64(inverse) % np.uint64(self.count)).astype(np.uint32)
