# SPDX-License-Identifier: Apache-2.0
"""Pages of studies, whose tables stand between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


def table(head: list[str], body: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    rows = ("| " + " | ".join(cells) + " |" for cells in (head, *body))
    first, *others = rows
    return "\n".join([first, "|" + "---|" * len(head), *others])


def with_tables(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with its tables made anew.

    Raises:
        SystemExit: the page has no place for any table, or has one for a table that there is not.
    """
    marks = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)

    def made(match: re.Match[str]) -> str:
        if match[2] not in tables:
            sys.exit(f"report.py: a page asks for the table {match[2]}: must be one of {', '.join(tables)}")
        return f"{match[1]}\n{tables[match[2]]()}\n\n{match[3]}"

    text, count = marks.subn(made, page)
    if not count:
        sys.exit("report.py: the page has no lines <!-- NAME: begin --> and <!-- NAME: end -->")
    return text


def run(
    description: str,
    program: str,
    results: Path,
    tables_of: Callable[[Path], Mapping[str, Callable[[], str]]],
    plots: Callable[[Path, Path], None],
) -> None:
    """Prints the tables, writes them into pages, compares them, or draws the plots, as the command line says.

    Args:
        description: What `--help` says.
        program: The script's path from the root, for the message of `--check`.
        results: The folder of results, unless the command line names another.
        tables_of: The tables of a folder of results, by the names that pages have for them.
        plots: Draws the plots of a folder of results into another.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=results)
    parser.add_argument("--write", type=Path, metavar="PAGE", nargs="+", default=[])
    parser.add_argument("--check", type=Path, metavar="PAGE", nargs="+", default=[])
    parser.add_argument("--plots", type=Path, metavar="DIR")
    given = parser.parse_args()
    tables = tables_of(given.results)
    for page in (*given.write, *given.check):
        before = page.read_text()
        after = with_tables(before, tables)
        if page in given.check and before != after:
            sys.exit(f"{page}: not what {given.results.name} says: run python {program} --write {page}")
        if before != after:
            page.write_text(after)
    if given.plots:
        plots(given.results, given.plots)
    if not (given.write or given.check or given.plots):
        print("\n\n".join(f"## {name}\n\n{part()}" for name, part in tables.items()))
