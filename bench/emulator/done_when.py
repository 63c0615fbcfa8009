# SPDX-License-Identifier: Apache-2.0
"""What `emulated_drive_bench` measured beside what is asked of it: `python bench/emulator/done_when.py DIR`.

Takes every JSON file of that benchmark in DIR and prints a line for each figure: what was measured, what is asked, and
whether that is met. Needs nothing but Python.
"""

import argparse
import json
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

RESIDENCIES = ("served", "in_process", "peer")
LATENCY_US = 50.0


@dataclass(frozen=True)
class Line:
    """One figure; `ok` is None where it was not measured."""

    what: str
    measured: str
    asked: str
    ok: bool | None


@dataclass(frozen=True)
class Results:
    """The cases of all files, by residency, group and name."""

    cases: dict[tuple[str, str, str], dict]

    def of_group(self, residency: str, group: str) -> list[dict]:
        """The cases of a group, in the order in which they ran."""
        return [case for (r, g, _), case in self.cases.items() if (r, g) == (residency, group)]

    def residencies(self, group: str) -> list[str]:
        """Where the group was measured."""
        return [r for r in RESIDENCIES if any(key[:2] == (r, group) for key in self.cases)]


def load(paths: list[Path]) -> Results:
    """What the files hold; of a case that is in more than one, the last counts."""
    cases = {}
    for path in paths:
        try:
            document = json.loads(path.read_text())
        except json.JSONDecodeError:
            print(f"{path}: not a whole document; left out", file=sys.stderr)
            continue
        if document.get("benchmark") != "emulated_drive":
            continue
        for case in document["results"]:
            case.setdefault("residency", "in_process")
            cases[case["residency"], case["group"], case["name"]] = case
    return Results(cases)


def median(case: dict) -> dict:
    """The run of a case that counts."""
    return case["runs"][case["median"]]


def miops(case: dict) -> float:
    """Its rate."""
    return median(case)["iops"] / 1e6


def rate(results: Results, residency: str, group: str, name: str, least: float) -> Line:
    """At least so many MIOPS."""
    case = results.cases.get((residency, group, name))
    what, asked = f"{group}: {name}, {residency}", f"{least:g} MIOPS"
    if case is None:
        return Line(what, "", asked, None)
    return Line(what, f"{miops(case):.2f} MIOPS", asked, miops(case) >= least)


def part(case: dict, least: float) -> Line:
    """At least that part of what the case expects."""
    reached = case["of_expected"]
    what = f"{case['group']}: {case['name']}, {case['residency']}"
    return Line(what, f"{100 * reached:.2f} %", f"{100 * least:g} %", reached >= least)


def unthrottled(results: Results) -> Iterator[Line]:
    """Rates without a timing model, and of the frontend alone."""
    group = "unthrottled"
    yield rate(results, "served", group, "reads 512 B, 32 SMs", 480)
    yield rate(results, "served", group, "reads 512 B, 64 SMs", 650)
    yield rate(results, "in_process", group, "reads 512 B, 32 SMs", 420)
    for residency in ("served", "in_process"):
        yield rate(results, residency, group, "reads 4 KiB", 170)
        yield rate(results, residency, group, "writes 512 B", 250)
        yield rate(results, residency, group, "70/30 512 B", 250)
    yield rate(results, "peer", group, "reads 512 B, 64 SMs", 500)
    yield rate(results, "in_process", "frontend", "all three", 600)
    yield rate(results, "in_process", "host", "reads 512 B, 1 GiB, 32 SMs", 90)
    for residency in results.residencies("host"):
        for case in results.of_group(residency, "host"):
            if "32 GiB" not in case["name"]:
                continue
            yield part(case, 0.9)
            if "raw_copies" in case:
                share = miops(case) * 1e6 / case["raw_copies"]["median"]
                what = f"host: {case['name']}, of the GPU's own copies, {residency}"
                yield Line(what, f"{100 * share:.2f} %", "to compare", None)


def ablation(results: Results) -> Iterator[Line]:
    """What the frontend does without each of its techniques."""
    for residency in results.residencies("frontend"):
        whole = results.cases.get((residency, "frontend", "all three"))
        for case in results.of_group(residency, "frontend"):
            if whole is None or case is whole or case["name"] == "no timing model":
                continue
            measured = f"{miops(case):.2f} MIOPS, 1/{miops(whole) / miops(case):.1f}"
            yield Line(
                f"frontend: {case['name']}, {residency}", measured, "less than all three", miops(case) < miops(whole)
            )


def targets(results: Results) -> Iterator[Line]:
    """What part of each target was reached, and how late completions were."""
    for residency in results.residencies("target"):
        for case in results.of_group(residency, "target"):
            yield part(case, 0.96 if ", 8 SMs" in case["name"] else 0.99)
        for name in ("40 MIOPS, 50 us", "100 MIOPS, 50 us"):
            case = results.cases.get((residency, "target", name))
            if case is None:
                continue
            late = {key: case["report"]["lateness"][f"{key}_ns"] / 1e3 for key in ("p50", "p99.9", "max")}
            measured = ", ".join(f"{key} {value:.2f}" for key, value in late.items())
            ok = late["p50"] <= 1 and late["p99.9"] <= 5
            yield Line(f"lateness at {name}, {residency}", f"{measured} us", "p50 1, p99.9 5 us", ok)
    for residency in results.residencies("queues"):
        yield from (part(case, 0.98) for case in results.of_group(residency, "queues"))
    for residency in results.residencies("skew"):
        yield from (part(case, 0.9) for case in results.of_group(residency, "skew"))


def sweep(results: Results) -> Iterator[Line]:
    """Mean errors of rate and latency over the thread sweep, on each side of the knee."""
    for residency in results.residencies("sweep"):
        cases = [case for case in results.of_group(residency, "sweep") if "expected_latency_us" in case]
        for target in sorted({case["name"].split()[0] for case in cases}, key=float):
            for side, past in (("before the knee", False), ("past the knee", True)):
                mine = [
                    case
                    for case in cases
                    if case["name"].split()[0] == target and (case["expected_latency_us"] > LATENCY_US) == past
                ]
                if not mine:
                    continue
                errors = [sum(abs(error(case)) for case in mine) / len(mine) for error in (rate_error, latency_error)]
                yield Line(
                    f"sweep: {target} MIOPS, {side}, {residency}",
                    f"IOPS {100 * errors[0]:.2f} %, latency {100 * errors[1]:.2f} %",
                    "1 % each",
                    max(errors) <= 0.01,
                )


def rate_error(case: dict) -> float:
    """Relative, of the rate of a closed loop."""
    return median(case)["iops"] / case["expected_iops"] - 1


def latency_error(case: dict) -> float:
    """Relative, of the client's mean latency in a closed loop."""
    return median(case)["latency_us"]["mean"] / case["expected_latency_us"] - 1


def latency(results: Results) -> Iterator[Line]:
    """Few clients' median, and the earliest completion that any saw."""
    for residency in results.residencies("light"):
        for case in results.of_group(residency, "light"):
            if case.get("lanes_per_warp", 1) != 1:
                continue  # of commands that come together each waits for those before it
            p50 = median(case)["latency_us"]["p50"]
            what = f"light: {case['name']}, median, {residency}"
            yield Line(what, f"{p50:.2f} us", "within 4 us of 50", abs(p50 - LATENCY_US) <= 4)
    worst: tuple[float, str] | None = None
    for (residency, group, name), case in results.cases.items():
        report = case["report"]
        least_us = report["timing"]["read"]["latency_min_us"]
        if not least_us:
            continue
        early = least_us - min(run["latency_us"]["min"] for run in case["runs"])
        over = early - report["poll_gap"]["max_ns"] / 1e3
        if worst is None or over > worst[0]:
            worst = over, f"{group}: {name}, {residency}"
    if worst is not None:
        what = f"earliest completion ({worst[1]})"
        measured = f"{abs(worst[0]):.2f} us {'below' if worst[0] > 0 else 'above'}"
        yield Line(what, measured, "latency_min less the poll gap", worst[0] <= 0)


def profiles(results: Results) -> Iterator[Line]:
    """The figures of the P5800X, and a drive that is asked too much of."""
    for residency in results.residencies("p5800x"):
        for case in results.of_group(residency, "p5800x"):
            off = case["of_expected"] - 1
            yield Line(f"p5800x: {case['name']}, {residency}", f"{100 * off:+.2f} %", "within 3 %", abs(off) <= 0.03)
    for residency in results.residencies("overload"):
        for case in results.of_group(residency, "overload"):
            said = case["report"]["fidelity"]
            yield Line(f"overload: {case['name']}, {residency}", said, "exceeded", said == "exceeded")


def right(results: Results) -> Iterator[Line]:
    """Whether all data was."""
    wrong = [" ".join(key) for key, case in results.cases.items() if not case.get("right", True)]
    if results.cases:
        yield Line("data of all cases", "; ".join(wrong) or "right", "right", not wrong)


def lines(results: Results) -> list[Line]:
    """The whole table."""
    parts: tuple[Callable[[Results], Iterator[Line]], ...] = (
        unthrottled,
        ablation,
        targets,
        sweep,
        latency,
        profiles,
        right,
    )
    return [line for part_of in parts for line in part_of(results)]


def table(of: list[Line]) -> str:
    """In columns."""
    ok = {True: "ok", False: "MISSED", None: "not measured"}
    rows = [("", "measured", "asked", ""), *((x.what, x.measured, x.asked, ok[x.ok]) for x in of)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print(table(lines(load(sorted(folder.glob("*.json"), key=operator.attrgetter("name"))))))


if __name__ == "__main__":
    main()
