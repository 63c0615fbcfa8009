# SPDX-License-Identifier: Apache-2.0
import pytest
from forebay.graph import read_el, write_el
from forebay.graph.edge_list import read_wel, write_wel
from graphs import arcs, random_graph, refused, weights_of


def file_of(tmp_path, text, name="g.el"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("seed", range(20))
def test_round_trip(tmp_path, seed):
    graph = random_graph(seed)
    write_el(graph, tmp_path / "g.el")
    read = read_el(tmp_path / "g.el")
    assert arcs(read) == arcs(graph)  # vertices beyond the last edge are not in an edge list
    assert read.vertices <= graph.vertices


@pytest.mark.parametrize("seed", range(20))
def test_round_trip_with_weights(tmp_path, seed, monkeypatch):
    monkeypatch.setattr("forebay.graph.edge_text._PIECE_BYTES", 64)
    monkeypatch.setattr("forebay.graph.csr._PIECE_ARCS", 10)
    graph = random_graph(seed, weighted=True, vertices_max=40)
    write_wel(graph, tmp_path / "g.wel")
    assert weights_of(read_wel(tmp_path / "g.wel")) == weights_of(graph)
    structure = read_wel(tmp_path / "g.wel", weights=False)
    assert structure.weights is None
    assert arcs(structure) == arcs(graph)


def test_what_is_written(tmp_path):
    graph = read_wel(file_of(tmp_path, "1 0 9\n0 2 2147483647\n1 0 4\n2 2 1\n0 1 0\n", "g.wel"))
    write_wel(graph, tmp_path / "h.wel")
    write_el(graph, tmp_path / "h.el")
    assert (tmp_path / "h.wel").read_text() == "0 1 0\n0 2 2147483647\n1 0 4\n"
    assert (tmp_path / "h.el").read_text() == "0 1\n0 2\n1 0\n"


def test_comments_and_blank_lines_are_skipped(tmp_path):
    assert arcs(read_el(file_of(tmp_path, "# a comment\n0 1\n\n1 2\n0 1\n2 2\n"))) == {(0, 1), (1, 2)}
    text = "# Nodes: 3\n0 1 # the first\n1 2# the second\n  # 5 6\n \t\r\n"
    assert arcs(read_el(file_of(tmp_path, text))) == {(0, 1), (1, 2)}


def test_tabs_carriage_returns_and_a_last_line_without_end(tmp_path):
    assert arcs(read_el(file_of(tmp_path, "\t0 \t 1\r\n1\t2\r\n2 0"))) == {(0, 1), (1, 2), (2, 0)}


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", " \n\t\n"])
def test_no_edge(tmp_path, text):
    graph = read_el(file_of(tmp_path, text))
    assert (graph.vertices, graph.arcs) == (0, 0)
    graph = read_wel(file_of(tmp_path, text, "g.wel"))
    assert (graph.vertices, len(graph.weights)) == (0, 0)


def test_one_vertex_and_sources_without_edges(tmp_path):
    graph = read_el(file_of(tmp_path, "0 0\n"))
    assert (graph.vertices, graph.arcs) == (1, 0)
    assert read_el(file_of(tmp_path, "2 5\n")).degrees.tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("0\n", "1: line", "0"),
        ("0 1\n0\n", "2: line", "0"),
        ("0 1 2\n", "1: line", "0 1 2"),
        ("0 1\n\n# x\n0 x\n0\n", "4: line", "0 x"),
        ("0 1\n-1 0\n", "2: node", "-1"),
        ("0 1\n0 2147483648\n1 x\n", "2: node", "2147483648"),
        ("0 99999999999999999999", "1: node", "99999999999999999999"),
        ("0 " + "9" * 5000, "1: node", "9" * 80),
        ("0 1\n1.5 2\n", "2: line", "1.5 2"),
        ("0 1\n+1 2\n", "2: line", "+1 2"),
        ("0 1\n1\x0b2\n", "2: line", "1\x0b2"),
        ("0 1\n1\x002\n", "2: line", "1\x002"),
        ("0 1\n\xb2 2\n", "2: line", "\xb2 2"),
        ("% 0\n", "1: line", "% 0"),
    ],
)
def test_an_edge_list_is_refused_by_its_line(tmp_path, text, field, value):
    refused(read_el, file_of(tmp_path, text), field, value)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("0 1\n", "1: line", "0 1"),
        ("0 1 2 3\n", "1: line", "0 1 2 3"),
        ("0 1 2\n0 x 2\n", "2: line", "0 x 2"),
        ("0 1 2\n0 1 x\n", "2: line", "0 1 x"),
        ("0 1 2\n0 1 -3\n", "2: weight", "-3"),
        ("0 1 2\n0 1 2147483648\n", "2: weight", "2147483648"),
        ("0 1 2\n0 1 99999999999999999999\n", "2: weight", "99999999999999999999"),
        ("0 1 2\n0 1 0.5\n", "2: weight", "0.5"),
        ("0 1 2\n0 1 NaN\n", "2: weight", "NaN"),
        ("0 1 2\n0 1 -inf\n", "2: weight", "-inf"),
        ("0 1 2\n-1 1 -3\n", "2: node", "-1"),
        ("0 2147483648 2\n", "1: node", "2147483648"),
    ],
)
def test_an_edge_list_with_weights_is_refused_by_its_line(tmp_path, text, field, value, forebay):
    path = file_of(tmp_path, text, "g.wel")
    error = refused(read_wel, path, field, value)
    forebay("graph", "info", path).refused(field, error.remedy)


def test_a_negative_weight_does_not_matter_where_weights_are_left_out(tmp_path):
    path = file_of(tmp_path, "0 1 -3\n1 2 99999999999\n", "g.wel")
    assert "--weights none" in refused(read_wel, path, "1: weight").remedy
    assert arcs(read_wel(path, weights=False)) == {(0, 1), (1, 2)}
    path = file_of(tmp_path, "0 1 0.5\n", "g.wel")
    assert "--weights none" not in refused(read_wel, path, "1: weight").remedy  # it would not help
    refused(lambda path: read_wel(path, weights=False), path, "1: weight")
