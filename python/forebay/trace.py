# SPDX-License-Identifier: Apache-2.0
"""Block traces: files of the formats that people have, read into operations.

Every line is an operation, something known to be none, or refused with its number.
"""

import gzip
import io
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from forebay import memory
from forebay.errors import RefusedInput
from forebay.files import reading
from forebay.units import format_count

FORMATS = ("auto", "msr", "iolog")
READ, WRITE, FLUSH = 0, 1, 2
# forebay::replay::operation
OPERATION = np.dtype(
    [("offset_bytes", "<u8"), ("bytes", "<u8"), ("at_ns", "<u8"), ("kind", "<u4"), ("line", "<u4")], align=True
)

_IOLOG = b"fio version "
_MSR_FIELDS = (b"Timestamp", b"Hostname", b"DiskNumber", b"Type", b"Offset", b"Size", b"ResponseTime")
_FIRST_LINE_MAX, _LINE_MAX = 4096, 1 << 16
# Of gzip: a thousandfold is the most there is, and traces of one line over and over get there; they are short.
_UNPACKED_FREE, _UNPACKED_RATIO = 4 << 20, 250
_OPERATION_BYTES = 96  # in memory, while a trace is read
_OPERATIONS_A_CHECK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_NUMBER_MAX = 2**63 - 1
_DIGITS_MAX = 19


@dataclass(frozen=True)
class Trace:
    """What a file asks for. The operations are in its order; `at_ns` counts from the earliest of them."""

    path: str
    format: str  # "msr", "iolog v2" or "iolog v3"
    operations: np.ndarray  # of OPERATION
    lines: int
    other_lines: int  # headers, blank lines, and what an iolog says of files and of waiting
    left_out: int  # operations of another disk or file than the one asked for
    trims: int
    timed: bool  # whether the trace says when

    @property
    def duration_ns(self) -> int:
        """From the earliest operation to the latest."""
        return int(self.operations["at_ns"].max(initial=0))


def load(path: str | Path, trace_format: str = "auto", *, disk: int | None = None, file: str | None = None) -> Trace:
    """Reads a trace, gzipped or not.

    Args:
        path: the file.
        trace_format: one of FORMATS.
        disk: the one disk of an MSR trace to replay; without it there must be only one.
        file: the one file of an iolog to replay; without it there must be only one.
    """
    if trace_format not in FORMATS:
        raise RefusedInput("--format", trace_format, f"must be one of {', '.join(FORMATS)}")
    name = str(path)
    with reading("trace", path) as raw:
        try:
            return _load(name, raw, trace_format, disk, file)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RefusedInput(
                "trace", name, f"is a damaged or incomplete gzip file: {error}; get the file again"
            ) from error


class _Unpacked(io.RawIOBase):
    """What a gzip file holds. One that was made to unpack for ever is refused."""

    def __init__(self, name: str, packed: BinaryIO) -> None:
        self._name, self._packed, self._file = name, packed, gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        count = self._file.readinto(buffer)
        unpacked, packed = self._file.tell(), self._packed.tell()
        if unpacked > _UNPACKED_FREE and unpacked > _UNPACKED_RATIO * packed:
            found = f"unpacks to more than {_UNPACKED_RATIO} times its size, which no known trace does"
            raise RefusedInput("trace", self._name, f"{found}; if it is a trace, unpack it with gunzip first")
        return count


def _load(name: str, raw: BinaryIO, trace_format: str, disk: int | None, file: str | None) -> Trace:
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    stream = io.BufferedReader(_Unpacked(name, raw), 1 << 16) if packed else raw
    first = stream.readline(_FIRST_LINE_MAX)
    if not first:
        raise RefusedInput("trace", name, "is empty; give a trace with at least one operation")
    if len(first) == _FIRST_LINE_MAX:
        raise RefusedInput(
            "trace",
            name,
            "is not a trace: its first line has no end; give an MSR Cambridge trace or an iolog of fio",
        )
    if b"\0" in first:
        raise RefusedInput(f"{name}:1: line", _text(first), "is not text; save the trace as ASCII or UTF-8")
    first = first.removeprefix(_BOM)
    if trace_format == "auto":
        trace_format = _guess(name, first)
    reader: _Reader = _Msr(name, disk) if trace_format == "msr" else _Iolog(name, file)
    for option, value, other in (("--disk", disk, "iolog"), ("--file", file, "msr")):
        if value is not None and trace_format == other:
            raise RefusedInput(
                option, value, f"{name} is of the format {other}, which has no {option[2:]}s; leave {option} out"
            )
    reader.read(first, stream)
    return reader.trace()


def _guess(name: str, first: bytes) -> str:
    if first.startswith(_IOLOG):
        return "iolog"
    if first.count(b",") == len(_MSR_FIELDS) - 1:
        return "msr"
    remedy = f"must start with 'fio version 2 iolog', 'fio version 3 iolog', or a line {_text(b','.join(_MSR_FIELDS))}"
    raise RefusedInput(
        f"{name}:1: line",
        _text(first),
        f"{remedy}; if it is a trace without such a line, name its format with --format",
    )


def _text(field: bytes) -> str:
    """A piece of a file as a message can show it."""
    shown = field.strip().decode("utf-8", "backslashreplace")
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


class _Reader:
    """Takes lines and collects operations. A format says what a line is."""

    format = ""
    unit_ns = 1  # of the times that it gives to `_add`
    timed = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = self.other_lines = self.left_out = self.trims = 0
        self._offsets, self._sizes, self._times = array("Q"), array("Q"), array("Q")
        self._kinds, self._numbers = array("B"), array("I")

    def read(self, first: bytes, rest: BinaryIO) -> None:
        raise NotImplementedError

    def trace(self) -> Trace:
        if not self._kinds:
            raise RefusedInput("trace", self.name, f"{self._nothing()}; give a trace with at least one")
        operations = np.zeros(len(self._kinds), OPERATION)
        operations["offset_bytes"] = self._offsets
        operations["bytes"] = self._sizes
        operations["kind"] = self._kinds
        operations["line"] = self._numbers
        times = np.asarray(self._times)
        since = times - times.min()
        latest = int(since.argmax())
        if int(since[latest]) > _NUMBER_MAX // self.unit_ns:
            remedy = "is more than 292 years after another line's; the trace is damaged, get it again"
            self._refuse(self._numbers[latest], "time", b"%d" % self._times[latest], remedy)
        operations["at_ns"] = since * np.uint64(self.unit_ns)
        return Trace(
            path=self.name,
            format=self.format,
            operations=operations,
            lines=self.lines,
            other_lines=self.other_lines,
            left_out=self.left_out,
            trims=self.trims,
            timed=self.timed,
        )

    def _nothing(self) -> str:
        return f"has no read, write or flush in its {format_count(self.lines, 'line')}"

    def _numbered(self, first: bytes, rest: BinaryIO) -> Iterator[tuple[int, bytes]]:
        yield 1, first
        for number, line in enumerate(iter(lambda: rest.readline(_LINE_MAX), b""), 2):
            if len(line) == _LINE_MAX:
                self._refuse(number, "line", line, f"must be shorter than {_LINE_MAX} bytes")
            if number % _OPERATIONS_A_CHECK == 0:
                what, remedy = f"{len(self._kinds)} operations and as many again", "split the trace"
                memory.require(len(self._kinds) * _OPERATION_BYTES, "trace", self.name, what, remedy)
            yield number, line

    def _add(self, line: int, kind: int, time: int, offset: int, size: int) -> None:
        self._kinds.append(kind)
        self._numbers.append(line)
        self._times.append(time)
        self._offsets.append(offset)
        self._sizes.append(size)

    def _number(self, line: int, field: str, text: bytes) -> int:
        if not text.isdigit() or len(text) > _DIGITS_MAX or int(text) > _NUMBER_MAX:
            self._refuse(line, field, text, "must be a whole number from 0 to 2^63 - 1")
        return int(text)

    def _length(self, line: int, field: str, text: bytes) -> int:
        return self._number(line, field, text) or self._refuse(line, field, text, "must be at least 1 byte")

    def _refuse(self, line: int, field: str, text: bytes, remedy: str) -> NoReturn:
        raise RefusedInput(f"{self.name}:{line}: {field}", _text(text), remedy)


class _Msr(_Reader):
    """Microsoft Research Cambridge: comma-separated values, one operation a line, times in Windows file time."""

    format = "msr"
    unit_ns = 100

    def __init__(self, name: str, disk: int | None) -> None:
        super().__init__(name)
        self._disk = disk

    def read(self, first: bytes, rest: BinaryIO) -> None:
        wanted = self._disk
        host = b""
        kinds = {b"Read": READ, b"Write": WRITE, b"read": READ, b"write": WRITE}
        for line, text in self._numbered(first, rest):
            self.lines = line
            fields = text.strip().split(b",")
            if len(fields) != len(_MSR_FIELDS):
                if not text.strip():
                    self.other_lines += 1
                    continue
                columns = _text(b",".join(_MSR_FIELDS))
                self._refuse(line, "line", text, f"must have the {len(_MSR_FIELDS)} fields {columns}")
            if line == 1 and fields[0].lower() == b"timestamp":
                if [field.strip().lower() for field in fields] != [field.lower() for field in _MSR_FIELDS]:
                    self._refuse(line, "line", text, f"must be {_text(b','.join(_MSR_FIELDS))}, in this order")
                self.other_lines += 1
                continue
            kind = kinds.get(fields[3])
            if kind is None:
                self._refuse(line, "Type", fields[3], "must be Read or Write")
            time = self._number(line, "Timestamp", fields[0])
            disk = self._number(line, "DiskNumber", fields[2])
            offset = self._number(line, "Offset", fields[4])
            size = self._length(line, "Size", fields[5])
            self._number(line, "ResponseTime", fields[6])
            if disk != wanted:
                if self._disk is not None:
                    self.left_out += 1
                    continue
                if wanted is not None:
                    self._refuse(
                        line, "DiskNumber", fields[2], f"the lines above are of disk {wanted}; choose one with --disk"
                    )
                wanted = disk
            if fields[1] != host:
                if host:
                    self._refuse(
                        line,
                        "Hostname",
                        fields[1],
                        f"the lines above are of the host {_text(host)}; split the trace by host",
                    )
                host = fields[1]
            self._add(line, kind, time, offset, size)

    def _nothing(self) -> str:
        return super()._nothing() if self._disk is None else f"has no operation of --disk {self._disk}"


class _Iolog(_Reader):
    """fio's iolog, versions 2 and 3.

    Version 2 gives times by `wait`, in microseconds after the last one; version 3 has a time in each line, which fio
    writes and replays in microseconds (iolog.c, `utime_since_now`).
    """

    unit_ns = 1000

    def __init__(self, name: str, file: str | None) -> None:
        super().__init__(name)
        self._file = None if file is None else file.encode()

    def read(self, first: bytes, rest: BinaryIO) -> None:
        versions = {b"fio version 2 iolog": 2, b"fio version 3 iolog": 3}
        version = versions.get(first.strip())
        if version is None:
            self._refuse(1, "line", first, "must be 'fio version 2 iolog' or 'fio version 3 iolog'")
        self.format = f"iolog v{version}"
        self.timed = version == 3
        stamped = version == 3
        kinds = {b"read": READ, b"write": WRITE, b"sync": FLUSH, b"datasync": FLUSH}
        shape = "FILE ACTION, or FILE ACTION OFFSET LENGTH" + (", after a time" if stamped else "")
        actions = "add, open, close, read, write, trim, sync, datasync" + ("" if stamped else ", wait")
        wanted = self._file
        time = 0
        for line, text in self._numbered(first, rest):
            self.lines = line
            fields = text.split()
            if line == 1 or not fields:
                self.other_lines += 1
                continue
            if stamped:
                time = self._number(line, "timestamp", fields.pop(0))
            if len(fields) not in (2, 4):
                self._refuse(line, "line", text, f"must be {shape}")
            file, action = fields[:2]
            flushes = kinds.get(action) == FLUSH
            offset = length = 0
            if len(fields) == 4:
                offset = self._number(line, "offset", fields[2])
                length = self._number(line, "length", fields[3])
            elif action in (b"add", b"open", b"close"):
                self.other_lines += 1
                continue
            elif not flushes:
                self._refuse(
                    line, "action", action, f"must be one of {actions}; all but the first three need OFFSET and LENGTH"
                )
            if action == b"wait" and not stamped:
                self.other_lines += 1
                self.timed = True
                time += offset
                if time > _NUMBER_MAX:
                    self._refuse(line, "offset", fields[2], "all waits together must be at most 2^63 - 1 microseconds")
                continue
            if action == b"wait":
                self._refuse(
                    line, "action", action, "is not allowed in version 3, where each line has a time; remove the line"
                )
            if action not in kinds and action != b"trim":
                self._refuse(line, "action", action, f"must be one of {actions}")
            if file != wanted:
                if self._file is not None:
                    self.left_out += 1
                    continue
                if wanted is not None:
                    self._refuse(
                        line, "file", file, f"the lines above are of the file {_text(wanted)}; choose one with --file"
                    )
                wanted = file
            if not flushes and length == 0:
                self._refuse(line, "length", fields[3], "must be at least 1 byte")
            if action == b"trim":
                self.trims += 1
            elif flushes:
                self._add(line, FLUSH, time, 0, 0)
            else:
                self._add(line, kinds[action], time, offset, length)

    def _nothing(self) -> str:
        return super()._nothing() if self._file is None else f"has no operation of --file {_text(self._file)}"
