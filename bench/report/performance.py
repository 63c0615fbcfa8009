# SPDX-License-Identifier: Apache-2.0
"""Writes `docs/performance.md`, its charts and the README's figures from `bench/results/*.json`.

`python bench/report/performance.py` writes them. `--check` compares them with what is there, and fails on a difference.
Either fails where the text states a result by itself, or where a headline rests on a row that does not vouch for it.
"""

import argparse
import re
import sys
from pathlib import Path

import charts
import jinja2
import results
import tables
from results import ROOT, HeadlineError

HERE = Path(__file__).resolve().parent
PAGE = "docs/performance.md"
README = "README.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
NOTE = "<!-- Written by bench/report/performance.py. Edit bench/report/{template} instead. -->\n"

# A number with the unit of a result. A template takes it from an expression; a condition stands in given("...").
_RESULT = re.compile(r"\d[\d,.]*\s*(?:[MG]IOPS|k?IOPS|[kMGT]B/s|TFLOP/s|[MG]/s|ns|us|ms|s|%|times)(?![\w/])")
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|`[^`]*`|\]\([^)]*\)", re.DOTALL)


class StatedResultError(Exception):
    """A template states a result that no file vouches for."""


def find_stated_results(template: str) -> list[str]:
    """The numbers in a template's own text that read like results."""
    return [match.group() for match in _RESULT.finditer(_EXPRESSION.sub("_", template))]


def render(name: str, template: str) -> str:
    """The text of a template.

    Raises:
        StatedResultError: the text states a result by itself.
        HeadlineError: a headline rests on a row that is `exceeded` or beyond its link.
    """
    if stated := find_stated_results(template):
        remedy = 'take a result from bench/results by an expression; write a condition as {{ given("...") }}'
        raise StatedResultError(f"{name}: {', '.join(stated)}: {remedy}")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    environment.filters |= {"sig": tables.sig, "percent": tables.percent}
    environment.globals |= {"given": str, "results": results, "tables": tables}
    return environment.from_string(template).render()


def outputs() -> dict[str, str]:
    """What each file should hold."""
    wanted = {name: charts.svg(draw) for name, draw in charts.CHARTS.items()}
    name = "performance.md.jinja"
    wanted[PAGE] = NOTE.format(template=name) + "\n" + render(name, (HERE / name).read_text())
    name = "readme.md.jinja"
    readme = (ROOT / README).read_text()
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(
            f"{README}: the lines {BEGIN.strip()} and {END.strip()} are missing: the figures stand between them"
        )
    wanted[README] = before + begin + render(name, (HERE / name).read_text()) + end + after
    return wanted


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file would change")
    check = parser.parse_args().check
    try:
        wanted = outputs()
    except (StatedResultError, HeadlineError) as problem:
        sys.exit(f"bench/report: {problem}")
    stale = [name for name, text in wanted.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    if check and stale:
        sys.exit(f"{', '.join(stale)}: not what bench/results says: run python bench/report/performance.py")
    for name in stale:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(wanted[name])


if __name__ == "__main__":
    main()
