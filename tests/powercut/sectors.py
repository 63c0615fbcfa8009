# SPDX-License-Identifier: Apache-2.0
"""What the writer puts into a sector, and how to tell which of its generations a sector holds.

A sector has a magic word, its number, its generation and the run's seed. The other 60 words follow from those, so that
no mixture of two generations looks like one of them. ``fill_sector`` in writer.cpp knows the same rule.
"""

import numpy as np

BYTES = 512
WORDS = BYTES // 8
MAGIC = 0x726F746365734246
MARK_NUMBER = 2**64 - 1  # of a mark, which is no sector of a drive
MIXED = -1  # in place of a generation: the sector holds no whole one

_STEPS = np.arange(WORDS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def fill(numbers: np.ndarray, generations: np.ndarray, seed: int) -> np.ndarray:
    """Returns the sectors of these numbers and generations, one a row of 512 bytes."""
    numbers, generations = numbers.astype(np.uint64), generations.astype(np.uint64)
    key = _mix(_mix(_mix(np.array([seed], np.uint64)) ^ numbers) ^ generations)
    words = key[:, None] + _STEPS
    words[:, 0] = MAGIC
    words[:, 1] = numbers
    words[:, 2] = generations
    words[:, 3] = seed
    return words.astype("<u8", copy=False).view(np.uint8)


def generations_of(rows: np.ndarray, numbers: np.ndarray, seed: int) -> np.ndarray:
    """Returns the generation that each row of 512 bytes holds as the sector of that number, or ``MIXED``."""
    generations = np.ascontiguousarray(rows).view("<u8")[:, 2]
    whole = (fill(numbers, generations, seed) == rows).all(axis=1)
    return np.where(whole, generations, 0).astype(np.int64) + np.where(whole, 0, MIXED)
