# SPDX-License-Identifier: Apache-2.0
"""Graphs whose vertices get other numbers."""

import sys

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput
from forebay.graph import Graph, generate, load, reorder, save, write_el
from forebay.graph import reorder as reorder_function
from forebay.graph.reorder import REORDERINGS
from graphs import arcs, random_graph, same, weights_of

module = sys.modules[reorder_function.__module__]


# Small pieces, so that these graphs take several.
@pytest.fixture(params=[module._PIECE_ARCS, 5])
def piece(request, monkeypatch):
    monkeypatch.setattr(module, "_PIECE_ARCS", request.param)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("order", REORDERINGS)
@pytest.mark.parametrize("seed", range(12))
def test_the_graph_is_the_same_but_for_the_numbers(order, seed):
    graph = random_graph(seed, directed=seed % 2 == 1, weighted=seed % 3 == 0)
    if seed % 4 == 1:
        graph = graph.inverse()  # and has its own inverse at hand
    got, new = reorder(graph, order, seed)
    assert sorted(new.tolist()) == list(range(graph.vertices))
    assert arcs(got) == {(new[source], new[target]) for source, target in arcs(graph)}
    for v in range(got.vertices):
        row = got.neighbours[got.row_begin[v] : got.row_begin[v + 1]]
        assert np.all(np.diff(row) > 0)
    assert (got.directed, got.neighbours.dtype, got.row_begin.dtype) == (graph.directed, np.int32, np.int64)
    if graph.weights is not None:
        wanted = {(new[source], new[target]): weight for (source, target), weight in weights_of(graph).items()}
        assert weights_of(got) == wanted
    assert (got.incoming is None) == (graph.incoming is None)
    if got.incoming is not None:
        assert arcs(got.incoming) == {(target, source) for source, target in arcs(got)}


def test_by_degree_the_vertex_with_the_most_neighbours_is_first():
    got, new = reorder(Graph.from_arcs([3, 3, 3, 1, 4], [0, 1, 2, 2, 3], 5), "degree")
    assert new.tolist() == [3, 1, 4, 0, 2]
    assert got.degrees.tolist() == [3, 1, 1, 0, 0]
    got, new = reorder(generate.kronecker(8), "degree")
    assert np.all(np.diff(got.degrees) <= 0)
    equal = np.flatnonzero(np.diff(got.degrees) == 0)
    old = np.argsort(new)
    assert np.all(old[equal] < old[equal + 1]), "of equals, the smaller number is first"


def test_reverse_cuthill_mckee_lets_a_path_lie_along_its_numbers():
    path = np.random.default_rng(1).permutation(50)
    got, _ = reorder(Graph.from_arcs(path[:-1], path[1:], 50, directed=False), "rcm")
    assert all(abs(source - target) == 1 for source, target in arcs(got))


def test_a_random_order_is_that_of_its_seed():
    graph = generate.uniform(7)
    orders = [reorder(graph, "random", seed)[1].tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("order", REORDERINGS)
@pytest.mark.parametrize("vertices", [0, 1, 3])
def test_graphs_without_an_edge(order, vertices):
    got, new = reorder(Graph.from_arcs([], [], vertices), order)
    assert (got.vertices, got.arcs, len(new)) == (vertices, 0, vertices)


@pytest.mark.parametrize(("order", "near"), [("dgree", "degree"), ("RCM", "rcm"), ("rand", "random")])
def test_an_unknown_order_is_refused_with_the_nearest(order, near):
    with pytest.raises(RefusedInput) as refused:
        reorder(generate.uniform(3), order)
    assert (refused.value.field, refused.value.value) == ("order", order)
    assert refused.value.remedy == f"must be one of degree, rcm, random; did you mean {near}?"


def test_what_cannot_be_reordered_is_refused(monkeypatch):
    graph = generate.uniform(5)
    with pytest.raises(RefusedInput, match="seed: '-1': must be 0 or more"):
        reorder(graph, "random", -1)
    monkeypatch.setattr(module, "_INDEX_MAX", graph.arcs - 1)
    with pytest.raises(RefusedInput, match=r"graph: .* has more arcs than SciPy counts"):
        reorder(graph, "rcm")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 1000)
    with pytest.raises(RefusedInput, match=r"graph: '32 vertices': .* 1000 B are available"):
        reorder(graph, "degree")


def test_without_scipy_only_rcm_fails(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    graph = generate.uniform(5)
    with pytest.raises(OperationFailed, match="SciPy, which computes the order rcm, does not load"):
        reorder(graph, "rcm")
    reorder(graph, "degree")


@pytest.mark.parametrize("order", REORDERINGS)
def test_a_file_is_converted_in_another_order(forebay, tmp_path, order):
    graph = random_graph(3, weighted=True)
    save(graph, tmp_path / "g.wsg")
    seed = ("--seed", 7) if order == "random" else ()
    command = ["graph", "convert", tmp_path / "g.wsg", tmp_path / "r.wsg", "--reorder", order, *seed, "--json", "-"]
    document = forebay(*command).json()
    assert (document["reorder"], document["arcs"]) == (order, graph.arcs)
    assert same(load(tmp_path / "r.wsg"), reorder(graph, order, 7)[0])


def test_a_file_is_converted_in_its_own_order_by_default(forebay, tmp_path):
    write_el(generate.uniform(4), tmp_path / "g.el")
    document = forebay("graph", "convert", tmp_path / "g.el", tmp_path / "g.sg", "--json", "-").json()
    assert document["reorder"] is None
    assert same(load(tmp_path / "g.sg"), load(tmp_path / "g.el"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--reorder up", "--reorder: 'up': must be one of degree, rcm, random; did you mean"),
        ("--seed 3", "--seed: '3': nothing here is random"),
        ("--reorder rcm --seed 3", "--seed: '3': nothing here is random"),
        ("--reorder random --seed -1", "--seed: '-1': must be a whole number"),
    ],
)
def test_a_conversion_in_an_order_that_is_not_known_is_refused(forebay, tmp_path, options, message):
    write_el(generate.uniform(4), tmp_path / "g.el")
    forebay("graph", "convert", tmp_path / "g.el", tmp_path / "g.sg", *options.split()).refused(message)
    assert not (tmp_path / "g.sg").exists()
