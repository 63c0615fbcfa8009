# SPDX-License-Identifier: Apache-2.0
import struct
from functools import partial

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph, load, read_sg, write_sg
from forebay.graph.gap import read_wsg, write_wsg
from graphs import arcs, random_graph, refused, same, weights_of

BASE = Graph.from_arcs([0, 0, 2], [1, 2, 1], 3)
HEAVY = Graph.from_arcs([0, 0, 2], [1, 2, 1], 3, weights=[5, 6, 7])
FORMATS = {".sg": (read_sg, write_sg, BASE), ".wsg": (read_wsg, write_wsg, HEAVY)}


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_round_trip(tmp_path, seed, directed):
    graph = random_graph(seed, directed=directed)
    write_sg(graph, tmp_path / "g.sg")
    assert same(read_sg(tmp_path / "g.sg"), graph)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_round_trip_with_weights(tmp_path, seed, directed, monkeypatch):
    monkeypatch.setattr("forebay.graph.gap._PIECE", 7)
    monkeypatch.setattr("forebay.graph.csr._PIECE_ARCS", 5)
    graph = random_graph(seed, directed=directed, weighted=True, vertices_max=20)
    write_wsg(graph, tmp_path / "g.wsg")
    assert same(read_wsg(tmp_path / "g.wsg"), graph)
    structure = read_wsg(tmp_path / "g.wsg", weights=False)
    assert structure.weights is None
    assert arcs(structure) == arcs(graph)


@pytest.mark.parametrize("vertices", [0, 1, 2])
@pytest.mark.parametrize("directed", [True, False])
def test_graphs_without_edges(tmp_path, vertices, directed):
    graph = Graph.from_arcs([], [], vertices, directed=directed, weights=[])
    write_wsg(graph, tmp_path / "g.wsg")
    write_sg(graph, tmp_path / "g.sg")
    assert same(read_wsg(tmp_path / "g.wsg"), graph)
    assert read_sg(tmp_path / "g.sg").vertices == vertices


def test_loops_and_sources_without_edges_are_kept(tmp_path):
    graph = Graph.from_arcs([1, 1, 4], [1, 3, 1], 6, keep_loops=True)
    write_sg(graph, tmp_path / "g.sg")
    read = read_sg(tmp_path / "g.sg")
    assert same(read, graph)
    assert read.degrees.tolist() == [0, 2, 0, 0, 1, 0]


def test_sg_has_the_layout_of_gap(tmp_path):
    write_sg(BASE, tmp_path / "g.sg")
    wanted = struct.pack("<?qq", True, 3, 3)
    wanted += struct.pack("<4q3i", 0, 2, 2, 3, 1, 2, 1)
    wanted += struct.pack("<4q3i", 0, 0, 2, 3, 0, 2, 0)
    assert (tmp_path / "g.sg").read_bytes() == wanted


def test_wsg_has_the_layout_of_gap(tmp_path):
    write_wsg(HEAVY, tmp_path / "g.wsg")
    wanted = struct.pack("<?qq", True, 3, 3)
    wanted += struct.pack("<4q6i", 0, 2, 2, 3, 1, 5, 2, 6, 1, 7)
    wanted += struct.pack("<4q6i", 0, 0, 2, 3, 0, 5, 2, 7, 0, 6)
    assert (tmp_path / "g.wsg").read_bytes() == wanted


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_inverse_in_a_file_is_kept(tmp_path, suffix):
    read, write, _ = FORMATS[suffix]
    graph = random_graph(4, weighted=True)
    write(graph, tmp_path / f"g{suffix}")
    found = read(tmp_path / f"g{suffix}")
    assert arcs(found.incoming) == {(t, s) for s, t in arcs(graph)}
    assert found.inverse().neighbours is found.incoming.neighbours
    if suffix == ".wsg":
        assert weights_of(found.incoming) == {(t, s): w for (s, t), w in weights_of(graph).items()}
    write(graph.symmetrized(), tmp_path / f"u{suffix}")
    assert read(tmp_path / f"u{suffix}").incoming is None


def put(data, at, code, value):
    return data[:at] + struct.pack("<" + code, value) + data[at + struct.calcsize(code) :]


DAMAGE = {
    "empty": (lambda _: b"", "size"),
    "header cut": (lambda d: d[:16], "size"),
    "last byte cut": (lambda d: d[:-1], "size"),
    "a byte too many": (lambda d: d + b"\0", "size"),
    "directed is 2": (lambda d: put(d, 0, "B", 2), "directed"),
    "directed flipped": (lambda d: put(d, 0, "B", 0), "size"),
    "edges negative": (lambda d: put(d, 1, "q", -3), "num_edges"),
    "edges huge": (lambda d: put(d, 1, "q", 2**62), "size"),
    "nodes negative": (lambda d: put(d, 9, "q", -1), "num_nodes"),
    "nodes huge": (lambda d: put(d, 9, "q", 2**62), "num_nodes"),
    "first offset": (lambda d: put(d, 17, "q", 1), "offsets[0]"),
    "offsets fall": (lambda d: put(d, 25, "q", 3), "offsets[2]"),
    "offsets fall by more than an int64": (lambda d: put(put(d, 25, "q", 2**62), 33, "q", -(2**63)), "offsets[2]"),
    "last offset": (lambda d: put(d, 41, "q", 4), "offsets[3]"),
    "neighbour too large": (lambda d: put(d, 49, "i", 3), "neighbours[0]"),
    "neighbour negative": (lambda d: put(d, 53, "i", -1), "neighbours[1]"),
    "neighbour twice": (lambda d: put(d, 53, "i", 1), "neighbours[1]"),
    "neighbours that fall": (lambda d: put(put(d, 49, "i", 2), 53, "i", 1), "neighbours[1]"),
    "inverse offset": (lambda d: put(d, 61 + 8, "q", 1), "inverse neighbours"),
    "inverse neighbour": (lambda d: put(d, 61 + 32, "i", 7), "inverse neighbours[0]"),
    "another inverse": (lambda d: put(d, 61 + 32, "i", 1), "inverse neighbours"),
}
HEAVY_DAMAGE = {
    "weight negative": (lambda d: put(d, 53, "i", -1), "weights[0]"),
    "neighbour too large": (lambda d: put(d, 57, "i", 3), "neighbours[1]"),
    "neighbours that fall": (lambda d: put(put(d, 49, "i", 2), 57, "i", 1), "neighbours[1]"),
    "inverse weight negative": (lambda d: put(d, 73 + 36, "i", -1), "inverse weights[0]"),
    "another weight in the inverse": (lambda d: put(d, 73 + 36, "i", 6), "inverse neighbours"),
    "a file without weights": (lambda _: struct.pack("<?qq3q2i", False, 2, 2, 0, 1, 2, 1, 0), "size"),
}
CASES = [(".sg", name) for name in DAMAGE] + [(".wsg", name) for name in HEAVY_DAMAGE]


@pytest.mark.parametrize(("suffix", "damage"), CASES)
@pytest.mark.parametrize("piece", [1, 1 << 16])
def test_a_corrupt_file_is_refused_by_the_field(tmp_path, suffix, damage, piece, forebay, monkeypatch):
    monkeypatch.setattr("forebay.graph.gap._PIECE", piece)
    monkeypatch.setattr("forebay.graph.csr._PIECE_ARCS", piece)
    change, field = (DAMAGE if suffix == ".sg" else HEAVY_DAMAGE)[damage]
    read, write, graph = FORMATS[suffix]
    path = tmp_path / f"g{suffix}"
    write(graph, path)
    path.write_bytes(change(path.read_bytes()))
    refused(read, path, f" {field}")
    if piece > 1:
        forebay("graph", "info", path).refused(field, "write the file again")


def test_a_negative_weight_does_not_matter_where_weights_are_left_out(tmp_path):
    path = tmp_path / "g.wsg"
    write_wsg(HEAVY, path)
    path.write_bytes(put(path.read_bytes(), 53, "i", -1))
    assert arcs(read_wsg(path, weights=False)) == arcs(HEAVY)


def test_an_undirected_graph_without_the_arc_back_is_refused(tmp_path):
    write_sg(Graph(BASE.row_begin, BASE.neighbours, directed=False), tmp_path / "g.sg")
    refused(read_sg, tmp_path / "g.sg", " neighbours", "3 arcs")
    graph = Graph.from_arcs([0], [1], 2, directed=False, weights=[5])
    write_wsg(Graph(graph.row_begin, graph.neighbours, False, graph.weights + np.int32([0, 1])), tmp_path / "g.wsg")
    refused(read_wsg, tmp_path / "g.wsg", " neighbours", "2 arcs")
    assert arcs(read_wsg(tmp_path / "g.wsg", weights=False)) == {(0, 1), (1, 0)}


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path, suffix, directed):
    read, write, graph = FORMATS[suffix]
    path = tmp_path / f"g{suffix}"
    write(graph if directed else graph.symmetrized(), path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        refused(read, path, " size", str(length))


@pytest.mark.parametrize(("suffix", "directed"), [(".sg", False), (".wsg", True)])
def test_a_file_with_any_bit_flipped_is_refused(tmp_path, suffix, directed):
    read, write, graph = FORMATS[suffix]
    path = tmp_path / f"g{suffix}"
    write(graph if directed else graph.symmetrized(), path)
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        refused(read, path)


@pytest.mark.parametrize("seed", range(40))
def test_any_damaged_file_is_refused_or_a_graph(tmp_path, seed):
    random = np.random.default_rng(seed)
    suffix = list(FORMATS)[seed % 2]
    read, write, _ = FORMATS[suffix]
    path = tmp_path / f"g{suffix}"
    write(random_graph(seed, weighted=True), path)
    data = bytearray(path.read_bytes())
    for _ in range(int(random.integers(1, 4))):
        data[int(random.integers(0, len(data)))] ^= 1 << int(random.integers(0, 8))
    path.write_bytes(data[: int(random.integers(0, len(data) + 1))] if random.random() < 0.3 else data)
    try:
        graph = read(path)
    except RefusedInput:
        return
    assert graph.row_begin[-1] == graph.arcs
    assert graph.arcs == 0 or 0 <= graph.neighbours.min() <= graph.neighbours.max() < graph.vertices


def test_a_file_that_does_not_fit_the_memory_is_refused(tmp_path, monkeypatch):
    write_sg(BASE, tmp_path / "g.sg")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 100)
    with pytest.raises(RefusedInput, match="100 B are available"):
        load(tmp_path / "g.sg")


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "g.sg"
    write_sg(random_graph(1, vertices_max=20_000), path)
    size = path.stat().st_size

    def shrink(*_):
        path.write_bytes(path.read_bytes()[: size // 2])

    monkeypatch.setattr("forebay.memory.require", shrink)
    error = refused(partial(read_sg), path, " size", str(size // 2))
    assert "it changed" in error.remedy
