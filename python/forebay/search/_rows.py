# SPDX-License-Identifier: Apache-2.0
"""Vectors as rows of ``float32`` whose squared Euclidean distances order as the metric does."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.search._arrays import Array, Arrays

_BLOCK_NUMBERS = 1 << 22
_SAMPLE = 4096


class Rows:
    """Vectors as rows on a device.

    All are scaled by a power of two, so that no component of a vector is above 1 in magnitude and no square overflows.
    For ``cosine`` a row then gets the length 1. For ``inner_product`` it gets one more component, which gives all rows
    the same length: the row nearest to a query, with 0 in that component, is then the one with the greatest product
    (Bachrach et al., "Speeding Up the Xbox Recommender System", RecSys 2014).

    Attributes:
        dimension: The components of a row.
    """

    def __init__(self, arrays: Arrays, vectors: npt.NDArray[Any], metric: str) -> None:
        """Prepares the vectors, and copies them to the device if it can hold them.

        Args:
            arrays: Where to compute.
            vectors: Of shape ``(vectors, dimension)``, checked.
            metric: One of ``METRICS``.
        """
        self._arrays, self._vectors, self._metric = arrays, vectors, metric
        self._resident = arrays.put(vectors) if arrays.can_hold(vectors.nbytes) else None
        self.dimension = vectors.shape[1] + (metric == "inner_product")
        self._centre: Array = None
        if metric == "l2" and vectors.dtype.kind == "f":
            # Distances are differences of squares: what all vectors have in common would take their digits.
            sample = vectors[:: max(1, len(vectors) // _SAMPLE)]
            self._centre = arrays.put(sample.mean(0, dtype=np.float64).astype(np.float32))
        self._scale, self._longest = 1.0, 0.0
        greatest = max((float(abs(block).max()) for block in self._blocks()), default=0.0)
        self._scale = math.ldexp(1.0, -min(max(math.frexp(greatest)[1], -120), 120))
        if metric == "inner_product":
            self._longest = max((float((block * block).sum(-1).max()) for block in self._blocks()), default=0.0)

    def __len__(self) -> int:
        return len(self._vectors)

    def of(self, ids: Array) -> Array:
        """Returns the rows of vectors.

        Args:
            ids: An array of the device, of any shape.

        Returns:
            ``float32`` of the shape of ``ids``, with ``dimension`` after it.
        """
        if self._resident is None:
            return self._row(self._arrays.put(self._vectors[self._arrays.get(ids)]))
        return self._row(self._resident[ids])

    def between(self, first: int, end: int) -> Array:
        """Returns the rows of the vectors from ``first`` on and before ``end``."""
        return self._row(self._raw(first, end))

    def _raw(self, first: int, end: int) -> Array:
        if self._resident is None:
            return self._arrays.put(np.asarray(self._vectors[first:end]))
        return self._resident[first:end]

    def _blocks(self) -> Iterator[Array]:
        """The vectors in pieces, scaled as far as it is known how."""
        count = max(1, _BLOCK_NUMBERS // self._vectors.shape[1])
        for first in range(0, len(self), count):
            yield self._in_range(self._raw(first, first + count))

    def _in_range(self, raw: Array) -> Array:
        values = self._arrays.floats(raw)
        if self._centre is not None:
            values = values - self._centre
        return values * self._scale if self._scale != 1 else values

    def _row(self, raw: Array) -> Array:
        values = self._in_range(raw)
        if self._metric == "l2":
            return values
        squares = (values * values).sum(-1)[..., None]
        if self._metric == "inner_product":
            missing = self._longest - squares
            return self._arrays.joined([values, (missing * (missing > 0)) ** 0.5], -1)
        return values / (squares + (squares == 0)) ** 0.5
