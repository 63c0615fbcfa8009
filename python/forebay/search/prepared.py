# SPDX-License-Identifier: Apache-2.0
"""Queries in the form in which the search kernel takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

_GREATEST_PART = np.float32(65535)


def code_rows(vectors: npt.NDArray[Any], metric: str) -> npt.NDArray[np.float32]:
    """Returns vectors as the product quantiser takes them, ``float32``; for the cosine with length 1."""
    rows = vectors.astype(np.float32)
    if metric == "cosine":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@dataclass(frozen=True)
class PreparedQueries:
    """What the kernel reads for each query.

    Attributes:
        words: The vectors, with zeros up to a whole word: ``uint32`` of shape ``(queries, vector_words)``.
        norms: Their lengths, ``float32`` of shape ``(queries,)``.
        components: What the codebook is compared with, ``float32`` of shape ``(queries, chunks, chunk_dimension)``.
        offsets_and_scales: The distance of a chunk plus the first, times the second, is 0 to 65535. ``float32`` of
            shape ``(queries, 2)``.
    """

    words: npt.NDArray[np.uint32]
    norms: npt.NDArray[np.float32]
    components: npt.NDArray[np.float32]
    offsets_and_scales: npt.NDArray[np.float32]


def prepare(
    queries: npt.NDArray[Any],
    metric: str,
    vector_words: int,
    codebook: npt.NDArray[np.float32],
    chunk_offsets: Sequence[int],
) -> PreparedQueries:
    """Prepares queries.

    Args:
        queries: Of shape ``(queries, dimension)``.
        metric: One of ``METRICS``.
        vector_words: The words of a vector in a record.
        codebook: Of shape ``(chunks, 256, chunk_dimension)``.
        chunk_offsets: Where the components of each chunk begin, and where the last ends.
    """
    count, (chunks, _, width) = len(queries), codebook.shape
    words, norms = prepare_exact(queries, vector_words)
    rows_of_code = code_rows(queries, metric)
    components = np.zeros((count, chunks, width), np.float32)
    for chunk, (first, end) in enumerate(pairwise(chunk_offsets)):
        components[:, chunk, : end - first] = rows_of_code[:, first:end]

    # By the triangle inequality no part is greater, whichever code a vector has.
    lengths = np.linalg.norm(components, axis=2)
    farthest = np.linalg.norm(codebook, axis=2).max(1)
    if metric == "inner_product":
        offsets = (lengths * farthest).max(1)
        greatest = 2 * offsets
    else:
        offsets = np.zeros(count, np.float32)
        greatest = ((lengths + farthest) ** 2).max(1)
    scales = _GREATEST_PART / np.maximum(greatest, np.finfo(np.float32).tiny)
    both = np.column_stack([offsets, np.minimum(scales, np.finfo(np.float32).max)]).astype(np.float32)
    return PreparedQueries(words, norms, components, both)


def prepare_exact(
    queries: npt.NDArray[Any], vector_words: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
    """Returns the words and the norms of queries, as ``PreparedQueries`` has them."""
    count = len(queries)
    words = np.zeros((count, vector_words), "<u4")
    rows = np.ascontiguousarray(queries).view("u1").reshape(count, -1)
    words.view("u1").reshape(count, -1)[:, : rows.shape[1]] = rows
    return words, np.sqrt((queries.astype(np.float64) ** 2).sum(1)).astype(np.float32)
