# SPDX-License-Identifier: Apache-2.0
"""A product quantiser: it cuts a vector into chunks, and names for each the nearest of 256 centroids by one byte."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import whole
from forebay.errors import RefusedInput
from forebay.search._arrays import arrays_on
from forebay.search.build_options import Progress
from forebay.search.exact import checked_vectors
from forebay.search.kmeans import centres_of, nearest_centres
from forebay.search.prepared import code_rows

CENTROIDS = 256
_SAMPLE = 65_536
_ITERATIONS = 8


def train_codebook(
    vectors: npt.NDArray[Any],
    chunks: int,
    *,
    metric: str = "l2",
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> npt.NDArray[np.float32]:
    """Finds the centroids of each chunk by k-means, from a sample of 65,536 vectors.

    The same arguments give the same centroids, on one kind of device with one version of NumPy or PyTorch.

    Args:
        vectors: Of shape ``(vectors, dimension)``, at least one: ``uint8``, ``int8``, ``float16`` or ``float32``.
        chunks: Into how many parts a vector is cut, 1 to its dimension. If they do not divide the dimension, zeros are
            added to the vectors.
        metric: One of ``METRICS``. For ``cosine``, vectors are first brought to length 1.
        seed: 0 to 2^63 - 1. It chooses the sample, and where the centroids begin.
        device: ``cpu``, where NumPy computes, or ``cuda:N``, where PyTorch does.
        progress: Called with the name of the step, and how much of how much of it is done.

    Returns:
        ``float32`` of shape ``(chunks, 256, chunk_dimension)``. Centroids repeat if there are fewer than 256 vectors.

    Raises:
        RefusedInput: An argument is wrong, or PyTorch is not installed.
    """
    checked = checked_vectors("vectors", vectors, metric)
    if not len(checked):
        raise RefusedInput("vectors", "0 vectors", "must be at least one")
    chunks = whole("chunks", chunks)
    if not 1 <= chunks <= checked.shape[1]:
        raise RefusedInput("chunks", chunks, f"must be 1 to the dimension of the vectors, {checked.shape[1]}")
    arrays, random = arrays_on(device), np.random.default_rng([whole("seed", seed), 3])
    chosen = np.sort(random.permutation(len(checked))[:_SAMPLE])
    rows = _chunked(code_rows(checked[chosen], metric), chunks)
    # By a power of two, which changes no centroid: then no square is too large or too small for a float.
    scale = np.float32(math.ldexp(1.0, min(max(math.frexp(float(np.abs(rows).max()))[1], -120), 120)))
    codebook = np.empty((chunks, CENTROIDS, rows.shape[2]), np.float32)
    for chunk in range(chunks):
        of_chunk = arrays.put(np.ascontiguousarray(rows[:, chunk]) / scale)
        codebook[chunk] = arrays.get(centres_of(arrays, of_chunk, CENTROIDS, _ITERATIONS, random)) * scale
        if progress:
            progress("train codes", chunk + 1, chunks)
    return codebook


def encode(
    vectors: npt.NDArray[Any],
    codebook: npt.NDArray[np.float32],
    *,
    metric: str = "l2",
    device: str = "cpu",
    progress: Progress | None = None,
) -> npt.NDArray[np.uint8]:
    """Returns the codes of vectors: the number of the nearest centroid of each chunk.

    Args:
        vectors: Of shape ``(vectors, dimension)``, as for ``train_codebook``; there may be none.
        codebook: What ``train_codebook`` returned.
        metric: As for ``train_codebook``.
        device: Likewise.
        progress: Likewise.

    Returns:
        ``uint8`` of shape ``(vectors, chunks)``.

    Raises:
        RefusedInput: An argument is wrong, or PyTorch is not installed.
    """
    checked = checked_vectors("vectors", vectors, metric)
    chunks = len(codebook)
    if not 1 <= chunks <= checked.shape[1] or codebook.shape[1:] != (CENTROIDS, -(-checked.shape[1] // chunks)):
        remedy = f"is not of vectors with {checked.shape[1]} components; train one with vectors like these"
        raise RefusedInput("codebook", f"shape {codebook.shape}", remedy)
    arrays = arrays_on(device)
    greatest = float(np.abs(codebook).max())
    scale = np.float32(math.ldexp(1.0, min(max(math.frexp(greatest)[1], -120), 120)))
    centres = [arrays.put(each / scale) for each in codebook]
    codes = np.empty((len(checked), len(codebook)), np.uint8)
    batch = max(1, arrays.numbers // checked.shape[1])
    for first in range(0, len(checked), batch):
        rows = _chunked(code_rows(checked[first : first + batch], metric) / scale, len(codebook))
        on_device = arrays.put(rows)
        for chunk, of_chunk in enumerate(centres):
            codes[first : first + batch, chunk] = arrays.get(nearest_centres(arrays, on_device[:, chunk], of_chunk))
        if progress:
            progress("encode", min(first + batch, len(checked)), len(checked))
    return codes


def decode(codes: npt.NDArray[np.uint8], codebook: npt.NDArray[np.float32], dimension: int) -> npt.NDArray[np.float32]:
    """Returns the vectors that codes stand for, ``float32`` of shape ``(codes, dimension)``.

    Args:
        codes: Of shape ``(codes, chunks)``.
        codebook: What ``train_codebook`` returned.
        dimension: The components of a vector.
    """
    rows = codebook[np.arange(len(codebook))[None], codes]
    return rows.reshape(len(codes), -1)[:, :dimension]


def _chunked(rows: npt.NDArray[np.float32], chunks: int) -> npt.NDArray[np.float32]:
    width = -(-rows.shape[1] // chunks)
    padded = np.zeros((len(rows), chunks * width), np.float32)
    padded[:, : rows.shape[1]] = rows
    return padded.reshape(len(rows), chunks, width)
