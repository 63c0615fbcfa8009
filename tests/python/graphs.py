# SPDX-License-Identifier: Apache-2.0
"""What the tests of graphs and their files share."""

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph

UNWEIGHTED, WEIGHTED = (".sg", ".el"), (".wsg", ".wel", ".gr")


def random_graph(seed, *, directed=True, weighted=False, vertices_max=200):
    random = np.random.default_rng(seed)
    vertices = int(random.integers(1, vertices_max))
    count = int(random.integers(0, 10 * vertices_max))
    sources, targets = random.integers(0, vertices, (2, count))
    weights = random.integers(0, 100, count) if weighted else None
    return Graph.from_arcs(sources, targets, vertices, directed=directed, weights=weights)


def sources(graph):
    return np.repeat(np.arange(graph.vertices), graph.degrees)


def arcs(graph):
    return set(zip(sources(graph).tolist(), graph.neighbours.tolist(), strict=True))


def weights_of(graph):
    """The weight of each arc, by its two vertices."""
    assert graph.weights.dtype == np.int32
    pairs = zip(sources(graph).tolist(), graph.neighbours.tolist(), strict=True)
    return dict(zip(pairs, graph.weights.tolist(), strict=True))


def same(a, b):
    """Whether two graphs are equal; which inverse they have at hand does not matter."""
    if (a.weights is None) != (b.weights is None) or a.directed != b.directed:
        return False
    pairs = [(a.row_begin, b.row_begin), (a.neighbours, b.neighbours)]
    pairs += [] if a.weights is None else [(a.weights, b.weights)]
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def refused(read, path, field=None, value=None):
    """Asserts that a file is refused, with one line that has a field, a value and a remedy."""
    with pytest.raises(RefusedInput) as caught:
        read(path)
    error = caught.value
    assert "\n" not in str(error)
    assert str(path) in str(error)
    assert error.remedy
    if field is not None:
        assert error.field == f"{path}:{field}"
    if value is not None:
        assert error.value == value
    return error
