# SPDX-License-Identifier: Apache-2.0
"""Text files with an edge in each line, which several formats are: how they are read fast, and refused by the line.

A regular expression says what a line may be. It is matched against a whole piece of a file, of some megabytes, and ends
at the first line that is something else. So NumPy gets only numbers, and a wrong line costs no second reader.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay.errors import RefusedInput
from forebay.graph.csr import VERTICES_MAX, WEIGHT_MAX, Graph, arcs_in_pieces

WITHOUT_WEIGHTS = "leave the weights out: --weights none, in Python weights=False"

_PIECE_BYTES = 4 << 20
_LINE_MAX = 1 << 16
_SHOWN_MAX = 80
# While a graph is built of an edge list: as measured, and a little more.
_BYTES_A_VERTEX, _BYTES_AN_EDGE, _BYTES_A_WEIGHT = 24, 56, 24

_BLANKS = rb"[ \t\r]"
# Possessive throughout: what does not match is found out in one pass, and needs no memory.
_NODE = rb"\d{1,18}+"  # more digits may be no int64
_WHOLE = rb"[+-]?+\d{1,18}+"
_REAL = rb"[+-]?+(?:(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?+\d++)?+|(?i:inf(?:inity)?+|nan))"
_INTEGER = re.compile(rb"-?[0-9]+")
_NUMBER = re.compile(_REAL)


@dataclass(frozen=True)
class Dialect:
    """What the lines of a format look like.

    Attributes:
        expected: What a line must be, for messages.
        comment: What starts a comment, one character.
        numbering_from: The number of the first node.
        mark: A letter that each line of an edge begins with, or nothing.
        weighted: Whether a third number, the weight, follows the two nodes.
        real: Whether weights are written as real numbers.
        comment_after_edge: Whether a comment may follow an edge in its line.
    """

    expected: str
    comment: bytes
    numbering_from: int
    mark: bytes = b""
    weighted: bool = False
    real: bool = False
    comment_after_edge: bool = False

    @property
    def columns(self) -> int:
        """How many numbers a line has."""
        return 3 if self.weighted else 2

    @cached_property
    def _edge(self) -> bytes:
        numbers = [_NODE, _NODE, *([_REAL if self.real else _WHOLE] if self.weighted else [])]
        words = [*([self.mark] if self.mark else []), *numbers]
        return _BLANKS + rb"*+" + (_BLANKS + rb"++").join(words) + _BLANKS + rb"*+"

    @cached_property
    def _other(self) -> bytes:
        return _BLANKS + rb"*+(?:" + self.comment + rb"[^\n]*+)?+"

    @cached_property
    def lines(self) -> re.Pattern[bytes]:
        """Matches as many good lines as there are."""
        end = self._other if self.comment_after_edge else b""
        return re.compile(rb"(?:" + self._edge + end + rb"\n|" + self._other + rb"\n)*+")

    @cached_property
    def edge_line(self) -> re.Pattern[bytes]:
        """Matches a good line, which is that of an edge if the group is not empty."""
        return re.compile(rb"(?m)^(?:(" + self._edge + rb")|" + self._other + rb"$)[^\n]*+\n")

    @cached_property
    def comments(self) -> re.Pattern[bytes]:
        """Matches the comment of a good line."""
        return re.compile(self.comment + rb"[^\n]*+")


@dataclass(frozen=True)
class Declared:
    """What the header of a file says about the edges below it.

    Attributes:
        vertices: The number of nodes.
        edges: The number of lines that have an edge.
        where: The file and the line that says so.
    """

    vertices: int
    edges: int
    where: str


class Lines:
    """The lines of a text file: some one by one, such as a header, and then all others in pieces."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.number = 0
        """The number of lines that were handed out."""
        self._file = file

    @property
    def where(self) -> str:
        """The file, and the line that was handed out last."""
        return self.at(self.number)

    def at(self, number: int) -> str:
        """Names a line in a message."""
        return f"{self.path}:{number}"

    def one(self) -> bytes:
        """Returns the next line with its end; at the end of the file, nothing."""
        line = self._file.readline(_LINE_MAX)
        self.number += 1
        if len(line) == _LINE_MAX and not line.endswith(b"\n"):
            raise self._endless(line)
        return line

    def pieces(self) -> Iterator[bytes]:
        """Yields whole lines, each with its end. Their number counts as handed out once the next piece is asked for."""
        while piece := self._file.read(_PIECE_BYTES):
            piece += self._file.readline(_LINE_MAX)
            whole, end, rest = piece.rpartition(b"\n")
            endless = bool(rest) and self._file.read(1) != b""
            if rest and not endless:
                whole, end = piece, b"\n"
            yield whole + end
            self.number += (whole + end).count(b"\n")
            if endless:
                self.number += 1
                raise self._endless(rest)

    def _endless(self, line: bytes) -> RefusedInput:
        return RefusedInput(f"{self.where}: line", shown(line), f"goes on and on; a line has {_LINE_MAX} bytes at most")


def shown(text: bytes) -> str:
    """Returns what a message shows of text from a file."""
    return text[:_SHOWN_MAX].strip().decode("utf-8", "backslashreplace")


def read_graph(
    lines: Lines, dialect: Dialect, declared: Declared | None = None, *, directed: bool = True, weights: bool = True
) -> Graph:
    """Reads the edges that the rest of a file has, and builds their graph, without duplicates and loops.

    Args:
        lines: The file, from the first line on that may have an edge.
        dialect: What its lines look like.
        declared: What the header says; None if there is none: then the largest node is the last.
        directed: Whether an edge leads one way only.
        weights: Whether to keep the weights. If not, a weight may be any number.

    Returns:
        The graph.

    Raises:
        RefusedInput: A line is not of the format, a node or a weight is out of range, there are more edges or fewer
            than the header says, or the graph needs more memory than is available. The error names the line.
    """
    keep = weights and dialect.weighted
    bytes_an_edge = (1 if directed else 2) * (_BYTES_AN_EDGE + keep * _BYTES_A_WEIGHT)
    last = (declared.vertices if declared else VERTICES_MAX) + dialect.numbering_from - 1
    if declared:
        needed = declared.vertices * _BYTES_A_VERTEX
        memory.require(needed, f"{declared.where}: nodes", declared.vertices, "so many nodes", "correct the header")
    pairs: list[npt.NDArray[np.int32]] = []
    kept: list[npt.NDArray[np.int32]] = []
    count, largest, of_largest = 0, -1, (0, b"", 0)
    for piece in lines.pieces():
        numbers = _checked(lines, piece, dialect, last, keep, declared.edges - count if declared else None)
        if not len(numbers):
            continue
        count += len(numbers)
        pairs.append((numbers[:, :2] - dialect.numbering_from).astype(np.int32))
        if keep:
            kept.append(numbers[:, 2].astype(np.int32))
        if not declared and pairs[-1].max() > largest:
            largest = int(pairs[-1].max())
            of_largest = lines.number, piece, int(pairs[-1].argmax()) // 2
        vertices = declared.vertices if declared else largest + 1
        needed = vertices * _BYTES_A_VERTEX + count * (bytes_an_edge - 8)  # pairs has 8 of them already
        if declared:
            memory.require(needed, f"{declared.where}: edges", declared.edges, "the edges", "use a larger machine")
        elif needed > memory.available_bytes():
            number, _ = _line_of(dialect, *of_largest[1:])
            where = f"{lines.at(of_largest[0] + number)}: node"
            what, remedy = f"{count} edges and nodes up to that one", "number the nodes without gaps"
            memory.require(needed, where, largest, what, remedy)
    if declared and count < declared.edges:
        what = f"the file has {count}; it is cut off or its header is wrong: get all of the file"
        raise RefusedInput(f"{declared.where}: edges", declared.edges, what)
    ends = np.concatenate(pairs) if pairs else np.empty((0, 2), np.int32)
    values = (np.concatenate(kept) if kept else np.empty(0, np.int32)) if keep else None
    pairs.clear()
    kept.clear()
    vertices = declared.vertices if declared else largest + 1
    return Graph.from_arcs(ends[:, 0], ends[:, 1], vertices, directed=directed, weights=values)


def write_edges(graph: Graph, out: BinaryIO, dialect: Dialect, *, lower: bool = False) -> None:
    """Writes a line for each arc.

    Args:
        graph: The graph; it has weights if the dialect has.
        out: The file, after its header.
        dialect: What the lines look like.
        lower: Whether to leave out arcs to nodes above their source.
    """
    line = b" ".join([*([dialect.mark] if dialect.mark else []), *[b"%d"] * dialect.columns]) + b"\n"
    for arcs in arcs_in_pieces(graph):
        columns = [arcs.sources + dialect.numbering_from, arcs.targets + dialect.numbering_from]
        if dialect.weighted and arcs.weights is not None:
            columns.append(arcs.weights)
        rows = np.column_stack(columns)
        if lower:
            rows = rows[arcs.targets <= arcs.sources]
        out.write((line * len(rows)) % tuple(rows.ravel().tolist()))


def _checked(
    lines: Lines, piece: bytes, dialect: Dialect, last: int, keep: bool, room: int | None
) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Returns the numbers of a piece, a row for each edge. Refuses the first line with which something is wrong."""
    good = dialect.lines.match(piece)
    stop = good.end() if good else 0
    numbers = _numbers(piece[:stop], dialect)
    wrong = _first_wrong(numbers, dialect.numbering_from, last, keep)
    surplus = room if room is not None and room < len(numbers) else None
    if wrong is not None and (surplus is None or wrong < surplus):
        number, line = _line_of(dialect, piece, wrong)
        raise _explained(lines.at(lines.number + number), line, dialect, last)
    if surplus is not None:
        number, line = _line_of(dialect, piece, surplus)
        what = "is one edge more than the header says; correct the header"
        raise RefusedInput(f"{lines.at(lines.number + number)}: line", shown(line), what)
    if stop < len(piece):
        number = piece.count(b"\n", 0, stop) + 1
        raise _explained(lines.at(lines.number + number), piece[stop:].partition(b"\n")[0], dialect, last)
    return numbers


def _numbers(good: bytes, dialect: Dialect) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Returns the numbers of good lines: an array with a row for each edge."""
    if dialect.comment in good:
        good = dialect.comments.sub(b"", good)
    if dialect.mark:
        good = good.replace(dialect.mark, b" ")
    kind = np.float64 if dialect.real else np.int64  # a node is exact in both
    if good.isspace() or not good:  # of which NumPy makes a number
        return np.empty((0, dialect.columns), kind)
    return np.fromstring(good, kind, sep=" ").reshape(-1, dialect.columns)


def _first_wrong(numbers: npt.NDArray[np.generic], first: int, last: int, keep: bool) -> int | None:
    """Returns the first row with a node or a weight that is out of range; None if there is none."""
    if not len(numbers):
        return None
    nodes = numbers[:, :2]
    # A comparison with NaN is false.
    fine = nodes.min() >= first and nodes.max() <= last
    if keep:
        of_weight = numbers[:, 2]
        fine = fine and of_weight.min() >= 0 and of_weight.max() <= WEIGHT_MAX
        fine = fine and (of_weight.dtype.kind == "i" or bool((of_weight == np.floor(of_weight)).all()))
    if fine:
        return None
    good = ((nodes >= first) & (nodes <= last)).all(axis=1)
    if keep:
        good &= (of_weight >= 0) & (of_weight <= WEIGHT_MAX) & (of_weight == np.floor(of_weight))
    return int(np.argmin(good))


def _line_of(dialect: Dialect, piece: bytes, row: int) -> tuple[int, bytes]:
    """Returns the number within the piece of the line that has an edge, and the line. All lines above are good."""
    edges = (match for match in dialect.edge_line.finditer(piece) if match[1])
    match = next(itertools.islice(edges, row, None))
    return piece.count(b"\n", 0, match.start()) + 1, match[0]


def _explained(where: str, line: bytes, dialect: Dialect, last: int) -> RefusedInput:
    """Returns what is wrong with a line in which something is."""
    words = (dialect.comments.sub(b"", line) if dialect.comment_after_edge else line).split()
    other = RefusedInput(f"{where}: line", shown(line), dialect.expected)
    if dialect.mark and words[:1] != [dialect.mark]:
        return other
    words = words[len(dialect.mark) :]
    if len(words) != dialect.columns or not all(_INTEGER.fullmatch(word) for word in words[:2]):
        return other
    for word in words[:2]:
        # Of more than 18 digits no node is in range, and Python converts no number of thousands.
        if not word.isdigit() or len(word) > 18 or not dialect.numbering_from <= int(word) <= last:
            return RefusedInput(f"{where}: node", shown(word), f"must be {dialect.numbering_from} to {last}")
    if len(words) == 3 and _NUMBER.fullmatch(words[2]):
        # If the weights are left out, the line must still be one of the format.
        instead = f", or {WITHOUT_WEIGHTS}" if dialect.lines.fullmatch(line.rstrip(b"\n") + b"\n") else ""
        what = f"must be a whole number, 0 to {WEIGHT_MAX}; scale the weights{instead}"
        return RefusedInput(f"{where}: weight", shown(words[2]), what)
    return other
