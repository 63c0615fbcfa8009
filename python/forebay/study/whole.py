# SPDX-License-Identifier: Apache-2.0
"""A whole study: every point of a grid measured, and what follows from them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.errors import RefusedInput
from forebay.provenance import build_and_host
from forebay.study.advice import (
    TOLERANCE_DEFAULT,
    Advice,
    advise,
    knee_document,
    least_with_p99,
    model_of,
)
from forebay.study.grid import describe
from forebay.study.model import Model
from forebay.study.program import Plan
from forebay.study.runner import ATTEMPTS_DEFAULT, Point, Runner
from forebay.study.tax import measure_tax

_DEPTH = "iodepth"

Tell = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Curve:
    """Points that differ in their drives, or in the commands in flight, and in no other setting.

    Attributes:
        settings: The settings that they share.
        drive: The URI of their drive, if they differ in the commands in flight; else None.
        points: The points.
        model: The model fitted to those of them that are good; None if there is none.
    """

    settings: dict[str, str]
    drive: str | None
    points: Sequence[Point]
    model: Model | None

    def document(self) -> dict[str, Any]:
        """Returns what a JSON document says of it."""
        return {
            "settings": self.settings,
            "drive": self.drive,
            "model": None if self.model is None else self.model.figures(),
            "knee": self.knee(),
        }

    def knee(self) -> dict[str, Any] | None:
        """Returns the knees of the model, by the axis; None if there is none."""
        latency_us = None if self.drive is None else self.points[0].drive.latency_us
        return None if self.model is None else knee_document(self.model, latency_us)


@dataclass(frozen=True)
class Study:
    """What a study found.

    Attributes:
        plan: What was to be measured.
        points: The points.
        curves: The points that one model is fitted to each.
        advice: The drives that matter; None if there are several curves, or no good point.
        p99_us: The largest 99th percentile of the latency that was asked for, in microseconds; None if none was.
        meets_p99: The point of the least drive that meets it; None if none does.
        tax: What ``measure_tax`` found; None if it was not asked for.
        trace: The name of the trace whose replays were studied; None for other programs.
    """

    plan: Plan
    points: Sequence[Point]
    curves: Sequence[Curve]
    advice: Advice | None
    p99_us: float | None = None
    meets_p99: Point | None = None
    tax: dict[str, Any] | None = None
    trace: str | None = None

    @property
    def model(self) -> Model | None:
        """The model, if there is one curve."""
        return self.curves[0].model if len(self.curves) == 1 else None

    @property
    def verified(self) -> bool:
        """Whether each point is good, and a drive meets the latency that was asked for."""
        return all(point.good for point in self.points) and (self.p99_us is None or self.meets_p99 is not None)

    @property
    def fidelity(self) -> str:
        """``ok`` if each point is, else ``exceeded`` if one is, else ``unknown``."""
        found = {point.fidelity for point in self.points}
        return next(fidelity for fidelity in ("exceeded", "unknown", "ok") if fidelity in found)

    def document(self) -> dict[str, Any]:
        """Returns the JSON document, without its schema version."""
        modelled = {
            id(point): {"seconds": seconds, "bound": bound}
            for curve in self.curves
            if curve.model is not None
            for point, seconds, bound in zip(_good(curve.points), curve.model.seconds, curve.model.bounds, strict=True)
        }
        one = self.curves[0].document() if len(self.curves) == 1 else None
        return {
            "verified": self.verified,
            "fidelity": self.fidelity,
            "command": list(self.plan.program.command),
            "value_is": self.plan.program.value_is,
            "trace": self.trace,
            "points": [{**point.document(), "model": modelled.get(id(point))} for point in self.points],
            "model": one and one["model"],
            "knee": one and one["knee"],
            "curves": [curve.document() for curve in self.curves],
            "advice": None if self.advice is None else self.advice.document(),
            "p99_us": self.p99_us,
            "meets_p99": None if self.meets_p99 is None else self.meets_p99.drive.uri,
            "tax": self.tax,
            "forebay": {**build_and_host(), "processors": os.cpu_count()},
        }


def study(
    plan: Plan,
    *,
    folder: Path | None = None,
    repeat: int = 1,
    attempts: int = ATTEMPTS_DEFAULT,
    tolerance: float = TOLERANCE_DEFAULT,
    p99_us: float | None = None,
    tax: bool = False,
    trace: str | None = None,
    tell: Tell | None = None,
) -> Study:
    """Runs a program on every drive of a grid, and finds out what bounds it.

    The program runs in processes of its own, one after the other. All drives are looked at before the first run.

    Args:
        plan: The program and the grid.
        folder: A folder for the points. A later study with it measures only what is missing. None to keep nothing.
        repeat: How many runs a point is the median of.
        attempts: How often each of them is made at most, until its drive keeps its times.
        tolerance: By which part of the best time a drive that suffices may be slower.
        p99_us: The largest 99th percentile of the latency that is allowed, in microseconds; None for any.
        tax: Also measure the emulation tax, on the drive with the least time.
        trace: The name of the trace that the program replays; None for other programs.
        tell: Called before each run with what is run, how many points are done, and how many there are.

    Returns:
        What it found. A run that fails is a point with an error.

    Raises:
        RefusedInput: The program, the grid, a drive or another argument is refused. Nothing has run then.
        OperationFailed: A file in the folder cannot be written, or a drive cannot be looked at.
    """
    plan.grid.check()
    plan.program.check(plan.grid)
    if not 0 <= tolerance < 1:
        raise RefusedInput("tolerance", tolerance, "must be at least 0 and less than 1: a part of the best time")
    if p99_us is not None and not p99_us > 0:
        raise RefusedInput("p99_us", p99_us, "must be more than 0 microseconds")
    runner = Runner(plan.program, folder=folder, repeat=repeat, attempts=attempts)
    drives = describe(plan.grid.uris())
    combinations = plan.grid.combinations()
    count = len(drives) * len(combinations)
    points: list[Point] = []
    for drive in drives:
        for settings in combinations:
            if tell is not None:
                named = ", ".join(f"{name}={value}" for name, value in settings.items())
                tell(f"{drive.uri}{f' with {named}' if named else ''}", len(points), count)
            points.append(runner.measure(drive, settings))
    curves = _curves(points)
    good = _good(points)
    chosen = advise(good, tolerance) if len(curves) == 1 and len(drives) > 1 else None
    taxed = None
    if tax and good:
        fastest = min(good, key=lambda point: point.figures.seconds if point.figures else 0.0)
        if tell is not None:
            tell(f"the emulation tax, on {fastest.drive.uri}", count, count)
        taxed = measure_tax(plan.program, fastest.drive, fastest.settings)
    meeting = None if p99_us is None else least_with_p99(good, p99_us)
    return Study(plan, points, curves, chosen, p99_us, meeting, taxed, trace)


def _good(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if point.good]


def _curves(points: Sequence[Point]) -> list[Curve]:
    """Points of one program over drives; if the commands in flight vary, of one drive over these."""
    deep = len({point.settings.get(_DEPTH) for point in points}) > 1
    groups: dict[tuple[str | None, tuple[tuple[str, str], ...]], list[Point]] = {}
    for point in points:
        shared = tuple((name, value) for name, value in point.settings.items() if not (deep and name == _DEPTH))
        groups.setdefault((point.drive.uri if deep else None, shared), []).append(point)
    found = []
    for (drive, shared), members in groups.items():
        ordered = sorted(members, key=lambda point: float(point.settings[_DEPTH])) if deep else members
        found.append(Curve(dict(shared), drive, ordered, model_of(_good(ordered))))
    return found
