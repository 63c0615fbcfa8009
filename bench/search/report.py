# SPDX-License-Identifier: Apache-2.0
"""Makes tables and plots of the study of vector search, from `bench/results/h100-search-two-gpus`.

report.py [RESULTS] prints all tables in Markdown, from what `study.py` wrote, and `faiss_cpu.py` beside that folder.
What was not measured says so. `--write PAGE` puts the tables into a page, each between the lines
`<!-- NAME: begin -->` and `<!-- NAME: end -->`. `--check PAGE` compares, and fails on a difference. `--plots DIR`
writes the plots.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import search_gates
import search_plots
import search_tables
from search_rows import RESULTS, Study
from study_pages import run


def sections(results: Path) -> dict[str, Callable[[], str]]:
    """The tables by the names that pages have for them."""
    t = search_tables
    parts = (t.machine, t.plots, t.rates, t.model, t.widths, t.memory, t.several, t.profiles)
    others = (t.exact_memory, t.exact_rates, t.exact_best, t.published, t.faiss)
    study = Study(results)
    found: dict[str, Callable[[], str]] = {part.__name__: partial(part, study) for part in (*parts, *others)}
    return {**found, "gates": partial(search_gates.gate_table, study)}


def plots(results: Path, folder: Path) -> None:
    """Draws the plots into a folder."""
    search_plots.write(Study(results), folder)


if __name__ == "__main__":
    run(__doc__ or "", "bench/search/report.py", RESULTS, sections, plots)
