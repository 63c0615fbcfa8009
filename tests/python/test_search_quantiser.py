# SPDX-License-Identifier: Apache-2.0
"""Product quantisation: codebooks, codes and how near what they stand for is."""

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.search import synthetic_vectors
from forebay.search.prepared import code_rows
from forebay.search.quantiser import decode, encode, train_codebook

SEED = 5


def drawn(count, dimension=12, kind="f4"):
    print(f"seed {SEED}")
    return (np.random.default_rng(SEED).standard_normal((count, dimension)) * 20 + 50).clip(0, 127).astype(kind)


@pytest.mark.parametrize("kind", ["u1", "i1", "f2", "f4"])
@pytest.mark.parametrize("chunks", [1, 4, 5, 12])  # 5: chunks of three components, and zeros behind the last
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_each_code_is_the_nearest_centroid(kind, chunks, metric):
    vectors = drawn(600, kind=kind)
    codebook = train_codebook(vectors, chunks, metric=metric)
    width = -(-12 // chunks)
    assert (codebook.dtype, codebook.shape) == (np.float32, (chunks, 256, width))
    codes = encode(vectors, codebook, metric=metric)
    assert (codes.dtype, codes.shape) == (np.uint8, (600, chunks))
    padded = np.zeros((600, chunks * width))
    padded[:, :12] = code_rows(vectors, metric)
    of_chunks = padded.reshape(600, chunks, 1, width)
    distances = ((of_chunks - codebook[None].astype("f8")) ** 2).sum(-1)
    chosen = np.take_along_axis(distances, codes[..., None].astype(int), 2)[..., 0]
    assert chosen == pytest.approx(distances.min(2), rel=1e-4, abs=1e-6 * distances.max())


def test_more_chunks_stand_for_vectors_more_exactly():
    vectors = synthetic_vectors(5000)
    errors = []
    for chunks in (4, 16, 64):
        codebook = train_codebook(vectors, chunks)
        apart = decode(encode(vectors, codebook), codebook, 128) - vectors
        errors.append((apart**2).sum() / ((vectors - vectors.mean(0)) ** 2).sum())
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < 0.5
    assert errors[2] < 0.05


@pytest.mark.parametrize("count", [1, 2, 255, 256])
def test_few_vectors_are_centroids_themselves(count):
    vectors = drawn(count)
    codebook = train_codebook(vectors, 3)
    assert np.abs(decode(encode(vectors, codebook), codebook, 12) - vectors).max() < 1e-3


def test_equal_vectors_and_zeros_have_codes():
    for vectors in (np.full((300, 6), 7, np.uint8), np.zeros((300, 6), np.float32)):
        codebook = train_codebook(vectors, 2)
        assert decode(encode(vectors, codebook), codebook, 6) == pytest.approx(vectors)


@pytest.mark.parametrize("power", [-110, -20, 20, 110])
def test_very_small_and_very_large_numbers_have_the_same_codes(power):
    vectors, factor = drawn(500), np.float32(2.0**power)
    codebook = train_codebook(vectors, 4)
    other = train_codebook(vectors * factor, 4)
    assert np.array_equal(other, codebook * factor)
    assert np.array_equal(encode(vectors * factor, other), encode(vectors, codebook))


def test_for_the_cosine_lengths_do_not_matter():
    vectors = drawn(500)
    codebook = train_codebook(vectors, 4, metric="cosine")
    codes = encode(vectors, codebook, metric="cosine")
    assert np.array_equal(encode(vectors * np.float32(8), codebook, metric="cosine"), codes)
    lengths = np.linalg.norm(decode(codes, codebook, 12), axis=1)
    assert lengths == pytest.approx(1, abs=0.1)


def test_for_the_inner_product_codes_are_those_of_distances():
    vectors = drawn(500)
    assert np.array_equal(train_codebook(vectors, 4, metric="inner_product"), train_codebook(vectors, 4))


def test_a_seed_makes_the_same_codebook_and_another_one_another():
    vectors = drawn(2000)
    one = train_codebook(vectors, 4, seed=1)
    assert np.array_equal(one, train_codebook(vectors, 4, seed=1))
    assert not np.array_equal(one, train_codebook(vectors, 4, seed=2))


def test_codes_do_not_depend_on_the_pieces(monkeypatch):
    vectors = drawn(1000)
    codebook = train_codebook(vectors, 4)
    codes = encode(vectors, codebook)
    monkeypatch.setattr("forebay.search._arrays.OnCpu.numbers", 700)
    assert np.array_equal(encode(vectors, codebook), codes)
    assert encode(vectors[:0], codebook).shape == (0, 4)


def test_progress_goes_up_to_all(monkeypatch):
    monkeypatch.setattr("forebay.search._arrays.OnCpu.numbers", 2000)
    told = []
    encode(
        drawn(500),
        train_codebook(drawn(500), 4, progress=lambda *one: told.append(one)),
        progress=lambda *one: told.append(one),
    )
    assert [one for one in told if one[0] == "train codes"] == [("train codes", i, 4) for i in range(1, 5)]
    assert told[-1] == ("encode", 500, 500)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("vectors", {"vectors": np.zeros((0, 4), np.float32)}),
        ("vectors", {"vectors": np.zeros((4, 4))}),
        ("vectors[0]", {"vectors": np.full((4, 4), np.nan, np.float32)}),
        ("vectors[0]", {"vectors": np.zeros((4, 4), np.float32), "metric": "cosine"}),
        ("metric", {"metric": "l1"}),
        ("chunks", {"chunks": 0}),
        ("chunks", {"chunks": 5}),
        ("chunks", {"chunks": 2.0}),
        ("seed", {"seed": -1}),
        ("device", {"device": "gpu"}),
    ],
)
def test_what_cannot_be_trained_is_refused(field, change):
    with pytest.raises(RefusedInput) as refused:
        train_codebook(**{"vectors": np.ones((4, 4), np.float32), "chunks": 2, **change})
    assert refused.value.field == field


@pytest.mark.parametrize("shape", [(2, 256, 3), (2, 255, 2), (4, 256), (3, 256, 1), (0, 256, 2)])
def test_a_codebook_of_other_vectors_is_refused(shape):
    with pytest.raises(RefusedInput) as refused:
        encode(np.ones((4, 4), np.float32), np.zeros(shape, np.float32))
    assert refused.value.field == "codebook"


@pytest.mark.gpu
def test_pytorch_trains_centroids_as_good():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    vectors = synthetic_vectors(5000)
    errors = []
    for device in ("cpu", "cuda:0"):
        codebook = train_codebook(vectors, 16, device=device)
        assert np.array_equal(codebook, train_codebook(vectors, 16, device=device))
        apart = decode(encode(vectors, codebook, device=device), codebook, 128) - vectors
        errors.append((apart**2).sum())
    assert errors[1] == pytest.approx(errors[0], rel=0.02)
