# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer list|run`: verified workloads under every way of moving data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from forebay import transfer
from forebay.cli.application import Application
from forebay.cli.contract import (
    JsonOption,
    NotVerifiedError,
    SeedOption,
    check_json_target,
    progress,
    terminal,
    write_json,
)
from forebay.devices import CPU, chosen_device
from forebay.errors import RefusedInput
from forebay.units import format_bytes, format_ns

app = Application(help="Which way of moving data suits a program: 25 workloads, each verified before it is timed.")

DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda:N",
        help="Where the kernels run. On the CPU the modes are the four stage policies. auto: a GPU if there is one.",
    ),
]


WorkloadOption = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="W", help="What to run. Repeat it for several.", show_default="all"),
]
SizeOption = Annotated[str, typer.Option("--size", metavar="S", help="tiny, small, medium, large, super or mega.")]
ModeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="M",
        help="How bytes move: a mode of the study, or TRANSFER/ALLOCATION/STAGE. On the CPU a stage policy: plain, "
        "async4, async16 or bulk. Repeat it for several.",
        show_default="the six of the study; on the CPU the four policies",
    ),
]
_OWN = "the workload's own"
BlocksOption = Annotated[
    int | None, typer.Option("--blocks", metavar="N", help="Blocks of a launch.", show_default=_OWN)
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="Threads of a block.", show_default=_OWN)
]
TileOption = Annotated[
    int | None, typer.Option("--tile", metavar="N", help="How much a block stages at a time.", show_default=_OWN)
]
StagesOption = Annotated[
    int | None, typer.Option("--stages", metavar="N", help="Buffers for tiles.", show_default=_OWN)
]
RepetitionsOption = Annotated[
    int | None,
    typer.Option(
        "--repetitions", metavar="N", help="Timed runs of each, on a GPU.", show_default="30; 5 at super, 1 at mega"
    ),
]


@app.command("list")
def list_workloads(json_target: JsonOption = None) -> None:
    """List the workloads: what each computes, and how many bytes it has at each size."""
    check_json_target(json_target)
    listed = transfer.workload_list()
    write_json(json_target, {"workloads": listed, "modes": list(transfer.STUDY_MODES)})
    sizes = Table(box=None, pad_edge=False)
    for heading in ("workload", *next(iter(listed))["sizes"]):
        sizes.add_column(heading, no_wrap=True)
    computes = Table(box=None, pad_edge=False)
    for heading in ("workload", "group", "computes", "--tile counts"):
        computes.add_column(heading, no_wrap=heading in ("workload", "group"))
    for work in listed:
        sizes.add_row(work["name"], *(format_bytes(size["bytes"]) for size in work["sizes"].values()))
        computes.add_row(work["name"], work["group"], work["summary"], work["tile_unit"])
    out = terminal(json_target)
    out.print(sizes)
    out.print()
    out.print("Sizes are those of all buffers on the device, also of those that only kernels use.")
    out.print()
    out.print(computes)
    out.print()
    for name, (moves, allocation, stage) in transfer.STUDY_MODES.items():
        out.print(f"mode {name}: {moves}/{allocation}/{stage}")


@app.command("run")
def run(
    workload: WorkloadOption = None,
    size: SizeOption = "tiny",
    mode: ModeOption = None,
    blocks: BlocksOption = None,
    threads: ThreadsOption = None,
    tile: TileOption = None,
    stages: StagesOption = None,
    repetitions: RepetitionsOption = None,
    trace: Annotated[
        bool | None,
        typer.Option(
            "--trace/--no-trace",
            help="On a GPU, trace up to five runs more (one at super and mega), which say what the time went to.",
            show_default="--trace",
        ),
    ] = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 1,
    json_target: JsonOption = None,
) -> None:
    """Run workloads in several modes. Each mode must give a right result before it is timed.

    If the file of --json has results of the same options, the run goes on where that one stopped.
    """
    check_json_target(json_target)
    shape = {"blocks": blocks, "threads": threads, "tile": tile, "stages": stages}
    plan = plan_of(workload, size, mode, shape, repetitions, device, seed)
    if plan.gpu is None and trace is not None:
        raise RefusedInput("--trace" if trace else "--no-trace", trace, "is for a GPU: leave it out")
    plan = replace(plan, trace=trace is not False)
    plan.validate()
    results = collected(
        json_target,
        plan.options(),
        plan.keys,
        lambda kept: transfer.run(plan, kept),
        lambda results: transfer.document(plan, results),
    )
    out = terminal(json_target)
    out.print(_table(results))
    if plan.gpu is None:
        out.print("The kernels ran on the CPU executor, so their times say nothing of a GPU.")
    check_verified(results)


def plan_of(
    workloads: list[str] | None,
    size: str,
    modes: list[str] | None,
    shape: Mapping[str, int | None],
    repetitions: int | None,
    device: str,
    seed: int,
) -> transfer.Plan:
    """What options ask for, of which the plan itself checks the values."""
    on, ordinal = chosen_device(device)
    if on == CPU and repetitions is not None:
        raise RefusedInput("--repetitions", repetitions, "is for a GPU: times of the CPU executor say nothing")
    return transfer.Plan(
        workloads=tuple(workloads or ()),
        size=size,
        modes=tuple(modes or ()),
        shape={name: value for name, value in shape.items() if value is not None},
        seed=seed,
        repetitions=repetitions,
        gpu=None if on == CPU else ordinal,
        trace=False,
    )


def collected(
    json_target: str | None,
    options: Mapping[str, Any],
    coming: Sequence[tuple[object, ...]],
    run_others: Callable[[list[dict[str, Any]]], Iterable[dict[str, Any]]],
    document: Callable[[list[dict[str, Any]]], dict[str, Any]],
    key: Sequence[str] = transfer.RUN_KEY,
    is_one: Callable[[object], bool] | None = None,
) -> list[dict[str, Any]]:
    """All results of a command that goes on where the file of --json stopped, which is written after each.

    Args:
        json_target: The value of --json.
        options: What the results in the file must have in common with those to come.
        coming: The keys of the results that the command is for.
        run_others: Runs what is not among the results that it is given.
        document: What --json gets.
        key: What tells the results from each other.
        is_one: What a result looks like; by default, as that of a run.
    """
    goes_to_file = json_target not in (None, "-")
    results = []
    if goes_to_file and json_target:
        results = transfer.read_results(Path(json_target), options, key, coming, is_one)
    with progress("running", float(len(coming))) as tell:
        tell(float(len(results)))
        for result in run_others(list(results)):
            results.append(result)
            tell(float(len(results)))
            if goes_to_file:
                write_json(json_target, document(results), keeps=True)
    write_json(json_target, document(results), keeps=True)
    return results


def check_verified(results: list[dict[str, Any]]) -> None:
    """Fails if a result is wrong, with the first that is."""
    if wrong := [result for result in results if result["verified"] is False]:
        first = wrong[0]
        raise NotVerifiedError(f"{first['workload']} in mode {first['mode']} gave a wrong result: {first['mismatch']}")


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("workload", "mode", "size", "verified", "kernels", "total"):
        table.add_column(heading)
    for result in results:
        verified = {True: "yes", False: "NO", None: "refused"}[result["verified"]]
        table.add_row(result["workload"], result["mode"], result["size"], verified, *_times(result))
    return table


def _times(result: dict[str, Any]) -> tuple[str, str]:
    if "refused" in result:
        return "", result["refused"]
    kernels, total = transfer.typical_seconds(result)
    return format_ns(kernels * 1e9), "" if total is None else format_ns(total * 1e9)
