# SPDX-License-Identifier: Apache-2.0
"""The plots of the study of graphs in external memory."""

from pathlib import Path

import matplotlib
import study_tables as tables
from study_tables import Study

matplotlib.use("agg")

from matplotlib import pyplot as plt


def _save(folder: Path, name: str) -> None:
    plt.tight_layout()
    plt.savefig(folder / f"{name}.png", dpi=80, metadata={"Software": None})
    plt.close()


def _latency(study: Study, folder: Path) -> None:
    entries = list(dict.fromkeys(row["entry"] for row in study.rows("latency23")))
    _, axes = plt.subplots(1, len(entries), figsize=(10, 4), sharey=True)
    knees = {(knee.entry, knee.link): knee for knee in tables.knees(study)}
    for axis, entry in zip(axes, entries, strict=True):
        for link in dict.fromkeys(row["link"] for row in study.rows("latency23")):
            rows = [r for r in study.rows("latency23") if (r["entry"], r["link"]) == (entry, link)]
            bounded = [r for r in rows if r["outstanding"] is not None]
            free = [r for r in rows if r["outstanding"] is None]
            x = [r["latency_us"] for r in bounded]
            label = f"{link}, N = {bounded[0]['outstanding']}"
            (line,) = axis.plot(x, [1e3 * r["median_s"] for r in bounded], "o-", ms=4, lw=1, label=label)
            axis.plot(x, [1e3 * r["median_s"] for r in free], "x--", ms=4, lw=0.8, color=line.get_color())
            axis.axvline(1e6 * knees[entry, link].model_knee_s, color=line.get_color(), lw=0.8, ls=":")
        axis.set(xscale="log", yscale="log", xlabel="latency, us", title=tables.SEARCHES[entry])
        axis.set_xticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
        axis.set_xticks([], minor=True)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel("time, ms")
    axes[0].legend(title="dashed: N without bound\ndotted: knee by the model", fontsize=8, title_fontsize=8)
    _save(folder, "latency")


def _alignment(study: Study, folder: Path) -> None:
    plt.figure(figsize=(5.5, 4))
    rows = tables.predictions(study.rows("alignment23"))
    for entry in dict.fromkeys(p.row["entry"] for p in rows):
        mine = [p for p in rows if p.row["entry"] == entry]
        x = [p.row["alignment"] for p in mine]
        (line,) = plt.plot(x, [1e3 * p.row["median_s"] for p in mine], "o", ms=5, label=tables.SEARCHES[entry])
        plt.plot(x, [1e3 * p.seconds for p in mine], "--", lw=1, color=line.get_color(), label="bytes read / W")
    plt.xscale("log", base=2)
    plt.yscale("log")
    plt.xlabel("alignment, bytes")
    plt.ylabel("time, ms")
    plt.grid(visible=True, alpha=0.3)
    plt.legend()
    _save(folder, "alignment")


def _model(study: Study, folder: Path) -> None:
    plt.figure(figsize=(5.5, 4.5))
    rows = tables.predictions(study.rows("kinds25"))
    for place in dict.fromkeys(tables.place_of(p.row) for p in rows):
        mine = [p for p in rows if tables.place_of(p.row) == place]
        plt.plot([1e3 * p.seconds for p in mine], [1e3 * p.row["median_s"] for p in mine], "o", ms=5, label=place)
    ends = [1e3 * min(p.seconds for p in rows) * 0.8, 1e3 * max(p.row["median_s"] for p in rows) * 1.25]
    plt.plot(ends, ends, "k-", lw=0.8, label="equal")
    plt.fill_between(
        ends,
        [end * (1 - tables.MODEL_WITHIN) for end in ends],
        [end * (1 + tables.MODEL_WITHIN) for end in ends],
        color="grey",
        alpha=0.2,
        label="within 15 %",
    )
    plt.xscale("log")
    plt.yscale("log")
    plt.xlabel("time by the model, ms")
    plt.ylabel("time measured, ms")
    plt.legend(fontsize=8)
    plt.grid(visible=True, alpha=0.3)
    _save(folder, "model")


def _paper(study: Study, folder: Path) -> None:
    plt.figure(figsize=(7, 4))
    found = {place: rows for place, rows in tables.factors(study).items() if place != "host"}
    width = 0.8 / len(found)
    for k, (place, rows) in enumerate(found.items()):
        values = [factor for _, factor in rows]
        at = [i + k * width for i in range(len(values) + 1)]
        bars = plt.bar(at, [*values, tables.geometric_mean(values)], width, label=place)
        if place in tables.PUBLISHED_FACTORS:
            value = tables.PUBLISHED_FACTORS[place]
            plt.plot([at[-1] - width / 2, at[-1] + width / 2], [value, value], "k-", lw=2)
        plt.bar_label(bars, fmt="%.2f", fontsize=7)
    names = [
        f"{row['graph']}\n{tables.SEARCHES[row['entry']].partition(',')[0]}" for row, _ in next(iter(found.values()))
    ]
    plt.xticks([i + width for i in range(len(names) + 1)], [*names, "geometric mean\n(line: published)"], fontsize=8)
    plt.yscale("log")
    plt.ylim(0.7, 40)
    plt.ylabel("time over that of the modelled host")
    plt.legend(fontsize=8, ncols=3)
    _save(folder, "paper")


def write(study: Study, folder: Path) -> None:
    """Writes the plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in (_model, _latency, _alignment, _paper):
        plot(study, folder)
