# SPDX-License-Identifier: Apache-2.0
"""The product quantiser."""

import numpy as np
import pytest
from forebay.search import synthetic_vectors
from forebay.search.prepared import code_rows
from forebay.search.quantiser import CENTROIDS, encode, train_codebook


def decoded(codes, codebook, dimension):
    return codebook[np.arange(len(codebook))[None], codes].reshape(len(codes), -1)[:, :dimension]


@pytest.mark.parametrize(("count", "dimension", "chunks"), [(1, 4, 4), (3, 7, 4), (300, 32, 8), (5000, 30, 8)])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_code_names_the_nearest_centroid_of_each_chunk(count, dimension, chunks, metric):
    base = synthetic_vectors(count, dimension)
    codebook = train_codebook(base, chunks, metric=metric)
    width = -(-dimension // chunks)
    assert (codebook.shape, codebook.dtype) == ((chunks, CENTROIDS, width), np.float32)
    codes = encode(base, codebook, metric=metric)
    assert (codes.shape, codes.dtype) == ((count, chunks), np.uint8)
    rows = np.zeros((count, chunks * width))
    rows[:, :dimension] = code_rows(base, metric)
    rows = rows.reshape(count, chunks, width)
    for chunk in range(chunks):
        distances = ((rows[:50, chunk, None] - codebook[chunk][None].astype(float)) ** 2).sum(2)
        taken = distances[np.arange(min(50, count)), codes[:50, chunk]]
        np.testing.assert_allclose(taken, distances.min(1), rtol=1e-4, atol=1e-4 * (1 + distances.max()) * 1e-2)


def test_codes_say_more_than_one_centroid_could():
    base = synthetic_vectors(5000, 32).astype(np.float32)
    codebook = train_codebook(base, 8)
    lost = ((decoded(encode(base, codebook), codebook, 32) - base) ** 2).sum()
    assert lost < 0.2 * ((base - base.mean(0)) ** 2).sum()


def test_few_vectors_are_their_own_centroids():
    base = synthetic_vectors(40, 12).astype(np.float32)
    codebook = train_codebook(base, 4)
    np.testing.assert_allclose(decoded(encode(base, codebook), codebook, 12), base, atol=0.01)


def test_the_same_seed_gives_the_same_codebook():
    base = synthetic_vectors(20_000, 8)
    np.testing.assert_array_equal(train_codebook(base, 4), train_codebook(base, 4))
    assert (train_codebook(base, 4) != train_codebook(base, 4, seed=1)).any()
