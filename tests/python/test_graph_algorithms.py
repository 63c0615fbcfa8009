# SPDX-License-Identifier: Apache-2.0
"""Every algorithm over every place that needs no GPU, on generated and on real graphs, against SciPy and NumPy."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from forebay import RefusedInput, build_info
from forebay.graph import (
    Graph,
    bfs,
    components,
    generate,
    pagerank,
    reference_components,
    reference_distances,
    reference_paths,
    reference_scores,
    reference_triangles,
    spmv,
    sssp,
    triangles,
    verify_components,
    verify_distances,
    verify_paths,
    verify_product,
    verify_scores,
    verify_triangles,
)
from forebay.graph.checks import arc_numbers, verified_by
from graphs import NAMED_GRAPHS, arcs, named_graph, random_graph, same, sources

PLACES = (
    "host",
    "storage:page_bytes=512,cache_bytes=128K",
    "storage_direct",
    "external:latency_us=2,alignment=32",
)
CHECKS = ("scipy", "device")
ON_CPU = {"device": "cpu"}


def undirected(graph):
    return graph.symmetrized()


def busiest(graph):
    return int(graph.degrees.argmax())


@pytest.fixture(params=NAMED_GRAPHS)
def graph(request):
    return named_graph(request.param)


@pytest.fixture(params=PLACES, ids=lambda place: place.partition(":")[0])
def place(request):
    return request.param


# ---- every algorithm in every place


def test_bfs(graph, place):
    source = busiest(graph)
    result = bfs(graph, source, place, **ON_CPU)
    assert np.array_equal(result.distance, reference_distances(graph, source))
    assert verify_distances(graph, source, result) == 0
    assert verify_distances(graph, source, result, by="device", **ON_CPU) == 0
    assert result.bytes_needed > 0


def test_sssp(graph, place):
    source = busiest(graph)
    result = sssp(graph, source, place, delta=64, **ON_CPU)
    assert np.array_equal(result.distance, reference_paths(graph, source))
    assert verify_paths(graph, source, result) == 0
    assert verify_paths(graph, source, result, by="device", **ON_CPU) == 0
    assert result.buckets >= 1
    assert result.phases >= result.buckets


def test_pagerank(graph, place):
    result = pagerank(graph, place, iterations=5, tolerance=0, **ON_CPU)
    assert result.iterations == 5
    assert verify_scores(graph, result) == 0
    assert verify_scores(graph, result, by="device", **ON_CPU) == 0
    assert result.bytes_needed == graph.arcs * 4 * 5


def test_components(graph, place):
    result = components(graph, place, **ON_CPU)
    assert np.array_equal(result.label, reference_components(graph))
    assert result.components == len(np.unique(result.label))
    assert verify_components(graph, result) == 0
    assert verify_components(graph, result, by="device", **ON_CPU) == 0


def test_triangles(graph, place):
    graph = undirected(graph)
    result = triangles(graph, place, **ON_CPU)
    assert result.triangles == reference_triangles(graph)
    assert verify_triangles(graph, result) == 0


def test_spmv(graph, place):
    x = np.random.default_rng(1).random(graph.vertices)
    result = spmv(graph, x, place, **ON_CPU)
    assert verify_product(graph, x, result) == 0
    result = spmv(replace(graph, weights=None, incoming=None), x, place, **ON_CPU)
    assert verify_product(replace(graph, weights=None), x, result) == 0


def test_the_real_graphs_are_the_ones_that_are_meant():
    shapes = {name: (named_graph(name).vertices, named_graph(name).arcs) for name in ("miserables", "verbs", "adverbs")}
    assert shapes == {"miserables": (77, 508), "verbs": (13_767, 30_259), "adverbs": (3_621, 640)}
    assert not named_graph("miserables").directed
    assert named_graph("verbs").directed


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["hbm", "uvm", *PLACES, "external:latency_us=4,mode=pinned"])
@pytest.mark.parametrize("name", ["kronecker", "verbs"])
def test_every_algorithm_on_a_gpu(name, place):
    if not build_info()["gpus"]:
        pytest.skip("there is no GPU that this build can use")
    graph, on_gpu = named_graph(name), {"device": "cuda:0"}
    both, source, x = undirected(graph), busiest(graph), np.ones(graph.vertices)
    for by in CHECKS:
        assert verify_distances(graph, source, bfs(graph, source, place, **on_gpu), by=by, **on_gpu) == 0
        assert verify_paths(graph, source, sssp(graph, source, place, delta=64, **on_gpu), by=by, **on_gpu) == 0
        assert verify_scores(graph, pagerank(graph, place, **on_gpu), by=by, **on_gpu) == 0
        assert verify_components(graph, components(graph, place, **on_gpu), by=by, **on_gpu) == 0
        assert verify_triangles(both, triangles(both, place, **on_gpu), by=by, **on_gpu) == 0
    assert verify_product(graph, x, spmv(graph, x, place, **on_gpu)) == 0


# ---- references: NetworkX knows better


@pytest.mark.parametrize("seed", range(3))
def test_references_agree_with_networkx(seed):
    networkx = pytest.importorskip("networkx")
    graph = random_graph(seed, weighted=True)
    known = networkx.DiGraph()
    known.add_nodes_from(range(graph.vertices))
    ends = zip(sources(graph).tolist(), graph.neighbours.tolist(), graph.weights.tolist(), strict=True)
    known.add_weighted_edges_from(ends)
    paths = reference_paths(graph, 0)
    reached = {v: int(d) for v, d in enumerate(paths) if d != 2**64 - 1}
    assert reached == networkx.single_source_dijkstra_path_length(known, 0)
    assert len(set(reference_components(graph))) == networkx.number_weakly_connected_components(known)
    scores, change = reference_scores(graph, 100, share_dangling=True)
    ranks = networkx.pagerank(known, alpha=0.85, weight=None, tol=1e-13)
    assert scores == pytest.approx([ranks[v] for v in range(graph.vertices)], abs=1e-9)
    assert change < 1e-6
    both = undirected(graph)
    count = sum(networkx.triangles(networkx.Graph(arcs(both))).values()) // 3
    assert reference_triangles(both) == count


def test_triangles_are_counted_in_steps(monkeypatch):
    graph = named_graph("kronecker")
    whole = reference_triangles(graph)
    monkeypatch.setattr(importlib.import_module("forebay.graph.triangles"), "_WEDGES_OF_A_STEP", 50)
    assert reference_triangles(graph) == whole > 0


def test_arcs_are_found_by_their_ends():
    graph = random_graph(4)
    at = arc_numbers(graph, sources(graph), graph.neighbours)
    assert np.array_equal(at, np.arange(graph.arcs))
    pairs = arcs(graph)
    absent = [(a, b) for a in range(graph.vertices) for b in range(graph.vertices) if (a, b) not in pairs]
    assert (arc_numbers(graph, *np.array(absent).T) == -1).all()
    assert arc_numbers(Graph.from_arcs([], [], 2), np.array([0]), np.array([1])).tolist() == [-1]


# ---- what the checks find


@pytest.mark.parametrize("by", CHECKS)
def test_a_wrong_path_is_found(by):
    graph = Graph.from_arcs([0, 0, 1, 2, 3], [1, 2, 3, 3, 4], 6, weights=[1, 3, 5, 3, 0])
    result = sssp(graph, 0, **ON_CPU)
    assert result.distance.tolist() == [0, 1, 3, 6, 6, 2**64 - 1]
    assert verify_paths(graph, 0, result, by=by, **ON_CPU) == 0
    for name, vertex, wrong in (
        ("distance", 4, 5),
        ("distance", 4, 7),
        ("distance", 5, 9),
        ("distance", 1, 2**64 - 1),
        ("predecessor", 0, 1),
        ("predecessor", 4, 2),
        ("predecessor", 4, 2**32 - 1),
        ("predecessor", 4, 77),
        ("predecessor", 5, 4),
    ):
        array = getattr(result, name).copy()
        array[vertex] = wrong
        assert verify_paths(graph, 0, replace(result, **{name: array}), by=by, **ON_CPU) > 0, (name, vertex, wrong)


@pytest.mark.parametrize("by", CHECKS)
def test_predecessors_that_go_in_a_circle_are_found(by):
    graph = Graph.from_arcs([0, 1, 2], [1, 2, 1], 3, weights=[4, 0, 0])
    result = sssp(graph, 0, **ON_CPU)
    assert verify_paths(graph, 0, result, by=by, **ON_CPU) == 0
    circle = replace(result, predecessor=np.array([2**32 - 1, 2, 1], np.uint32))
    assert verify_paths(graph, 0, circle, by=by, **ON_CPU) > 0


@pytest.mark.parametrize("by", CHECKS)
def test_a_wrong_distance_is_found(by):
    graph = named_graph("miserables")
    result = bfs(graph, 0, **ON_CPU)
    for vertex, wrong in ((0, 1), (5, int(result.distance[5]) + 1), (5, 2**32 - 1), (5, 2**32 - 2)):
        distance = result.distance.copy()
        distance[vertex] = wrong
        assert verify_distances(graph, 0, replace(result, distance=distance), by=by, **ON_CPU) > 0
    assert verify_distances(graph, 0, replace(result, frontier=[*result.frontier, 1]), by=by, **ON_CPU) == 1


@pytest.mark.parametrize("by", CHECKS)
def test_a_wrong_label_is_found(by):
    graph = Graph.from_arcs([0, 3], [1, 4], 6, directed=False)
    result = components(graph, **ON_CPU)
    assert result.label.tolist() == [0, 0, 2, 3, 3, 5]
    for vertex, wrong in ((1, 1), (4, 4), (5, 2), (3, 0), (5, 77)):
        label = result.label.copy()
        label[vertex] = wrong
        assert verify_components(graph, replace(result, label=label), by=by, **ON_CPU) > 0
    assert verify_components(graph, replace(result, components=3), by=by, **ON_CPU) == 1


@pytest.mark.parametrize("by", CHECKS)
@pytest.mark.parametrize("share", [False, True])
def test_a_wrong_score_is_found(by, share):
    graph = random_graph(8)
    result = pagerank(graph, iterations=50, tolerance=1e-5, share_dangling=share, **ON_CPU)
    assert result.iterations < 50
    assert bool(abs(result.score.sum() - 1) < 1e-5) is share
    assert verify_scores(graph, result, by=by, **ON_CPU) == 0
    for wrong in (result.score * 1.01, result.score + np.float32(1e-3), np.full_like(result.score, np.nan)):
        assert verify_scores(graph, replace(result, score=wrong.astype(np.float32)), by=by, **ON_CPU) > 0
    assert verify_scores(graph, replace(result, change=0.5)) == 1


@pytest.mark.parametrize("by", CHECKS)
def test_a_wrong_number_of_triangles_is_found(by):
    graph = named_graph("miserables")
    result = triangles(graph, **ON_CPU)
    assert verify_triangles(graph, result, by=by, **ON_CPU) == 0
    assert verify_triangles(graph, replace(result, triangles=result.triangles - 2), by=by, **ON_CPU) == 2


def test_a_wrong_row_of_a_product_is_found():
    graph = named_graph("kronecker")
    x = np.random.default_rng(2).random(graph.vertices, dtype=np.float32)
    result = spmv(graph, x, **ON_CPU)
    row = busiest(graph)
    for wrong in (result.y[row] * 1.001, np.nan, 0):
        y = result.y.copy()
        y[row] = wrong
        assert verify_product(graph, x, replace(result, y=y)) == 1


def test_the_size_of_a_graph_says_what_checks_it():
    assert verified_by(random_graph(1)) == "scipy"
    assert verified_by(Graph(np.zeros((1 << 20) + 2, np.int64), np.zeros(0, np.int32), directed=False)) == "device"
    with pytest.raises(RefusedInput, match="scipy or device"):
        verify_components(random_graph(1), components(random_graph(1), **ON_CPU), by="hand")


# ---- what algorithms refuse


def test_what_does_not_suit_an_algorithm_is_refused():
    directed = random_graph(1)
    for remedy, run in (
        ("graph.with_unit_weights", lambda: sssp(directed, 0, **ON_CPU)),
        ("-s", lambda: triangles(directed, **ON_CPU)),
        ("-s", lambda: reference_triangles(directed)),
        ("-s", lambda: bfs(directed, 0, direction="below", **ON_CPU)),
        ("must be a vertex", lambda: bfs(directed, directed.vertices, **ON_CPU)),
        ("must have the shape", lambda: spmv(directed, [1.0], **ON_CPU)),
    ):
        with pytest.raises(RefusedInput, match=remedy):
            run()


# ---- graphs that the device generates


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kind", generate.KINDS)
def test_the_device_generates_the_same_graphs(kind, weights):
    made = generate.on_device(kind, 8, 5, generator="own", seed=3, weights=weights, device="cpu")
    assert same(made, generate.own(kind, 8, 5, seed=3, weights=weights))
    gaps = generate.on_device(kind, 8, 5, weights=weights, device="cpu")
    wanted = getattr(generate, kind)(8, 5, weights=weights)
    if kind == "uniform":
        assert same(gaps, wanted)
    else:  # the vertices have other names
        assert sorted(gaps.degrees.tolist()) == sorted(wanted.degrees.tolist())
    verify = sssp(gaps, 1, delta=32, **ON_CPU) if weights else bfs(gaps, 1, **ON_CPU)
    assert (verify_paths if weights else verify_distances)(gaps, 1, verify) == 0


def test_what_the_device_does_not_generate_is_refused():
    for field, arguments, options in (
        ("kind", ("torus", 8), {}),
        ("scale", ("uniform", 0), {}),
        ("scale", ("uniform", 31), {}),
        ("degree", ("uniform", 8, 0), {}),
        ("generator", ("uniform", 8), {"generator": "mine"}),
        ("seed", ("uniform", 8), {"seed": -1}),
        ("device", ("uniform", 8), {"device": "cuda:77"}),
    ):
        with pytest.raises(RefusedInput) as refused:
            generate.on_device(*arguments, **{"device": "cpu", **options})
        assert refused.value.field == field
