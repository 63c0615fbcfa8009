# SPDX-License-Identifier: Apache-2.0
"""Vectors that are drawn, and lie as those of pictures and texts do: in clusters, near a surface of few dimensions.

Vectors that are uniform in all their dimensions are no test of a search: each is about as far from all others.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay._buffers import whole
from forebay.errors import RefusedInput
from forebay.search.vectors import DIMENSION_MAX, VECTORS_MAX

_HIDDEN = 16  # dimensions in which the clusters lie
_CLUSTERS = 1000
_SPREAD = 0.5  # of a cluster, where the centres of all have a spread of 1
_BLOCK = 1 << 16  # vectors that are drawn together
_QUERIES = 1 << 40  # the first block of queries, far behind those of all vectors


def synthetic_vectors(
    vectors: int, dimension: int = 128, *, seed: int = 1, queries: bool = False
) -> npt.NDArray[np.uint8]:
    """Draws vectors from a mixture of 1,000 clusters.

    The clusters are Gaussian, in 16 dimensions, with weights after Zipf's law. A fixed map of two layers, whose weights
    are drawn as well, leads to the dimensions of the vectors. Each vector depends on the seed and on its number alone,
    so the first of many are those of few; with another library of linear algebra a component may differ by 1.

    Args:
        vectors: How many, 0 to 2^31 - 1.
        dimension: Of each, 1 to 65,536.
        seed: 0 to 2^63 - 1. Another seed makes other clusters and another map.
        queries: Whether to draw vectors of the same clusters that are none of those.

    Returns:
        The vectors, ``uint8`` of shape ``(vectors, dimension)``.

    Raises:
        RefusedInput: A number is out of range, or the machine has too little memory.
    """
    vectors, seed = whole("vectors", vectors, VECTORS_MAX), whole("seed", seed)
    if not 1 <= (dimension := whole("dimension", dimension)) <= DIMENSION_MAX:
        raise RefusedInput("dimension", dimension, f"must be 1 to {DIMENSION_MAX}")
    needed = vectors * dimension + min(vectors, _BLOCK) * dimension * 8
    memory.require(needed, "vectors", vectors, f"{vectors} vectors", "draw fewer")
    found = np.empty((vectors, dimension), np.uint8)
    for first, block in _drawn(vectors, dimension, seed, _QUERIES if queries else 0):
        found[first : first + len(block)] = block
    return found


def _drawn(vectors: int, dimension: int, seed: int, behind: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    of_all = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0])))
    centres = of_all.standard_normal((_CLUSTERS, _HIDDEN), np.float32)
    inner = of_all.standard_normal((_HIDDEN, 4 * _HIDDEN), np.float32) / np.float32(_HIDDEN**0.5)
    outer = of_all.standard_normal((4 * _HIDDEN, dimension), np.float32) / np.float32((4 * _HIDDEN) ** 0.5)
    weights = 1 / np.arange(1, _CLUSTERS + 1)
    up_to = np.cumsum(weights / weights.sum())
    for first in range(0, vectors, _BLOCK):
        block = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1, behind + first // _BLOCK])))
        # All of a block are drawn, whatever is needed of it, so that each vector is the same in every set.
        cluster = np.minimum(np.searchsorted(up_to, block.random(_BLOCK)), _CLUSTERS - 1)
        hidden = centres[cluster] + np.float32(_SPREAD) * block.standard_normal((_BLOCK, _HIDDEN), np.float32)
        values = np.tanh(hidden @ inner) @ outer  # their spread is about 0.6
        yield first, np.clip(np.rint(values * 64 + 128), 0, 255).astype(np.uint8)[: vectors - first]


def local_intrinsic_dimension(distances: npt.ArrayLike) -> float:
    """Estimates in how many dimensions vectors really lie, from how the distances to near ones grow.

    The estimate is that of Levina and Bickel ("Maximum Likelihood Estimation of Intrinsic Dimension", NIPS 2004), with
    the mean of its inverse over all queries, as MacKay and Ghahramani corrected it.

    Args:
        distances: Euclidean distances to the nearest vectors, ascending, of shape ``(queries, k)``: the roots of what
            ``exact_neighbours`` returns for ``l2``. Those of 0 do not count.

    Returns:
        The dimension; NaN if no query has two different distances above 0.

    Raises:
        RefusedInput: The shape is another, or a distance is negative or not finite.
    """
    radii = np.asarray(distances, np.float64)
    if radii.ndim != 2 or radii.shape[1] < 2:
        raise RefusedInput("distances", f"shape {radii.shape}", "must have the shape (queries, k), with k of 2 or more")
    if not (np.isfinite(radii).all() and (radii >= 0).all()):
        raise RefusedInput("distances", "negative or not finite", "must be distances; take the roots of those of l2")
    inverse = []
    for row in radii:
        some = row[row > 0]
        if len(some) > 1 and some[0] < some[-1]:
            inverse.append(float(np.mean(np.log(some[-1] / some[:-1]))))
    return 1 / float(np.mean(inverse)) if inverse else float("nan")
