# SPDX-License-Identifier: Apache-2.0
import struct

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph, load, read_el, read_sg, write_el, write_sg


def random_graph(seed, *, directed=True):
    random = np.random.default_rng(seed)
    vertices = int(random.integers(1, 200))
    count = int(random.integers(0, 2000))
    sources, targets = random.integers(0, vertices, (2, count))
    return Graph.from_arcs(sources, targets, vertices, directed=directed)


def same(a, b):
    return (
        a.directed == b.directed
        and np.array_equal(a.row_begin, b.row_begin)
        and np.array_equal(a.neighbours, b.neighbours)
    )


def arcs(graph):
    return set(
        zip(np.repeat(np.arange(graph.vertices), graph.degrees).tolist(), graph.neighbours.tolist(), strict=True)
    )


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


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_sg_round_trip(tmp_path, seed, directed):
    graph = random_graph(seed, directed=directed)
    write_sg(graph, tmp_path / "g.sg")
    assert same(read_sg(tmp_path / "g.sg"), graph)


@pytest.mark.parametrize("seed", range(20))
def test_el_round_trip(tmp_path, seed):
    graph = random_graph(seed)
    write_el(graph, tmp_path / "g.el")
    read = read_el(tmp_path / "g.el")
    assert arcs(read) == arcs(graph)  # vertices beyond the last edge are not in an edge list
    assert read.vertices <= graph.vertices


def test_sg_has_the_layout_of_gap(tmp_path):
    write_sg(Graph.from_arcs([0, 0, 2], [1, 2, 1], 3), tmp_path / "g.sg")
    wanted = struct.pack("<?qq", True, 3, 3)
    wanted += struct.pack("<4q3i", 0, 2, 2, 3, 1, 2, 1)
    wanted += struct.pack("<4q3i", 0, 0, 2, 3, 0, 2, 0)
    assert (tmp_path / "g.sg").read_bytes() == wanted


def test_el_skips_comments_and_blank_lines(tmp_path):
    (tmp_path / "g.el").write_text("# a comment\n0 1\n\n1 2\n0 1\n2 2\n")
    assert arcs(read_el(tmp_path / "g.el")) == {(0, 1), (1, 2)}


def test_empty_el(tmp_path):
    (tmp_path / "g.el").write_text("")
    assert read_el(tmp_path / "g.el").vertices == 0


@pytest.mark.parametrize(
    "text", ["0\n", "0 1 2\n", "0 x\n", "0 1\n2\n", "-1 0\n", "0 2147483648\n", "0 99999999999999999999\n"]
)
def test_bad_el(tmp_path, text):
    (tmp_path / "g.el").write_text(text)
    with pytest.raises(RefusedInput) as refused:
        read_el(tmp_path / "g.el")
    assert "\n" not in str(refused.value)


def put(data, at, code, value):
    return data[:at] + struct.pack("<" + code, value) + data[at + struct.calcsize(code) :]


BASE = Graph.from_arcs([0, 0, 2], [1, 2, 1], 3)
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
    "last offset": (lambda d: put(d, 41, "q", 4), "offsets[3]"),
    "neighbour too large": (lambda d: put(d, 49, "i", 3), "neighbours[0]"),
    "neighbour negative": (lambda d: put(d, 53, "i", -1), "neighbours[1]"),
    "inverse neighbour": (lambda d: put(d, 61 + 32, "i", 7), "inverse neighbours[0]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_corrupt_sg_is_refused_by_the_field(tmp_path, damage, forebay):
    change, field = DAMAGE[damage]
    path = tmp_path / "g.sg"
    write_sg(BASE, path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RefusedInput) as refused:
        read_sg(path)
    assert refused.value.field == f"{path}: {field}"
    forebay("graph", "info", path).refused(field, "write the file again")


@pytest.mark.parametrize("seed", range(40))
def test_any_damaged_sg_is_refused_or_a_graph(tmp_path, seed):
    random = np.random.default_rng(seed)
    path = tmp_path / "g.sg"
    write_sg(random_graph(seed), path)
    data = bytearray(path.read_bytes())
    for _ in range(int(random.integers(1, 4))):
        data[int(random.integers(0, len(data)))] ^= 1 << int(random.integers(0, 8))
    path.write_bytes(data[: int(random.integers(0, len(data) + 1))] if random.random() < 0.3 else data)
    try:
        graph = read_sg(path)
    except RefusedInput:
        return
    assert graph.row_begin[-1] == graph.arcs
    assert graph.arcs == 0 or 0 <= graph.neighbours.min() <= graph.neighbours.max() < graph.vertices


def test_load_goes_by_the_suffix(tmp_path):
    write_sg(BASE, tmp_path / "g.sg")
    write_el(BASE, tmp_path / "g.el")
    assert same(load(tmp_path / "g.sg"), load(tmp_path / "g.el"))
    assert not load(tmp_path / "g.sg", symmetrize=True).directed
    with pytest.raises(RefusedInput, match="must end in"):
        load(tmp_path / "g.mtx")
    with pytest.raises(RefusedInput, match="no such file"):
        load(tmp_path / "missing.sg")


def test_an_edge_list_whose_nodes_do_not_fit_the_memory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "g.el").write_text("0 1\n1 2000000000\n")
    monkeypatch.setattr("forebay.graph.gap._memory_bytes", lambda: 32 << 30)
    with pytest.raises(RefusedInput, match=r"44[.]7 GiB of memory, and there are 32[.]0 GiB") as refused:
        load(tmp_path / "g.el")
    assert refused.value.value == "2000000000"
