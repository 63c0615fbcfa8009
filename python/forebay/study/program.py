# SPDX-License-Identifier: Apache-2.0
"""The program of a study: its command, and where the figures are in the JSON document that it prints."""

import math
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.errors import RefusedInput
from forebay.files import reading
from forebay.study.grid import DRIVE_AXES, DRIVE_DEFAULT, Grid
from forebay.units import parse_duration

OWN_COMMAND = "forebay"  # as the first word: the command of this package, whatever PATH says
VALUES_ARE = ("seconds", "rate")
TIMEOUT_DEFAULT_S = 600.0

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DRIVE = "drive"
_FILE_MAX_BYTES = 1 << 20
_DIRECTIONS = ("read", "write")
_PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}
_PLACES = ("value", "reads", "bytes", "fidelity")


class NoFigureError(ValueError):
    """A document does not have what a study needs."""


@dataclass(frozen=True)
class Figures:
    """What a run said of itself.

    Attributes:
        value: The figure that is studied: seconds, or a rate.
        seconds: The time that the model is fitted to: the value, or 1 over the rate.
        reads: How many reads it made in that time; None if it does not say.
        bytes: How many bytes it read; None likewise.
        latency_ns: ``p50``, ``p99`` and ``p99.9`` of its reads and writes; None likewise.
        fidelity: ``ok`` or ``exceeded``; ``unknown`` if it does not say.
        verified: Whether its result was checked and is right; None if it was not checked.
        on_time: Whether an open loop kept up; None for other programs.
        device: The device whose threads submitted, ``cpu`` or ``cuda:N``; None if it does not say.
    """

    value: float
    seconds: float
    reads: float | None = None
    bytes: float | None = None
    latency_ns: Mapping[str, float] | None = None
    fidelity: str = "unknown"
    verified: bool | None = None
    on_time: bool | None = None
    device: str | None = None


@dataclass(frozen=True)
class Program:
    """A command that takes a drive URI and prints a JSON document.

    Places in the document are keys with dots between them, and numbers for members of lists: ``trials.0.seconds``.
    Without places, the documents of ``forebay bench``, ``replay``, ``demo`` and ``graph`` are read as they are, and of
    others ``seconds``, ``reads``, ``bytes`` or ``bytes_read``, ``fidelity`` and ``verified`` at the top.

    Attributes:
        command: The words. ``{drive}`` in a word stands for the URI, and other names for settings.
        value: The place of the value; empty: as above.
        value_is: ``seconds``, of which less is better, or ``rate``, of which more is better.
        reads: The place of the number of reads, likewise.
        bytes: The place of the number of bytes read, likewise.
        fidelity: The place of the fidelity, likewise.
        timeout_s: Seconds after which a run is ended, and counts as failed.
    """

    command: Sequence[str]
    value: str = ""
    value_is: str = "seconds"
    reads: str = ""
    bytes: str = ""
    fidelity: str = ""
    timeout_s: float = TIMEOUT_DEFAULT_S

    def check(self, grid: Grid) -> None:
        """Looks at the command and the places, and runs nothing.

        Args:
            grid: The grid, whose settings the command must use.

        Raises:
            RefusedInput: The command has no ``{drive}``, or a name that is no setting, or does not use one, or there is
                no such program.
        """
        shown = " ".join(self.command)
        if not self.command:
            raise RefusedInput("command", "", "is empty; give the program and its arguments behind --")
        used = {name for word in self.command for name in _PLACEHOLDER.findall(word)}
        if _DRIVE not in used:
            raise RefusedInput("command", shown, "has no {drive}; write it where the drive URI belongs")
        for name in sorted(used - {_DRIVE} - set(grid.settings)):
            raise RefusedInput("command", shown, f"has {{{name}}}, which nothing sets; vary it, or leave it out")
        for name in sorted(set(grid.settings) - used):
            raise RefusedInput("command", shown, f"does not use {{{name}}}, which is varied; write it into a word")
        name = self.command[0]
        if name != OWN_COMMAND and not _PLACEHOLDER.search(name) and shutil.which(name) is None:
            raise RefusedInput(
                "command", name, "is no program that can be run; check the path, and that it is executable"
            )
        if self.value_is not in VALUES_ARE:
            raise RefusedInput("value_is", self.value_is, f"must be {' or '.join(VALUES_ARE)}")
        for field in _PLACES:
            place = getattr(self, field)
            if place and not all(place.split(".")):
                raise RefusedInput(field, place, "must be keys with dots between them, such as trials.0.seconds")

    def words(self, drive: str, settings: Mapping[str, str]) -> list[str]:
        """Puts the command together.

        Args:
            drive: The URI of the drive.
            settings: The values of the settings.

        Returns:
            The words.
        """
        known = {_DRIVE: drive, **settings}
        return [_PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]), word) for word in self.command]

    def figures(self, document: Any) -> Figures:  # noqa: ANN401 (what JSON may be)
        """Reads a document that a run printed.

        Args:
            document: The document.

        Returns:
            The figures in it.

        Raises:
            NoFigureError: It has no value, or one that is not above 0.
        """
        if not isinstance(document, dict):
            raise NoFigureError("the JSON document is no object")
        found = _of_fio(document) if _is_fio(document) else _of_other(document)
        for field in _PLACES:
            if place := getattr(self, field):
                found[field] = _at(document, place)
        value = _number("value", found.get("value"))
        if value is None or not (math.isfinite(value) and value > 0):
            if value is None and _is_fio(document):
                raise NoFigureError("nothing completed in its time; let it run longer (--runtime)")
            shown = "no key seconds" if value is None else f"the value {value:g}, which is not above 0"
            raise NoFigureError(f"the JSON document has {shown}; say where the value is (--value)")
        fidelity = found.get("fidelity")
        verified, on_time, device = found.get("verified"), found.get("on_time"), found.get("device")
        return Figures(
            value,
            value if self.value_is == "seconds" else 1 / value,
            _number("reads", found.get("reads")),
            _number("bytes", found.get("bytes")),
            found.get("latency_ns"),
            fidelity if fidelity in ("ok", "exceeded") else "unknown",
            verified if isinstance(verified, bool) else None,
            on_time if isinstance(on_time, bool) else None,
            device if isinstance(device, str) else None,
        )


def _at(document: Any, place: str) -> Any:  # noqa: ANN401 (what JSON may be)
    found = document
    for key in place.split("."):
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise NoFigureError(f"the JSON document has no {place}: there is no {key!r}")
    return found


def _number(name: str, value: Any) -> float | None:  # noqa: ANN401 (what JSON may be)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoFigureError(f"the {name} in the JSON document is no number but {value!r:.40}")
    return float(value)


def _member(value: Any, key: str) -> Any:  # noqa: ANN401 (what JSON may be)
    return value.get(key) if isinstance(value, dict) else None


def _is_fio(document: dict[str, Any]) -> bool:
    jobs = document.get("jobs")
    return isinstance(jobs, list) and len(jobs) == 1 and isinstance(_member(document, "forebay"), dict)


def _of_fio(document: dict[str, Any]) -> dict[str, Any]:
    """A run of ``bench`` or ``replay`` may have a fixed length, and so its value is the time of one operation."""
    job, ours = document["jobs"][0], document["forebay"]
    sides = [side for side in (_member(job, name) for name in _DIRECTIONS) if _member(side, "total_ios")]
    operations = sum(side["total_ios"] for side in sides)
    seconds = _number("seconds", ours.get("seconds"))
    latencies = [
        {name: percentiles[key] for name, key in _PERCENTILES.items()}
        for side in sides
        if (percentiles := _member(_member(side, "clat_ns"), "percentile"))
    ]
    open_loop = ours.get("open_loop")
    return {
        "value": seconds / operations if seconds and operations else None,
        "reads": 1.0,
        "bytes": sum(side["io_bytes"] for side in sides) / operations if operations else None,
        "latency_ns": {name: max(one[name] for one in latencies) for name in _PERCENTILES} if latencies else None,
        "fidelity": ours.get("fidelity"),
        "verified": ours.get("verified"),
        "device": ours.get("device"),
        "on_time": None if open_loop is None else open_loop == "on time",
    }


def _of_other(document: dict[str, Any]) -> dict[str, Any]:
    trials = document.get("trials")
    trial = trials[0] if isinstance(trials, list) and trials and isinstance(trials[0], dict) else {}
    ours = document.get("forebay")

    def first(*names: str) -> Any:  # noqa: ANN401 (what JSON may be)
        places = ((part, name) for name in names for part in (document, trial))
        return next((part[name] for part, name in places if part.get(name) is not None), None)

    percentiles = _member(first("clat_ns"), "percentile")
    has_all = isinstance(percentiles, dict) and all(key in percentiles for key in _PERCENTILES.values())
    return {
        "value": first("seconds"),
        "reads": first("reads"),
        "bytes": first("bytes_read", "bytes"),
        "latency_ns": {name: percentiles[key] for name, key in _PERCENTILES.items()} if has_all else None,
        "fidelity": document.get("fidelity", _member(ours, "fidelity")),
        "verified": document.get("verified", _member(ours, "verified")),
        "device": document.get("device", _member(ours, "device")),
    }


@dataclass(frozen=True)
class Plan:
    """A program and the grid that it is run over."""

    program: Program
    grid: Grid


_KEYS = {"command", "timeout", "drive", "value_is", "grid", "vary", *_PLACES}


def load_plan(path: Path | str) -> Plan:
    """Reads a program and its grid from a TOML file.

    The keys are ``command``, a list of words, and, if wanted, ``drive`` (a URI or a list), ``value``, ``value_is``,
    ``reads``, ``bytes``, ``fidelity``, ``timeout`` (as in ``5m``), and the tables ``[grid]``, of keys of drive URIs,
    and ``[vary]``, of the program's settings. Values in these tables are lists.

    Args:
        path: The file.

    Returns:
        What it says. Nothing is checked yet but that it has the right keys and kinds of values.

    Raises:
        RefusedInput: The file cannot be read, or is not such a file.
    """
    with reading("program", path) as file:
        data = file.read(_FILE_MAX_BYTES + 1)
    if len(data) > _FILE_MAX_BYTES:
        raise RefusedInput("program", path, "is larger than 1 MiB, the limit; name a TOML file with a command")
    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise RefusedInput("program", path, f"is not TOML ({error}); see `forebay study --help`") from None
    for key in document:
        if key not in _KEYS:
            raise RefusedInput("program", path, f"has the key {key}; known are {', '.join(sorted(_KEYS))}")
    command = document.get("command")
    if command is None or not _are_texts(command):
        raise RefusedInput("program", path, "needs command, a list of words, such as ['./search', '{drive}']")
    texts = {key: document[key] for key in ("value_is", *_PLACES) if key in document}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise RefusedInput(key, text, f"must be a string in {path}")
    timeout = document.get("timeout", TIMEOUT_DEFAULT_S)
    program = Program(command, **texts, timeout_s=parse_duration("timeout", str(timeout)))
    drives = document.get("drive", [DRIVE_DEFAULT])
    drives = [drives] if isinstance(drives, str) else drives
    if not _are_texts(drives):
        raise RefusedInput("drive", drives, f"must be a drive URI or a list of them in {path}")
    axes, settings = (_table(path, document, name) for name in ("grid", "vary"))
    for name in axes:
        if name not in DRIVE_AXES:
            raise RefusedInput("grid", name, f"must be one of {', '.join(DRIVE_AXES)}")
    return Plan(program, Grid(drives, axes, settings))


def _are_texts(value: Any) -> bool:  # noqa: ANN401 (what TOML may be)
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _table(path: Path | str, document: dict[str, Any], name: str) -> dict[str, list[str]]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise RefusedInput(name, table, f"must be a table in {path}")
    for key, values in table.items():
        right = isinstance(values, list) and all(
            isinstance(one, str | int | float) and not isinstance(one, bool) for one in values
        )
        if not right or not values:
            raise RefusedInput(f"{name}.{key}", values, f"must be a list of values in {path}, such as ['20k', '50k']")
    return {key: [str(value) for value in values] for key, values in table.items()}
