# SPDX-License-Identifier: Apache-2.0
"""Does `forebay transfer advise` name the right mode for workloads that it has not seen?

advice_check.py [--runs N] [--modes study|all] DOCUMENT... takes what `forebay transfer run --device cuda:0 --json`
wrote, of one or several sizes. What two documents have counts as in the later one. For each workload it fits the cost
model to the results of all others, asks for advice, and compares with what was measured: the total of a mode is the
median of its warm runs, and its share of page-locking the host's buffers.
The modes are the six of the study, or all that every workload of a size was measured in.

That share is all of it by default (`--runs 1`), as in the study, whose totals have all allocation in them: a program
that runs once. The totals of `forebay transfer run` alone are for a program that uses its buffers for ever, where
page-locked memory is the best answer nearly everywhere; `--runs 1000000` asks for that. What it takes the host to touch
ordinary and managed memory for the first time is in no total.

Advice is right if its mode is the fastest, or within 5 % of it. The best constant answer is the mode that is right for
the most workloads. The exit status is 1 unless, for each size, advice is right for at least 20 workloads, and
for 3 more than the best constant answer.
"""

import argparse
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import RefusedInput
from forebay.transfer import STUDY_MODES
from forebay.transfer.advice import advise
from forebay.transfer.cost_model import Constants
from forebay.transfer.fitting import Measured, fit, read_measured

WITHIN = 1.05
RIGHT_LEAST, MORE_THAN_CONSTANT = 20, 3


@dataclass(frozen=True)
class Case:
    """A workload of a size: what its modes took, and which one was named."""

    workload: str
    size: str
    seconds: dict[str, float]
    named: str

    @property
    def best(self) -> str:
        """The fastest mode."""
        return min(self.seconds, key=self.seconds.__getitem__)

    def ratio(self, mode: str) -> float:
        """How much longer a mode took than the fastest."""
        return self.seconds[mode] / self.seconds[self.best]

    def is_right(self, mode: str) -> bool:
        """Whether a mode is as good as the fastest."""
        return self.ratio(mode) <= WITHIN


@dataclass(frozen=True)
class Verdict:
    """The count of right answers for one size."""

    size: str
    workloads: int
    right: int
    constant: str
    constant_right: int

    @property
    def passes(self) -> bool:
        """Whether advice is as good as it should be."""
        return self.right >= RIGHT_LEAST and self.right >= self.constant_right + MORE_THAN_CONSTANT

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.size}: advice is right for {self.right} of {self.workloads} workloads, the best constant answer, "
            f"{self.constant}, for {self.constant_right}: {'PASS' if self.passes else 'FAIL'}"
        )


def seconds_of(row: Measured, runs: int) -> float:
    """What a run took, with its share of page-locking."""
    return row.total + row.locking / runs


def latest(rows: Sequence[Measured]) -> list[Measured]:
    """Without rows that a later document has, too: the same workload, size and mode."""
    return list({(row.problem, row.mode): row for row in rows}.values())


def common_modes(rows: Sequence[Measured]) -> set[str]:
    """The modes in which every workload of a size was measured, for each size there is."""
    modes_of: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        modes_of.setdefault(row.problem, set()).add(row.mode)
    return set.intersection(*modes_of.values())


def cases(
    rows: Sequence[Measured],
    runs: int,
    modes: Collection[str] = tuple(STUDY_MODES),
    models: dict[str, Constants] | None = None,
) -> list[Case]:
    """Advice for each workload and size of which all these modes were measured, from the other workloads.

    Args:
        rows: What was measured.
        runs: How many runs share page-locked buffers.
        modes: Which modes there are to name.
        models: Keeps the constants without each workload, for calls with the same rows and modes.
    """
    study = [row for row in rows if row.mode in modes]
    models = {} if models is None else models
    found = []
    for problem in dict.fromkeys(row.problem for row in study):
        workload, size = problem
        own = {row.mode: row for row in study if row.problem == problem}
        if len(own) < len(modes):
            continue
        if workload not in models:
            models[workload] = fit([row for row in study if row.workload != workload])
        profile = next(iter(own.values())).profile
        named = advise(profile, models[workload], runs, modes).mode
        found.append(Case(workload, size, {mode: seconds_of(row, runs) for mode, row in own.items()}, named))
    return found


def verdicts(found: Sequence[Case]) -> list[Verdict]:
    """The counts for each size."""
    modes = list(dict.fromkeys(mode for case in found for mode in case.seconds))
    all_verdicts = []
    for size in dict.fromkeys(case.size for case in found):
        some = [case for case in found if case.size == size]
        counts = {mode: sum(case.is_right(mode) for case in some) for mode in modes}
        constant = max(counts, key=counts.__getitem__)
        right = sum(case.is_right(case.named) for case in some)
        all_verdicts.append(Verdict(size, len(some), right, constant, counts[constant]))
    return all_verdicts


def table(found: Sequence[Case]) -> str:
    """A row for each workload and size, in Markdown."""
    lines = ["| workload | size | named | fastest | named / fastest | right |", "|---|---|---|---|---|---|"]
    for case in found:
        right = "yes" if case.is_right(case.named) else "**no**"
        cells = (case.workload, case.size, case.named, case.best, f"{case.ratio(case.named):.3f}", right)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Prints the table and the verdicts; the exit status says whether all pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", metavar="DOCUMENT", nargs="+", type=Path)
    parser.add_argument("--runs", metavar="N", type=int, default=1, help="runs that share page-locked buffers")
    parser.add_argument("--modes", choices=("study", "all"), default="study", help="which modes there are to name")
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error("--runs must be at least 1")
    try:
        rows = latest(read_measured("DOCUMENT", *given.documents))
    except RefusedInput as refused:
        parser.error(str(refused))
    found = cases(rows, given.runs, common_modes(rows) if given.modes == "all" else tuple(STUDY_MODES))
    print(table(found))
    print()
    counted = verdicts(found)
    for verdict in counted:
        print(verdict)
    return 0 if counted and all(verdict.passes for verdict in counted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
