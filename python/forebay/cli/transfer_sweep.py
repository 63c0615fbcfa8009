# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer sweep`: how much blocks, threads, tiles or stages matter."""

from typing import Annotated, Any

import typer
from rich.table import Table

from forebay import transfer
from forebay.cli.contract import JsonOption, SeedOption, check_json_target, terminal
from forebay.cli.transfer import (
    BlocksOption,
    DeviceOption,
    ModeOption,
    RepetitionsOption,
    SizeOption,
    StagesOption,
    ThreadsOption,
    TileOption,
    check_verified,
    collected,
    plan_of,
)
from forebay.errors import RefusedInput
from forebay.transfer.sweep import SWEEP_KEY
from forebay.units import format_ns


def sweep(
    parameter: Annotated[
        str, typer.Option("--parameter", metavar="P", help="What varies: blocks, threads, tile or stages.")
    ] = "blocks",
    values: Annotated[
        str | None,
        typer.Option(
            "--values",
            metavar="N,N,...",
            help="What it is set to.",
            show_default="the study's: blocks 4096 to 16, threads 32 to 1024, tiles of 2 to 128 KiB; stages 1 to 8",
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="W",
            help="What to run. Repeat it for several.",
            show_default=transfer.STUDY_WORKLOAD,
        ),
    ] = None,
    size: SizeOption = "tiny",
    mode: ModeOption = None,
    blocks: BlocksOption = None,
    threads: ThreadsOption = None,
    tile: TileOption = None,
    stages: StagesOption = None,
    repetitions: RepetitionsOption = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 1,
    json_target: JsonOption = None,
) -> None:
    """Run a workload with one value of its launch shape after another, each verified before it is timed.

    As in the study, blocks vary at 256 threads, threads at 256 blocks, and tiles at 4096 blocks of 256 threads, unless
    an option says otherwise. If the file of --json has results of the same options, the sweep goes on where that one
    stopped.
    """
    check_json_target(json_target)
    shape = {"blocks": blocks, "threads": threads, "tile": tile, "stages": stages}
    plan = plan_of(workload or [transfer.STUDY_WORKLOAD], size, mode, shape, repetitions, device, seed)
    swept = transfer.Sweep(plan, parameter, () if values is None else _numbers(values))
    swept.validate()
    results = collected(json_target, swept.options(), swept.keys, swept.run, swept.document, SWEEP_KEY)
    terminal(json_target).print(_table(parameter, results))
    check_verified(results)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = []
    for word in text.split(","):
        if not (word.strip().isascii() and word.strip().isdecimal() and len(word.strip()) <= 10):
            raise RefusedInput("--values", word, "must be whole numbers from 1 to 2^32 - 1, separated by commas")
        numbers.append(int(word))
    return tuple(numbers)


def _table(parameter: str, results: list[dict[str, Any]]) -> Table:
    """A row for each result. A total is compared with the least of its workload, of all values and modes."""
    table = Table(box=None, pad_edge=False)
    for heading in ("workload", "mode", parameter, "verified", "kernels", "total", "/ best"):
        texts = ("workload", "mode", "verified")
        table.add_column(heading, no_wrap=heading != "total", justify="left" if heading in texts else "right")
    best: dict[str, float] = {}
    for result in results:
        if result["verified"]:
            _, total = transfer.typical_seconds(result)
            if total is not None:
                best[result["workload"]] = min(total, best.get(result["workload"], total))
    for result in results:
        verified = {True: "yes", False: "NO", None: "refused"}[result["verified"]]
        cells = [result["workload"], result["mode"], str(result["value"]), verified]
        table.add_row(*cells, *_times(result, best.get(result["workload"])))
    return table


def _times(result: dict[str, Any], best: float | None) -> tuple[str, str, str]:
    if "refused" in result:
        return "", result["refused"], ""
    kernels, total = transfer.typical_seconds(result)
    if total is None:
        return format_ns(kernels * 1e9), "", ""
    return format_ns(kernels * 1e9), format_ns(total * 1e9), f"{total / best:.3f}" if best else ""
