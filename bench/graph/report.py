# SPDX-License-Identifier: Apache-2.0
"""Makes tables and plots of the study of graphs in external memory, from `bench/results/h100-graph`.

report.py [RESULTS] prints all tables in Markdown, from what `study.py` and `external_gates_bench` wrote. `--write PAGE`
puts them into a page, each between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`. `--check PAGE` compares,
and fails on a difference. `--plots DIR` writes the plots.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import study_claims
import study_gates
import study_plots
import study_tables
from study_tables import RESULTS, Study


def sections() -> dict[str, Callable[[Study], str]]:
    """The tables by the names that pages have for them."""
    t, g = study_tables, study_gates
    searches = (t.machine, t.model, t.host, t.latency, t.alignment, t.paper, t.plain, t.plain_published, t.rates)
    others = (t.modes, t.products, t.before_after, t.algorithms, t.largest)
    gates = (g.missed, g.chases, g.random_reads, g.machine_gates)
    return {part.__name__: part for part in (*searches, *others, *gates, study_claims.claims)}


def with_tables(page: str, study: Study) -> str:
    """A page with its tables made anew.

    Raises:
        SystemExit: the page has no place for any table, or has one for a table that there is not.
    """
    known = sections()
    marks = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)

    def made(match: re.Match[str]) -> str:
        if match[2] not in known:
            sys.exit(f"report.py: a page asks for the table {match[2]}: must be one of {', '.join(known)}")
        return f"{match[1]}\n{known[match[2]](study)}\n\n{match[3]}"

    text, count = marks.subn(made, page)
    if not count:
        sys.exit("report.py: the page has no lines <!-- NAME: begin --> and <!-- NAME: end -->")
    return text


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--write", type=Path, metavar="PAGE", nargs="+", default=[])
    parser.add_argument("--check", type=Path, metavar="PAGE", nargs="+", default=[])
    parser.add_argument("--plots", type=Path, metavar="DIR")
    given = parser.parse_args()
    study = Study(given.results)
    for page in (*given.write, *given.check):
        before = page.read_text()
        after = with_tables(before, study)
        if page in given.check and before != after:
            sys.exit(f"{page}: not what {given.results.name} says: run python bench/graph/report.py --write {page}")
        if before != after:
            page.write_text(after)
    if given.plots:
        study_plots.write(study, given.plots)
    if not (given.write or given.check or given.plots):
        print("\n\n".join(f"## {name}\n\n{part(study)}" for name, part in sections().items()))


if __name__ == "__main__":
    main()
