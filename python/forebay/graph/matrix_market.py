# SPDX-License-Identifier: Apache-2.0
"""Matrix Market's files of sparse matrices, ``.mtx``: an entry in row ``i`` and column ``j`` is an arc from i to j.

The first line is ``%%MatrixMarket matrix coordinate FIELD SYMMETRY``. Comments ``% ...`` follow, then a line ``ROWS
COLUMNS ENTRIES``, and a line ``ROW COLUMN VALUE`` for each entry, without the value if the field is ``pattern``. The
first row has the number 1. Of two entries that are equal because the matrix is symmetric, the file has one.
"""

import re
from dataclasses import replace
from pathlib import Path

from forebay.errors import RefusedInput
from forebay.files import reading, writing
from forebay.graph.csr import VERTICES_MAX, Graph, arcs_in_pieces
from forebay.graph.edge_text import (
    WITHOUT_WEIGHTS,
    Declared,
    Dialect,
    Lines,
    read_graph,
    shown,
    write_edges,
)

_BANNER = "%%MatrixMarket matrix coordinate pattern|integer|real general|symmetric|skew-symmetric"
_PATTERN = Dialect("an entry must be a row and a column", b"%", numbering_from=1)
_INTEGER = replace(_PATTERN, expected="an entry must be a row, a column and a whole number", weighted=True)
_REAL = replace(_PATTERN, expected="an entry must be a row, a column and a number", weighted=True, real=True)
_FIELDS = {
    "pattern": _PATTERN,
    "integer": _INTEGER,
    "unsigned-integer": _INTEGER,  # as SciPy writes it
    "real": _REAL,
    "double": _REAL,
}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_SIZE = re.compile(rb"(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})")


def read_mtx(path: Path, *, weights: bool = True) -> Graph:
    """Reads a square sparse matrix as a graph: directed if it is general, undirected if it is symmetric.

    Row 1 of the file is vertex 0, and the values are weights. It drops the diagonal, which is loops. Of duplicates it
    keeps the smallest weight. An entry that is zero is an arc too.

    Args:
        path: The file.
        weights: Whether to keep the weights: whole numbers from 0 to 2^31 - 1, which may be written as real ones. If
            not, a value may be any number, and a skew-symmetric matrix is an undirected graph.

    Returns:
        The graph. It has no weights if the matrix is a pattern.

    Raises:
        RefusedInput: The file cannot be read, is not of the format, has more entries or fewer than it says, has a
            weight that is out of range, or needs more memory than the machine has free. The error names the line. The
            matrix must be square, and its numbers not complex.
    """
    with reading("graph file", path) as file:
        lines = Lines(path, file)
        dialect, symmetry = _read_banner(lines, weights=weights)
        return read_graph(lines, dialect, _read_size(lines), directed=symmetry == "general", weights=weights)


def write_mtx(graph: Graph, path: Path) -> None:
    """Writes a graph as a sparse matrix, in place of a file that exists.

    The matrix is general if the graph is directed, and otherwise symmetric. Its field is integer, or pattern if the
    graph has no weights.

    Args:
        graph: The graph. Vertex 0 becomes row 1.
        path: The file.

    Raises:
        OperationFailed: The file cannot be written.
    """
    field = "pattern" if graph.weights is None else "integer"
    symmetry = "general" if graph.directed else "symmetric"
    entries = graph.arcs
    if not graph.directed:
        entries = sum(int((arcs.targets <= arcs.sources).sum()) for arcs in arcs_in_pieces(graph))
    with writing("graph file", path) as out:
        out.write(f"%%MatrixMarket matrix coordinate {field} {symmetry}\n".encode())
        out.write(b"%d %d %d\n" % (graph.vertices, graph.vertices, entries))
        write_edges(graph, out, _FIELDS[field], lower=not graph.directed)


def _read_banner(lines: Lines, *, weights: bool) -> tuple[Dialect, str]:
    """Returns how entries look, and the symmetry."""
    line = lines.one()
    words = line.decode("latin-1").lower().split()

    def refuse(field: str, value: str, remedy: str) -> RefusedInput:
        return RefusedInput(f"{lines.where}: {field}", value, remedy)

    if len(words) != 5 or words[0] != "%%matrixmarket":
        raise refuse("line", shown(line), f"must be {_BANNER}")
    _, what, layout, field, symmetry = words
    if what != "matrix":
        raise refuse("object", what, "must be matrix")
    if layout != "coordinate":
        raise refuse("format", layout, "must be coordinate: write the entries that are not zero, each with its place")
    if field == "complex" or symmetry == "hermitian":
        name, value = ("field", field) if field == "complex" else ("symmetry", symmetry)
        raise refuse(name, value, "no weight is a complex number; write the matrix as pattern, or with its magnitudes")
    if field not in _FIELDS:
        raise refuse("field", field, "must be pattern, integer or real")
    if symmetry not in _SYMMETRIES:
        raise refuse("symmetry", symmetry, "must be general, symmetric or skew-symmetric")
    if symmetry == "skew-symmetric" and field == "pattern":
        raise refuse("symmetry", symmetry, "a pattern has no signs; write it as general or symmetric")
    if symmetry == "skew-symmetric" and weights:
        raise refuse("symmetry", symmetry, f"half of its weights are negative; {WITHOUT_WEIGHTS}")
    return _FIELDS[field], symmetry


def _read_size(lines: Lines) -> Declared:
    """Reads the first line that is no comment."""
    while line := lines.one():
        words = line.strip()
        if not words or words.startswith(b"%"):
            continue
        found = _SIZE.fullmatch(words)
        if not found:
            raise RefusedInput(f"{lines.where}: line", shown(line), "must be `ROWS COLUMNS ENTRIES`")
        rows, columns, entries = (int(number) for number in found.groups())
        if rows != columns:
            raise RefusedInput(
                f"{lines.where}: size", f"{rows} x {columns}", "a graph is a square matrix; add empty rows or columns"
            )
        if rows > VERTICES_MAX:
            raise RefusedInput(f"{lines.where}: rows", rows, f"must be 0 to {VERTICES_MAX}; correct the header")
        return Declared(rows, entries, lines.where)
    raise RefusedInput(f"{lines.where}: line", "", "the file ends without a line `ROWS COLUMNS ENTRIES`; get all of it")
