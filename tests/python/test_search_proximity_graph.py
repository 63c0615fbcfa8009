# SPDX-License-Identifier: Apache-2.0
"""Graphs of vectors: their shape, what a search finds in them, builds that go on, and bad input."""

import errno
import json
import sys
import tracemalloc

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput
from forebay.search import NO_NEIGHBOUR, build_graph, exact_neighbours, recall, synthetic_vectors
from forebay.search._arrays import OnCpu, arrays_on
from forebay.search._neighbourhoods import Neighbourhoods
from forebay.search._reachable import connect
from forebay.search._reverse import with_reverse_edges
from forebay.search._rows import Rows
from forebay.search.quantiser import encode, train_codebook
from graph_walk import by_codes, by_vectors, entries_of, nearest_expanded, walk
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

pytestmark = pytest.mark.usefixtures("one_thread_a_product")

KINDS = ("u1", "i1", "f2", "f4")
SEED = 11


def drawn(count, dimension=12, kind="f4", seed=SEED):
    print(f"seed {seed}")
    values = np.random.default_rng(seed).standard_normal((count, dimension))
    return np.clip(values * 30 + (100 if kind == "u1" else 0), 0 if kind == "u1" else -127, 127).astype(kind)


def check(graph, vectors, degree):
    """The promises that hold for each graph."""
    count = len(vectors)
    assert (graph.dtype, graph.shape) == (np.uint32, (count, degree))
    there = graph != NO_NEIGHBOUR
    assert (graph[there] < count).all()
    assert (there[:, 1:] <= there[:, :-1]).all(), "the places that are free come last"
    assert not (graph == np.arange(count)[:, None]).any(), "no edge leads to its own vertex"
    ordered = np.sort(graph, axis=1)
    assert not ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_NEIGHBOUR)).any(), "no edge is there twice"
    source, place = np.nonzero(there)
    matrix = csr_array((np.ones(len(source)), (source, graph[source, place])), (count, count))
    assert connected_components(matrix, connection="strong")[0] == 1, "there is a way from each to each"


# ---- its shape


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 40, 129, 700, 3000])
def test_each_number_of_vectors_has_a_graph(count):
    vectors = drawn(count)
    graph = build_graph(vectors, graph_degree=8)
    check(graph, vectors, 8)
    if 1 < count <= 9:
        assert ((graph != NO_NEIGHBOUR).sum(1) == count - 1).all(), "all others are neighbours"


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_few_edges_are_enough_for_a_way(degree):
    vectors = drawn(300)
    check(build_graph(vectors, graph_degree=degree), vectors, degree)


def test_no_vectors_have_a_graph_without_rows():
    assert build_graph(np.zeros((0, 4), np.float32), graph_degree=8).shape == (0, 8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["l2", "inner_product", "cosine"])
def test_each_type_and_metric_has_a_graph(kind, metric):
    vectors = drawn(1500, kind=kind)
    check(build_graph(vectors, metric=metric, graph_degree=12), vectors, 12)


@pytest.mark.parametrize(
    "vectors",
    [
        np.ones((2000, 6), np.uint8),
        np.zeros((1000, 6), np.float32),
        np.repeat(drawn(20), 100, axis=0),
        np.concatenate([drawn(1000), np.repeat(drawn(1, seed=2), 1000, axis=0)]),
        np.concatenate([drawn(900) * 1e-3 + 50 * i for i in range(3)]),  # far apart
    ],
    ids=["ones", "zeros", "each a hundred times", "half of them equal", "three clusters"],
)
def test_equal_vectors_and_clusters_that_are_apart_have_ways_between_them(vectors):
    check(build_graph(vectors, graph_degree=8), vectors, 8)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 1e30])
def test_very_small_and_very_large_numbers_make_the_same_graph(factor):
    vectors = drawn(1000)
    power = np.float32(2.0 ** round(np.log2(factor)))
    assert np.array_equal(build_graph(vectors * power, graph_degree=8), build_graph(vectors, graph_degree=8))


def test_a_file_that_is_mapped_makes_the_same_graph(tmp_path):
    vectors = drawn(1000, kind="u1")
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert np.array_equal(build_graph(mapped, graph_degree=8), build_graph(vectors, graph_degree=8))


def test_a_seed_makes_the_same_graph_and_another_one_another():
    vectors = drawn(6000)
    one = build_graph(vectors, graph_degree=8, seed=3)
    assert np.array_equal(one, build_graph(vectors, graph_degree=8, seed=3))
    assert not np.array_equal(one, build_graph(vectors, graph_degree=8, seed=4))


def test_lists_hold_the_nearest_vector_of_nearly_all():
    base = synthetic_vectors(5000, 16)
    graph = build_graph(base, graph_degree=24)
    near = exact_neighbours(base, base[::50], 2).ids[:, 1]
    assert np.mean([name in graph[50 * at] for at, name in enumerate(near)]) >= 0.95


# ---- what a search finds


def found_in(graph, base, queries, list_size=64):
    return walk(graph, by_vectors(base, queries), entries_of(base, queries), list_size)


def test_a_search_finds_nearly_all_neighbours_of_drawn_vectors():
    base, queries = synthetic_vectors(20_000), synthetic_vectors(200, queries=True)
    graph = build_graph(base, graph_degree=32)
    check(graph, base, 32)
    true = exact_neighbours(base, queries, 10).ids
    assert recall(base, queries, found_in(graph, base, queries).ids[:, :10], true) >= 0.97


@pytest.mark.parametrize("metric", ["inner_product", "cosine"])
def test_a_search_by_another_metric_finds_them_too(metric):
    random = np.random.default_rng(SEED)
    base = drawn(8000, 10) * random.lognormal(0, 0.5, (8000, 1)).astype("f4")
    queries = drawn(100, 10, seed=7)
    graph = build_graph(base, metric=metric, graph_degree=32)

    def distance(query, ids):
        products = (base[ids] * queries[query]).sum(1)
        return -products if metric == "inner_product" else -products / np.linalg.norm(base[ids], axis=1)

    found = walk(graph, distance, random.integers(0, len(base), 100), 64)
    true = exact_neighbours(base, queries, 10, metric).ids
    assert recall(base, queries, found.ids[:, :10], true, metric) >= 0.97


def test_a_search_finds_the_neighbours_of_glosses_by_distances_and_by_codes(glosses, graph_of_glosses):
    base, queries, true = glosses
    graph = graph_of_glosses
    check(graph, base, 64)
    exact = found_in(graph, base, queries, 100)
    codebook = train_codebook(base, 32)
    by_code = walk(graph, by_codes(encode(base, codebook), codebook, queries), entries_of(base, queries), 100)
    found = {
        "by distances": (recall(base, queries, exact.ids[:, :10], true), exact.hops),
        "by codes": (recall(base, queries, nearest_expanded(base, queries, by_code.expanded, 10), true), by_code.hops),
    }
    print(found)
    assert found["by distances"][0] >= 0.98
    assert found["by codes"][0] >= 0.97
    assert found["by distances"][1] < 120
    assert found["by codes"][1] < 120


# ---- its steps


def test_edges_lead_in_different_directions():
    """Of two candidates behind each other the nearer becomes an edge; the other does where a place is left."""
    vectors = np.array([[0, 0], [1, 0], [1.2, 0], [0, 3]], np.float32)
    arrays = OnCpu()
    steps = Neighbourhoods.__new__(Neighbourhoods)
    steps._arrays, steps._rows, steps._degree = arrays, Rows(arrays, vectors, "l2"), 3
    rows = steps._rows.of(np.arange(4))
    distances = ((rows[1:] - rows[0]) ** 2).sum(1)[None]
    assert steps._pruned(distances, np.array([[1, 2, 3]], np.int32)).tolist() == [[1, 3, 2]]


def test_reverse_edges_take_half_of_the_places():
    forward = np.array([[1, 2, 3, 4]] + [[0, 5, -1, -1]] * 6, np.int32)
    forward[5] = [0, 1, -1, -1]
    graph = with_reverse_edges(OnCpu(), forward, lambda *_: None)
    assert graph[0].tolist() == [1, 2, 3, 4], "its two best ones, and of those that name it two others"
    assert graph[1].tolist()[:2] == [0, 5]
    assert graph[6].tolist() == [0, 5, -1, -1], "nothing names it"


def test_connecting_keeps_the_ways_that_are_there():
    count = 50
    graph = np.stack([(np.arange(count) // 10 * 10 + (np.arange(count) + step) % 10) for step in (1, 2)], 1)
    rows = Rows(OnCpu(), drawn(count), "l2")
    five_rings = graph.astype(np.int32)
    connect(OnCpu(), rows, five_rings, 0, lambda *_: None)
    check(five_rings.view(np.uint32), drawn(count), 2)


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_repairs_of_drawn_graphs_cut_no_vector_off(degree):
    """Edges in a few groups, so that much cannot be reached and full lists must give edges up."""
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    for count in [2, 3, 7, 60, 60, 60, 400]:
        group = random.integers(0, 1 + count // 6, count)
        graph = np.full((count, degree), -1, np.int32)
        for vertex in range(count):
            mates = np.setdiff1d(np.flatnonzero(group == group[vertex]), vertex)
            some = random.permutation(mates)[: random.integers(0, degree + 1)]
            graph[vertex, : len(some)] = some
        before = graph.copy()
        reached = first_edges(before)
        told = []
        connect(OnCpu(), Rows(OnCpu(), drawn(count), "l2"), graph, 0, lambda *now, told=told: told.append(now))
        check(graph.view(np.uint32), drawn(count), degree)
        assert told == sorted(told), "what can be reached never becomes less"
        assert told[0][0] == len(reached) + 1
        for vertex, source in reached.items():
            assert vertex in graph[source], "the edges by which a search from vertex 0 first came to others are there"


def first_edges(graph):
    """For each vertex that can be reached from vertex 0 the one from which it is first, the smallest of several."""
    sources, ring = {}, [0]
    while ring:
        fresh = []
        for source in ring:
            for vertex in graph[source][graph[source] >= 0].tolist():
                if vertex and vertex not in sources:
                    sources[vertex] = source
                    fresh.append(vertex)
        ring = sorted(fresh)
    return sources


# ---- builds that go on


def test_a_build_that_was_ended_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(OnCpu, "numbers", 1 << 14)  # many batches
    vectors = drawn(3000)
    whole = build_graph(vectors, graph_degree=8)
    steps = []

    def end_it(step, done, total):
        steps.append((step, done))
        if step == "neighbours" and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_graph(vectors, graph_degree=8, checkpoints=tmp_path / "kept", progress=end_it)
    reached = json.loads((tmp_path / "kept" / "forward.json").read_text())
    again = []
    resumed = build_graph(
        vectors,
        graph_degree=8,
        checkpoints=tmp_path / "kept",
        progress=lambda step, done, _: again.append((step, done)),
    )
    assert np.array_equal(resumed, whole)
    assert "lists" not in {step for step, _ in again}
    assert min(done for step, done in again if step == "neighbours") == reached + 1
    third = []
    done = build_graph(vectors, graph_degree=8, checkpoints=tmp_path / "kept", progress=lambda *one: third.append(one))
    assert np.array_equal(done, whole)
    assert {step for step, _, _ in third} == {"connections"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("graph_degree", {"graph_degree": 9}),
        ("intermediate_degree", {"intermediate_degree": 20}),
        ("seed", {"seed": 1}),
        ("metric", {"metric": "cosine"}),
        ("dtype", {"vectors": drawn(500).astype("f2")}),
        ("vectors", {"vectors": drawn(501)}),
        ("dimension", {"vectors": drawn(500, 13)}),
        ("checksum", {"vectors": drawn(500, seed=12)}),
    ],
)
def test_steps_of_another_build_are_refused(tmp_path, name, change):
    arguments = {"vectors": drawn(500), "graph_degree": 8, "checkpoints": tmp_path / "kept"}
    build_graph(**arguments)
    with pytest.raises(RefusedInput, match=f"{name} ") as refused:
        build_graph(**{**arguments, **change})
    assert refused.value.field == "checkpoints"


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "under"):
        with pytest.raises(RefusedInput, match="checkpoints"):
            build_graph(drawn(20), graph_degree=4, checkpoints=folder)
    (tmp_path / "build.json").write_text("{")
    with pytest.raises(RefusedInput, match="damaged"):
        build_graph(drawn(20), graph_degree=4, checkpoints=tmp_path)


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("graph.npy", lambda path: path.write_bytes(b""), "cannot be read"),
        ("graph.npy", lambda path: path.write_bytes(path.read_bytes()[:-1]), "cannot be read"),
        ("forward.npy", lambda path: path.write_bytes(path.read_bytes()[:-1]), "cannot be read"),
        ("forward.npy", lambda path: np.save(path, np.zeros((3, 4), np.int32)), r"shape \(3, 4\)"),
        ("forward.json", lambda path: path.write_text("[]"), "cannot be read"),
    ],
)
def test_damaged_steps_are_refused_and_can_be_removed(tmp_path, name, damage, why):
    vectors = drawn(300)
    whole = build_graph(vectors, graph_degree=4, checkpoints=tmp_path).copy()  # it maps a file that is damaged now
    damage(tmp_path / name)
    with pytest.raises(RefusedInput, match=f"{why}.*remove it") as refused:
        build_graph(vectors, graph_degree=4, checkpoints=tmp_path)
    assert refused.value.field == "checkpoints"
    (tmp_path / name).unlink()
    assert np.array_equal(build_graph(vectors, graph_degree=4, checkpoints=tmp_path), whole)


def test_what_is_known_of_an_array_that_was_removed_is_forgotten(tmp_path):
    """Else an end before the first note would leave a new array that counts as whole."""
    vectors = drawn(300)
    whole = build_graph(vectors, graph_degree=4, checkpoints=tmp_path)
    for name in ("forward.npy", "graph.npy"):
        (tmp_path / name).unlink()

    def end_it(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forebay.search._checkpoints.Checkpoints.grown", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            build_graph(vectors, graph_degree=4, checkpoints=tmp_path, progress=end_it)
    assert np.array_equal(build_graph(vectors, graph_degree=4, checkpoints=tmp_path), whole)


def test_a_full_disk_is_a_failure_and_not_the_end_of_the_process(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    vectors = drawn(300)
    with monkeypatch.context() as patched:
        patched.setattr("os.posix_fallocate", full)
        with pytest.raises(OperationFailed, match=r"checkpoints.*forward.npy.*No space left"):
            build_graph(vectors, graph_degree=4, checkpoints=tmp_path)
    kept = build_graph(vectors, graph_degree=4, checkpoints=tmp_path)
    assert np.array_equal(kept, build_graph(vectors, graph_degree=4))


def test_progress_goes_up_to_all():
    told = []
    build_graph(drawn(2000), graph_degree=8, progress=lambda *one: told.append(one))
    for step in ("lists", "neighbours", "reverse edges", "connections"):
        of_step = [(done, total) for name, done, total in told if name == step]
        assert of_step == sorted(of_step), step
        assert of_step[-1][0] == of_step[-1][1], step


def test_memory_does_not_grow_with_the_vectors_beyond_what_the_graph_takes(monkeypatch):
    monkeypatch.setattr(OnCpu, "numbers", 1 << 16)
    monkeypatch.setattr("forebay.search._lists._NEAR", 16)
    monkeypatch.setattr("forebay.search._neighbourhoods._WHOLE_LISTS", 4)
    peaks = []
    for count in (5000, 20_000):
        vectors = drawn(count, 64, kind="u1")
        tracemalloc.start()
        build_graph(vectors, graph_degree=4, intermediate_degree=8)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Those that train the lists are a part of the vectors, as float32; the edges and some numbers come on top of them.
    assert peaks[1] - peaks[0] < 15_000 * 64 * 4 * 2, peaks


# ---- bad input


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("vectors", {"vectors": np.zeros((5, 3))}),
        ("vectors", {"vectors": np.zeros(5, np.float32)}),
        ("vectors[2]", {"vectors": np.where(np.arange(5)[:, None] == 2, np.nan, np.ones((5, 3))).astype("f4")}),
        ("vectors[0]", {"vectors": np.zeros((5, 3), np.float32), "metric": "cosine"}),
        ("metric", {"metric": "l1"}),
        ("graph_degree", {"graph_degree": 0}),
        ("graph_degree", {"graph_degree": 1025}),
        ("graph_degree", {"graph_degree": 4.0}),
        ("intermediate_degree", {"intermediate_degree": 0}),
        ("intermediate_degree", {"intermediate_degree": 2049}),
        ("seed", {"seed": -1}),
        ("device", {"device": "gpu"}),
        ("device", {"device": "cuda:"}),
        ("device", {"device": "cuda:-1"}),
    ],
)
def test_what_cannot_be_built_is_refused(field, change):
    arguments = {"vectors": drawn(5, 3), "graph_degree": 4, **change}
    with pytest.raises(RefusedInput) as refused:
        build_graph(**arguments)
    assert refused.value.field == field
    assert refused.value.remedy


def test_without_pytorch_a_gpu_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RefusedInput, match="needs PyTorch"):
        arrays_on("cuda:0")


@pytest.mark.gpu
def test_pytorch_makes_a_graph_in_which_as_much_is_found():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    base, queries = synthetic_vectors(20_000), synthetic_vectors(200, queries=True)
    graph = build_graph(base, graph_degree=32, device="cuda:0")
    check(graph, base, 32)
    assert np.array_equal(graph, build_graph(base, graph_degree=32, device="cuda:0"))
    true = exact_neighbours(base, queries, 10).ids
    assert recall(base, queries, found_in(graph, base, queries).ids[:, :10], true) >= 0.97
