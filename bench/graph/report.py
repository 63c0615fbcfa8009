# SPDX-License-Identifier: Apache-2.0
"""Makes tables and plots of the study of graphs in external memory, from `bench/results/h100-graph`.

report.py [RESULTS] prints all tables in Markdown, from what `study.py` and `external_gates_bench` wrote. `--write PAGE`
puts them into a page, each between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`. `--check PAGE` compares,
and fails on a difference. `--plots DIR` writes the plots.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import study_claims
import study_gates
import study_plots
import study_tables
from study_tables import RESULTS, ROOT, Study

sys.path.insert(0, str(ROOT / "bench" / "report"))

import study_pages


def sections(results: Path) -> dict[str, Callable[[], str]]:
    """The tables by the names that pages have for them."""
    t, g = study_tables, study_gates
    searches = (t.machine, t.model, t.host, t.latency, t.alignment, t.paper, t.plain, t.plain_published, t.rates)
    others = (t.modes, t.products, t.before_after, t.algorithms, t.largest)
    gates = (g.missed, g.chases, g.random_reads, g.machine_gates)
    study = Study(results)
    return {part.__name__: partial(part, study) for part in (*searches, *others, *gates, study_claims.claims)}


def plots(results: Path, folder: Path) -> None:
    """Draws the plots into a folder."""
    study_plots.write(Study(results), folder)


if __name__ == "__main__":
    study_pages.run(__doc__ or "", "bench/graph/report.py", RESULTS, sections, plots)
