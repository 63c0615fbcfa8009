# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from forebay.graph import Graph
from forebay.graph.matrix_market import read_mtx, write_mtx
from graphs import arcs, random_graph, refused, same, weights_of
from scipy import io, sparse

BANNER = "%%MatrixMarket matrix coordinate "


def file_of(tmp_path, text):
    path = tmp_path / "g.mtx"
    path.write_text(text)
    return path


def structure(path):
    return read_mtx(path, weights=False)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_round_trip(tmp_path, seed, weighted, directed):
    graph = random_graph(seed, weighted=weighted, directed=directed)
    write_mtx(graph, tmp_path / "g.mtx")
    assert same(read_mtx(tmp_path / "g.mtx"), graph)


def test_what_is_written(tmp_path):
    graph = Graph.from_arcs([1, 0], [0, 2], 3, weights=[7, 0])
    write_mtx(graph, tmp_path / "g.mtx")
    assert (tmp_path / "g.mtx").read_text() == BANNER + "integer general\n3 3 2\n1 3 0\n2 1 7\n"
    write_mtx(Graph.from_arcs([1, 0], [0, 2], 3, directed=False), tmp_path / "g.mtx")
    assert (tmp_path / "g.mtx").read_text() == BANNER + "pattern symmetric\n3 3 2\n2 1\n3 1\n"


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_scipy_reads_what_is_written(tmp_path, weighted, directed):
    graph = random_graph(5, weighted=weighted, directed=directed)
    write_mtx(graph, tmp_path / "g.mtx")
    matrix = io.mmread(tmp_path / "g.mtx")
    assert matrix.shape == (graph.vertices, graph.vertices)
    got = dict(zip(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True), matrix.data.tolist(), strict=True))
    assert got == (weights_of(graph) if weighted else dict.fromkeys(arcs(graph), 1.0))


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern", "unsigned-integer"])
@pytest.mark.parametrize("seed", range(5))
def test_what_scipy_writes_is_read(tmp_path, seed, field, symmetry):
    random = np.random.default_rng(seed)
    kind = {"real": np.float64, "integer": np.int64, "pattern": np.int64, "unsigned-integer": np.uint64}[field]
    dense = random.integers(0, 4, (30, 30)).astype(kind)
    dense = np.maximum(dense, dense.T) if symmetry == "symmetric" else dense
    # Of unsigned matrices SciPy takes the field from the type alone.
    chosen = None if field == "unsigned-integer" else field
    io.mmwrite(tmp_path / "g.mtx", sparse.coo_array(dense), "as SciPy does", chosen, symmetry=symmetry)
    assert (tmp_path / "g.mtx").read_text().startswith(f"{BANNER}{field} {symmetry}\n")
    graph = read_mtx(tmp_path / "g.mtx")
    rows, columns = np.nonzero(dense - np.diag(np.diag(dense)))
    wanted = {(r, c): int(dense[r, c]) for r, c in zip(rows.tolist(), columns.tolist(), strict=True)}
    assert graph.directed == (symmetry == "general")
    assert graph.weights is None if field == "pattern" else weights_of(graph) == wanted
    assert arcs(graph) == set(wanted)


@pytest.mark.parametrize("banner", [BANNER + "real general", "%%matrixmarket MATRIX Coordinate Real GENERAL  "])
def test_real_numbers_that_are_whole_are_weights(tmp_path, banner):
    text = (
        banner
        + "\n% a comment\n\n%\n 4 4 7\n1 2 3.0\n1 3 4e2\n1 4 .0\n2 1 5.\n% more\n2 3 +6\n2 4 2147483647.0\n3 1 -0\n"
    )
    wanted = {(0, 1): 3, (0, 2): 400, (0, 3): 0, (1, 0): 5, (1, 2): 6, (1, 3): 2**31 - 1, (2, 0): 0}
    assert weights_of(read_mtx(file_of(tmp_path, text))) == wanted


@pytest.mark.parametrize(
    "value", ["0.5", "-1", "-0.25", "nan", "-NaN", "inf", "-Infinity", "1e10", "2147483648", "1e999"]
)
def test_other_real_numbers_are_refused_as_weights_and_may_be_left_out(tmp_path, value, forebay):
    path = file_of(tmp_path, BANNER + f"real general\n3 3 2\n1 2 3\n2 3 {value}\n")
    assert "--weights none" in refused(read_mtx, path, "4: weight", value).remedy
    assert arcs(structure(path)) == {(0, 1), (1, 2)}
    forebay("graph", "info", path).refused(":4: weight", f"'{value}'", "--weights none")
    assert forebay("graph", "info", path, "--weights", "none", "--json", "-").json()["weighted"] is False
    assert forebay("graph", "convert", path, tmp_path / "g.el").status == 0
    assert (tmp_path / "g.el").read_text() == "0 1\n1 2\n"


def test_a_symmetric_matrix_is_undirected_whichever_triangle_it_has(tmp_path):
    graph = read_mtx(file_of(tmp_path, BANNER + "integer symmetric\n4 4 3\n2 1 5\n1 3 6\n3 3 9\n"))
    assert graph.directed is False
    assert weights_of(graph) == {(0, 1): 5, (1, 0): 5, (0, 2): 6, (2, 0): 6}
    assert graph.degrees.tolist() == [2, 1, 1, 0]


def test_a_skew_symmetric_matrix_has_a_structure_but_no_weights(tmp_path):
    path = file_of(tmp_path, BANNER + "real skew-symmetric\n3 3 1\n2 1 5\n")
    assert "--weights none" in refused(read_mtx, path, "1: symmetry", "skew-symmetric").remedy
    graph = structure(path)
    assert (graph.directed, arcs(graph)) == (False, {(0, 1), (1, 0)})


def test_a_skew_symmetric_pattern_is_no_matrix(tmp_path):
    path = file_of(tmp_path, BANNER + "pattern skew-symmetric\n3 3 1\n2 1\n")
    assert "write it as general or symmetric" in refused(structure, path, "1: symmetry").remedy


def test_duplicates_and_the_diagonal(tmp_path):
    graph = read_mtx(file_of(tmp_path, BANNER + "integer general\n3 3 4\n1 2 5\n1 2 3\n2 2 1\n1 2 4\n"))
    assert weights_of(graph) == {(0, 1): 3}


@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("kind", ["pattern general", "integer symmetric", "real general"])
def test_no_entry(tmp_path, size, kind):
    graph = read_mtx(file_of(tmp_path, BANNER + f"{kind}\n{size} {size} 0\n"))
    assert (graph.vertices, graph.arcs) == (size, 0)
    assert (graph.weights is None) == kind.startswith("pattern")
    write_mtx(graph, tmp_path / "h.mtx")
    assert same(read_mtx(tmp_path / "h.mtx"), graph)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "1: line", ""),
        ("\n", "1: line", ""),
        ("1 1 0\n", "1: line", "1 1 0"),
        ("%MatrixMarket matrix coordinate real general\n", "1: line", "%MatrixMarket matrix coordinate real general"),
        (BANNER + "real\n", "1: line", BANNER + "real"),
        ("%%MatrixMarket vector coordinate real general\n", "1: object", "vector"),
        ("%%MatrixMarket matrix array real general\n", "1: format", "array"),
        (BANNER + "complex general\n", "1: field", "complex"),
        (BANNER + "complex hermitian\n", "1: field", "complex"),
        (BANNER + "real hermitian\n", "1: symmetry", "hermitian"),
        (BANNER + "binary general\n", "1: field", "binary"),
        (BANNER + "real lower\n", "1: symmetry", "lower"),
        (BANNER + "pattern skew-symmetric\n", "1: symmetry", "skew-symmetric"),
        (BANNER + "real general\n", "2: line", ""),
        (BANNER + "real general\n% only\n\n", "4: line", ""),
        (BANNER + "real general\n3 3\n", "2: line", "3 3"),
        (BANNER + "real general\n3 3 -1\n", "2: line", "3 3 -1"),
        (BANNER + "real general\n3 x 1\n", "2: line", "3 x 1"),
        (BANNER + "real general\n3 3 1 1\n", "2: line", "3 3 1 1"),
        (BANNER + "real general\n3 4 1\n", "2: size", "3 x 4"),
        (BANNER + "real general\n2147483649 2147483649 1\n", "2: rows", "2147483649"),
        (BANNER + "real general\n3 3 2\n1 2 1\n", "2: edges", "2"),
        (BANNER + "real general\n3 3 99999999999999999\n1 2 1\n", "2: edges", "99999999999999999"),
        (BANNER + "real general\n3 3 1\n1 2 1\n1 3 1\n", "4: line", "1 3 1"),
        (BANNER + "real general\n3 3 1\n0 2 1\n", "3: node", "0"),
        (BANNER + "real general\n3 3 1\n1 4 1\n", "3: node", "4"),
        (BANNER + "real general\n3 3 1\n1.0 2 1\n", "3: line", "1.0 2 1"),
        (BANNER + "real general\n3 3 1\n1 2\n", "3: line", "1 2"),
        (BANNER + "real general\n3 3 1\n1 2 1 0\n", "3: line", "1 2 1 0"),
        (BANNER + "real general\n3 3 1\n1 2 1,5\n", "3: line", "1 2 1,5"),
        (BANNER + "real general\n3 3 1\n1 2 1d2\n", "3: line", "1 2 1d2"),
        (BANNER + "pattern general\n3 3 1\n1 2 1\n", "3: line", "1 2 1"),
        (BANNER + "integer general\n3 3 1\n1 2 1.0\n", "3: weight", "1.0"),
        (BANNER + "integer general\n3 3 1\n1 2 -1\n", "3: weight", "-1"),
        (BANNER + "real general\n3 3 1\n1 2 1 % why\n", "3: line", "1 2 1 % why"),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(tmp_path, text, field, value, forebay, monkeypatch):
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 1 << 60)  # so that nothing is refused for its size
    path = file_of(tmp_path, text)
    error = refused(read_mtx, path, field, value)
    forebay("graph", "info", path).refused(field, error.remedy)


@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_a_file_that_is_cut_is_refused_unless_only_digits_of_the_last_number_are_gone(tmp_path, field):
    value = {"real": " 1000", "integer": " 1000", "pattern": ""}[field]
    text = BANNER + f"{field} general\n% x\n1500 1500 2\n1 2{value}\n2 1111{value}\n"
    for length in range(len(text)):
        path = file_of(tmp_path, text[:length])
        if length < len(text) - 4:
            refused(read_mtx, path)
        else:
            assert read_mtx(path).arcs == 2
