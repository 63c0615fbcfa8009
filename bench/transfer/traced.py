# SPDX-License-Identifier: Apache-2.0
"""Judges the traces of `forebay transfer run`: what they cover, and whether tracing changed what was measured.

One line for each workload and mode: the part of the traced run in which anything recorded was under way; the part in
which that was only a call of CUDA, which prepares work or waits; and the traced total by the median of the untraced
ones. Where tracing changed a total by 5 % or more, its division says little of untraced runs, and a list at the end
names it.

Status 1: at the size large a trace covers less than 95 % of its run, or a result has none. Status 2: FILE has no
results of a GPU.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COVERED_LEAST = 0.95
CHANGE_LEAST = 0.05  # from which on tracing counts as having changed a total
JUDGED_SIZE = "large"


@dataclass(frozen=True)
class Judged:
    """What a result's trace shows. Without a trace only `reason` is set."""

    workload: str
    mode: str
    size: str
    covered: float = 0.0
    calls: float = 0.0
    ratio: float = 0.0
    reason: str = ""

    @property
    def is_short(self) -> bool:
        """Whether the trace lacks what it must have."""
        return self.size == JUDGED_SIZE and (bool(self.reason) or self.covered < COVERED_LEAST)

    @property
    def is_changed(self) -> bool:
        """Whether tracing changed the total."""
        return not self.reason and abs(self.ratio - 1) >= CHANGE_LEAST

    def __str__(self) -> str:
        found = (
            self.reason or f"covered {self.covered:7.2%}  calls {self.calls:7.2%}  traced/untraced {self.ratio:6.3f}"
        )
        mark = "  TOO LITTLE" if self.is_short else ""
        return f"{self.workload:<22} {self.mode:<28} {self.size:<7} {found}{mark}"


def judged(result: dict[str, Any]) -> Judged | None:
    """What there is to say of a result; None if it was not timed."""
    if result["verified"] is not True:
        return None
    name = {part: result[part] for part in ("workload", "mode", "size")}
    trace = result["traced"]
    if trace is None:
        return Judged(**name, reason=f"no trace: {result['traced_reason']}")
    untraced = statistics.median(times["total"] for times in result["warm"])
    return Judged(
        **name, covered=trace["covered"], calls=trace["calls"] / trace["total"], ratio=trace["total"] / untraced
    )


def results_of(path: Path) -> list[Judged]:
    """The results of a file that were timed.

    Raises:
        SystemExit: The file is no document of a GPU's runs.
    """
    try:
        found = [judged(result) for result in json.loads(path.read_text())["results"]]
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        print(f"{path}: no results of `forebay transfer run` on a GPU: {error!r}", file=sys.stderr)
        raise SystemExit(2) from None
    return [one for one in found if one is not None]


def report(results: Iterable[Judged]) -> int:
    """Prints the results, and returns the exit status."""
    results = list(results)
    for one in results:
        print(one)
    at_size = [one for one in results if one.size == JUDGED_SIZE]
    short = [one for one in at_size if one.is_short]
    changed = [one for one in results if one.is_changed]
    print(f"\n{len(at_size)} results at {JUDGED_SIZE}, {len(short)} of them covered below {COVERED_LEAST:.0%}")
    print(f"{len(changed)} totals that tracing changed by {CHANGE_LEAST:.0%} or more")
    for one in changed:
        print(f"  {one.workload} {one.mode} {one.size}: {one.ratio - 1:+.1%}")
    return 1 if short else 0


def main(arguments: list[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a document of forebay transfer run")
    given = parser.parse_args(arguments)
    return report(one for path in given.files for one in results_of(path))


if __name__ == "__main__":
    sys.exit(main())
