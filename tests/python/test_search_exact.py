# SPDX-License-Identifier: Apache-2.0
"""The nearest neighbours by comparing all, and the recall of what compares fewer."""

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.search import METRICS, exact_neighbours, recall
from forebay.search.exact import NO_NEIGHBOUR


def drawn(seed, count, dimension=7, kind="f4"):
    random = np.random.default_rng(seed)
    if np.dtype(kind).kind == "f":
        return random.standard_normal((count, dimension)).astype(kind)
    # Few values: many vectors are equally far.
    return (random.integers(0, 4, (count, dimension)) + 1).astype(kind)


def distance(a, b, metric):
    """By Python's own whole numbers and fractions of 8 bytes, a component at a time."""
    a, b = a.tolist(), b.tolist()
    product = sum(x * y for x, y in zip(a, b, strict=True))
    if metric == "l2":
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    if metric == "inner_product":
        return -product
    return 1 - product / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["u1", "i1", "f2", "f4"])
def test_neighbours_are_those_of_a_sort_of_all(metric, kind, monkeypatch):
    monkeypatch.setattr("forebay.search.exact._BLOCK_BYTES", 7 * 8 * 13)  # 13 vectors
    monkeypatch.setattr("forebay.search.exact._QUERIES", 3)
    base, queries = drawn(1, 50, kind=kind), drawn(2, 8, kind=kind)
    found = exact_neighbours(base, queries, 20, metric)
    assert found.ids.dtype == np.uint32
    for query, ids, distances in zip(queries, found.ids, found.distances, strict=True):
        all_of_them = np.array([distance(query, one, metric) for one in base])
        assert distances == pytest.approx(np.sort(all_of_them)[:20], abs=1e-12)
        assert all_of_them[ids] == pytest.approx(distances, abs=1e-12)
        if kind in ("u1", "i1") and metric != "cosine":  # then numbers are exact, and so is the order of equal ones
            assert ids.tolist() == np.argsort(all_of_them, kind="stable")[:20].tolist()
            assert distances.tolist() == np.sort(all_of_them)[:20].tolist()
        assert len(set(ids.tolist())) == 20


def test_all_may_be_asked_for_and_no_query_at_all():
    base = drawn(1, 9)
    assert sorted(exact_neighbours(base, base[:1], 9).ids[0].tolist()) == list(range(9))
    assert exact_neighbours(base, base[:0], 3).ids.shape == (0, 3)


def test_large_integers_are_compared_exactly():
    base = np.full((3, 65_536), 255, np.uint8)
    base[1, 0], base[2, 1] = 254, 253
    found = exact_neighbours(base, np.zeros((1, 65_536), np.uint8), 3)
    assert found.ids.tolist() == [[2, 1, 0]]
    assert found.distances[0].tolist() == [
        65_536 * 255**2 - 255**2 + 253**2,
        65_536 * 255**2 - 255**2 + 254**2,
        65_536 * 255**2,
    ]


def test_recall_counts_what_is_as_near_as_the_farthest_true_one():
    base = np.array([[0], [1], [2], [2], [9]], np.float32)
    queries = np.array([[0]], np.float32)
    true = exact_neighbours(base, queries, 3).ids
    assert true.tolist() == [[0, 1, 2]]
    for found, wanted in (
        ([0, 1, 2], 1),
        ([2, 0, 1], 1),
        ([0, 1, 3], 1),  # as far as vector 2
        ([2, 3, 1], 1),
        ([0, 1, 4], 2 / 3),
        ([0, 0, 0], 1 / 3),
        ([0, NO_NEIGHBOUR, NO_NEIGHBOUR], 1 / 3),
        ([NO_NEIGHBOUR] * 3, 0),
    ):
        assert recall(base, queries, [found], true) == pytest.approx(wanted)


@pytest.mark.parametrize("metric", METRICS)
def test_the_recall_of_the_exact_neighbours_is_one(metric):
    base = np.concatenate([drawn(3, 40), drawn(3, 40)])  # each twice
    queries = drawn(4, 6)
    true = exact_neighbours(base, queries, 11, metric).ids
    assert recall(base, queries, true, true, metric) == 1
    assert recall(base, queries, (true + 40) % 80, true, metric) == 1, "the other one of each pair"


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("metric", {"metric": "l1"}),
        ("k", {"k": 0}),
        ("k", {"k": 6}),
        ("k", {"k": 1.0}),
        ("base", {"base": np.zeros((0, 7), np.float32)}),
        ("base", {"base": np.zeros(7, np.float32)}),
        ("base", {"base": np.zeros((5, 7))}),
        ("base", {"base": np.zeros((5, 7), ">f4")}),
        ("base", {"base": np.zeros((5, 7), np.int32)}),
        ("base[3]", {"base": np.where(np.arange(5)[:, None] == 3, np.nan, np.ones((5, 7))).astype("f4")}),
        ("queries[0]", {"queries": np.full((1, 7), np.inf, np.float16)}),
        ("queries", {"queries": np.zeros((1, 6), np.float32)}),
        ("base[2]", {"base": np.ones((5, 7), np.float32) * (np.arange(5)[:, None] != 2), "metric": "cosine"}),
    ],
)
def test_what_cannot_be_compared_is_refused(field, change):
    arguments = {"base": drawn(1, 5), "queries": drawn(2, 1), "k": 3, **change}
    if field == "base[2]":
        arguments["base"] = arguments["base"].astype("f4")
    with pytest.raises(RefusedInput) as refused:
        exact_neighbours(**arguments)
    assert refused.value.field == field
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("field", "found", "true"),
    [
        ("found", [[0, 1]], [[0, 1, 2]]),
        ("found", [[0, 1, 5]], [[0, 1, 2]]),
        ("found", [[0, 1, -1]], [[0, 1, 2]]),
        ("found", [[0.0, 1.0, 2.0]], [[0, 1, 2]]),
        ("found", [[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 1, 2]]),
        ("true", [[0, 1, 2]], [[0, 1, NO_NEIGHBOUR]]),
        ("true", [[0, 1, 2]], [0, 1, 2]),
    ],
)
def test_ids_that_cannot_be_are_refused(field, found, true):
    with pytest.raises(RefusedInput) as refused:
        recall(drawn(1, 5), drawn(2, 1), found, true)
    assert refused.value.field == field
