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
SECTIONS = {
    "claims": "Verdicts",
    "verified": "What was verified",
    "kernels": "How good the kernels are",
    "traces": "What traces cover",
    "advice": "How good the advice is",
    "figures": "How each figure is judged",
    "commands": "Commands",
}
BEGINNING = """# The transfer study's claims

<!-- The tables are written by bench/report/transfer_claims.py, from the documents in bench/results. -->

<!-- machine: begin -->
<!-- machine: end -->
""" + "".join(f"\n## {heading}\n\n<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name, heading in SECTIONS.items())


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
    sizes = sum(one.differs_in == "size" for one in verdicts)
    refuted = f" Of the refuted ones {sizes} differ in size only." if sizes else ""
    return f"{cell(words.about_gpu(results.gpu) + built)}\n\nOf {len(verdicts)} claims: {', '.join(counts)}.{refuted}"


def claims(verdicts: Iterable[Verdict]) -> str:
    """The claims with their verdicts."""
    rows = []
    for one in verdicts:
        said = "; ".join([*one.remarks, *([one.claim.note] if one.claim.note else [])])
        rows.append([one.claim.id, one.claim.says, one.claim.published, f"**{one.shown}**", ours(one), said])
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
