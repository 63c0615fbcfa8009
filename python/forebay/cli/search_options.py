# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that search a graph on a drive."""

from typing import Annotated

import typer

IodepthOption = Annotated[
    int | None,
    typer.Option(
        "--iodepth",
        metavar="N",
        help="Reads in flight at most. Each is of a thread of its own.",
        show_default="16384 on a GPU; on the CPU 128 for each core but one",
    ),
]
