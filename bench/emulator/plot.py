# SPDX-License-Identifier: Apache-2.0
"""Plots of what `emulated_drive_bench` and `beside.py` wrote: `python bench/emulator/plot.py RESULT.json... --out DIR`.

Several files are taken together; of a case that is in more than one, the last counts.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt


def load(paths: list[Path]) -> tuple[dict, list[dict], list[dict]]:
    """What the runs say of the machine, the cases of all files, and what `beside.py` found."""
    cases: dict[tuple[str, str, str], dict] = {}
    machine: dict = {}
    programs: list[dict] = []
    for path in paths:
        document = json.loads(path.read_text())
        machine = document["machine"]
        if document["benchmark"] == "beside":
            programs = document["results"]
            continue
        for case in document["results"]:
            case.setdefault("residency", "in_process")
            cases[case["residency"], case["group"], case["name"]] = case
    return machine, list(cases.values()), programs


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
    """Draws rate and latency over threads beside what they should be, and under each how far off they are."""
    cases = [case for case in cases if "expected_latency_us" in case]
    if not cases:
        return
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, height_ratios=[3, 2])
    (rate_axes, latency_axes), (rate_errors, latency_errors) = axes
    for target in sorted({case["name"].split()[0] for case in cases}, key=float):
        of_target = sorted(
            (case for case in cases if case["name"].split()[0] == target), key=lambda case: case["client_threads"]
        )
        threads = [case["client_threads"] for case in of_target]
        for curves, errors, label, measured, expected in (
            (
                rate_axes,
                rate_errors,
                target,
                [median(case)["iops"] / 1e6 for case in of_target],
                [case["expected_iops"] / 1e6 for case in of_target],
            ),
            (
                latency_axes,
                latency_errors,
                f"{target} MIOPS",
                [median(case)["latency_us"]["mean"] for case in of_target],
                [case["expected_latency_us"] for case in of_target],
            ),
        ):
            (line,) = curves.loglog(threads, measured, "o-", label=label)
            curves.loglog(threads, expected, ":", color=line.get_color())
            off = [100 * (m / e - 1) for m, e in zip(measured, expected, strict=True)]
            errors.semilogx(threads, off, "o-", color=line.get_color())
    for errors in (rate_errors, latency_errors):
        errors.axhspan(-1, 1, color="gray", alpha=0.15)
        errors.axhline(0, color="gray", linewidth=0.8)
        errors.set_xlabel("client threads")
        errors.set_ylabel("error, % (band: 1 %)")
    rate_axes.set_ylabel("MIOPS")
    latency_axes.set_ylabel("mean latency, end to end, us")
    latency_axes.legend(title="target (dotted: exact)")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def beside(results: list[dict], title: str, out: Path) -> None:
    """Draws what the programs beside a drive keep of their rate."""
    cases = [case for case in results if "of_alone" in case["gemm"]]
    if not cases:
        return
    figure, axes = plt.subplots(figsize=(8, 0.7 * len(cases) + 1.4))
    for offset, (name, label) in enumerate((("gemm", "matrix product"), ("add", "addition, bound by memory"))):
        places = [y + 0.4 * offset for y in range(len(cases))]
        rates = [100 * case[name]["of_alone"] for case in cases]
        axes.barh(places, rates, height=0.38, label=label)
        for y, rate in zip(places, rates, strict=True):
            axes.annotate(f" {rate:.1f}", (rate, y), va="center")
    axes.set_yticks([y + 0.2 for y in range(len(cases))], [case["beside"] for case in cases])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("rate, % of that on the same share of the GPU with no drive beside it")
    axes.legend(loc="lower right")
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    machine, cases, programs = load(options.results)
    where = machine.get("device", "unknown")
    beside(programs, f"Beside a drive, {where}", options.out / "beside.png")
    for residency in sorted({case["residency"] for case in cases}):
        of = {"in_process": "", "peer": "-peer", "served": "-served"}[residency]
        group: dict[str, list[dict]] = {}
        for case in cases:
            if case["residency"] == residency:
                group.setdefault(case["group"], []).append(case)
        how = f"{where}, {residency}"
        bars(group.get("unthrottled", []), f"No timing model, {how}", options.out / f"unthrottled{of}.png")
        bars(group.get("frontend", []), f"Frontend alone, no data moved, {how}", options.out / f"frontend{of}.png")
        targets(group.get("target", []), f"Targets at 50 us, 512 B reads, {how}", options.out / f"targets{of}.png")
        sweeps(group.get("sweep", []), f"Closed loop, 50 us, 512 B reads, {how}", options.out / f"sweep{of}.png")


if __name__ == "__main__":
    main()
