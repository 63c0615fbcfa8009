# SPDX-License-Identifier: Apache-2.0
"""The images that a power cut may leave on a disk, made from what it held first and the record of its writes.

The power fails when the first ``cut`` entries have completed. What had completed before the last Flush among them is on
the medium, and so is what was written with FUA. Each sector of a later write is there or is not, whatever became of the
others, even of those of the same write. A sector is never half there: disks promise that.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from write_log import Flag, WriteLog

# How likely a sector that was not flushed is to be on the medium, in one image or another.
SURVIVAL = (0.0, 0.02, 0.3, 0.7, 0.98, 1.0)


@dataclass(frozen=True)
class Cut:
    """One image: where the power fails, and which sectors survive."""

    number: int  # with the seed, it names the image
    entries: int
    survival: float


def plan(count: int, marks: list[int], seed: int, first: int = 0) -> list[Cut]:
    """Chooses `count` cuts, from number `first` on, behind the first of `marks` and at most one entry behind the last.

    Marks are entries. Half of the cuts lie anywhere. The others lie close behind a mark, where a writer has just been
    told that its data is safe.
    """
    cuts = []
    for number in range(first, first + count):
        random = np.random.default_rng([seed, number])
        begin, end = marks[0] + 1, marks[-1] + 1
        entries = int(random.integers(begin, end + 1))
        if number % 2:
            entries = min(int(random.choice(marks)) + 1 + int(random.integers(3)), end)
        cuts.append(Cut(number, entries, SURVIVAL[random.integers(len(SURVIVAL))]))
    return cuts


class CrashImages:
    """Makes images of one disk. Fastest if each cut lies behind the one before it."""

    def __init__(self, first: np.ndarray, log: WriteLog, seed: int, together: range = range(0)) -> None:
        """Takes what the disk held first, one sector a row, and the seed of what survives.

        Those of the sectors `together` that one write has survive together.
        """
        self._together = together
        self._first = first
        self._entries = log.entries
        self._seed = seed
        self._flushes = [i for i, entry in enumerate(log.entries) if entry.flags & Flag.FLUSH]
        self._rewind()

    def _rewind(self) -> None:
        self._durable = self._first.copy()
        self._applied = 0

    def flushed_before(self, entries: int) -> int:
        """Returns how many entries had completed when the last Flush among the first `entries` was done."""
        behind = bisect_left(self._flushes, entries)
        return self._flushes[behind - 1] if behind else 0

    def image(self, cut: Cut) -> np.ndarray:
        """Returns the image of a cut, one sector a row."""
        flushed = self.flushed_before(cut.entries)
        if flushed < self._applied:
            self._rewind()
        for entry in self._entries[self._applied : flushed]:
            self._durable[entry.sector : entry.sector + len(entry.rows)] = entry.rows
        self._applied = flushed

        image = self._durable.copy()
        random = np.random.default_rng([self._seed, cut.number, 1])
        for entry in self._entries[flushed : cut.entries]:
            there = image[entry.sector : entry.sector + len(entry.rows)]
            survives = random.random(len(entry.rows)) < cut.survival
            of_entry = range(entry.sector, entry.sector + len(entry.rows))
            if joined := [sector - entry.sector for sector in self._together if sector in of_entry]:
                survives[joined] = survives[joined[0]]
            if entry.flags & Flag.FUA:
                survives[:] = True
            there[survives] = entry.rows[survives]
        return image
