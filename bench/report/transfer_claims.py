# SPDX-License-Identifier: Apache-2.0
"""Writes `docs/transfer-claims.md`: the claims of the published study of ways to move data, beside what we measured.

`python bench/report/transfer_claims.py` prints the tables, made from the documents in `bench/results/<gpu>-transfer`.
`--write PAGE` puts them into a page, and begins the page if there is none. `--check PAGE` fails if it has others.
`--plots DIR` draws the charts of `forebay transfer report`.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import study_pages
import transfer_tables
from results import RESULTS, ROOT

sys.path.insert(0, str(ROOT / "python"))

from forebay.transfer import words
from forebay.transfer.claims import VERDICTS, Verdict, all_commands, judge
from forebay.transfer.loading import load
from forebay.transfer.measured import Results
from forebay.transfer.page import ours

PAGE = ROOT / "docs" / "transfer-claims.md"
BEGINNING = """# The transfer study's claims

<!-- The tables are written by bench/report/transfer_claims.py, from the documents in bench/results. -->

A published study compared ways to move data to a GPU and inside it. We measured the same with verified workloads, and
hold each of its claims against our figures. [How the suite measures](reference/cli.md#forebay-transfer).

<!-- machine: begin -->
<!-- machine: end -->

## Verdicts

A claim is confirmed if all its figures agree with ours. It is refuted if one does not, in direction or in size. So
an effect that is much larger here refutes, too. Figures that are said to be saved are positive if the mode is faster.
Those of kernels in A2, A3 and A12 are changes: they are negative if kernels are shorter. At mega each total is of one
run, and pageable copies vary from run to run, so small differences of totals say little.

<!-- claims: begin -->
<!-- claims: end -->

## What was verified

A mode is timed only if its results are right. Each pair of a workload and a mode counts once.

<!-- verified: begin -->
<!-- verified: end -->

## How good the kernels are

Modes can be compared only if kernels are good. The bound is the time that a copy takes for as many bytes of the
device's memory, or that multiplications with additions take for as many operations: the longer of the two. Bytes that
neighbouring tiles load again do not count. Size large; the best of the four stage policies.

<!-- kernels: begin -->
<!-- kernels: end -->

## What traces cover

A traced run asks CUDA for the times of its kernels, copies and calls. The table says how much of the traced runs these
explain, at least, and how often the total of traced runs differs from the median of the others.

<!-- traces: begin -->
<!-- traces: end -->

## How good the advice is

`forebay transfer advise` answers for each workload from the results of the others. It is right if its mode is the
fastest of the study's six, or within 5 % of it. The total contains page-locking, shared by as many runs as use the same
buffers. `python bench/transfer/advice_check.py --runs N DOCUMENT...` prints each case. Documents: those of size large.
Where one answer suits nearly all workloads, advice cannot gain.

<!-- advice: begin -->
<!-- advice: end -->

## How each figure is judged

The rules were set before anything was measured. Ratios are of means, as in the study.

<!-- figures: begin -->
<!-- figures: end -->

## Commands

<!-- commands: begin -->
<!-- commands: end -->
"""


def folders() -> list[Path]:
    """The folders of results, one for each GPU."""
    return sorted(path for path in RESULTS.glob("*-transfer") if any(path.glob("*.json")))


def files_of(folder: Path) -> list[Path]:
    """The documents in a folder of results."""
    return [*sorted(folder.glob("*.json")), *sorted(folder.glob("*.csv"))]


def cell(text: str) -> str:
    """Text as a cell of a table has it."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def machine(results: Results, verdicts: list[Verdict]) -> str:
    """What was measured on, and how many claims have which verdict."""
    builds = sorted({source.commit for source in results.sources if source.commit})
    counts = (f"{sum(one.verdict == name for one in verdicts)} {name}" for name in VERDICTS)
    built = f" Builds: {', '.join(builds)}." if builds else ""
    return f"{cell(words.about_gpu(results.gpu) + built)}\n\nOf {len(verdicts)} claims: {', '.join(counts)}."


def claims(verdicts: Iterable[Verdict]) -> str:
    """The claims with their verdicts."""
    rows = []
    for one in verdicts:
        said = "; ".join([*one.remarks, *([one.claim.note] if one.claim.note else [])])
        rows.append([one.claim.id, one.claim.says, one.claim.published, f"**{one.verdict}**", ours(one), said])
    heads = ["", "the study says", "published", "verdict", "ours", "to be said"]
    return study_pages.table(heads, ([cell(text) for text in row] for row in rows))


def figures(verdicts: Iterable[Verdict]) -> str:
    """Each figure, with when it agrees and why so."""
    rows = []
    for one in verdicts:
        for figure in one.document()["figures"]:
            shown = figure["ours"] or "-"
            agrees = {True: "yes", False: "no", None: "-"}[figure["agrees"]]
            name = f"{one.claim.id}, {figure['name']}"
            rows.append(
                [
                    name,
                    figure["measures"],
                    figure["published"] or "-",
                    shown,
                    agrees,
                    figure["agrees_if"],
                    figure["why"],
                ]
            )
    return study_pages.table(
        ["figure", "is", "published", "ours", "agrees", "if", "why this limit"],
        ([cell(text) for text in row] for row in rows),
    )


def commands(results: Results) -> str:
    """The commands that measure all that the claims need."""
    return study_pages.table(["what measures it"], ([f"`{command}`"] for command in all_commands(results)))


def tables_of(folder: Path) -> dict[str, Callable[[], str]]:
    """The tables of a folder of results, by the names that the page has for them."""
    results = load(files_of(folder))
    verdicts = judge(results)
    return {
        "machine": lambda: machine(results, verdicts),
        "claims": lambda: claims(verdicts),
        "verified": lambda: transfer_tables.verified(results, folder),
        "kernels": lambda: transfer_tables.kernels(folder),
        "traces": lambda: transfer_tables.traces(results),
        "advice": lambda: transfer_tables.advice(folder),
        "figures": lambda: figures(verdicts),
        "commands": lambda: commands(results),
    }


def plots(folder: Path, into: Path) -> None:
    """Draws the charts of a folder of results into another."""
    from forebay.plots import save_figure
    from forebay.transfer.drawing import charts

    for name, _, figure in charts(load(files_of(folder))):
        save_figure(figure, into / name)


def main() -> None:
    """Runs the program."""
    found = folders()
    if "--write" in sys.argv:
        for name in sys.argv[sys.argv.index("--write") + 1 :]:
            if name.endswith(".md") and not Path(name).exists():
                Path(name).write_text(BEGINNING)
    default = found[0] if found else RESULTS / "h100-transfer"
    study_pages.run(__doc__ or "", "bench/report/transfer_claims.py", default, tables_of, plots)


if __name__ == "__main__":
    main()
