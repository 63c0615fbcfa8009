# SPDX-License-Identifier: Apache-2.0
"""Searches over a drive, and the demo."""

import json
import os

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput, Storage
from forebay.graph import Graph, bfs, reference_distances, verify_distances, write_sg
from forebay.graph.extents import default_drive, write_edges

PNG = b"\x89PNG\r\n\x1a\n"


def random_graph(seed):
    random = np.random.default_rng(seed)
    vertices = int(random.integers(2, 400))
    count = int(random.integers(1, 4000))
    sources = (vertices * random.random(count) ** 3).astype(int)  # a few lists are long, most are short
    return Graph.from_arcs(sources, random.integers(0, vertices, count), vertices, keep_loops=True)


@pytest.mark.parametrize("seed", range(12))
def test_distances_are_scipys_for_any_shape_of_launch(seed):
    random = np.random.default_rng(seed)
    graph = random_graph(seed)
    source = int(random.integers(0, graph.vertices))
    with Storage(default_drive(graph), device="cpu") as storage:
        write_edges(storage, graph)
        result = bfs(
            graph,
            source,
            storage,
            iodepth=int(random.integers(1, 300)),
            request_bytes=512 << int(random.integers(0, 4)),
        )
    assert np.array_equal(result.distance, reference_distances(graph, source))
    assert verify_distances(graph, source, result) == 0
    degrees = graph.degrees[result.distance != 0xFFFFFFFF]
    assert result.bytes_needed == 4 * degrees.sum()
    assert result.bytes_read % 512 == 0
    assert result.bytes_read >= result.bytes_needed
    assert result.clat_ns["N"] == result.reads
    assert result.reached == len(degrees)


def test_a_wrong_distance_is_counted():
    graph = random_graph(3)
    with Storage(default_drive(graph), device="cpu") as storage:
        write_edges(storage, graph)
        result = bfs(graph, 0, storage)
    result.distance[5] ^= 1
    assert verify_distances(graph, 0, result) >= 1


def test_a_wrong_predecessor_is_counted():
    graph = Graph.from_arcs([0, 0, 1, 2, 3], [1, 2, 3, 3, 4], 6)
    with Storage(default_drive(graph), device="cpu") as storage:
        write_edges(storage, graph)
        result = bfs(graph, 0, storage)
    assert verify_distances(graph, 0, result) == 0
    assert result.predecessor.tolist()[:3] == [0xFFFFFFFF, 0, 0]
    for vertex, wrong in ((0, 0), (5, 3), (4, 0xFFFFFFFF), (4, 77), (4, 2), (1, 2), (3, 4)):
        right = int(result.predecessor[vertex])
        result.predecessor[vertex] = wrong
        assert verify_distances(graph, 0, result) == 1, (vertex, wrong)
        result.predecessor[vertex] = right
    result.predecessor[3] = 3 - right if (right := int(result.predecessor[3])) in (1, 2) else right
    assert verify_distances(graph, 0, result) == 0, "either of the two ways"


def test_edges_that_changed_on_the_drive_do_not_pass():
    graph = Graph.from_arcs(np.arange(199), np.arange(1, 200), 200)
    with Storage(default_drive(graph), device="cpu") as storage:
        write_edges(storage, graph)
        storage.write_extent("edges", np.array([150], "<i4"), 4 * 20)  # 20 -> 150 in place of 21
        assert verify_distances(graph, 0, bfs(graph, 0, storage)) > 0
        storage.write_extent("edges", np.array([200], "<i4"), 4 * 20)
        with pytest.raises(OperationFailed, match="200 vertices"):
            bfs(graph, 0, storage)


def test_a_read_that_fails_fails_the_search(tmp_path):
    graph = Graph.from_arcs(np.arange(99_999), np.arange(1, 100_000), 100_000)
    path = tmp_path / "edges.img"
    path.touch()
    os.truncate(path, 4 << 20)
    with Storage(f"file:{path}", device="cpu") as storage:
        write_edges(storage, graph)
        os.truncate(path, (1 << 20) + (64 << 10))  # another process cuts the edge list off
        with pytest.raises(OperationFailed, match="reads failed"):
            bfs(graph, 16_000, storage)


def test_bfs_refuses():
    graph = random_graph(4)
    with Storage(default_drive(graph), device="cpu") as storage:
        with pytest.raises(RefusedInput, match="edges"):
            bfs(graph, 0, storage)
        write_edges(storage, graph)
        with pytest.raises(RefusedInput, match="source"):
            bfs(graph, graph.vertices, storage)
        with pytest.raises(RefusedInput, match="512"):
            bfs(graph, 0, storage, request_bytes=1000)
        with pytest.raises(RefusedInput, match="at least 1"):
            bfs(graph, 0, storage, iodepth=0)
        bigger = Graph.from_arcs(np.arange(100_000), np.arange(1, 100_001), 100_001)
        with pytest.raises(RefusedInput, match="write the edge list again"):
            bfs(bigger, 0, storage)


def test_graph_bfs_command(forebay, tmp_path):
    graph = random_graph(7)
    write_sg(graph, tmp_path / "g.sg")
    document = forebay("graph", "bfs", "-f", tmp_path / "g.sg", "-n", "3", "--seed", "5", "--json", "-").json()
    assert document["verified"] is True
    assert document["seconds"] > 0
    assert document["bytes_read"] > 0
    assert document["read_amplification"] >= 1
    assert document["fidelity"] in ("ok", "exceeded")
    assert len(document["trials"]) == 3
    for trial in document["trials"]:
        assert trial["wrong"] == 0
        assert sum(trial["frontier"]) == trial["reached"]
    outcome = forebay("graph", "bfs", "-f", tmp_path / "g.sg", "-r", "0", "-n", "1")
    assert outcome.status == 0
    assert "Trial Time:" in outcome.out
    assert "Verification:           PASS" in outcome.out
    assert "Average Time:" in outcome.out
    forebay("graph", "bfs", "-f", tmp_path / "g.sg", "-r", graph.vertices).refused("-r", str(graph.vertices))
    forebay("graph", "bfs", "-f", tmp_path / "g.sg", "--iodepth", "0").refused("--iodepth", "'0'")


def test_bfs_refuses_the_edges_of_another_graph(forebay, tmp_path):
    uri = forebay("drive", "create", tmp_path / "d.img", "--size", "4M", "--json", "-").json()["uri"]
    write_sg(Graph.from_arcs(np.arange(99), np.arange(1, 100), 100), tmp_path / "a.sg")
    write_sg(Graph.from_arcs(np.arange(99), (np.arange(99) * 7) % 100, 100, keep_loops=True), tmp_path / "b.sg")
    arguments = ("--drive", uri, "-r", "0", "-n", "1")
    assert forebay("graph", "bfs", "-f", tmp_path / "a.sg", *arguments).status == 0
    outcome = forebay("graph", "bfs", "-f", tmp_path / "b.sg", *arguments)
    assert outcome.status == 2
    assert "another graph" in outcome.err
    assert forebay("graph", "bfs", "-f", tmp_path / "b.sg", *arguments, "--extent", "b").status == 0


def test_demo(forebay, tmp_path):
    outcome = forebay(
        "demo", "--drive", "emulated:size=8M", "--json", tmp_path / "out/demo.json", "--plot", tmp_path / "out/demo.png"
    )
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines()[-1] == "demo: PASS"
    document = json.loads((tmp_path / "out/demo.json").read_text())
    assert document["schema_version"] == 1
    assert document["verified"] is True
    assert document["vertices"] == 117_659
    assert document["edges"] == 361_647
    assert document["reached"] == 111_743
    assert document["frontier"] == [1, 3, 23, 262, 3523, 14273, 32601, 38177, 17743, 4365, 700, 66, 6]
    assert document["seconds"] > 0
    assert document["iops"] > 0
    assert document["bytes_read"] % 512 == 0
    assert document["read_amplification"] == pytest.approx(document["bytes_read"] / document["bytes_needed"])
    assert document["clat_ns"]["percentile"]["99.000000"] > 0
    assert document["fidelity"] in ("ok", "exceeded")
    assert (tmp_path / "out/demo.png").read_bytes().startswith(PNG)


def test_demo_fails_where_a_distance_is_wrong(forebay, monkeypatch):
    monkeypatch.setattr("forebay.demo.verify_distances", lambda *_: 3)
    outcome = forebay("demo", "--drive", "emulated:size=8M")
    assert outcome.status == 1
    assert outcome.out.splitlines()[-1] == "demo: FAIL"


def test_demo_on_standard_output_is_one_document(forebay):
    outcome = forebay("demo", "--drive", "emulated:size=8M", "--json", "-")
    assert outcome.json()["verified"] is True
    assert "demo: PASS" in outcome.err


def test_demo_runs_again_on_the_drive_that_it_wrote(forebay, tmp_path):
    uri = forebay("drive", "create", tmp_path / "d.img", "--size", "8M", "--json", "-").json()["uri"]
    for _ in range(2):
        assert forebay("demo", "--drive", uri).status == 0
    forebay("demo", "--drive", uri, "--iodepth", "0").refused("--iodepth")
