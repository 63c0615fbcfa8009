# SPDX-License-Identifier: Apache-2.0
"""Recall against reads and queries a second, over the glosses of WordNet: measures them, and draws the README's plot.

``python bench/search/gloss_plot.py measure`` builds the index on a drive in a file, searches it with lists of several
lengths, and keeps the documents of ``forebay search`` in ``bench/results/cpu-search-glosses/glosses.json``. A search
whose drive did not keep its times is made again, up to ``--attempts`` times. ``... draw`` makes the figure.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from forebay.plots import BLUE, GREY, ORANGE, label, save_figure
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench/results/cpu-search-glosses/glosses.json"
FIGURE = ROOT / "docs/figures/search-glosses.png"
SIZES = (16, 24, 32, 48, 64, 96, 128, 192)


def forebay(*words: str) -> dict[str, Any]:
    """Runs a command and returns its document."""
    print("forebay", *words, file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "forebay", *words, "--json", "-"]
    document: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return document


def measure(latency_us: int, attempts: int) -> dict[str, Any]:
    """Builds the index once and searches it with each length of the list."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, "glosses.img")
        forebay("drive", "create", str(image), "--size", "256M")
        backing = f"backing=file,path={image}"
        options = ("--device", "cpu", "--drive")
        built = forebay(
            "search", "build", "glosses", "--graph-degree", "64", "--chunks", "32", *options, f"file:{image}"
        )
        queries = []
        for size in SIZES:
            words = ("search", "query", "glosses", "--base", "glosses", "--itopk-size", str(size), *options)
            for _attempt in range(attempts):
                found = forebay(*words, f"emulated:{backing},latency_us={latency_us}")
                if found["fidelity"] == "ok":
                    break
            queries.append(found)
    text = json.dumps({"schema_version": 1, "build": built, "queries": queries}, indent=1)
    result: dict[str, Any] = json.loads(text.replace(str(image), "glosses.img"))
    return result


def draw(result: dict[str, Any], path: Path) -> None:
    """Draws recall against reads of a query, and against queries a second if the drive kept its times at each point."""
    queries = sorted(result["queries"], key=lambda query: query["itopk_size"])
    recall = [query["recall"] for query in queries]
    fidelity = sorted({query["fidelity"] for query in queries})
    sides = [("reads_per_query", "reads of a query", BLUE)]
    if fidelity == ["ok"]:  # else the rate is that of a busy machine, while the reads are the same on any
        sides.append(("qps", "queries a second", ORANGE))
    figure, row = plt.subplots(
        1, len(sides), figsize=(3 + 4 * len(sides), 3.8), sharey=True, squeeze=False, layout="constrained", dpi=110
    )
    axes = list(row[0])
    for axis, (key, name, colour) in zip(axes, sides, strict=True):
        values = [query[key] for query in queries]
        axis.plot(values, recall, "o-", color=colour, ms=5, lw=1.5)
        for query, value, part in zip(queries, values, recall, strict=True):
            axis.annotate(
                str(query["itopk_size"]), (value, part), (0, 6), textcoords="offset points", fontsize=8, color=GREY
            )
        axis.grid(visible=True, alpha=0.3)
        axis.set_xlim(left=0)
        label(axis, f"Recall against {name}", name, "recall@10" if axis is axes[0] else "")
    first, index = queries[0], queries[0]["index"]
    figure.suptitle(
        f"Search of {index['live']:,} glosses, {index['dimension']} components each", fontsize=12, fontweight="bold"
    )
    setting = (
        f"{', '.join(first['drives'])}; threads on {first['device']}; fidelity: {', '.join(fidelity)}; "
        "the number at a point is its --itopk-size"
    )
    figure.text(0.995, -0.04, setting, ha="right", fontsize=8, color=GREY)
    save_figure(figure, path)


def main() -> None:
    """Measures, or draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "draw"))
    parser.add_argument("--latency-us", type=int, default=50, help="of the emulated drive")
    parser.add_argument("--attempts", type=int, default=3, help="runs of a search at most")
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    given = parser.parse_args()
    if given.what == "measure":
        given.result.parent.mkdir(parents=True, exist_ok=True)
        given.result.write_text(json.dumps(measure(given.latency_us, given.attempts), indent=1) + "\n")
    draw(json.loads(given.result.read_text()), given.figure)


if __name__ == "__main__":
    main()
