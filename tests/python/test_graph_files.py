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


def test_an_edge_list_whose_nodes_do_not_fit_the_memory_is_refused_by_its_line(tmp_path, monkeypatch):
    (tmp_path / "g.el").write_text("0 1\n1 2000000000\n")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 32 << 30)
    with pytest.raises(RefusedInput, match=r"44[.]7 GiB of memory, and 32[.]0 GiB are available") as refused:
        load(tmp_path / "g.el")
    assert refused.value.value == "2000000000"
    assert refused.value.field == f"{tmp_path / 'g.el'}:2: node"


def test_a_serialized_graph_that_does_not_fit_the_memory_is_refused(tmp_path, monkeypatch):
    write_sg(BASE, tmp_path / "g.sg")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 100)
    with pytest.raises(RefusedInput, match="100 B are available"):
        load(tmp_path / "g.sg")


@pytest.mark.parametrize("id_", ["2147483647", "2147483646"])
def test_an_edge_list_of_two_nodes_far_apart_is_answered_at_once(tmp_path, monkeypatch, id_):
    """Where there is the memory, the answer takes as long as it takes to fill it."""
    (tmp_path / "g.el").write_text(f"0 {id_}\n")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 24 << 30)
    with pytest.raises(RefusedInput, match=r"48[.]0 GiB of memory, and 24[.]0 GiB are available"):
        load(tmp_path / "g.el")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("0 1\n0\n", "2: line", "0"),
        ("0 1 2\n", "1: line", "0 1 2"),
        ("0 1\n\n# x\n0 x\n0\n", "4: line", "0 x"),
        ("0 1\n-1 0\n", "2: node", "-1"),
        ("0 1\n0 2147483648\n1 x\n", "2: node", "2147483648"),
        ("0 99999999999999999999", "1: node", "99999999999999999999"),
        ("0 1\n1.5 2\n", "2: line", "1.5 2"),
    ],
)
def test_an_edge_list_is_refused_by_its_line(tmp_path, text, field, value):
    path = tmp_path / "g.el"
    path.write_text(text)
    with pytest.raises(RefusedInput) as refused:
        read_el(path)
    assert (refused.value.field, refused.value.value) == (f"{path}:{field}", value)


def test_a_line_is_counted_across_the_pieces_in_which_a_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.graph.gap._PIECE_BYTES", 64)
    path = tmp_path / "g.el"
    path.write_text("".join(f"{i} {i + 1}\n" for i in range(1000)) + "7 seven\n")
    with pytest.raises(RefusedInput) as refused:
        read_el(path)
    assert refused.value.field == f"{path}:1001: line"
    path.write_text("".join(f"{i} {i + 1}  # {'x' * (i % 90)}\n" for i in range(1000)))
    assert arcs(read_el(path)) == {(i, i + 1) for i in range(1000)}


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.graph.gap._PIECE_BYTES", 64)
    monkeypatch.setattr("forebay.graph.gap._LINE_MAX", 64)
    (tmp_path / "g.el").write_text("0 1\n# " + "x" * 1000)
    with pytest.raises(RefusedInput, match=r"g.el:2: line: .*goes on and on"):
        read_el(tmp_path / "g.el")


def test_what_follows_a_hash_is_a_comment(tmp_path):
    (tmp_path / "g.el").write_text("# Nodes: 3\n0 1 # the first\n1 2# the second\n  # 5 6\n")
    assert arcs(read_el(tmp_path / "g.el")) == {(0, 1), (1, 2)}
