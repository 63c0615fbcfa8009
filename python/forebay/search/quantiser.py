# SPDX-License-Identifier: Apache-2.0
"""A product quantiser: it cuts a vector into chunks, and names for each the nearest of 256 centroids by one byte."""

from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.search._arrays import arrays_on
from forebay.search.build_options import Progress
from forebay.search.kmeans import centres_of, nearest_centres
from forebay.search.prepared import code_rows

CENTROIDS = 256
_SAMPLE = 64 * CENTROIDS
_ITERATIONS = 8
_ROWS_PER_BATCH = 1 << 14


def train_codebook(
    vectors: npt.NDArray[Any],
    chunks: int,
    *,
    metric: str = "l2",
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> npt.NDArray[np.float32]:
    """Finds the centroids of each chunk, from a sample of the vectors.

    Args:
        vectors: Of shape ``(vectors, dimension)``; at least one.
        chunks: How many. If they do not divide the dimension, zeros are added to the vectors.
        metric: One of ``METRICS``. For the cosine, vectors are first brought to length 1.
        seed: Chooses the sample. The same arguments give the same centroids.
        device: ``cpu``, or ``cuda:N``, where PyTorch computes.
        progress: Called with the progress.

    Returns:
        ``float32`` of shape ``(chunks, 256, chunk_dimension)``.

    Raises:
        RefusedInput: There is no such device.
    """
    arrays = arrays_on(device)
    chosen = np.random.default_rng(seed).permutation(len(vectors))[:_SAMPLE]
    rows = _chunked(code_rows(vectors[np.sort(chosen)], metric), chunks)
    first = np.resize(np.random.default_rng([seed, 1]).permutation(len(rows)), CENTROIDS)
    codebook = np.empty((chunks, CENTROIDS, rows.shape[2]), np.float32)
    for chunk in range(chunks):
        of_chunk = np.ascontiguousarray(rows[:, chunk])
        centres = centres_of(arrays, arrays.put(of_chunk), arrays.put(of_chunk[first]), _ITERATIONS, _ROWS_PER_BATCH)
        codebook[chunk] = arrays.get(centres)
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
    """Returns the codes of vectors, ``uint8`` of shape ``(vectors, chunks)``.

    Args:
        vectors: Of shape ``(vectors, dimension)``.
        codebook: What ``train_codebook`` returned.
        metric: As for ``train_codebook``.
        device: Likewise.
        progress: Called with the progress.

    Raises:
        RefusedInput: There is no such device.
    """
    arrays = arrays_on(device)
    centres = [arrays.put(each) for each in codebook]
    codes = np.empty((len(vectors), len(codebook)), np.uint8)
    batch = _ROWS_PER_BATCH if device == "cpu" else 1 << 18
    for first in range(0, len(vectors), batch):
        rows = _chunked(code_rows(vectors[first : first + batch], metric), len(codebook))
        on_device = arrays.put(rows)
        for chunk, of_chunk in enumerate(centres):
            labels = nearest_centres(arrays, on_device[:, chunk], of_chunk, _ROWS_PER_BATCH)
            codes[first : first + batch, chunk] = arrays.get(labels)
        if progress:
            progress("encode", min(first + batch, len(vectors)), len(vectors))
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
