# SPDX-License-Identifier: Apache-2.0
import pytest
from forebay.graph import Graph
from forebay.graph.dimacs import read_gr, write_gr
from graphs import arcs, random_graph, refused, same, weights_of

GOOD = "c a comment\np sp 4 3\nc another\na 1 2 10\n\na 3 1 0\nc\na 1 3 7\n"


def file_of(tmp_path, text):
    path = tmp_path / "g.gr"
    path.write_text(text)
    return path


@pytest.mark.parametrize("seed", range(20))
def test_round_trip(tmp_path, seed):
    graph = random_graph(seed, weighted=True)
    write_gr(graph, tmp_path / "g.gr")
    assert same(read_gr(tmp_path / "g.gr"), graph)


def test_nodes_count_from_1(tmp_path):
    graph = read_gr(file_of(tmp_path, GOOD))
    assert weights_of(graph) == {(0, 1): 10, (2, 0): 0, (0, 2): 7}
    assert (graph.vertices, graph.directed) == (4, True)


def test_what_is_written(tmp_path):
    write_gr(Graph.from_arcs([1, 0], [0, 2], 5, weights=[7, 0]), tmp_path / "g.gr")
    assert (tmp_path / "g.gr").read_text() == "p sp 5 2\na 1 3 0\na 2 1 7\n"


def test_duplicates_loops_and_vertices_without_arcs(tmp_path):
    graph = read_gr(file_of(tmp_path, "p sp 4 5\na 2 3 9\na 2 3 4\na 2 3 6\na 2 2 1\na 3 2 8\n"))
    assert weights_of(graph) == {(1, 2): 4, (2, 1): 8}
    assert graph.degrees.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_no_arc(tmp_path, nodes):
    graph = read_gr(file_of(tmp_path, f"p sp {nodes} 0\n"))
    assert (graph.vertices, len(graph.weights)) == (nodes, 0)
    write_gr(graph, tmp_path / "h.gr")
    assert same(read_gr(tmp_path / "h.gr"), graph)


def test_one_vertex_with_a_loop(tmp_path):
    assert arcs(read_gr(file_of(tmp_path, "p sp 1 1\na 1 1 5\n"))) == set()


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "1: line", ""),
        ("c only\n", "2: line", ""),
        ("a 1 2 3\np sp 2 1\n", "1: line", "a 1 2 3"),
        ("p sp 4\n", "1: line", "p sp 4"),
        ("p max 4 3\n", "1: line", "p max 4 3"),
        ("p sp -4 3\n", "1: line", "p sp -4 3"),
        ("p sp 4 " + "9" * 30 + "\n", "1: line", "p sp 4 " + "9" * 30),
        ("p sp 2147483649 3\n", "1: nodes", "2147483649"),
        ("p sp 4 4\na 1 2 3\n", "1: edges", "4"),
        ("p sp 4 1000000000000000\na 1 2 3\n", "1: edges", "1000000000000000"),
        ("p sp 4 1\na 1 2 3\na 1 3 4\n", "3: line", "a 1 3 4"),
        ("p sp 4 0\na 1 2 3\n", "2: line", "a 1 2 3"),
        ("p sp 4 2\na 1 2 3\np sp 4 2\na 1 2 3\n", "3: line", "p sp 4 2"),
        ("p sp 4 1\na 0 2 3\n", "2: node", "0"),
        ("p sp 4 1\na 1 5 3\n", "2: node", "5"),
        ("p sp 4 1\na -1 2 3\n", "2: node", "-1"),
        ("p sp 4 1\na 1 2 -3\n", "2: weight", "-3"),
        ("p sp 4 1\na 1 2 0.5\n", "2: weight", "0.5"),
        ("p sp 4 1\na 1 2 nan\n", "2: weight", "nan"),
        ("p sp 4 1\na 1 2 2147483648\n", "2: weight", "2147483648"),
        ("p sp 4 1\na 1 2\n", "2: line", "a 1 2"),
        ("p sp 4 1\na 1 2 3 4\n", "2: line", "a 1 2 3 4"),
        ("p sp 4 1\n1 2 3\n", "2: line", "1 2 3"),
        ("p sp 4 1\na1 2 3\n", "2: line", "a1 2 3"),
        ("p sp 4 1\ne 1 2 3\n", "2: line", "e 1 2 3"),
        ("p sp 4 1\na 1 2 3 c\n", "2: line", "a 1 2 3 c"),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(tmp_path, text, field, value, forebay, monkeypatch):
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 1 << 60)  # so that nothing is refused for its size
    path = file_of(tmp_path, text)
    error = refused(read_gr, path, field, value)
    forebay("graph", "info", path).refused(field, error.remedy)


def test_the_first_wrong_line_is_the_one_that_is_named(tmp_path):
    refused(read_gr, file_of(tmp_path, "p sp 4 1\na 1 2 -3\na 1 2 3\nx\n"), "2: weight", "-3")
    refused(read_gr, file_of(tmp_path, "p sp 4 1\na 1 2 3\na 1 2 -3\nx\n"), "3: line", "a 1 2 -3")


def test_a_file_that_is_cut_is_refused_unless_only_digits_of_the_last_weight_are_gone(tmp_path):
    text = GOOD.rstrip("\n") + "89\n"
    for length in range(len(text)):
        path = file_of(tmp_path, text[:length])
        if length < len(text) - 3:
            refused(read_gr, path)
        else:
            assert arcs(read_gr(path)) == {(0, 1), (2, 0), (0, 2)}
