# SPDX-License-Identifier: Apache-2.0
"""The plots of the study of vector search. A plot shows the steps that were measured; without any it is not drawn."""

from pathlib import Path

import matplotlib as mpl
import search_rows as rows_of
from forebay.units import parse_rate
from search_gates import SPEED_UP_BATCH, SPEED_UP_MIN
from search_rows import EXACT_WIDTHS, RATES, RECALLS, Row, Study, best

mpl.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

MIOPS = {rate: parse_rate("iops", rate) / 1e6 for rate in RATES}
_BEYOND = 300  # MIOPS, up to which the lines are drawn


def _save(folder: Path, name: str) -> None:
    plt.tight_layout()
    plt.savefig(folder / f"{name}.png", dpi=80, metadata={"Software": None})
    plt.close()


def _best_rows(study: Study, wanted: float, chunks: int) -> dict[str, Row]:
    """The best row of each rate that was measured."""
    found = {rate: best(rows_of.on_drive(study, f"drive-{rate}", wanted, chunks)) for rate in RATES}
    return {rate: row for rate, row in found.items() if row}


def _chunks(study: Study) -> list[int]:
    return sorted({chunks for rate in RATES for chunks in study.chunks(f"drive-{rate}")})


def _rate_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(MIOPS.values()), labels=[f"{value:g}" for value in MIOPS.values()])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("MIOPS of the drive")
    axes.grid(visible=True, alpha=0.3)


def _points(axes: Axes, rows: dict[str, Row], values: list[float], label: str) -> str:
    """Draws a line with a point for each rate: hollow where the drive did not keep its times. Returns the colour."""
    at = [MIOPS[rate] for rate in rows]
    (line,) = axes.plot(at, values, "-", lw=1.2, label=label)
    for x, value, row in zip(at, values, rows.values(), strict=True):
        kept = row["fidelity"] == "ok"
        axes.plot(x, value, "o", ms=6, color=line.get_color(), mfc=line.get_color() if kept else "white")
    return to_hex(line.get_color())


def _qps(study: Study, folder: Path) -> None:
    if not any(study.rows(f"drive-{rate}") for rate in RATES):
        return
    _, axes = plt.subplots(1, len(RECALLS), figsize=(10, 4.4), sharey=True)
    for part, wanted in zip(axes, RECALLS, strict=True):
        for chunks in _chunks(study):
            rows = _best_rows(study, wanted, chunks)
            if not rows:
                continue
            colour = _points(part, rows, [row["qps"] for row in rows.values()], f"measured, codes of {chunks} B")
            ends = [min(MIOPS.values()), _BEYOND]
            least = min(row["reads_per_query"] for row in rows.values())
            part.plot(
                ends, [1e6 * x / least for x in ends], "--", lw=1, color=colour, label=f"IOPS / {least:.1f} reads"
            )
            hbm = best(rows_of.in_memory(study, "hbm", wanted, chunks))
            if hbm:
                part.axhline(hbm["qps"], ls=":", lw=1, color=colour, label="in HBM, on the whole GPU")
        _rate_axis(part)
        part.set_yscale("log")
        part.set_title(f"recall {wanted:.2f}")
        part.legend(fontsize=8, title="hollow: the drive was late", title_fontsize=8)
    axes[0].set_ylabel("queries a second")
    _save(folder, "qps")


def _latency(study: Study, folder: Path) -> None:
    if not any(study.rows(f"drive-{rate}") for rate in RATES):
        return
    _, axes = plt.subplots(figsize=(5.5, 4))
    for wanted in RECALLS:
        for chunks in _chunks(study):
            rows = _best_rows(study, wanted, chunks)
            if rows:
                values = [row["latency_ns"]["p99"] / 1e3 for row in rows.values()]
                _points(axes, rows, values, f"recall {wanted:.2f}, codes of {chunks} B")
    _rate_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel("P99 latency of a query, us")
    axes.legend(fontsize=8, title="the search with the most QPS", title_fontsize=8)
    _save(folder, "latency")


def _exact(study: Study, folder: Path) -> None:
    drawn = {
        width: {
            rate: (best(rows_of.exact(study, rate, SPEED_UP_BATCH, width)), factor)
            for rate in RATES
            if (factor := rows_of.speed_up(study, rate, SPEED_UP_BATCH, width))
        }
        for width in EXACT_WIDTHS
    }
    if not any(drawn.values()):
        return
    _, axes = plt.subplots(figsize=(5.5, 4.2))
    for width, found in drawn.items():
        rows = {rate: row for rate, (row, _) in found.items() if row}
        if rows:
            _points(axes, rows, [factor for _, factor in found.values()], f"width {width}")
    ends = [min(MIOPS.values()), max(MIOPS.values())]
    axes.plot(ends, [x / ends[0] for x in ends], "k--", lw=0.8, label="as the IOPS")
    axes.plot(MIOPS["40M"], SPEED_UP_MIN, "k*", ms=10, label="SwarmIO, width 4")
    _rate_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel(f"QPS over those at {MIOPS[RATES[0]]:g} MIOPS, batches of {SPEED_UP_BATCH}")
    axes.legend(fontsize=8)
    _save(folder, "exact")


def write(study: Study, folder: Path) -> None:
    """Writes the plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in (_qps, _latency, _exact):
        plot(study, folder)
