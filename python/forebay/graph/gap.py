# SPDX-License-Identifier: Apache-2.0
"""The file formats of the GAP benchmark suite: `.sg` (serialized graph) and `.el` (edge list).

A `.sg` file is little-endian and has no padding: bool directed, int64 arcs, int64 vertices, int64
offsets[vertices + 1], int32 neighbours[arcs]; offsets and neighbours of the inverse graph follow if it is directed.
"""

import os
import struct
import warnings
from pathlib import Path

import numpy as np

from forebay.errors import RefusedInput
from forebay.graph.csr import Graph
from forebay.units import format_bytes

_HEADER = struct.Struct("<?qq")
_MAX_VERTICES = 2**31
_BYTES_A_VERTEX = 24  # while a graph is built: three arrays of int64


def load(path: Path | str, *, symmetrize: bool = False) -> Graph:
    """Reads a graph whose format the suffix names. `symmetrize` makes it undirected (GAP's `-s`)."""
    path = Path(path)
    readers = {".sg": read_sg, ".el": read_el}
    if path.suffix not in readers:
        raise RefusedInput("graph file", path, "the name must end in .sg or .el")
    graph = readers[path.suffix](path)
    return graph.symmetrized() if symmetrize else graph


def save(graph: Graph, path: Path | str) -> None:
    """Writes a graph in the format that the suffix names."""
    path = Path(path)
    writers = {".sg": write_sg, ".el": write_el}
    if path.suffix not in writers:
        raise RefusedInput("graph file", path, "the name must end in .sg or .el")
    writers[path.suffix](graph, path)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise RefusedInput("graph file", path, "no such file; check the path")


def read_sg(path: Path) -> Graph:
    """Reads a serialized graph and checks all of it; the inverse graph is checked and dropped."""
    _require_file(path)
    data = path.read_bytes()
    remedy = "write the file again with GAP's converter or `forebay graph convert`"

    def refuse(field: str, value: object, found: str) -> RefusedInput:
        return RefusedInput(f"{path}: {field}", value, f"{found}; {remedy}")

    if len(data) < _HEADER.size:
        raise refuse("size", len(data), f"a header has {_HEADER.size} bytes")
    if data[0] > 1:
        raise refuse("directed", data[0], "must be 0 or 1")
    directed, arcs, vertices = _HEADER.unpack_from(data)
    if not 0 <= vertices <= _MAX_VERTICES:
        raise refuse("num_nodes", vertices, f"must be 0 to {_MAX_VERTICES}")
    if arcs < 0:
        raise refuse("num_edges", arcs, "must not be negative")
    part = 8 * (vertices + 1) + 4 * arcs
    expected = _HEADER.size + part * (2 if directed else 1)
    if len(data) != expected:
        kind = "directed edges" if directed else "edges"
        raise refuse("size", len(data), f"{vertices} nodes and {arcs} {kind} need {expected} bytes")

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
    """Writes a serialized graph, with its inverse if it is directed."""
    with path.open("wb") as out:
        out.write(_HEADER.pack(graph.directed, graph.arcs, graph.vertices))
        for part in (graph, graph.inverse()) if graph.directed else (graph,):
            out.write(part.row_begin.astype("<i8").tobytes())
            out.write(part.neighbours.astype("<i4").tobytes())


def read_el(path: Path) -> Graph:
    """Reads an edge list, one `source target` a line, as a directed graph; duplicates and loops are dropped."""
    _require_file(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty list is a graph of no vertex
        try:
            pairs = np.loadtxt(path, dtype=np.int64, ndmin=2)
        except (ValueError, OverflowError) as error:
            cause = " ".join(str(error).split()).rstrip(".;")
            raise RefusedInput(f"{path}: line", cause, "each line must be two node numbers") from None
    if pairs.size == 0:
        return Graph.from_arcs([], [], 0)
    if pairs.shape[1] != 2:
        raise RefusedInput(f"{path}: columns", pairs.shape[1], "each line must be two node numbers")
    bad = np.flatnonzero((pairs < 0) | (pairs >= _MAX_VERTICES))
    if len(bad):
        raise RefusedInput(f"{path}: node", pairs.flat[bad[0]], f"must be 0 to {_MAX_VERTICES - 1}")
    vertices = int(pairs.max()) + 1
    needed, there = vertices * _BYTES_A_VERTEX, _memory_bytes()
    if needed > there:
        found = f"nodes up to that one need {format_bytes(needed)} of memory, and there are {format_bytes(there)}"
        raise RefusedInput(f"{path}: node", vertices - 1, f"{found}; number the nodes without gaps")
    return Graph.from_arcs(pairs[:, 0], pairs[:, 1], vertices)


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def write_el(graph: Graph, path: Path) -> None:
    """Writes an edge list, each arc on a line of its own."""
    sources = np.repeat(np.arange(graph.vertices, dtype=np.int64), graph.degrees)
    np.savetxt(path, np.column_stack([sources, graph.neighbours]), fmt="%d")
