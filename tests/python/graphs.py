# SPDX-License-Identifier: Apache-2.0
"""What the tests of graphs and their files share."""

import functools
import os

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph, generate, wordnet

# Of the graphs that are generated. `make check` takes larger ones.
SCALE = int(os.environ.get("FOREBAY_GRAPH_SCALE", "10"))
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


@functools.cache
def named_graph(name):
    """Graphs that all machines have: two that are generated, and three real ones, all with weights."""
    if name == "uniform":
        return generate.uniform(SCALE, 4, weights=True)
    if name == "kronecker":
        return generate.kronecker(SCALE, 4, weights=True)
    if name == "miserables":  # who is in a scene with whom in Hugo's novel, and how often
        networkx = pytest.importorskip("networkx")
        found = networkx.les_miserables_graph()
        number = {who: i for i, who in enumerate(sorted(found))}
        pairs = [(number[a], number[b], data["weight"]) for a, b, data in found.edges(data=True)]
        starts, ends, weights = zip(*pairs, strict=True)
        return Graph.from_arcs(starts, ends, len(number), directed=False, weights=weights)
    return _of_wordnet({"verbs": "v", "adverbs": "r"}[name])


NAMED_GRAPHS = ("uniform", "kronecker", "miserables", "verbs", "adverbs")


def _of_wordnet(part):
    """The synsets of one part of speech and the pointers between them, with weights from 0 to 6."""
    loaded = _wordnet()
    old = np.array([vertex for synset, vertex in loaded.synsets.items() if synset[0] == part])
    new = np.full(loaded.graph.vertices, -1)
    new[old] = np.arange(len(old))
    starts, ends = new[sources(loaded.graph)], new[loaded.graph.neighbours]
    inside = (starts >= 0) & (ends >= 0)
    starts, ends = starts[inside], ends[inside]
    return Graph.from_arcs(starts, ends, len(old), keep_loops=True, weights=(starts + ends) % 7)


@functools.cache
def _wordnet():
    return wordnet.load()
