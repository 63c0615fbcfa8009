# SPDX-License-Identifier: Apache-2.0
"""The serialized graphs of the GAP benchmark suite: ``.sg``, and ``.wsg`` with weights.

A ``.sg`` file is little-endian and has no padding: bool directed, int64 arcs, int64 vertices, int64
offsets[vertices + 1], int32 neighbours[arcs]; offsets and neighbours of the inverse graph follow if it is directed.
In a ``.wsg`` file each neighbour is a pair: int32 vertex, int32 weight.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay.errors import RefusedInput
from forebay.files import reading, size_of, writing
from forebay.graph.csr import VERTICES_MAX, WEIGHT_MAX, Graph, arcs_in_pieces

_HEADER = struct.Struct("<?qq")
_PIECE = 1 << 20  # numbers that are read at a time
_REMEDY = "write the file again with GAP's converter or `forebay graph convert`"

Refuse = Callable[[str, object, str], RefusedInput]


def read_sg(path: Path) -> Graph:
    """Reads a serialized graph, with its inverse if it is directed. It checks the whole file.

    Args:
        path: The file.

    Returns:
        The graph. If it is directed, it has ``incoming``.

    Raises:
        RefusedInput: The file cannot be read, is not of the format, or needs more memory than the machine has free. The
            error names the field. Lists must ascend, the inverse must be that of the graph, and an undirected graph
            must have the reverse of each arc.
    """
    return _read(path, pairs=False, weights=False)


def read_wsg(path: Path, *, weights: bool = True) -> Graph:
    """Reads a serialized graph with weights, as ``read_sg``.

    Args:
        path: The file.
        weights: Whether to keep the weights, which are 0 to 2^31 - 1. If not, they may be any.

    Returns:
        The graph. If it is directed, it has ``incoming``, with weights of its own.

    Raises:
        RefusedInput: As ``read_sg``. If weights are kept, none may be negative, and the two arcs of an edge have the
            same one.
    """
    return _read(path, pairs=True, weights=weights)


def write_sg(graph: Graph, path: Path) -> None:
    """Writes a serialized graph, with its inverse if it is directed, in place of a file that exists.

    Args:
        graph: The graph. Its weights are left out.
        path: The file.

    Raises:
        OperationFailed: The file cannot be written.
    """
    _write(graph, path, pairs=False)


def write_wsg(graph: Graph, path: Path) -> None:
    """Writes a serialized graph with weights, as ``write_sg``.

    Args:
        graph: The graph; it has weights.
        path: The file.

    Raises:
        OperationFailed: The file cannot be written.
    """
    _write(graph, path, pairs=True)


def _write(graph: Graph, path: Path, *, pairs: bool) -> None:
    with writing("graph file", path) as out:
        out.write(_HEADER.pack(graph.directed, graph.arcs, graph.vertices))
        for part in (graph, graph.inverse()) if graph.directed else (graph,):
            out.write(np.ascontiguousarray(part.row_begin.astype("<i8", copy=False)).data)
            for at in range(0, part.arcs, _PIECE):
                numbers = part.neighbours[at : at + _PIECE]
                if pairs and part.weights is not None:
                    numbers = np.column_stack([numbers, part.weights[at : at + _PIECE]])
                out.write(numbers.astype("<i4").tobytes())


def _read(path: Path, *, pairs: bool, weights: bool) -> Graph:
    def refuse(field: str, value: object, found: str) -> RefusedInput:
        return RefusedInput(f"{path}: {field}", value, f"{found}; {_REMEDY}")

    with reading("graph file", path) as file:
        size, header = size_of(file), file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise refuse("size", size, f"a header has {_HEADER.size} bytes")
        if header[0] > 1:
            raise refuse("directed", header[0], "must be 0 or 1")
        directed, arcs, vertices = _HEADER.unpack(header)
        if not 0 <= vertices <= VERTICES_MAX:
            raise refuse("num_nodes", vertices, f"must be 0 to {VERTICES_MAX}")
        if arcs < 0:
            raise refuse("num_edges", arcs, "must not be negative")
        expected = _HEADER.size + (8 * (vertices + 1) + (8 if pairs else 4) * arcs) * (2 if directed else 1)
        if size != expected:
            kind = "directed edges" if directed else "edges"
            raise refuse("size", size, f"{vertices} nodes and {arcs} {kind} need {expected} bytes")
        memory.require(expected, "graph file", path, f"{vertices} nodes and {arcs} edges", "use a larger machine")
        part = _Part(file, vertices, arcs, directed, refuse)
        graph = part.read("", pairs=pairs, weights=weights)
        if directed:
            inverse = part.read("inverse ", pairs=pairs, weights=weights)
            if _sum(inverse, turned=True) != _sum(graph):
                raise refuse("inverse neighbours", f"{arcs} arcs", "must be the graph's arcs turned round")
            graph = replace(graph, incoming=inverse)
        elif _sum(graph, turned=True) != _sum(graph):
            what = "an undirected graph must have the reverse of each arc, with the same weight"
            raise refuse("neighbours", f"{arcs} arcs", what)
    return graph


class _Part:
    """What follows the header, once or twice."""

    def __init__(self, file: BinaryIO, vertices: int, arcs: int, directed: bool, refuse: Refuse) -> None:
        self._file, self._vertices, self._arcs = file, vertices, arcs
        self._directed, self._refuse = directed, refuse

    def read(self, prefix: str, *, pairs: bool, weights: bool) -> Graph:
        """Returns one graph. All its numbers are in range, and its lists ascend."""
        row_begin = self._row_begin(prefix)
        neighbours = np.empty(self._arcs, np.int32)
        kept = np.empty(self._arcs, np.int32) if weights else None
        for at in range(0, self._arcs, _PIECE):
            numbers = self._numbers("<i4", min(_PIECE, self._arcs - at) * (2 if pairs else 1))
            ends = numbers[::2] if pairs else numbers
            self._check(f"{prefix}neighbours", ends, at, self._vertices - 1, f"a node, 0 to {self._vertices - 1}")
            neighbours[at : at + len(ends)] = ends
            if kept is not None:
                self._check(f"{prefix}weights", numbers[1::2], at, WEIGHT_MAX, f"0 to {WEIGHT_MAX}")
                kept[at : at + len(ends)] = numbers[1::2]
        graph = Graph(row_begin, neighbours, self._directed, kept)
        self._check_lists(f"{prefix}neighbours", graph)
        return graph

    def _row_begin(self, prefix: str) -> npt.NDArray[np.int64]:
        row_begin = np.empty(self._vertices + 1, np.int64)
        before = 0
        for at in range(0, len(row_begin), _PIECE):
            numbers = self._numbers("<i8", min(_PIECE, len(row_begin) - at))
            if at == 0 and numbers[0] != 0:
                raise self._refuse(f"{prefix}offsets[0]", numbers[0], "must be 0")
            falls = np.flatnonzero(numbers < np.concatenate([[before], numbers[:-1]]))
            if len(falls):
                raise self._refuse(f"{prefix}offsets[{at + falls[0]}]", numbers[falls[0]], "offsets must not fall")
            row_begin[at : at + len(numbers)] = numbers
            before = numbers[-1]
        if before != self._arcs:
            raise self._refuse(f"{prefix}offsets[{self._vertices}]", before, f"must be num_edges = {self._arcs}")
        return row_begin

    def _numbers(self, kind: str, count: int) -> npt.NDArray[np.integer]:
        data = self._file.read(np.dtype(kind).itemsize * count)
        if len(data) != np.dtype(kind).itemsize * count:
            raise self._refuse("size", size_of(self._file), "it changed while it was read")
        return np.frombuffer(data, kind)

    def _check(self, name: str, numbers: npt.NDArray[np.integer], at: int, most: int, what: str) -> None:
        if numbers.min() < 0 or numbers.max() > most:
            bad = np.flatnonzero((numbers < 0) | (numbers > most))[0]
            raise self._refuse(f"{name}[{at + bad}]", numbers[bad], f"must be {what}")

    def _check_lists(self, name: str, graph: Graph) -> None:
        last = -1
        for arcs in arcs_in_pieces(graph):
            keys = (arcs.sources << 32) | arcs.targets
            if keys[0] <= last or (keys[1:] <= keys[:-1]).any():
                at = np.flatnonzero(keys <= np.concatenate([[last], keys[:-1]]))[0]
                what = "must be more than the one before it in the same list"
                raise self._refuse(f"{name}[{arcs.begin + at}]", arcs.targets[at], what)
            last = keys[-1]


def _sum(graph: Graph, *, turned: bool = False) -> int:
    """Returns a sum over all arcs, of the graph or of the graph turned round.

    Two sums are equal if both are over the same arcs with the same weights, in any order, and hardly ever otherwise.
    So a file is checked without turning its graph round, which takes sorting and as much memory again.
    """
    total = 0
    for arcs in arcs_in_pieces(graph):
        targets = arcs.targets.astype(np.int64)
        first, second = (targets, arcs.sources) if turned else (arcs.sources, targets)
        mixed = _mixed(((first << 32) | second).view(np.uint64))
        if arcs.weights is not None:
            mixed = _mixed(mixed + arcs.weights.astype(np.uint64))
        total += int(mixed.sum())
    return total % 2**64


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spreads each number over all 64 bits."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return mixed
