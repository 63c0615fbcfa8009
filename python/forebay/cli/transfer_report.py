# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer report`: what results of the transfer suite say, as one page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from forebay.cli.contract import JsonOption, check_json_target, progress, terminal, write_json
from forebay.files import check_file_to_write, make_folder
from forebay.transfer.claims import judge
from forebay.transfer.loading import load
from forebay.transfer.report import CLAIMS, PAGE, document, write


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="What run, sweep and pipeline wrote with --json on a GPU, and WORKLOAD.MODE.SIZE.csv of ncu.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help=f"Write {PAGE}, {CLAIMS} and the charts there."),
    ],
    json_target: JsonOption = None,
) -> None:
    """Make a page of results: bars, tables, sweeps, series of jobs, and a verdict on each claim of the study.

    If two files have the same row, the later one counts.

    Example: forebay transfer report run.json sweep.json --out report
    """
    check_json_target(json_target)
    results = load(files)
    make_folder("--out", out)
    for name in (CLAIMS, PAGE):
        check_file_to_write("--out", out / name)
    verdicts = judge(results)
    with progress("drawing", None):
        written = write(results, verdicts, out)
    told = document(results, verdicts)
    write_json(json_target, told)
    console = terminal(json_target)
    table = Table(box=None, pad_edge=False)
    for heading in ("claim", "verdict", "the study says"):
        table.add_column(heading, no_wrap=heading != "the study says")
    for one in verdicts:
        table.add_row(one.claim.id, one.shown, one.claim.says)
    console.print(table)
    console.print(f"report: {out / PAGE}, {len(written) - 2} charts", highlight=False, soft_wrap=True)
