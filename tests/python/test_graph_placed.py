# SPDX-License-Identifier: Apache-2.0
"""Neighbour lists in each place: what is written, checked and refused, and what a run counts."""

import os
from dataclasses import replace

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput, Storage
from forebay._native import graph_core
from forebay.graph import (
    UNREACHED,
    UNREACHED_WEIGHTED,
    Graph,
    Placed,
    bfs,
    components,
    generate,
    read_sg,
    spmv,
    verify_distances,
    write_edges,
    write_sg,
)
from forebay.graph.extents import default_drive
from graphs import random_graph, same

MEMORY_KINDS = ("host", "external:latency_us=1")
STORAGE_KINDS = ("storage:cache_bytes=64K", "storage_direct")
EMPTY = np.zeros(0, int)


def path(vertices, **options):
    """0 - 1 - 2 and so on."""
    return Graph.from_arcs(np.arange(vertices - 1), np.arange(1, vertices), vertices, directed=False, **options)


def names(storage):
    return [extent["name"] for extent in storage.extents()]


# ---- graphs


@pytest.mark.parametrize("memory", [*MEMORY_KINDS, *STORAGE_KINDS])
def test_a_graph_without_a_vertex_is_refused(memory):
    with pytest.raises(RefusedInput, match="has no vertex"):
        Placed(Graph.from_arcs(EMPTY, EMPTY, 0), memory, device="cpu")


@pytest.mark.parametrize("vertices", [1, 5])
@pytest.mark.parametrize("memory", MEMORY_KINDS)
def test_a_graph_without_an_edge_is_a_graph_in_memory(memory, vertices):
    graph = Graph.from_arcs(EMPTY, EMPTY, vertices, directed=False, weights=EMPTY)
    with Placed(graph, memory, device="cpu") as placed:
        result = placed.bfs(vertices - 1)
        assert (result.reached, result.frontier, result.bytes_needed) == (1, [1], 0)
        assert verify_distances(graph, vertices - 1, result) == 0
        assert placed.components().components == vertices
        assert placed.triangles().triangles == 0
        assert placed.pagerank().score == pytest.approx(np.full(vertices, 0.15 / vertices))
        assert placed.spmv(np.ones(vertices)).y.tolist() == [0] * vertices
    with Placed(graph, memory, device="cpu", weighted=True) as placed:
        assert placed.sssp(0).reached == 1


@pytest.mark.parametrize("memory", STORAGE_KINDS)
def test_a_graph_without_an_edge_has_nothing_to_read_from_a_drive(memory):
    with pytest.raises(RefusedInput, match="has no edge"):
        Placed(Graph.from_arcs(EMPTY, EMPTY, 3), memory, device="cpu")


@pytest.mark.parametrize("memory", [*MEMORY_KINDS, *STORAGE_KINDS])
def test_loops_and_isolated_sources(memory):
    graph = Graph.from_arcs([0, 1, 1, 2], [0, 1, 2, 1], 4, directed=False, keep_loops=True)
    with Placed(graph, memory, device="cpu") as placed:
        for source, reached in ((0, 1), (1, 2), (3, 1)):
            result = placed.bfs(source)
            assert result.reached == reached
            assert verify_distances(graph, source, result) == 0
        assert placed.components().label.tolist() == [0, 1, 1, 3]
        assert placed.triangles().triangles == 0


# ---- drives


def test_lists_are_written_once_and_then_found(tmp_path):
    graph = random_graph(2, directed=False, weighted=True)
    uri = f"file:{tmp_path / 'd.img'},create=1,size=8M"
    with Placed(graph, "storage_direct", device="cpu", drives=[uri]) as placed:
        assert placed.kind == "storage_direct"
        assert placed.drives == [uri]
        first = placed.bfs(0)
    uri = f"file:{tmp_path / 'd.img'}"
    with Placed(graph, "storage:cache_bytes=64K", device="cpu", drives=[uri]) as placed:
        assert np.array_equal(placed.bfs(0).distance, first.distance)
    with Placed(graph, "storage_direct", device="cpu", drives=[uri], weighted=True) as placed:
        assert placed.sssp(0).reached == first.reached
    with Storage(uri, device="cpu") as storage:
        assert names(storage) == ["edges", "edges_weighted"]
    other = random_graph(3, directed=False)
    with pytest.raises(RefusedInput, match="under another --extent"):
        Placed(other, "storage_direct", device="cpu", drives=[uri])
    with Placed(other, "storage_direct", device="cpu", drives=[uri], extent="other") as placed:
        assert verify_distances(other, 0, placed.bfs(0)) == 0
    values = np.arange(graph.arcs)
    with Placed(graph, "storage_direct", device="cpu", drives=[uri], values=values):
        pass
    with pytest.raises(RefusedInput, match="values of another matrix"):
        Placed(graph, "storage_direct", device="cpu", drives=[uri], values=values + 1)


def test_a_directed_graph_has_incoming_lists_of_their_own(tmp_path):
    graph = random_graph(5)
    uri = f"file:{tmp_path / 'd.img'},create=1,size=4M"
    with Placed(graph, "storage_direct", device="cpu", drives=[uri]) as placed:
        with pytest.raises(RefusedInput, match="incoming=True"):
            placed.pagerank()
        placed.bfs(0)
    with Placed(graph, "storage_direct", device="cpu", drives=[uri.split(",")[0]], incoming=True) as placed:
        placed.pagerank()
        for refused in (lambda: placed.bfs(0), lambda: placed.spmv(np.ones(graph.vertices))):
            with pytest.raises(RefusedInput, match="incoming=False"):
                refused()
    with Storage(uri.split(",")[0], device="cpu") as storage:
        assert names(storage) == ["edges", "edges_incoming"]


@pytest.mark.parametrize("memory", STORAGE_KINDS)
def test_a_drive_that_is_too_small_is_refused_and_nothing_is_written(tmp_path, memory):
    graph = path(200_000)  # 1.6 MB of lists
    values = np.ones(graph.arcs)
    uri = f"file:{tmp_path / 'd.img'}"
    with Storage(f"{uri},create=1,size=4M", device="cpu") as storage:
        write_edges(storage, path(10), "other")
    with pytest.raises(RefusedInput) as refused:
        Placed(graph, memory, device="cpu", drives=[uri], values=values)
    assert refused.value.field == "--drive"
    assert refused.value.value == uri
    assert "has room for 0 B, and the lists need 1.5 MiB in one piece; give a drive of size=6M" in refused.value.remedy
    with Storage(uri, device="cpu") as storage:
        assert names(storage) == ["other"]
    with Placed(graph, memory, device="cpu", drives=["emulated:size=5M"], values=values):
        pass
    with pytest.raises(RefusedInput, match="give drives of size=3M"):
        Placed(graph, memory, device="cpu", drives=["emulated:size=1M", "emulated:size=1M"], values=values)


def test_the_default_drive_has_room():
    graph = path(200_000, weights=np.ones(199_999, int))
    for options in ({}, {"weighted": True}, {"values": np.ones(graph.arcs)}):
        with Placed(graph, "storage_direct", device="cpu", **options) as placed:
            assert placed.drives == [
                default_drive(graph, weighted="weighted" in options, values=options.get("values") is not None)
            ]


def test_an_open_storage_is_used_and_stays_open():
    graph = random_graph(7, directed=False)
    with Storage(default_drive(graph), device="cpu", cache_bytes=1 << 17, page_bytes=512) as storage:
        with Placed(graph, storage) as placed:
            assert (placed.kind, placed.device) == ("storage", "cpu")
            assert verify_distances(graph, 0, placed.bfs(0)) == 0
            assert placed.report()["cache"]["page_bytes"] == 512
        assert names(storage) == ["edges"]
        assert verify_distances(graph, 0, bfs(graph, 0, storage)) == 0
        with pytest.raises(RefusedInput, match="drives of its own"):
            Placed(graph, storage, drives=["emulated:size=4M"])
        with pytest.raises(RefusedInput, match="leave it out"):
            Placed(graph, storage, device="cuda:0")
    with Storage(default_drive(graph), device="cpu") as storage, Placed(graph, storage) as placed:
        assert placed.kind == "storage_direct"
    with pytest.raises(OperationFailed, match="closed"):
        Placed(graph, storage)


def test_several_drives():
    graph = generate.uniform(12, 8)  # lists of 256 KB, in pieces of 64 KiB on three drives
    with Placed(graph, "storage:cache_bytes=256K", device="cpu", drives=["emulated:size=2M"] * 3) as placed:
        assert verify_distances(graph, 5, placed.bfs(5)) == 0
        assert verify_distances(graph, 6, placed.bfs(5)) != 0, "of another source"
        read = [drive["statistics"]["bytes_read"] for drive in placed.report()["drives"]]
        assert min(read) > 0


@pytest.mark.parametrize("memory", STORAGE_KINDS)
def test_a_read_that_fails_fails_the_run(memory):
    # The seed lets everything pass until the search reads.
    graph = path(20_000)
    drive = "emulated:size=4M,errors_ppm=20000,seed=4"

    def read_again_and_again():
        for _ in range(50):
            placed.make_cold()
            placed.components()

    with (
        Placed(graph, memory, device="cpu", drives=[drive]) as placed,
        pytest.raises(OperationFailed, match="unrecovered read error"),
    ):
        read_again_and_again()


@pytest.mark.parametrize("memory", STORAGE_KINDS)
def test_lists_that_change_on_the_drive_are_not_believed(memory):
    graph = path(200)
    cache_bytes = (1 << 16) * memory.startswith("storage:")
    with (
        Storage(default_drive(graph), device="cpu", cache_bytes=cache_bytes) as storage,
        Placed(graph, storage) as placed,
    ):
        storage.write_extent("edges", np.array([200], "<i4"), 4 * 100)
        for run in (lambda: placed.bfs(0), placed.components, placed.pagerank, lambda: placed.spmv(np.ones(200))):
            with pytest.raises(OperationFailed, match="neighbour 200, the graph has 200 vertices"):
                run()
        placed.make_cold()
        storage.write_extent("edges", np.array([9, 3], "<i4"), 4 * 101)
        with pytest.raises(OperationFailed, match="write the edge list again"):
            placed.triangles()


# ---- arguments


def test_arguments_that_do_not_fit_are_refused():
    graph, weighted = random_graph(9, directed=False), random_graph(9, directed=False, weighted=True)
    for remedy, memory, options in (
        ("did you mean host", "hots", {}),
        ("did you mean latency_us", "external:latncy_us=2", {}),
        ("power of two", "external:alignment=33", {}),
        ("leave it out, or use storage", "host", {"drives": ["emulated:size=4M"]}),
        ("of reads past the cache", "host", {"iodepth": 4}),
        ("of reads past the cache", "storage", {"request_bytes": 512}),
        ("at least 1", "storage_direct", {"iodepth": 0}),
        ("at least 1", "storage_direct", {"iodepth": 1.5}),
        ("at least 1", "storage_direct", {"iodepth": "4"}),
        ("a list of drive URIs", "storage_direct", {"drives": "emulated:size=4M"}),
        ("a list of drive URIs", "storage_direct", {"drives": None}),
        ("power of two", "storage_direct", {"request_bytes": 1000}),
        ("has no weights", "host", {"weighted": True}),
        ("ids of 4 bytes", "storage_direct", {"wide_ids": True}),
        ("ids of 4 bytes", "host", {"wide_ids": True, "values": np.ones(graph.arcs)}),
        ("one for each arc", "host", {"values": np.ones(graph.arcs + 1)}),
        ("must be a string", "storage_direct", {"extent": 5}),
        ("forebay doctor", "host", {"device": "cuda:9"}),
    ):
        with pytest.raises(RefusedInput, match=remedy):
            Placed(graph, memory, **{"device": "cpu", **options})
    for kind in ("hbm", "uvm"):
        with pytest.raises(RefusedInput, match="use host, or a GPU"):
            Placed(graph, kind, device="cpu")
    with Placed(graph, "host", device="cpu") as placed:
        for remedy, run in (
            ("must be a vertex", lambda: placed.bfs(graph.vertices)),
            ("must be a vertex", lambda: placed.bfs(-1)),
            ("must be a vertex", lambda: placed.bfs(0.5)),
            ("auto, above or below", lambda: placed.bfs(0, direction="up")),
            ("weighted=True", lambda: placed.sssp(0)),
            ("must be 0 to 1", lambda: placed.pagerank(damping=float("nan"))),
            ("must be 0 or more", lambda: placed.pagerank(tolerance=float("nan"))),
            ("must be 1 to", lambda: placed.pagerank(iterations=0)),
            ("must be 0 to 1", lambda: placed.pagerank(damping="0.5")),
            ("must be 0 or more", lambda: placed.pagerank(tolerance=None)),
            ("must have the shape", lambda: placed.spmv(np.ones(graph.vertices + 1))),
            ("must be numbers", lambda: placed.spmv("x" * graph.vertices)),
            ("must be numbers", lambda: placed.spmv([10**400] * graph.vertices)),
        ):
            with pytest.raises(RefusedInput, match=remedy):
                run()
    with Placed(weighted, "host", device="cpu", weighted=True) as placed:
        for run in (lambda: placed.bfs(0), placed.pagerank, placed.components, placed.triangles):
            with pytest.raises(RefusedInput, match="needs lists of another kind"):
                run()
        for delta in (0, 2**31 + 1):
            with pytest.raises(RefusedInput, match="must be 1 to"):
                placed.sssp(0, delta=delta)
    with pytest.raises(OperationFailed, match="closed"):
        placed.sssp(0)
    assert "closed" in repr(placed)


def test_numbers_of_entries_do_not_wrap_round():
    many = Graph(np.array([0, 1 << 62]), EMPTY.astype(np.int32), True)
    with pytest.raises(RefusedInput, match=r"below 2\^48"):
        Placed(many, "host", device="cpu")
    with Storage("emulated:size=4M", device="cpu") as storage:
        storage.create_extent("edges", 4096)
        with pytest.raises(RefusedInput, match=r"below 2\^48"):
            graph_core().Lists.on_drives(
                storage._native,
                np.array([0, 1 << 62], np.uint64),
                entry="id",
                entries="edges",
                values=None,
                iodepth=1,
                request_bytes=0,
            )


def test_only_a_graph_is_placed():
    with pytest.raises(RefusedInput, match="must be a Graph"):
        Placed(None, "host", device="cpu")


def test_arrays_may_lie_apart_in_memory(tmp_path):
    graph = path(5)
    apart = replace(graph, row_begin=np.repeat(graph.row_begin, 2)[::2], neighbours=np.repeat(graph.neighbours, 2)[::2])
    for memory in (*MEMORY_KINDS, *STORAGE_KINDS):
        with Placed(apart, memory, device="cpu") as placed:
            assert placed.bfs(0).distance.tolist() == [0, 1, 2, 3, 4]
    write_sg(apart, tmp_path / "apart.sg")
    assert same(read_sg(tmp_path / "apart.sg"), graph)


def test_a_directed_graph_is_not_searched_from_below_and_has_no_triangles():
    with Placed(random_graph(4), "host", device="cpu") as placed:
        for run in (lambda: placed.bfs(0, direction="below"), placed.triangles):
            with pytest.raises(RefusedInput, match="-s"):
                run()


@pytest.mark.parametrize("memory", MEMORY_KINDS)
def test_wide_ids_need_twice_the_bytes(memory):
    graph = random_graph(11, directed=False)
    with Placed(graph, memory, device="cpu") as narrow, Placed(graph, memory, device="cpu", wide_ids=True) as wide:
        a, b = narrow.bfs(0, direction="above"), wide.bfs(0, direction="above")
        assert np.array_equal(a.distance, b.distance)
        assert b.bytes_needed == 2 * a.bytes_needed
        with pytest.raises(RefusedInput, match="another kind"):
            wide.components()


# ---- figures


def test_a_cold_cache_reads_and_a_warm_one_does_not():
    graph = random_graph(13, directed=False)
    with Placed(graph, "storage:page_bytes=512,cache_bytes=64K", device="cpu") as placed:
        cold = placed.components()
        assert cold.bytes_read >= 512 * (graph.arcs * 4 // 512)
        assert cold.reads > 0
        assert placed.components().reads == 0
        placed.make_cold()
        assert placed.components().bytes_read == cold.bytes_read


def test_figures_are_those_that_the_place_counts():
    graph = random_graph(15, directed=False)
    with Placed(graph, "host", device="cpu") as placed:
        result = placed.bfs(0)
        assert (result.reads, result.bytes_read, result.read_amplification, result.iops) == (None,) * 4
        assert (result.late, result.clat_ns, result.iodepth, result.request_bytes) == (None,) * 4
        report = placed.report()
        assert (report["path"], report["device"], report["fidelity"]) == ("host", "cpu", "ok")
    with Placed(graph, "external:latency_us=2,alignment=32", device="cpu") as placed:
        result = placed.components()
        assert result.reads > 0
        assert result.bytes_read % 32 == 0
        assert result.late is not None
        assert placed.report()["external"] == "latency_us=2,alignment=32"
        assert placed.report()["fidelity"] == ("ok" if 100 * result.late <= result.reads else "exceeded")
    with Placed(graph, "storage_direct", device="cpu", iodepth=40, request_bytes=1024) as placed:
        for result in (placed.bfs(0), placed.components()):
            assert (result.iodepth, result.request_bytes) == (40, 1024)
            assert result.clat_ns["N"] == result.reads
            assert result.bytes_read % 512 == 0
            assert result.read_amplification >= 1
        assert placed.report()["path"] == "storage_direct"


def test_levels_tell_what_a_search_did():
    graph = random_graph(17, directed=False)
    told = []
    with Placed(graph, "host", device="cpu") as placed:
        result = placed.bfs(0, direction="above", tell=lambda level, vertices: told.append((level, vertices)))
        below = placed.bfs(0, direction="below")
    assert [level["vertices"] for level in result.levels] == result.frontier
    assert told == list(enumerate(result.frontier))
    assert sum(level["entries"] for level in result.levels) * 4 == result.bytes_needed
    assert not any(level["from_below"] for level in result.levels)
    assert any(level["from_below"] for level in below.levels)
    assert np.array_equal(below.distance, result.distance)
    assert "distance" not in result.figures()


@pytest.mark.parametrize("entry", ["id", "weighted"])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 16])
def test_lists_lie_beyond_2_to_the_32_entries(tmp_path, entry, cache_bytes):
    # Vertex 1, to which nothing leads, has so many neighbours that nobody writes or reads them.
    path_of_others = [(0, 2), (2, 3), (3, 0)]
    degrees = np.array([1, 1 << 32, 1, 1], np.uint64)
    row_begin = np.concatenate(([0], degrees.cumsum())).astype(np.uint64)
    entry_bytes = 8 if entry == "weighted" else 4
    extent_bytes = int(row_begin[-1]) * entry_bytes
    image = tmp_path / "sparse.img"
    image.touch()
    os.truncate(image, (extent_bytes // 2**20 + 16) * 2**20)
    cache = {"cache_bytes": cache_bytes, "page_bytes": 4096} if cache_bytes else {}
    with Storage(f"emulated:backing=file,path={image}", device="cpu", **cache) as storage:
        storage.create_extent("edges", extent_bytes)
        for vertex, neighbour in path_of_others:
            one = np.array([neighbour, 5] if entry == "weighted" else [neighbour], np.uint32)
            storage.write_extent("edges", one, offset=int(row_begin[vertex]) * entry_bytes)
        lists = graph_core().Lists.on_drives(
            storage._native, row_begin, entry=entry, entries="edges", values=None, iodepth=64, request_bytes=0
        )
        if entry == "weighted":
            distance, _, _ = lists.sssp(0, delta=3)
            assert distance.tolist() == [0, UNREACHED_WEIGHTED, 5, 10]
        else:
            distance, _, _ = lists.bfs(0, direction="above", tell=None)
            assert distance.tolist() == [0, UNREACHED, 1, 2]
        if cache_bytes:
            lists.make_cold()
        del lists


def test_results_are_taken_by_dlpack():
    graph = random_graph(19, directed=False)
    result = components(graph, device="cpu")
    assert np.array_equal(np.from_dlpack(result.label), result.label)
    assert np.array_equal(result.vertex, np.arange(graph.vertices))
    assert np.from_dlpack(spmv(graph, np.ones(graph.vertices), device="cpu").y).dtype == np.float32
