# SPDX-License-Identifier: Apache-2.0
"""Charts of the transfer suite: bars of workloads and modes, sweeps, and series of jobs."""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from forebay.plots import BLUE, GREY, ORANGE, label
from forebay.transfer.measured import GROUPS, Arm, Results, Row, Spread
from forebay.transfer.runs import STUDY_MODES
from forebay.units import format_ns

_GREEN, _PURPLE, _BROWN, _PALE = "#4f9d69", "#8a6bb1", "#b08968", "#c9ced6"
# What a bar is made of, from below: of a traced run, and of a run that was not traced.
TRACED_PARTS = {
    "kernels": BLUE,
    "copies": ORANGE,
    "allocation": _GREEN,
    "host": _PURPLE,
    "calls": _BROWN,
    "unattributed": _PALE,
}
PLAIN_PARTS = {"kernels": BLUE, "allocation": _GREEN, "rest": "white"}
_REST = "copies and all else, not traced apart"
_COLUMNS, _WIDE, _HIGH, _DPI = 4, 3.6, 2.9, 120
_MODES_MAX = 16
_RANGE_MAX = 4  # up to this factor between medians, an axis begins at zero
_LINES = ("o-", "s--", "^-", "v--", "D-", "x--")
_PARAMETERS = {"blocks": "blocks", "threads": "threads of a block", "tile": "tile", "stages": "stages"}


def charts(results: Results) -> Iterator[tuple[str, str, Figure]]:
    """Each chart with the name of its file, and what it shows."""
    for size in reversed(results.sizes):
        for group in GROUPS:
            if panels := _panels(results, size, group):
                yield f"bars-{size}-{group}.png", f"Times at size {size}, group {group}", _bars(panels, size, group)
    for workload, parameter in dict.fromkeys((row.workload, row.parameter) for row in results.sweeps.values()):
        for size, by_mode in results.swept(workload, parameter):
            words = f"Sweep of {parameter}, {workload} at {size}"
            yield f"sweep-{workload}-{parameter}-{size}.png", words, _sweep(words, parameter, by_mode)
    for series, arms in series_of(results).items():
        workload, size, jobs, allocation = series
        words = f"{jobs} jobs of {workload} at {size}" + (f", allocation {allocation}" if allocation else "")
        name = "-".join(str(part) for part in ("jobs", workload, size, jobs, allocation) if part)
        yield f"{_as_file(name)}.png", words, _jobs(words, arms)


def series_of(results: Results) -> dict[tuple[Any, ...], list[Arm]]:
    """The arms that ran the same series of jobs, with times."""
    found: dict[tuple[Any, ...], list[Arm]] = {}
    for arm in results.arms.values():
        if arm.seconds:
            found.setdefault(arm.key[1:], []).append(arm)
    return found


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows with the study's modes first, in its order, and the others by name."""
    modes = list(STUDY_MODES)
    return sorted(rows, key=lambda row: (modes.index(row.mode) if row.mode in modes else len(modes), row.mode))


def _panels(results: Results, size: str, group: str) -> dict[str, list[Row]]:
    """Timed rows by workload, or by workload and launch where there are several."""
    found: dict[tuple[str, object], list[Row]] = {}
    for workload in results.of_group(group):
        for row in results.rows.values():
            if (row.workload, row.size) == (workload, size) and row.timed:
                found.setdefault((workload, row.key[3]), []).append(row)
    names = [workload for workload, _ in found]
    panels = {}
    for (workload, _), rows in found.items():
        shape = rows[0].shape
        launch = f", {shape['blocks']} x {shape['threads']}, tile {shape['tile']}, {shape['stages']} stages"
        panels[workload + (launch if names.count(workload) > 1 else "")] = in_order(rows)[:_MODES_MAX]
    return panels


def _bars(panels: dict[str, list[Row]], size: str, group: str) -> Figure:
    columns = min(_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines,
        columns,
        figsize=(max(_WIDE * columns, 2 * _WIDE), _HIGH * lines + 0.7),
        layout="constrained",
        dpi=_DPI,
        squeeze=False,
    )
    flat = list(axes.flat)
    for place, (name, rows) in zip(flat, panels.items(), strict=False):
        _panel(place, name, rows)
    for place in flat[len(panels) :]:
        place.set_axis_off()
    rows = [row for panel in panels.values() for row in panel]
    figure.suptitle(f"Times at size {size}, group {group}: the parts of a bar add up to its time", fontsize=12)
    figure.legend(handles=_legend(rows), loc="outside lower center", ncols=6, fontsize=9, frameon=False)
    return figure


def _legend(rows: Sequence[Row]) -> list[Any]:
    handles: list[Any] = []
    if any(row.traced for row in rows):
        handles += [Patch(color=colour, label=name) for name, colour in TRACED_PARTS.items()]
        handles.append(plt.Line2D([], [], color="black", linewidth=2, label="median without tracing"))
    else:
        handles += [Patch(color=PLAIN_PARTS[name], label=name) for name in ("kernels", "allocation")]
    if not all(row.traced for row in rows):
        handles.append(Patch(facecolor="white", edgecolor=GREY, hatch="///", label=_REST))
    return handles


def _panel(axes: Axes, name: str, rows: Sequence[Row]) -> None:
    heights = [max(row.traced["total"] if row.traced else 0.0, row.spread().median) for row in rows]
    unit, scale = _unit(max(heights))
    standard = next((row.spread().median for row in rows if row.mode == "standard"), None)
    for at, (row, height) in enumerate(zip(rows, heights, strict=True)):
        _stack(axes, at, row, scale)
        if standard and row.mode != "standard":
            change = 100 * (row.spread().median / standard - 1)
            axes.text(at, height * scale, f"{change:+.0f} %", ha="center", va="bottom", fontsize=8, color=GREY)
    axes.set_xticks(range(len(rows)), [row.mode for row in rows], rotation=35, ha="right", rotation_mode="anchor")
    axes.set_ylim(0, max(heights) * scale * 1.14)
    label(axes, name, "", unit)


def _stack(axes: Axes, at: int, row: Row, scale: float) -> None:
    median = row.spread().median * scale
    below = 0.0
    for name, colour in (TRACED_PARTS if row.traced else PLAIN_PARTS).items():
        high = _part(row, name) * scale
        hatch = {"hatch": "///", "edgecolor": GREY, "linewidth": 0.5} if name == "rest" else {}
        axes.bar(at, high, bottom=below, color=colour, width=0.72, **hatch)
        below += high
    if row.traced:
        axes.plot([at - 0.42, at + 0.42], [median, median], color="black", linewidth=2)


def _part(row: Row, name: str) -> float:
    """A part of a bar in seconds; of rows that were not traced from the medians of the runs."""
    if row.traced:
        return row.traced[name]
    kernels = row.spread("kernels").median
    allocation = row.spread("allocation").median + row.spread("release").median
    rest = max(0.0, row.spread().median - kernels - allocation)
    return {"kernels": kernels, "allocation": allocation, "rest": rest}[name]


def _unit(seconds: float) -> tuple[str, float]:
    """The unit for an axis up to this time, and what a second is in it."""
    return ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)


def _sweep(words: str, parameter: str, by_mode: dict[str, dict[int, Row]]) -> Figure:
    figure, places = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", dpi=_DPI)
    for axes, what, title in zip(places, ("total", "kernels"), ("Total time", "Time of the kernels"), strict=True):
        for style, (mode, rows) in zip(_LINES * len(by_mode), by_mode.items(), strict=False):
            values = sorted(rows)
            spreads = [rows[value].spread(what) for value in values]
            axes.errorbar(values, **_with_error(spreads), fmt=style, markersize=4, capsize=2, label=mode)
        axes.set_xscale("log", base=2)
        _from_zero_or_logarithmic(axes, [row.spread(what).median for rows in by_mode.values() for row in rows.values()])
        values = sorted({value for rows in by_mode.values() for value in rows})
        axes.set_xticks(values, [str(value) for value in values], rotation=35)
        axes.xaxis.set_minor_locator(NullLocator())
        label(axes, title, _PARAMETERS.get(parameter, parameter), "")
        axes.legend(fontsize=8, frameon=False)
    figure.suptitle(words, fontsize=12)
    return figure


def _from_zero_or_logarithmic(axes: Axes, medians: Sequence[float]) -> None:
    """Scales an axis of times so that a difference looks as large as it is."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _at: format_ns(value * 1e9)))
    if max(medians) < _RANGE_MAX * min(medians):
        axes.set_ylim(0, max(medians) * 1.3)
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _at: format_ns(value * 1e9)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _with_error(spreads: Sequence[Spread]) -> dict[str, Any]:
    medians = [spread.median for spread in spreads]
    below = [spread.median - spread.low for spread in spreads]
    above = [spread.high - spread.median for spread in spreads]
    return {"y": medians, "yerr": (below, above)}


def _jobs(words: str, arms: Sequence[Arm]) -> Figure:
    spreads = [Spread.of(arm.seconds) for arm in arms]
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(arms) + 1.4), layout="constrained", dpi=_DPI)
    unit, scale = _unit(max(spread.high for spread in spreads))
    medians = [spread.median * scale for spread in spreads]
    error = tuple([part * scale for part in parts] for parts in _with_error(spreads)["yerr"])
    axes.barh([arm.arm for arm in arms], medians, color=BLUE, height=0.65)
    axes.errorbar(medians, range(len(arms)), xerr=error, fmt="none", color="black", capsize=3)
    base = next((spread.median for arm, spread in zip(arms, spreads, strict=True) if arm.arm == "malloc"), None)
    for at, spread in enumerate(spreads):
        faster = f", {base / spread.median:.2f} x as fast as malloc" if base and arms[at].arm != "malloc" else ""
        text = f"{format_ns(spread.median * 1e9)}{faster}"
        axes.text(spread.high * scale, at, f"  {text}", va="center", fontsize=8, color=GREY)
    axes.set_xlim(0, max(spread.high for spread in spreads) * scale * 1.45)
    axes.invert_yaxis()
    label(axes, words, unit, "")
    return figure


def _as_file(name: str) -> str:
    """A name without what a folder would take for something else."""
    return "".join(character if character.isalnum() or character in "-_" else "_" for character in name)[:100]
