# SPDX-License-Identifier: Apache-2.0
"""Runs of the program of a study, one for each point, each kept in a file so that a study can go on later."""

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from forebay.documents import read_json
from forebay.errors import OperationFailed, RefusedInput
from forebay.files import make_folder
from forebay.provenance import build_and_host
from forebay.study.grid import Drive
from forebay.study.program import OWN_COMMAND, Figures, NoFigureError, Program

ATTEMPTS_DEFAULT = 3
COUNT_MAX = 1000

_FORMAT = 2  # of the files of points; another one is measured anew
_PATIENCE_S = 5.0  # that an interrupted program gets to end by itself
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Point:
    """A drive, and what the program said on it.

    Attributes:
        drive: The drive.
        settings: The values of the program's settings.
        command: The words that were run.
        figures: The figures: of the run with the median value, if there were several. None if a run failed.
        values: The value of each run.
        attempts: How many runs were made; those whose drive did not keep its times were made again.
        error: Why there are no figures; None if there are.
        kept: Whether it was measured by an earlier study, and read from its file.
    """

    drive: Drive
    settings: Mapping[str, str]
    command: Sequence[str]
    figures: Figures | None
    values: Sequence[float] = ()
    attempts: int = 0
    error: str | None = None
    kept: bool = False

    @property
    def fidelity(self) -> str:
        """``ok``, ``exceeded`` or ``unknown``."""
        return "unknown" if self.figures is None else self.figures.fidelity

    @property
    def good(self) -> bool:
        """Whether it says something of the drive: the run succeeded, was not found wrong, and the drive kept time."""
        return self.figures is not None and self.fidelity == "ok" and self.figures.verified is not False

    @property
    def request_bytes(self) -> float | None:
        """The mean bytes of a read; None if the program does not say."""
        found = self.figures
        return found.bytes / found.reads if found and found.bytes and found.reads else None

    def document(self) -> dict[str, Any]:
        """Returns what a JSON document says of it."""
        found = self.figures
        return {
            **self.drive.figures(self.request_bytes),
            "settings": dict(self.settings),
            "value": None if found is None else found.value,
            "seconds": None if found is None else found.seconds,
            "fidelity": self.fidelity,
            "verified": None if found is None else found.verified,
            "on_time": None if found is None else found.on_time,
            "device": None if found is None else found.device,
            "reads": None if found is None else found.reads,
            "bytes": None if found is None else found.bytes,
            "latency_ns": None if found is None or found.latency_ns is None else dict(found.latency_ns),
            "values": list(self.values),
            "attempts": self.attempts,
            "error": self.error,
            "command": list(self.command),
        }


class Runner:
    """Measures points. It may be used by one thread at a time."""

    def __init__(
        self,
        program: Program,
        *,
        folder: Path | None = None,
        repeat: int = 1,
        attempts: int = ATTEMPTS_DEFAULT,
    ) -> None:
        """Checks the numbers and makes the folder.

        Args:
            program: What to run.
            folder: Where the points are kept, a file each; it is made. None to keep nothing.
            repeat: How many runs a point is the median of.
            attempts: How often each of them is made at most, until its drive keeps its times.

        Raises:
            RefusedInput: A number is out of range, or the folder cannot be made.
        """
        for field, value in (("repeat", repeat), ("attempts", attempts)):
            if not 1 <= value <= COUNT_MAX:
                raise RefusedInput(field, value, f"must be 1 to {COUNT_MAX}")
        self._program, self._repeat, self._attempts = program, repeat, attempts
        self._folder = folder
        if folder is not None:
            make_folder("folder", folder)

    def measure(self, drive: Drive, settings: Mapping[str, str]) -> Point:
        """Runs the program on a drive, or reads what an earlier run said.

        Args:
            drive: The drive.
            settings: The values of the program's settings.

        Returns:
            The point. A run that fails is a point with an error.

        Raises:
            RefusedInput: The program cannot be started, or the file of the point cannot be written.
        """
        command = self._program.words(drive.uri, settings)
        file = None if self._folder is None else self._folder / f"{self._key(command)}.json"
        if file is not None and (figures := _read_point(file)) is not None:
            return Point(drive, settings, command, figures[0], figures[1], figures[2], kept=True)
        point = self._run_all(drive, settings, command)
        if file is not None and point.good:
            _write_point(file, point)
        return point

    def _key(self, command: Sequence[str]) -> str:
        """A name for all that a point depends on: what is run, by which build, on which machine, and what is read."""
        program = {**dataclasses.asdict(self._program), "command": list(command)}
        whole = {"format": _FORMAT, "program": program, "repeat": self._repeat, **build_and_host()}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:24]

    def _run_all(self, drive: Drive, settings: Mapping[str, str], command: Sequence[str]) -> Point:
        runs: list[Figures] = []
        attempts = 0
        try:
            for _ in range(self._repeat):
                for _ in range(self._attempts):
                    attempts += 1
                    figures = self._program.figures(run_once(command, self._program.timeout_s, os.environ))
                    if figures.fidelity != "exceeded":
                        break
                runs.append(figures)
                if figures.fidelity != "ok":
                    return Point(drive, settings, command, figures, [one.value for one in runs], attempts)
        except (OperationFailed, NoFigureError) as failed:
            return Point(drive, settings, command, None, [one.value for one in runs], attempts, str(failed))
        middle = statistics.median_low(one.value for one in runs)
        figures = next(one for one in runs if one.value == middle)
        if any(one.verified is False for one in runs):
            figures = dataclasses.replace(figures, verified=False)
        return Point(drive, settings, command, figures, [one.value for one in runs], attempts)


def run_once(command: Sequence[str], timeout_s: float, environment: Mapping[str, str]) -> Any:  # noqa: ANN401
    """Runs a command and returns the JSON document that it prints.

    Args:
        command: The words. The word ``forebay`` at the start stands for the command of this package.
        timeout_s: Seconds after which it is ended.
        environment: Its environment.

    Returns:
        The document.

    Raises:
        RefusedInput: The command cannot be started.
        OperationFailed: It failed, took too long, or printed no JSON document.
    """
    words = [sys.executable, "-m", "forebay", *command[1:]] if command[0] == OWN_COMMAND else list(command)
    with tempfile.NamedTemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            # A session of its own: what it starts ends with it.
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environment), start_new_session=True
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise RefusedInput("command", command[0], f"cannot be run: {why}; name a program that can") from None
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise OperationFailed(f"did not end within {timeout_s:g} s; raise --timeout") from None
        finally:
            _end(process)
        if status:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            said = _last_line(err)
            raise OperationFailed(f"{how}: {said}" if said else how)
        try:
            return read_json("standard output", Path(out.name), "print one JSON document")
        except RefusedInput as refused:
            raise OperationFailed(f"standard output {refused.remedy}") from None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends what is left of a process and of those that it started: first asks, as Ctrl-C does."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(stream: IO[bytes]) -> str:
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _read_point(file: Path) -> tuple[Figures, list[float], int] | None:
    """What is in the file of a point; None if there is none, or none that is whole."""
    try:
        found = json.loads(file.read_bytes())
        figures = Figures(**found["figures"])
        return figures, list(found["values"]), int(found["attempts"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_point(file: Path, point: Point) -> None:
    if point.figures is None:
        return
    whole = {
        "drive": point.drive.uri,
        "command": list(point.command),
        "figures": dataclasses.asdict(point.figures),
        "values": list(point.values),
        "attempts": point.attempts,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **build_and_host(),
    }
    part = file.with_suffix(".part")
    try:
        part.write_text(json.dumps(whole, indent=1) + "\n")
        part.replace(file)  # whole or not at all, however this process ends
    except OSError as error:
        raise OperationFailed(f"{file}: cannot be written: {error.strerror or error}") from error
