# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that search a graph on a drive."""

from typing import Annotated

import typer

IodepthOption = Annotated[
    int | None,
    typer.Option(
        "--iodepth",
        metavar="N",
        help="Reads in flight, of all threads together: a multiple of T.",
        show_default="4 for each thread",
    ),
]
GpuThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--gpu-threads",
        metavar="T",
        help="Threads that search, on the GPU or the CPU.",
        show_default="4096 on a GPU; on the CPU 32 for each core but one",
    ),
]
