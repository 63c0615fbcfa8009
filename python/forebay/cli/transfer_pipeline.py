# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer pipeline`: jobs one after another, and what overlapping them is worth."""

import statistics
from typing import Annotated, Any

import typer
from rich.table import Table

from forebay.cli.contract import JsonOption, NotVerifiedError, SeedOption, check_json_target, terminal
from forebay.cli.transfer import RepetitionsOption, SizeOption, collected
from forebay.devices import CPU, chosen_device
from forebay.errors import RefusedInput
from forebay.transfer.pipeline import ARM_KEY, JOBS_DEFAULT, Pipeline, is_arm_result
from forebay.units import format_ns


def pipeline(
    workload: Annotated[str, typer.Option("--workload", metavar="W", help="What each job runs.")],
    size: SizeOption = "tiny",
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="How many jobs follow each other.")] = JOBS_DEFAULT,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="A",
            help="What overlaps: malloc, pool_threshold_0, pool_threshold_max, pool_side_stream, host_thread or "
            "triple_buffering. Repeat it for several.",
            show_default="all; with --allocation chunked those without a pool",
        ),
    ] = None,
    allocation: Annotated[
        str,
        typer.Option(
            "--allocation",
            metavar="malloc|chunked",
            help="Where the memory of arms without a pool comes from. chunked: an address range, to which chunks of "
            "64 MiB are mapped, and which the next job maps again.",
        ),
    ] = "malloc",
    repetitions: RepetitionsOption = None,
    device: Annotated[
        str, typer.Option("--device", metavar="auto|cuda:N", help="The GPU. auto: the first one.")
    ] = "auto",
    seed: SeedOption = 1,
    json_target: JsonOption = None,
) -> None:
    """Run jobs of one workload one after another, with more or less of them overlapping. Only on a GPU.

    The results of every job must be right before an arm is timed. If the file of --json has results of the same
    options, the command goes on where that one stopped.
    """
    check_json_target(json_target)
    on, ordinal = chosen_device(device)
    if on == CPU:
        raise RefusedInput(
            "--device",
            device,
            "jobs overlap only on a GPU, and none was chosen or found: give cuda:N, see `forebay doctor`",
        )
    plan = Pipeline(
        workload=workload,
        size=size,
        jobs=jobs,
        arms=tuple(arm or ()),
        allocation=allocation,
        seed=seed,
        repetitions=repetitions,
        gpu=ordinal,
    )
    plan.validate()
    results = collected(json_target, plan.options(), plan.keys, plan.run, plan.document, ARM_KEY, is_arm_result)
    terminal(json_target).print(_table(results))
    if wrong := [result for result in results if result["verified"] is False]:
        first = wrong[0]
        raise NotVerifiedError(f"{first['workload']} in arm {first['arm']} gave a wrong result: {first['mismatch']}")


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("arm", "allocation", "verified", "all jobs", "in allocation calls", "against malloc"):
        table.add_column(heading)
    base = next((_median(result, "seconds") for result in results if result["arm"] == "malloc"), None)
    for result in results:
        verified = {True: "yes", False: "NO", None: "refused"}[result["verified"]]
        table.add_row(result["arm"], result["allocation"], verified, *_figures(result, base))
    return table


def _figures(result: dict[str, Any], base: float | None) -> tuple[str, str, str]:
    total, allocating = _median(result, "seconds"), _median(result, "allocation_seconds")
    if total is None or allocating is None:
        return result.get("refused", result.get("mismatch", "")), "", ""
    against = f"{base / total:.2f}x" if base and total else ""
    return format_ns(total * 1e9), format_ns(allocating * 1e9), against


def _median(result: dict[str, Any], part: str) -> float | None:
    return statistics.median(result[part]) if part in result else None
