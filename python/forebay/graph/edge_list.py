# SPDX-License-Identifier: Apache-2.0
"""GAP's edge lists, ``.el``: text with a line ``source target`` for each edge. In ``.wel`` the weight follows."""

from pathlib import Path

from forebay.files import reading, writing
from forebay.graph.csr import Graph
from forebay.graph.edge_text import Dialect, Lines, read_graph, write_edges

_EL = Dialect("each line must be two node numbers", b"#", numbering_from=0, comment_after_edge=True)
_WEL = Dialect(
    "each line must be two node numbers and a weight", b"#", numbering_from=0, weighted=True, comment_after_edge=True
)


def read_el(path: Path) -> Graph:
    """Reads an edge list, a text with a line ``source target`` for each arc, as a directed graph.

    It drops duplicates and loops. A ``#`` starts a comment, to the end of the line; GAP's own reader ends there, in
    silence. There are as many vertices as the largest number says.

    Args:
        path: The file.

    Returns:
        The graph.

    Raises:
        RefusedInput: The file cannot be read, is not of the format, or needs more memory than the machine has free. The
            error names the line or the field.
    """
    return _read(path, _EL, weights=False)


def read_wel(path: Path, *, weights: bool = True) -> Graph:
    """Reads an edge list with weights, a text with a line ``source target weight`` for each arc, as a directed graph.

    Of duplicates it keeps the smallest weight, as GAP does; otherwise it is as ``read_el``.

    Args:
        path: The file.
        weights: Whether to keep the weights, which are whole numbers from 0 to 2^31 - 1. If not, they may be negative.

    Returns:
        The graph.

    Raises:
        RefusedInput: As ``read_el``, or a weight is out of range.
    """
    return _read(path, _WEL, weights=weights)


def write_el(graph: Graph, path: Path) -> None:
    """Writes an edge list, each arc on a line of its own, in place of a file that exists.

    Args:
        graph: The graph. Its weights are left out.
        path: The file.

    Raises:
        OperationFailed: The file cannot be written.
    """
    with writing("graph file", path) as out:
        write_edges(graph, out, _EL)


def write_wel(graph: Graph, path: Path) -> None:
    """Writes an edge list with weights, as ``write_el``.

    Args:
        graph: The graph; it has weights.
        path: The file.

    Raises:
        OperationFailed: The file cannot be written.
    """
    with writing("graph file", path) as out:
        write_edges(graph, out, _WEL)


def _read(path: Path, dialect: Dialect, *, weights: bool) -> Graph:
    with reading("graph file", path) as file:
        return read_graph(Lines(path, file), dialect, weights=weights)
