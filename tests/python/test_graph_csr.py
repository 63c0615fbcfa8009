# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph
from forebay.graph.csr import arcs_in_pieces
from graphs import arcs, random_graph, same, sources, weights_of


@pytest.mark.parametrize("seed", range(30))
def test_from_arcs_keeps_each_pair_once_without_loops(seed):
    random = np.random.default_rng(seed)
    vertices = int(random.integers(1, 50))
    sources, targets = random.integers(0, vertices, (2, int(random.integers(0, 500))))
    wanted = {(int(s), int(t)) for s, t in zip(sources, targets, strict=True) if s != t}
    graph = Graph.from_arcs(sources, targets, vertices)
    assert arcs(graph) == wanted
    assert graph.arcs == len(wanted)
    assert arcs(graph.inverse()) == {(t, s) for s, t in wanted}
    both = wanted | {(t, s) for s, t in wanted}
    assert arcs(graph.symmetrized()) == both
    assert arcs(Graph.from_arcs(sources, targets, vertices, directed=False)) == both


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_of_duplicates_the_smallest_weight_stays(seed, loops):
    random = np.random.default_rng(seed)
    vertices = int(random.integers(1, 20))
    sources, targets = random.integers(0, vertices, (2, int(random.integers(0, 500))))
    weights = random.integers(0, 50, len(sources))
    wanted = {}
    for s, t, w in zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True):
        if loops or s != t:
            wanted[s, t] = min(w, wanted.get((s, t), w))
    both = {(s, t): min(w, wanted.get((t, s), w)) for (s, t), w in wanted.items()}
    both |= {(t, s): w for (s, t), w in both.items()}

    graph = Graph.from_arcs(sources, targets, vertices, weights=weights, keep_loops=loops)
    assert weights_of(graph) == wanted
    assert weights_of(graph.inverse()) == {(t, s): w for (s, t), w in wanted.items()}
    assert weights_of(graph.symmetrized()) == both
    undirected = Graph.from_arcs(sources, targets, vertices, weights=weights, keep_loops=loops, directed=False)
    assert weights_of(undirected) == both


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("vertices", [0, 1, 2])
def test_graphs_without_arcs(vertices, weighted):
    graph = Graph.from_arcs([], [], vertices, weights=[] if weighted else None)
    for one in (graph, graph.inverse(), graph.symmetrized()):
        assert (one.vertices, one.arcs) == (vertices, 0)
        assert (one.weights is not None) == weighted
    assert list(arcs_in_pieces(graph)) == []


def test_a_loop_is_all_that_one_vertex_can_have():
    assert arcs(Graph.from_arcs([0, 0], [0, 0], 1)) == set()
    looped = Graph.from_arcs([0, 0], [0, 0], 1, keep_loops=True, weights=[9, 4])
    assert weights_of(looped) == weights_of(looped.inverse()) == weights_of(looped.symmetrized()) == {(0, 0): 4}


def test_the_inverse_is_the_one_at_hand_and_leads_back():
    graph = random_graph(1, weighted=True)
    turned = graph.inverse()
    assert turned.incoming.neighbours is graph.neighbours
    assert turned.inverse().neighbours is graph.neighbours
    assert same(turned.inverse(), graph)
    marked = Graph.from_arcs([0], [1], 2)
    held = Graph(graph.row_begin, graph.neighbours, True, graph.weights, marked)
    assert held.inverse().neighbours is marked.neighbours


def test_an_undirected_graph_is_its_own_inverse():
    graph = random_graph(2, directed=False)
    assert graph.inverse() is graph
    assert graph.symmetrized() is graph


def test_unit_weights_are_those_of_the_inverse_too():
    graph = random_graph(3, weighted=True)
    unit = graph.inverse().with_unit_weights()
    assert set(weights_of(unit).values()) == set(weights_of(unit.incoming).values()) == {1}
    assert arcs(unit.incoming) == arcs(graph)


@pytest.mark.parametrize("piece", [1, 3, 7, 1 << 16])
@pytest.mark.parametrize("seed", range(5))
def test_pieces_have_each_arc_once(seed, piece, monkeypatch):
    monkeypatch.setattr("forebay.graph.csr._PIECE_ARCS", piece)
    graph = random_graph(seed, weighted=True, vertices_max=30)
    pieces = list(arcs_in_pieces(graph))
    assert all(0 < len(one.targets) <= piece for one in pieces)
    assert np.concatenate([one.sources for one in pieces]).tolist() == sources(graph).tolist()
    assert np.concatenate([one.targets for one in pieces]).tolist() == graph.neighbours.tolist()
    assert np.concatenate([one.weights for one in pieces]).tolist() == graph.weights.tolist()
    assert [one.begin for one in pieces] == np.cumsum([0, *[len(one.targets) for one in pieces]])[:-1].tolist()


def test_rows_without_arcs_do_not_make_a_piece_large(monkeypatch):
    monkeypatch.setattr("forebay.graph.csr._PIECE_ARCS", 4)
    asked = []
    repeat = np.repeat
    monkeypatch.setattr(np, "repeat", lambda rows, counts: (asked.append(len(rows)), repeat(rows, counts))[1])
    graph = Graph.from_arcs([0, 500, 999], [1, 2, 3], 1000)
    asked.clear()
    assert [one.sources.tolist() for one in arcs_in_pieces(graph)] == [[0], [500], [999]]
    assert max(asked) <= 4


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("sources", ([0, 3], [1, 1], 3)),
        ("sources", ([0, -1], [1, 1], 3)),
        ("sources", ([0.5], [1], 3)),
        ("sources", (["a"], [1], 3)),
        ("sources", ([[0, 1]], [1, 1], 3)),
        ("sources", ([[0], [1, 2]], [1, 1], 3)),
        ("targets", ([0, 1], [1], 3)),
        ("targets", ([0], [2**63], 3)),
        ("vertices", ([0], [1], -1)),
        ("vertices", ([0], [1], 2.0)),
        ("vertices", ([0], [1], 2**31 + 1)),
        ("weights", ([0], [1], 3, [-1])),
        ("weights", ([0], [1], 3, [2**31])),
        ("weights", ([0], [1], 3, [math.nan])),
        ("weights", ([0], [1], 3, [1, 2])),
    ],
)
def test_arcs_that_cannot_be_are_refused(field, arguments):
    sources, targets, vertices, *weights = arguments
    with pytest.raises(RefusedInput) as refused:
        Graph.from_arcs(sources, targets, vertices, weights=weights[0] if weights else None)
    assert refused.value.field == field
    assert refused.value.remedy


def test_no_arcs_make_a_graph_whatever_the_type_of_the_arrays():
    assert Graph.from_arcs([], np.zeros(0), 3, weights=[]).arcs == 0
