# SPDX-License-Identifier: Apache-2.0
"""The charts of a study."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from forebay.plots import BLUE, GREY, ORANGE, figure_bytes, label, save_figure
from forebay.study.grid import differences
from forebay.study.model import Model
from forebay.study.runner import Point
from forebay.study.whole import Curve, Study
from forebay.study.words import verdict
from forebay.units import format_bandwidth, format_ns, format_rate

_WIDE, _HIGH, _DPI = 11, 4.2, 130
_STEPS = 200
_PERCENTILES = (("p50", "o-"), ("p99", "s--"))
_NAME_MAX = 48
_LEGEND_MAX = 9

# The axes of charts by the term of the model: the label, how values are shown, and the value of a point's drive.
_AXES: dict[str, tuple[str, Callable[[float], str], Callable[[Point], float | None]]] = {
    "iops": ("IOPS of the drive", format_rate, lambda point: point.drive.iops(point.request_bytes)),
    "latency": ("least latency of the drive", lambda us: format_ns(us * 1000), lambda point: point.drive.latency_us),
    "link": ("link of the drive", format_bandwidth, lambda point: point.drive.link_bytes_per_second),
}


def draw_file(study: Study, path: Path) -> None:
    """Draws a study into a PNG file."""
    save_figure(draw(study), path)


def draw_bytes(study: Study) -> bytes:
    """Draws a study, and returns the bytes of a PNG file."""
    return figure_bytes(draw(study))


def draw(study: Study) -> Figure:
    """Draws the times over the drives with the model, and the latencies where there are any."""
    deep = any(curve.drive is not None for curve in study.curves)
    timed = [point for point in study.points if point.figures and point.figures.latency_ns]
    wide = 2 if timed and not deep else 1
    figure, axes = plt.subplots(
        1, wide, figsize=(_WIDE if wide > 1 else _WIDE * 0.62, _HIGH), layout="constrained", dpi=_DPI, squeeze=False
    )
    if deep:
        _draw_latency_over_rate(axes[0, 0], study.curves)
    else:
        _draw_times(axes[0, 0], study)
        if timed:
            _draw_latencies(axes[0, 1], study)
    command = " ".join(study.plan.program.command)
    figure.suptitle(_short(command, 110), fontsize=10, fontweight="bold")
    points = f"{len(study.points)} points, fidelity: {study.fidelity}; {verdict(study)}"
    figure.text(0.995, -0.02, points, ha="right", fontsize=8, color=GREY)
    return figure


def _axis(study: Study) -> str | None:
    """What the horizontal axis is: the first of what varies over the drives of the grid."""
    for name, (_, _, value) in _AXES.items():
        values = [value(point) for point in study.points]
        if len({one for one in values if one}) > 1 and all(values):
            return name
    return None


def _draw_times(axes: Axes, study: Study) -> None:
    name = _axis(study)
    if name is None:
        _draw_bars(axes, study, lambda point: point.figures.seconds if point.figures else None, "Time on each drive")
        return
    words, show, value = _AXES[name]
    _logarithmic(axes, show, _show_seconds)
    shown = [point for point in study.points if point.figures is not None]
    for curve in study.curves:
        if curve.model is not None:
            _draw_model(axes, name, curve.model, curve.points)
    for good, colour, title in ((True, BLUE, "fidelity: ok"), (False, ORANGE, "not ok: of no drive")):
        part = [point for point in shown if point.good is good]
        if part:
            xs = [value(point) or math.nan for point in part]
            ys = [point.figures.seconds if point.figures else math.nan for point in part]
            axes.plot(xs, ys, "o", color=colour, label=title, markerfacecolor=colour if good else "none", zorder=3)
    if study.model is not None and (knee := study.model.knee(name)) and knee.demand:
        at = knee.demand * 1e6 if name == "latency" else 1 / knee.demand
        axes.axvline(at, color=GREY, linestyle=":", label=f"knee: {show(at)}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
    label(axes, f"Time of {_of_what(study)}", words, "")


def _draw_model(axes: Axes, name: str, model: Model, points: Sequence[Point]) -> None:
    """A line for each combination of the other demands, as the points have them."""
    good = [point for point in points if point.good]
    columns = model.demands
    others = [key for key in columns if key != name]
    combinations = list(dict.fromkeys(tuple(columns[key][at] for key in others) for at in range(len(good))))
    own = [demand for demand in columns.get(name, ()) if demand > 0]
    if not own:
        return
    line = np.geomspace(min(own), max(own), _STEPS)
    for at, combination in enumerate(combinations):
        fixed = dict(zip(others, combination, strict=True))
        ys = [model.predict({**fixed, name: float(demand)})[0] for demand in line]
        xs = line * 1e6 if name == "latency" else 1 / line
        axes.plot(xs, ys, "-", color=GREY, linewidth=1.2, label=None if at else "model", zorder=1)


def _draw_latencies(axes: Axes, study: Study) -> None:
    name = _axis(study)
    if name is None:
        _draw_bars(axes, study, _p99_us, "p99 of the latency on each drive", "microseconds")
    else:
        words, show, value = _AXES[name]
        _logarithmic(axes, show, _show_us)
        good = sorted((point for point in study.points if point.good), key=lambda point: value(point) or 0.0)
        for colour, (percentile, style) in zip((BLUE, ORANGE), _PERCENTILES, strict=True):
            found = [(value(point) or math.nan, _latency_us(point, percentile)) for point in good]
            axes.plot([x for x, _ in found], [y for _, y in found], style[0], color=colour, label=percentile)
        label(axes, "Latency of a read or write", words, "")
    if study.p99_us is not None:
        axes.axhline(study.p99_us, color=GREY, linestyle=":", label=f"asked for: p99 {study.p99_us:g} us")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)


def _draw_bars(
    axes: Axes, study: Study, value: Callable[[Point], float | None], title: str, unit: str = "seconds"
) -> None:
    shown = [(point, found) for point in study.points if (found := value(point)) is not None]
    names = [_short(name, _NAME_MAX) for name in differences([point.drive.uri for point, _ in shown])[1]]
    colours = [BLUE if point.good else ORANGE for point, _ in shown]
    axes.bar(range(len(shown)), [found for _, found in shown], color=colours)
    axes.set_xticks(range(len(shown)), names, rotation=20, ha="right")
    label(axes, title, "", unit)


def _draw_latency_over_rate(axes: Axes, curves: Sequence[Curve]) -> None:
    _logarithmic(axes, format_rate, _show_us)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.85, max(len(curves), 1)))
    _, drives = differences([curve.drive or "" for curve in curves])
    for colour, curve, drive in zip(colours, curves, drives, strict=True):
        good = [point for point in curve.points if point.good and point.figures and point.figures.latency_ns]
        parts = [drive, *(f"{name}={value}" for name, value in curve.settings.items())]
        named = _short(", ".join(part for part in parts if part), _NAME_MAX)
        for percentile, style in _PERCENTILES:
            xs = [1 / point.figures.seconds for point in good if point.figures]
            ys = [_latency_us(point, percentile) for point in good]
            axes.plot(
                xs, ys, style, color=colour, markersize=4, label=f"{named}: {percentile}" if named else percentile
            )
    if len(curves) <= _LEGEND_MAX:
        axes.legend(fontsize=7, frameon=False)
    label(axes, "Latency against IOPS, a point for each iodepth", "IOPS reached", "")


def _logarithmic(axes: Axes, x: Callable[[float], str], y: Callable[[float], str]) -> None:
    for axis, show in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _at, show=show: show(value)))
        axis.set_minor_formatter(NullFormatter())


def _show_seconds(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def _show_us(microseconds: float) -> str:
    return format_ns(microseconds * 1000)


def _of_what(study: Study) -> str:
    """What a time is of: fio's documents say how long an operation takes, others how long the program does."""
    single = all(point.figures is None or point.figures.reads == 1 for point in study.points)
    return "an operation" if single else "the program"


def _latency_us(point: Point, percentile: str) -> float:
    found = point.figures
    return math.nan if found is None or found.latency_ns is None else found.latency_ns[percentile] / 1000


def _p99_us(point: Point) -> float | None:
    found = _latency_us(point, "p99")
    return None if math.isnan(found) else found


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
