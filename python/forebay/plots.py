# SPDX-License-Identifier: Apache-2.0
"""Plots of results, as PNG files."""

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forebay.files import writing
from forebay.units import format_ns, format_rate

BLUE, ORANGE, GREY = "#1f6f9f", "#d9822b", "#5a6570"
_PERCENTILES = ("1.000000", "10.000000", "50.000000", "90.000000", "99.000000", "99.900000")


def plot_search(document: dict[str, Any], path: Path) -> None:
    """Draws the frontier of each level, the latency percentiles, and the bytes read beside the bytes needed."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(13, 4.2), width_ratios=(5, 4, 2), layout="constrained", dpi=130
    )
    _draw_frontier(left, document["frontier"])
    _draw_latency(middle, document["clat_ns"])
    _draw_bytes(right, document)
    figure.suptitle(
        f"Breadth-first search, {document['vertices']:,} vertices and {document['edges']:,} edges read from a drive: "
        f"{format_ns(document['seconds'] * 1e9)}, {format_rate(document['iops'])} IOPS",
        fontsize=12,
        fontweight="bold",
    )
    setting = f"{', '.join(document['drives'])}; threads on {document['device']}"
    figure.text(0.995, -0.02, setting, ha="right", fontsize=8, color=GREY)
    save_figure(figure, path)


def plot_levels(document: dict[str, Any], path: Path) -> None:
    """Draws the time, the frontier and the bytes needed of each level, of the first trial of a search."""
    trial = document["trials"][0]
    levels = trial["levels"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", dpi=130)
    _draw_levels(left, [level["seconds"] * 1e3 for level in levels], levels)
    label(left, "Time of each level", "distance from the source", "ms")
    _draw_frontier(middle, trial["frontier"])
    needed = [level["entries"] * document["entry_bytes"] / 2**20 for level in levels]
    _draw_levels(right, needed, levels)
    label(right, "Bytes needed in each level", "distance from the source", "MiB")
    figure.suptitle(
        f"Breadth-first search, {document['vertices']:,} vertices and {document['edges']:,} edges: "
        f"{format_ns(trial['seconds'] * 1e9)}",
        fontsize=12,
        fontweight="bold",
    )
    place = ", ".join([document["memory"], *document["drives"]])
    setting = f"from {trial['source']}; {place}; threads on {document['device']}; orange: searched from below"
    figure.text(0.995, -0.02, setting, ha="right", fontsize=8, color=GREY)
    save_figure(figure, path)


def _draw_levels(axes: Axes, values: list[float], levels: list[dict[str, Any]]) -> None:
    colours = [ORANGE if level["from_below"] else BLUE for level in levels]
    bars = axes.bar(range(len(values)), values, color=colours)
    axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=7, padding=2, color=GREY)
    axes.set_ylim(0, max(values, default=0) * 1.15 or 1)
    axes.set_xticks(range(len(values)))


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure as a PNG file, makes the folder of that, and closes the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with writing("--plot", path) as file:
            figure.savefig(file, format="png", bbox_inches="tight")
    finally:
        plt.close(figure)


def figure_bytes(figure: Figure) -> bytes:
    """The bytes of a figure's PNG file; closes the figure."""
    try:
        out = io.BytesIO()
        figure.savefig(out, format="png", bbox_inches="tight")
        return out.getvalue()
    finally:
        plt.close(figure)


def _draw_frontier(axes: Axes, frontier: list[int]) -> None:
    bars = axes.bar(range(len(frontier)), frontier, color=BLUE)
    axes.bar_label(bars, [f"{size:,}" for size in frontier], fontsize=7, padding=2, color=GREY)
    axes.set_yscale("log")
    axes.set_ylim(0.7, max(frontier) * 3)
    axes.set_xticks(range(len(frontier)))
    label(axes, "Frontier of each level", "distance from the source", "vertices")


def _draw_latency(axes: Axes, latency: dict[str, Any]) -> None:
    values = [latency["percentile"][p] / 1000 for p in _PERCENTILES]
    names = [f"p{float(p):g}" for p in _PERCENTILES]
    bars = axes.barh(names, values, color=ORANGE)
    axes.bar_label(bars, [format_ns(value * 1000) for value in values], fontsize=8, padding=3, color=GREY)
    axes.set_xlim(0, max(values) * 1.25)
    axes.invert_yaxis()
    label(axes, "Latency of a read", "microseconds, from submission to the sight of the completion", "")


def _draw_bytes(axes: Axes, document: dict[str, Any]) -> None:
    values = [document["bytes_needed"] / 2**20, document["bytes_read"] / 2**20]
    bars = axes.bar(["needed", "read"], values, color=[GREY, BLUE], width=0.6)
    axes.bar_label(bars, [f"{value:.1f}" for value in values], fontsize=8, padding=2, color=GREY)
    axes.set_ylim(0, max(values) * 1.15)
    label(axes, f"Read amplification {document['read_amplification']:.1f}", "", "MiB")


def label(axes: Axes, title: str, x: str, y: str) -> None:
    """Gives a chart its title and the names of its axes, in the style of all charts."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
