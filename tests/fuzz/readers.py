# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets in Python: each takes the bytes of an input.

python_host.cpp calls them with what libFuzzer makes, and tests/python/test_fuzz_corpora.py with the corpora. A target
ends with an exception only if it has found something.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from forebay.errors import RefusedInput
from forebay.graph.csr import Graph
from forebay.graph.gap import read_sg, read_wsg, write_sg, write_wsg
from forebay.trace import FLUSH, FORMATS, load


def trace(data: bytes) -> None:
    """A block trace. The first byte chooses its format, and whether a disk or a file is asked for."""
    head, text = data[:1] or b"\0", data[1:]
    trace_format = FORMATS[head[0] % len(FORMATS)]
    disk = 1 if head[0] & 64 else None
    file = "/dev/a" if head[0] & 128 else None
    with _file(text) as path, _refusals():
        found = load(path, trace_format, disk=disk, file=file)
        operations = found.operations
        assert len(operations) > 0
        assert len(operations) + found.other_lines + found.left_out + found.trims == found.lines
        assert (operations["line"] >= 1).all()
        assert (operations["line"] <= found.lines).all()
        assert operations["at_ns"].min() == 0
        assert 0 <= found.duration_ns < 2**63
        assert ((operations["bytes"] > 0) | (operations["kind"] == FLUSH)).all()


def sg(data: bytes) -> None:
    """A serialized graph. The first byte chooses whether it has weights, and whether they are kept."""
    head, content = data[:1] or b"\0", data[1:]
    with _file(content) as path, _refusals():
        graph = read_sg(path) if head[0] % 3 == 0 else read_wsg(path, weights=head[0] % 3 == 1)
        _check(graph)
        with _file(b"") as copy:
            if graph.weights is None:
                write_sg(graph, copy)
                again = read_sg(copy)
            else:
                write_wsg(graph, copy)
                again = read_wsg(copy)
        assert np.array_equal(graph.row_begin, again.row_begin)
        assert np.array_equal(graph.neighbours, again.neighbours)


def _check(graph: Graph) -> None:
    assert graph.row_begin[0] == 0
    assert graph.row_begin[-1] == graph.arcs
    assert (np.diff(graph.row_begin) >= 0).all()
    assert ((graph.neighbours >= 0) & (graph.neighbours < max(graph.vertices, 1))).all()


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[Path]:
    """A file in memory."""
    number = os.memfd_create("forebay-fuzz")
    try:
        os.write(number, data)
        yield Path(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Lets input be refused, with a clear error."""
    try:
        yield
    except RefusedInput as refused:
        _check_refusal(refused)


def _check_refusal(refused: RefusedInput) -> None:
    assert refused.field, "a refusal has a field"
    assert refused.remedy, "a refusal has a remedy"
    assert str(refused).isprintable(), f"a message is one line: {refused}"
