# SPDX-License-Identifier: Apache-2.0
"""The graph format of the 9th DIMACS challenge, shortest paths: ``.gr``.

Its text has comments ``c ...``, one line ``p sp NODES ARCS``, and below that a line ``a SOURCE TARGET WEIGHT`` for each
arc. The first node has the number 1.
"""

import re
from pathlib import Path

from forebay.errors import RefusedInput
from forebay.files import reading, writing
from forebay.graph.csr import VERTICES_MAX, Graph
from forebay.graph.edge_text import Declared, Dialect, Lines, read_graph, shown, write_edges

_GR = Dialect(
    "a line must be an arc `a SOURCE TARGET WEIGHT` or a comment `c ...`",
    b"c",
    numbering_from=1,
    mark=b"a",
    weighted=True,
)
_PROBLEM = re.compile(rb"p\s+sp\s+(\d{1,18})\s+(\d{1,18})")


def read_gr(path: Path, *, weights: bool = True) -> Graph:
    """Reads a graph of the 9th DIMACS challenge as a directed graph.

    Node 1 of the file is vertex 0. It drops loops, and of duplicates it keeps the smallest weight.

    Args:
        path: The file.
        weights: Whether to keep the weights, which are whole numbers from 0 to 2^31 - 1. If not, they may be negative.

    Returns:
        The graph.

    Raises:
        RefusedInput: The file cannot be read, is not of the format, has more or fewer arcs than it says, has a weight
            that is out of range, or needs more memory than the machine has free. The error names the line.
    """
    with reading("graph file", path) as file:
        lines = Lines(path, file)
        return read_graph(lines, _GR, _read_problem(lines), weights=weights)


def write_gr(graph: Graph, path: Path) -> None:
    """Writes a graph in the format of the 9th DIMACS challenge, in place of a file that exists.

    Args:
        graph: The graph; it has weights. Vertex 0 becomes node 1.
        path: The file.

    Raises:
        OperationFailed: The file cannot be written.
    """
    with writing("graph file", path) as out:
        out.write(b"p sp %d %d\n" % (graph.vertices, graph.arcs))
        write_edges(graph, out, _GR)


def _read_problem(lines: Lines) -> Declared:
    """Reads the first line that is no comment."""
    remedy = "must be `p sp NODES ARCS`, before all arcs; get all of the file"
    while line := lines.one():
        words = line.strip()
        if not words or words.startswith(b"c"):
            continue
        found = _PROBLEM.fullmatch(words)
        if not found:
            raise RefusedInput(f"{lines.where}: line", shown(line), remedy)
        vertices, edges = int(found[1]), int(found[2])
        if vertices > VERTICES_MAX:
            raise RefusedInput(f"{lines.where}: nodes", vertices, f"must be 0 to {VERTICES_MAX}; correct the header")
        return Declared(vertices, edges, lines.where)
    raise RefusedInput(f"{lines.where}: line", "", f"the file ends without a problem line, which {remedy}")
