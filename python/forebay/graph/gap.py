# SPDX-License-Identifier: Apache-2.0
"""The file formats of the GAP benchmark suite: ``.sg`` (serialized graph) and ``.el`` (edge list).

A ``.sg`` file is little-endian and has no padding: bool directed, int64 arcs, int64 vertices, int64
offsets[vertices + 1], int32 neighbours[arcs]; offsets and neighbours of the inverse graph follow if it is directed.
"""

import os
import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay.errors import RefusedInput
from forebay.files import reading, writing
from forebay.graph.csr import Graph

_HEADER = struct.Struct("<?qq")
_MAX_VERTICES = 2**31
# While a graph is built of an edge list.
_BYTES_A_VERTEX, _BYTES_AN_EDGE = 24, 80
_PIECE_BYTES = 4 << 20
_LINE_MAX = 1 << 16
_DIGITS_MAX = 18  # more may be no int64
_SHOWN_MAX = 80
_LINE = "each line must be two node numbers"
_STRANGE = ~np.isin(np.arange(256), list(b"0123456789 \t\r\n"))
_COMMENT = re.compile(rb"#[^\n]*")


def load(path: Path | str, *, symmetrize: bool = False) -> Graph:
    """Reads a graph from a file.

    Args:
        path: The file. Its name ends in ``.sg`` for ``read_sg`` or in ``.el`` for ``read_el``.
        symmetrize: Whether to make the graph undirected (GAP's ``-s``).

    Returns:
        The graph.

    Raises:
        RefusedInput: The name has another ending, or as the function of the format.
    """
    path = Path(path)
    readers = {".sg": read_sg, ".el": read_el}
    if path.suffix not in readers:
        raise RefusedInput("graph file", path, "the name must end in .sg or .el")
    graph = readers[path.suffix](path)
    return graph.symmetrized() if symmetrize else graph


def save(graph: Graph, path: Path | str) -> None:
    """Writes a graph to a file, in place of one that exists.

    Args:
        graph: The graph.
        path: The file. Its name ends in ``.sg`` for ``write_sg`` or in ``.el`` for ``write_el``.

    Raises:
        RefusedInput: The name has another ending, or the file cannot be written.
    """
    path = Path(path)
    writers = {".sg": write_sg, ".el": write_el}
    if path.suffix not in writers:
        raise RefusedInput("graph file", path, "the name must end in .sg or .el")
    writers[path.suffix](graph, path)


def read_sg(path: Path) -> Graph:
    """Reads a serialized graph. It checks the whole file, the inverse graph in it too, which it then drops.

    Args:
        path: The file.

    Returns:
        The graph.

    Raises:
        RefusedInput: The file cannot be read, is not of the format, or needs more memory than the machine has free. The
            error names the line or the field.
    """
    remedy = "write the file again with GAP's converter or `forebay graph convert`"

    def refuse(field: str, value: object, found: str) -> RefusedInput:
        return RefusedInput(f"{path}: {field}", value, f"{found}; {remedy}")

    with reading("graph file", path) as file:
        size, header = os.fstat(file.fileno()).st_size, file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise refuse("size", size, f"a header has {_HEADER.size} bytes")
        if header[0] > 1:
            raise refuse("directed", header[0], "must be 0 or 1")
        directed, arcs, vertices = _HEADER.unpack(header)
        if not 0 <= vertices <= _MAX_VERTICES:
            raise refuse("num_nodes", vertices, f"must be 0 to {_MAX_VERTICES}")
        if arcs < 0:
            raise refuse("num_edges", arcs, "must not be negative")
        part = 8 * (vertices + 1) + 4 * arcs
        expected = _HEADER.size + part * (2 if directed else 1)
        if size != expected:
            kind = "directed edges" if directed else "edges"
            raise refuse("size", size, f"{vertices} nodes and {arcs} {kind} need {expected} bytes")
        memory.require(2 * expected, "graph file", path, f"{vertices} nodes and {arcs} edges", "use a larger machine")
        file.seek(0)
        data = file.read()
    if len(data) != expected:
        raise refuse("size", len(data), "it changed while it was read")

    def read_part(at: int, prefix: str) -> tuple[np.ndarray, np.ndarray]:
        row_begin = np.frombuffer(data, "<i8", vertices + 1, at)
        neighbours = np.frombuffer(data, "<i4", arcs, at + 8 * (vertices + 1))
        if row_begin[0] != 0:
            raise refuse(f"{prefix}offsets[0]", row_begin[0], "must be 0")
        falls = np.flatnonzero(np.diff(row_begin) < 0)
        if len(falls):
            raise refuse(f"{prefix}offsets[{falls[0] + 1}]", row_begin[falls[0] + 1], "offsets must not fall")
        if row_begin[-1] != arcs:
            raise refuse(f"{prefix}offsets[{vertices}]", row_begin[-1], f"must be num_edges = {arcs}")
        bad = np.flatnonzero((neighbours < 0) | (neighbours >= vertices))
        if len(bad):
            raise refuse(f"{prefix}neighbours[{bad[0]}]", neighbours[bad[0]], f"must be a node, 0 to {vertices - 1}")
        return row_begin.astype(np.int64), neighbours.astype(np.int32)

    row_begin, neighbours = read_part(_HEADER.size, "")
    if directed:
        read_part(_HEADER.size + part, "inverse ")
    return Graph(row_begin, neighbours, directed)


def write_sg(graph: Graph, path: Path) -> None:
    """Writes a serialized graph, with its inverse if it is directed, in place of a file that exists.

    Args:
        graph: The graph.
        path: The file.

    Raises:
        RefusedInput: The file cannot be written.
    """
    with writing("graph file", path) as out:
        out.write(_HEADER.pack(graph.directed, graph.arcs, graph.vertices))
        for part in (graph, graph.inverse()) if graph.directed else (graph,):
            out.write(part.row_begin.astype("<i8").tobytes())
            out.write(part.neighbours.astype("<i4").tobytes())


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
    edges: list[npt.NDArray[np.int32]] = []
    largest, lines, count = -1, 0, 0
    with reading("graph file", path) as file:
        while piece := file.read(_PIECE_BYTES):
            piece += file.readline(_LINE_MAX)
            pairs, at_lines = _read_lines(path, piece, lines)
            lines += piece.count(b"\n")
            if not piece.endswith(b"\n") and file.peek(1):
                raise RefusedInput(
                    f"{path}:{lines + 1}: line", _shown(piece.rpartition(b"\n")[2]), f"goes on and on; {_LINE}"
                )
            if not len(pairs):
                continue
            edges.append(pairs)
            count += len(pairs)
            if pairs.max() > largest:
                at = int(pairs.argmax()) // 2
                largest, where = int(pairs.max()), f"{path}:{at_lines[at]}: node"
            needed = (largest + 1) * _BYTES_A_VERTEX + count * (_BYTES_AN_EDGE - pairs.itemsize * 2)
            what, remedy = f"{count} edges and nodes up to that one", "number the nodes without gaps"
            memory.require(needed, where, largest, what, remedy)
    if not edges:
        return Graph.from_arcs([], [], 0)
    both = np.concatenate(edges)
    return Graph.from_arcs(both[:, 0], both[:, 1], largest + 1)


def _read_lines(path: Path, piece: bytes, before: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Returns the pairs of whole lines, and the number of the line that each is in. Refuses other lines."""
    if b"#" in piece:
        piece = _COMMENT.sub(b"", piece)
    characters = np.frombuffer(piece, np.uint8)
    digit = (characters >= ord("0")) & (characters <= ord("9"))
    changes = np.diff(digit.astype(np.int8), prepend=np.int8(0), append=np.int8(0))
    starts, ends = np.flatnonzero(changes == 1), np.flatnonzero(changes == -1)
    line_ends = np.flatnonzero(characters == ord("\n"))
    at_lines = np.searchsorted(line_ends, starts)
    numbers = np.bincount(at_lines, minlength=1)
    bad = [
        *np.flatnonzero((numbers != 0) & (numbers != 2))[:1],
        *np.searchsorted(line_ends, np.flatnonzero(_STRANGE[characters])[:1]),
        *at_lines[ends - starts > _DIGITS_MAX][:1],
    ]
    if not bad:
        values = np.fromstring(piece, np.int64, sep=" ")
        bad = [*at_lines[values >= _MAX_VERTICES][:1]]
    if bad:
        line = int(min(bad))
        _read_lines(path, b"\n".join(piece.split(b"\n", line)[:line]), before)  # numbers above it may be too large
        raise _refused_line(f"{path}:{before + line + 1}", piece.split(b"\n", line + 1)[line])
    return values.astype(np.int32).reshape(-1, 2), before + at_lines[::2] + 1


def _refused_line(where: str, line: bytes) -> RefusedInput:
    fields = line.split()
    if len(fields) == 2 and all(re.fullmatch(rb"-?[0-9]+", field) for field in fields):
        wrong = next(field for field in fields if field.startswith(b"-") or int(field[:20]) >= _MAX_VERTICES)
        return RefusedInput(f"{where}: node", _shown(wrong), f"must be 0 to {_MAX_VERTICES - 1}")
    return RefusedInput(f"{where}: line", _shown(line), _LINE)


def _shown(text: bytes) -> str:
    return text[:_SHOWN_MAX].strip().decode("utf-8", "backslashreplace")


def write_el(graph: Graph, path: Path) -> None:
    """Writes an edge list, each arc on a line of its own, in place of a file that exists.

    Args:
        graph: The graph.
        path: The file.

    Raises:
        RefusedInput: The file cannot be written.
    """
    sources = np.repeat(np.arange(graph.vertices, dtype=np.int64), graph.degrees)
    with writing("graph file", path) as out:
        np.savetxt(out, np.column_stack([sources, graph.neighbours]), fmt="%d")
