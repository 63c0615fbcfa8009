# SPDX-License-Identifier: Apache-2.0
"""What follows from the points: the model, the knee, the drive that suffices, and what the next faster one brings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.study.model import COMPUTE, Model, fit
from forebay.study.runner import Point
from forebay.units import format_bandwidth, format_ns, format_rate

TOLERANCE_DEFAULT = 0.05
MODEL_ERROR_MAX = 0.15  # beyond it the program is not of the model's form

_TERMS = ("iops", "link", "latency")
_AXIS_OF = {"iops": "iops", "link": "link_bytes_per_second", "latency": "latency_us"}
# How a knee is shown: the name of its axis, its value, and whether a smaller value is faster.
_SHOWN: dict[str, tuple[str, Callable[[float], str], bool]] = {
    "iops": ("IOPS", format_rate, False),
    "link_bytes_per_second": ("link", format_bandwidth, False),
    "latency_us": ("latency", lambda us: format_ns(us * 1000), True),
}
_BOUNDS = {
    COMPUTE: "what no drive of the grid changes",
    "iops": "the IOPS",
    "link": "the link",
    "latency": "the latency",
}
_OF_SETTING = "iodepth"  # commands in flight, of which each waits for a latency


@dataclass(frozen=True)
class Advice:
    """The drives that matter.

    Attributes:
        suffices: The point of the least drive whose time is within the tolerance of the best one.
        best: The point with the least time.
        following: The point of the next drive of the grid that is better in something, and worse in nothing; None if
            there is none.
        gain: By which factor that one is faster than the one that suffices; None likewise.
        tolerance: The tolerance, as a part of the best time.
    """

    suffices: Point
    best: Point
    following: Point | None
    gain: float | None
    tolerance: float

    def document(self) -> dict[str, Any]:
        """Returns what a JSON document says of it."""
        return {
            "tolerance": self.tolerance,
            "suffices": _named(self.suffices),
            "best": _named(self.best),
            "next": None if self.following is None else {**_named(self.following), "gain": self.gain},
        }


def _named(point: Point) -> dict[str, Any]:
    return {"drive": point.drive.uri, "seconds": _seconds(point)}


def _seconds(point: Point) -> float:
    if point.figures is None:
        raise ValueError(f"the point of {point.drive.uri} has no figures")
    return point.figures.seconds


def demands(points: Sequence[Point]) -> dict[str, list[float]]:
    """Returns what each point asks of the model's terms.

    Args:
        points: The points.

    Returns:
        For ``iops`` the seconds of a command, for ``link`` those of a byte, for ``latency`` the least latency in
        seconds: 0 where the drive does not bound it. If ``iodepth`` is varied, ``latency`` is that of one of so many
        commands in flight.
    """
    found: dict[str, list[float]] = {name: [] for name in _TERMS}
    deep = {point.settings.get(_OF_SETTING, "") for point in points}
    depths = [float(point.settings[_OF_SETTING]) if len(deep) > 1 else 1.0 for point in points]
    for point, depth in zip(points, depths, strict=True):
        rate, link, latency = (
            point.drive.iops(point.request_bytes),
            point.drive.link_bytes_per_second,
            point.drive.latency_us,
        )
        found["iops"].append(1 / rate if rate else 0.0)
        found["link"].append(1 / link if link else 0.0)
        found["latency"].append((latency or 0.0) / 1e6 / depth)
    return found


def model_of(points: Sequence[Point]) -> Model | None:
    """Fits the model to points.

    Args:
        points: The points, all of which must be good.

    Returns:
        The model; None if there is no point.
    """
    return fit([_seconds(point) for point in points], demands(points)) if points else None


def knee_document(model: Model, latency_us: float | None = None) -> dict[str, Any] | None:
    """Returns what a JSON document says of the knees of a model, in the units of the axes.

    A knee has ``value``, ``next_bound``, ``at_least`` and ``at_most``. ``value`` and ``next_bound`` are null if the
    points do not show both sides of the knee; one of the others then says on which side it lies.

    Args:
        model: The model.
        latency_us: The latency of the drive, if the points differ in the commands in flight; else None. The knee of
            the latency is then a number of these, ``iodepth``.

    Returns:
        The knees, by the axis; None if nothing that the model knows was varied.
    """
    shown: dict[str, Any] = {}
    for term in _TERMS:
        knee = model.knee(term)
        if knee is None:
            continue
        key, per_demand = _AXIS_OF[term], 1.0
        if term == "latency" and latency_us is not None:
            key, per_demand = "iodepth", latency_us / 1e6
        elif term == "latency":
            shown[key] = {
                "value": _scaled(knee.demand),
                "next_bound": knee.next_bound,
                "at_least": _scaled(knee.at_least),
                "at_most": _scaled(knee.at_most),
            }
            continue
        shown[key] = {  # a rate, or a depth: the smaller the demand, the larger it is
            "value": _inverse(per_demand, knee.demand),
            "next_bound": knee.next_bound,
            "at_least": _inverse(per_demand, knee.at_most),
            "at_most": _inverse(per_demand, knee.at_least),
        }
    return shown or None


def _scaled(demand: float | None) -> float | None:
    return None if demand is None else demand * 1e6


def _inverse(per_demand: float, demand: float | None) -> float | None:
    return per_demand / demand if demand else None


def knee_lines(knee: Mapping[str, Any] | None) -> list[str]:
    """Says the knees in words, a sentence each."""
    return [_depth_line(found) if key == "iodepth" else _knee_line(key, found) for key, found in (knee or {}).items()]


def _knee_line(key: str, found: Mapping[str, Any]) -> str:
    name, show, less_is_faster = _SHOWN[key]
    better, worse = ("below", "above") if less_is_faster else ("above", "below")
    if found["value"] is not None:
        slower = f"with slower drives the {name} bounds the program"
        return f"knee: {name} {show(found['value'])}; {slower}, with faster ones {_BOUNDS[found['next_bound']]}"
    limit = show(found["at_least"] or found["at_most"])
    if (found["at_least"] is not None) == less_is_faster:
        return f"knee: {name} {worse} {limit}; the {name} bounds no point of the grid"
    return f"knee: {name} {better} {limit}; the {name} bounds every point of the grid"


def _depth_line(found: Mapping[str, Any]) -> str:
    if found["value"] is not None:
        return f"knee: iodepth {found['value']:.3g}; with fewer commands in flight latency bounds the rate"
    if found["at_least"] is not None:
        return f"knee: iodepth above {found['at_least']:.3g}; latency bounds the rate at every depth"
    return f"knee: iodepth below {found['at_most']:.3g}; latency bounds the rate at no depth"


def speed_key(point: Point) -> tuple[float, ...]:
    """Orders points by what their drives can do: rate, link, latency, channels. A drive without a bound is last."""
    drive = point.drive
    return (
        drive.iops(point.request_bytes) or math.inf,
        drive.link_bytes_per_second or math.inf,
        -(drive.latency_us or 0.0),
        drive.channels or 0,
    )


def _faster(point: Point, other: Point) -> bool:
    """Whether the drive of a point is better than another one in something, and worse in nothing."""
    pairs = list(zip(speed_key(point), speed_key(other), strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def advise(points: Sequence[Point], tolerance: float = TOLERANCE_DEFAULT) -> Advice | None:
    """Chooses drives.

    Args:
        points: The points, all of which must be good.
        tolerance: By which part of the best time a drive that suffices may be slower.

    Returns:
        The choice; None if there is no point.
    """
    if not points:
        return None
    ordered = sorted(points, key=speed_key)
    best = min(ordered, key=_seconds)
    at = next(at for at, point in enumerate(ordered) if _seconds(point) <= _seconds(best) * (1 + tolerance))
    suffices = ordered[at]
    following = next((point for point in ordered[at + 1 :] if _faster(point, suffices)), None)
    gain = None if following is None else _seconds(suffices) / _seconds(following)
    return Advice(suffices, best, following, gain, tolerance)


def least_with_p99(points: Sequence[Point], p99_us: float) -> Point | None:
    """Finds the least drive that is fast enough.

    Args:
        points: The points, all of which must be good.
        p99_us: The largest 99th percentile of the latency that is allowed, in microseconds.

    Returns:
        The point; None if none meets it. An open loop that did not keep up does not meet it.
    """
    meeting = [
        point
        for point in sorted(points, key=speed_key)
        if point.figures
        and point.figures.latency_ns
        and point.figures.latency_ns["p99"] <= p99_us * 1000
        and point.figures.on_time is not False
    ]
    return meeting[0] if meeting else None
