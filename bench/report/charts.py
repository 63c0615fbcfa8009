# SPDX-License-Identifier: Apache-2.0
"""The charts of the performance page and of the README, as SVG. A hollow mark is a row whose fidelity is `exceeded`."""

import io
import re
from collections.abc import Callable, Iterable

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import LINK_GB_PER_S, WIDEST_LINK, Row, drive_rows, mode_rows, overlap_rows

# The same text, whatever fonts a machine has; and the same file, whenever it is written.
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "forebay", "font.family": "sans-serif"}


def _marks(axes: Axes, rows: list[Row], x: Iterable[float], y: Iterable[float], label: str) -> str:
    """Marks and a line; hollow where the drive was late. Returns the colour."""
    x, y = list(x), list(y)
    (line,) = axes.plot(x, y, "-", label=label, linewidth=1)
    for row, at, value in zip(rows, x, y, strict=True):
        face = "white" if row.fidelity == "exceeded" else line.get_color()
        axes.plot([at], [value], "o", color=line.get_color(), markerfacecolor=face, markersize=5)
    return line.get_color()


def _finish(axes: Axes, title: str) -> None:
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    axes.set_title(title)


def _sweeps(axes: Axes, name: str, targets: Iterable[str]) -> list[Row]:
    """Rates of closed loops over threads, beside what a drive gives."""
    used = []
    for target in targets:
        rows = [row for what, row in drive_rows(name).items() if what.split()[0] == target]
        threads = [row.data["client_threads"] for row in rows]
        color = _marks(axes, rows, threads, [row.miops for row in rows], f"{target} MIOPS, 50 us")
        axes.plot(threads, [row.data["expected_iops"] / 1e6 for row in rows], ":", color=color)
        used += rows
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("threads, each with one 512-byte read in flight")
    axes.set_ylabel("millions of reads a second")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(title="dotted: min(rate, threads / latency)")
    return used


def headline() -> Figure:
    """Two drives and their clients on one H100. All rows must vouch for themselves."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for row in _sweeps(axes, "h100-emulated-drive/in_process-sweep", ("2.47", "40")):
        row.headline()
    axes.set_title(
        "Emulated drives on an H100: what a closed loop gets\n(no link, in_process, fidelity ok in every point)"
    )
    return figure


def closed_loop() -> Figure:
    """All drives of the sweep."""
    figure, axes = plt.subplots(figsize=(7, 4.5))
    _sweeps(axes, "h100-emulated-drive/in_process-sweep", ("2.47", "40", "100"))
    axes.set_title("Closed loops on an H100, in_process, no link")
    return figure


def targets() -> Figure:
    """What part of each target was reached."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, label in (
        ("h100-emulated-drive/in_process-target", "in_process, H100"),
        ("h100-emulated-drive/served-target", "served, H100"),
        ("h200-peer/peer-target", "peer, H200"),
    ):
        rows = [row for what, row in drive_rows(name).items() if what.endswith("50 us")]
        wanted = [row.miops / row.data["of_expected"] for row in rows]
        _marks(axes, rows, wanted, [100 * row.data["of_expected"] for row in rows], label)
    axes.axvline(LINK_GB_PER_S[WIDEST_LINK] * 1e3 / 512, color="gray", linestyle=":", label="512 B over PCIe 5.0 x16")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(99, 100.1)
    axes.set_xlabel("target, millions of 512-byte reads a second")
    axes.set_ylabel("reached, % of the target (from 99)")
    _finish(axes, "Targets of 50 us; hollow: fidelity exceeded")
    return figure


def modes() -> Figure:
    """Helping and a service over the number of queues."""
    figure, axes = plt.subplots(figsize=(7, 4))
    rows = mode_rows("h100-library/library-one-house-again")
    counts = (32, 64, 128, 256, 511)
    for mode, label in (("1 open", "helping"), ("service", "a service")):
        of = [rows[f"library, {count} queues, 512 threads an SM, {mode}"] for count in counts]
        _marks(axes, of, counts, [row.data["after_iops"] / 1e6 for row in of], label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("queues of the drive")
    axes.set_ylabel("millions of 512-byte reads a second")
    _finish(axes, "Completion modes on an H100; no timing model, no link")
    return figure


def overlap() -> Figure:
    """Time over computation, in three ways."""
    figure, axes = plt.subplots(figsize=(7, 4))
    rows = [row.headline() for row in overlap_rows("h100-library/library-ctc").values()]
    ratios = [row.data["ratio_of_computation"] for row in rows]
    for key, label in (
        ("sync", "the whole block waits for its reads"),
        ("sync_each_warp_by_itself", "each warp waits for its own reads"),
        ("async", "reads submitted two rounds ahead"),
    ):
        _marks(axes, rows, ratios, [1e3 * row.data[f"{key}_median_s"] for row in rows], label)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("computation over communication")
    axes.set_ylabel("time for 64 rounds, ms")
    _finish(axes, "Overlap on an H100: one block, 2.47 MIOPS, no link, fidelity ok")
    return figure


CHARTS: dict[str, Callable[[], Figure]] = {
    "docs/figures/headline.svg": headline,
    "docs/figures/closed-loop.svg": closed_loop,
    "docs/figures/targets.svg": targets,
    "docs/figures/completion-modes.svg": modes,
    "docs/figures/overlap.svg": overlap,
}


def svg(draw: Callable[[], Figure]) -> str:
    """The chart as text: the same for the same results."""
    figure = draw()
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return re.sub(r"[ \t]+$", "", out.getvalue(), flags=re.MULTILINE)
