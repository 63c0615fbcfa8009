# SPDX-License-Identifier: Apache-2.0
"""Graphs of vectors: what a list may hold, that each vector can be reached, and builds that go on where they ended."""

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.search import METRICS, NO_NEIGHBOUR, build_graph, exact_neighbours, synthetic_vectors


def reached(graph):
    """Which vectors can be reached from the first one, by a search that shares nothing with the builder's."""
    seen, left = {0}, [0]
    while left:
        for name in graph[left.pop()].tolist():
            if name != NO_NEIGHBOUR and name not in seen:
                seen.add(name)
                left.append(name)
    return seen


def assert_sound(graph, count, degree):
    assert (graph.shape, graph.dtype) == ((count, degree), np.uint32)
    for vector, row in enumerate(graph.tolist()):
        names = [name for name in row if name != NO_NEIGHBOUR]
        assert row == names + [NO_NEIGHBOUR] * (degree - len(names))
        assert len(set(names)) == len(names)
        assert vector not in names
        assert all(name < count for name in names)
    assert len(reached(graph)) == count


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("count", [1, 2, 5, 40, 5000])  # the last has several lists
def test_lists_are_sound_and_lead_everywhere(count, metric):
    base = synthetic_vectors(count, 12)
    graph = build_graph(base, metric=metric, graph_degree=8)
    assert_sound(graph, count, 8)
    np.testing.assert_array_equal(graph, build_graph(base, metric=metric, graph_degree=8))


@pytest.mark.parametrize("base", [np.zeros((300, 4), np.uint8), np.repeat(np.eye(3, dtype=np.float32), 200, axis=0)])
def test_equal_vectors_can_all_be_reached(base):
    assert_sound(build_graph(base, graph_degree=6), len(base), 6)


def test_lists_hold_near_vectors():
    base = synthetic_vectors(5000, 16)
    graph = build_graph(base, graph_degree=24)
    near = exact_neighbours(base, base[::50], 2).ids[:, 1]
    assert np.mean([name in graph[50 * i] for i, name in enumerate(near)]) >= 0.95


def test_another_seed_gives_another_graph():
    base = synthetic_vectors(5000, 12)
    assert (build_graph(base, graph_degree=8) != build_graph(base, graph_degree=8, seed=1)).any()


def test_a_build_goes_on_after_the_steps_that_are_kept(tmp_path):
    base = synthetic_vectors(1500, 8)
    whole = build_graph(base, graph_degree=8)
    steps = []

    def stop(step, _done, _total):
        steps.append(step)
        if step == "diverse neighbours":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_graph(base, graph_degree=8, checkpoints=tmp_path, progress=stop)
    assert "neighbours" in steps
    again = []
    kept = build_graph(base, graph_degree=8, checkpoints=tmp_path, progress=lambda step, *_: again.append(step))
    np.testing.assert_array_equal(kept, whole)
    assert "neighbours" not in again
    assert "diverse neighbours" in again


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"graph_degree": 9}, "graph_degree"), ({"seed": 1}, "seed"), ({"metric": "cosine"}, "metric")],
)
def test_a_folder_with_another_build_is_refused(tmp_path, changed, field):
    base = synthetic_vectors(100, 8)
    build_graph(base, graph_degree=8, checkpoints=tmp_path)
    with pytest.raises(RefusedInput, match=field) as refused:
        build_graph(base, **({"graph_degree": 8, "checkpoints": tmp_path} | changed))
    assert refused.value.field == "checkpoints"
    with pytest.raises(RefusedInput, match="sample"):
        build_graph(base[::-1], graph_degree=8, checkpoints=tmp_path)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"graph_degree": 0}, "graph_degree"), ({"device": "gpu"}, "device"), ({"metric": "x"}, "metric")],
)
def test_what_cannot_be_is_refused(options, field):
    with pytest.raises(RefusedInput) as refused:
        build_graph(synthetic_vectors(10, 4), **({"graph_degree": 4} | options))
    assert refused.value.field == field
