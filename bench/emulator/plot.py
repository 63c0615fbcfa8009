# SPDX-License-Identifier: Apache-2.0
"""Plots of what `emulated_drive_bench` wrote: `python bench/emulator/plot.py RESULT.json... --out DIR`.

Several files are taken together; of a case that is in more than one, the last counts.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt


def load(paths: list[Path]) -> tuple[dict, list[dict]]:
    """What the runs say of the machine, and the cases of all files."""
    cases: dict[tuple[str, str], dict] = {}
    machine: dict = {}
    for path in paths:
        document = json.loads(path.read_text())
        machine = document["machine"]
        for case in document.get("results", []):
            cases[case["group"], case["name"]] = case
    return machine, list(cases.values())


def median(case: dict) -> dict:
    """The run of a case that counts."""
    return case["runs"][case["median"]]


def spread(cases: list[dict]) -> list[list[float]]:
    """Distances from the median to the least and the most of the runs, in MIOPS."""
    middle = [median(case)["iops"] / 1e6 for case in cases]
    rates = [[run["iops"] / 1e6 for run in case["runs"]] for case in cases]
    below = [m - min(r) for m, r in zip(middle, rates, strict=True)]
    above = [max(r) - m for m, r in zip(middle, rates, strict=True)]
    return [below, above]


def bars(cases: list[dict], title: str, out: Path) -> None:
    """Draws the rate of each case."""
    if not cases:
        return
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(cases) + 1.4))
    names = [case["name"] for case in cases]
    rates = [median(case)["iops"] / 1e6 for case in cases]
    axes.barh(names, rates, xerr=spread(cases), color="tab:blue", ecolor="black", capsize=2)
    for y, rate in enumerate(rates):
        axes.annotate(f" {rate:.4g}", (rate, y), va="center")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("MIOPS, median of five runs; whiskers: least and most")
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def targets(cases: list[dict], title: str, out: Path) -> None:
    """Draws what part of each target was reached."""
    cases = [case for case in cases if "of_expected" in case]
    if not cases:
        return
    figure, axes = plt.subplots(figsize=(8, 4.5))
    wanted = [median(case)["iops"] / case["of_expected"] / 1e6 for case in cases]
    axes.semilogx(wanted, [100 * case["of_expected"] for case in cases], "o")
    axes.axhline(99, color="gray", linestyle=":", label="99 %")
    axes.axhline(96.5, color="tab:red", linestyle=":", label="96.5 %: best published, up to 40 MIOPS")
    axes.set_xlabel("target, MIOPS")
    axes.set_ylabel("reached, % of target")
    axes.set_ylim(min(90, *(100 * case["of_expected"] - 1 for case in cases)), 101)
    axes.legend()
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def sweeps(cases: list[dict], title: str, out: Path) -> None:
    """Draws rate and latency over threads, beside what they should be."""
    if not cases:
        return
    figure, (rate_axes, latency_axes) = plt.subplots(1, 2, figsize=(11, 4.5))
    for target in sorted({case["name"].split()[0] for case in cases}, key=float):
        of_target = [case for case in cases if case["name"].split()[0] == target]
        threads = [case["client_threads"] for case in of_target]
        (line,) = rate_axes.loglog(threads, [median(case)["iops"] / 1e6 for case in of_target], "o-", label=target)
        expected = [min(float(target), n / 50) for n in threads]
        rate_axes.loglog(threads, expected, ":", color=line.get_color())
        latency_axes.loglog(
            threads, [median(case)["latency_us"]["mean"] for case in of_target], "o-", label=f"{target} MIOPS"
        )
        latency_axes.loglog(threads, [max(50, n / float(target)) for n in threads], ":", color=line.get_color())
    rate_axes.set_xlabel("client threads")
    rate_axes.set_ylabel("MIOPS")
    latency_axes.set_xlabel("client threads")
    latency_axes.set_ylabel("mean latency, us")
    latency_axes.legend(title="target (dotted: exact)")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    machine, cases = load(options.results)
    options.out.mkdir(parents=True, exist_ok=True)
    where = machine["device"]
    group = {name: [case for case in cases if case["group"] == name] for name in {case["group"] for case in cases}}
    bars(group.get("unthrottled", []), f"Emulated drive, no timing model, {where}", options.out / "unthrottled.png")
    bars(group.get("frontend", []), f"Frontend alone, no data moved, {where}", options.out / "frontend.png")
    targets(group.get("target", []), f"Targets at 50 us, 512 B reads, {where}", options.out / "targets.png")
    sweeps(group.get("sweep", []), f"Closed loop, 50 us, 512 B reads, {where}", options.out / "sweep.png")


if __name__ == "__main__":
    main()
