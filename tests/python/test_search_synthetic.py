# SPDX-License-Identifier: Apache-2.0
"""Vectors that are drawn."""

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.search import exact_neighbours, local_intrinsic_dimension, synthetic_vectors


def test_the_first_of_many_are_those_of_few(monkeypatch):
    monkeypatch.setattr("forebay.search.synthetic._BLOCK", 100)
    many = synthetic_vectors(250, 20)
    assert (many.dtype, many.shape) == (np.uint8, (250, 20))
    for few in (0, 1, 99, 100, 101, 250):
        assert np.array_equal(synthetic_vectors(few, 20), many[:few])


def test_a_seed_makes_the_same_vectors_and_another_one_others():
    one = synthetic_vectors(50, seed=3)
    assert np.array_equal(one, synthetic_vectors(50, seed=3))
    assert not np.array_equal(one, synthetic_vectors(50, seed=4))


def test_queries_are_near_the_vectors_and_none_of_them():
    vectors, queries = synthetic_vectors(20_000), synthetic_vectors(50, queries=True)
    nearest = exact_neighbours(vectors, queries, 1).distances[:, 0]
    assert (nearest > 0).all()
    apart = exact_neighbours(vectors, synthetic_vectors(50, seed=2), 1).distances[:, 0]
    assert np.median(nearest) < np.median(apart), "they lie in the same clusters"


def test_they_lie_in_far_fewer_dimensions_than_they_have():
    vectors, queries = synthetic_vectors(20_000), synthetic_vectors(200, queries=True)
    found = exact_neighbours(vectors, queries, 100).distances
    assert 6 < local_intrinsic_dimension(np.sqrt(found)) < 12


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_dimension_of_uniform_points_is_found(dimension):
    random = np.random.default_rng(1)
    points = random.random((20_000, dimension)).astype(np.float32)
    queries = (random.random((200, dimension)) / 2 + 0.25).astype(np.float32)  # away from the edges
    found = exact_neighbours(points, queries, 100).distances
    assert local_intrinsic_dimension(np.sqrt(found)) == pytest.approx(dimension, rel=0.1)


def test_distances_that_say_nothing_have_no_dimension():
    assert np.isnan(local_intrinsic_dimension(np.zeros((3, 5))))
    assert np.isnan(local_intrinsic_dimension(np.ones((3, 5))))


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("vectors", lambda: synthetic_vectors(-1)),
        ("vectors", lambda: synthetic_vectors(1.5)),
        ("vectors", lambda: synthetic_vectors(2**31)),
        ("vectors", lambda: synthetic_vectors(2**31 - 1, 65_536)),
        ("dimension", lambda: synthetic_vectors(1, 0)),
        ("dimension", lambda: synthetic_vectors(1, 65_537)),
        ("seed", lambda: synthetic_vectors(1, seed=-1)),
        ("distances", lambda: local_intrinsic_dimension([1, 2])),
        ("distances", lambda: local_intrinsic_dimension([[1]])),
        ("distances", lambda: local_intrinsic_dimension([[1, -2]])),
        ("distances", lambda: local_intrinsic_dimension([[1, np.nan]])),
    ],
)
def test_numbers_that_cannot_be_are_refused(field, call):
    with pytest.raises(RefusedInput) as refused:
        call()
    assert refused.value.field == field
    assert refused.value.remedy
