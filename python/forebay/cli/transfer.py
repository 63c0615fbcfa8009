# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer list|run`: verified workloads under every way of moving data."""

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


@app.command("list")
def list_workloads(json_target: JsonOption = None) -> None:
    """List the workloads: what each computes, and how many bytes it has at each size."""
    check_json_target(json_target)
    listed = transfer.workload_list()
    write_json(json_target, {"workloads": listed, "modes": list(transfer.STUDY_MODES)})
    sizes = Table(box=None, pad_edge=False)
    for heading in ("workload", "group", *next(iter(listed))["sizes"]):
        sizes.add_column(heading, no_wrap=True)
    computes = Table(box=None, pad_edge=False)
    for heading in ("workload", "computes", "--tile counts"):
        computes.add_column(heading, no_wrap=heading == "workload")
    for work in listed:
        sizes.add_row(work["name"], work["group"], *(format_bytes(size["bytes"]) for size in work["sizes"].values()))
        computes.add_row(work["name"], work["summary"], work["tile_unit"])
    out = terminal(json_target)
    out.print(sizes)
    out.print()
    out.print(computes)
    out.print()
    for name, (moves, allocation, stage) in transfer.STUDY_MODES.items():
        out.print(f"mode {name}: {moves}/{allocation}/{stage}")


@app.command("run")
def run(
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", metavar="W", help="What to run. Repeat it for several.", show_default="all"),
    ] = None,
    size: Annotated[
        str, typer.Option("--size", metavar="S", help="tiny, small, medium, large, super or mega.")
    ] = "tiny",
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="M",
            help="How bytes move: a mode of the study, or TRANSFER/ALLOCATION/STAGE. On the CPU a stage policy: plain, "
            "async4, async16 or bulk. Repeat it for several.",
            show_default="the six of the study; on the CPU the four policies",
        ),
    ] = None,
    blocks: Annotated[
        int | None, typer.Option("--blocks", metavar="N", help="Blocks of a launch.", show_default="the workload's own")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", help="Threads of a block.", show_default="the workload's own"),
    ] = None,
    tile: Annotated[
        int | None,
        typer.Option(
            "--tile", metavar="N", help="How much a block stages at a time.", show_default="the workload's own"
        ),
    ] = None,
    stages: Annotated[
        int | None, typer.Option("--stages", metavar="N", help="Buffers for tiles.", show_default="the workload's own")
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "--repetitions",
            metavar="N",
            help="Timed runs of each, on a GPU.",
            show_default="30; 5 at super, 1 at mega",
        ),
    ] = None,
    trace: Annotated[
        bool | None,
        typer.Option(
            "--trace/--no-trace",
            help="On a GPU, trace up to five runs more, which say what the time went to.",
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
    on, ordinal = chosen_device(device)
    shape = {"blocks": blocks, "threads": threads, "tile": tile, "stages": stages}
    plan = transfer.Plan(
        workloads=tuple(workload or ()),
        size=size,
        modes=tuple(mode or ()),
        shape={name: value for name, value in shape.items() if value is not None},
        seed=seed,
        repetitions=repetitions,
        gpu=None if on == CPU else ordinal,
        trace=trace is not False,
    )
    if plan.gpu is None and repetitions is not None:
        raise RefusedInput("--repetitions", repetitions, "is for a GPU: times of the CPU executor say nothing")
    if plan.gpu is None and trace is not None:
        raise RefusedInput("--trace" if trace else "--no-trace", trace, "is for a GPU: leave it out")
    plan.validate()
    goes_to_file = json_target not in (None, "-")
    results = transfer.read_results(Path(json_target), plan) if goes_to_file and json_target else []
    total = len(plan.chosen) * len(plan.chosen_modes)
    with progress("running", float(total)) as tell:
        tell(float(len(results)))
        for result in transfer.run(plan, list(results)):
            results.append(result)
            tell(float(len(results)))
            if goes_to_file:
                write_json(json_target, transfer.document(plan, results), keeps=True)
    write_json(json_target, transfer.document(plan, results), keeps=True)
    terminal(json_target).print(_table(results))
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
    if "seconds" in result:
        return format_ns(result["seconds"] * 1e9), ""
    warm = sorted(result["warm"], key=lambda times: times["total"])
    typical = warm[len(warm) // 2] if warm else result["cold"]
    return format_ns(typical["kernels"] * 1e9), format_ns(typical["total"] * 1e9)
