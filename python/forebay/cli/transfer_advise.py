# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer advise`: which mode suits a program, and why."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from forebay.cli.contract import JsonOption, check_json_target, missing, terminal, write_json
from forebay.errors import RefusedInput
from forebay.provenance import build_and_host
from forebay.transfer.advice import advise as advice_for
from forebay.transfer.cost_model import Constants
from forebay.transfer.fitting import Measured, fit, read_measured, typical_error
from forebay.transfer.profile import Profile, profile_of_workload, read_profile
from forebay.transfer.runs import check_named, names, sizes
from forebay.units import format_bytes, format_ns

_SIZE = "large"
_RUNS_MAX = 10**9
_WHOLE_PERCENT = 0.1  # above, tenths of a percent say nothing
_BEYOND = 4  # times as many bytes as were measured are far from what the model was fitted to


def advise(
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="W", help="Advise for a workload of the suite.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="S", help="Of the workload: tiny to mega.", show_default=_SIZE),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile", metavar="FILE.toml", help="Advise for a program: its bytes, operations, allocations."
        ),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="What `forebay transfer run --json` wrote on the GPU. Constants of the machine are fitted to it, but "
            "not to results of the workload itself. Repeat it for several files.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option("--runs", metavar="N", help="How many runs share the host's buffers, which are page-locked once."),
    ] = 1,
    json_target: JsonOption = None,
) -> None:
    """Name the mode that should be the fastest for a program, and say whether overlapped allocation pays, and why.

    A model of costs says so, whose constants are fitted to what other workloads took on the machine.
    """
    check_json_target(json_target)
    if workload is None and profile is None:
        raise missing("--workload", "so is --profile: give one of them")
    if workload is not None and profile is not None:
        raise RefusedInput("--profile", profile, "give either --workload or --profile")
    if not 1 <= runs <= _RUNS_MAX:
        raise RefusedInput("--runs", runs, f"must be a whole number from 1 to {_RUNS_MAX}")
    if profile is not None and size is not None:
        raise RefusedInput("--size", size, "is of a workload of the suite: leave it out with --profile")
    size = size or _SIZE
    if workload is not None:
        check_named("--workload", workload, names())
        check_named("--size", size, sizes())
        asked = profile_of_workload(workload, size)
    else:
        asked = read_profile(profile or Path())
    if not results:
        raise missing("--results", "this build has no constants of a machine: name what `forebay transfer run` wrote")
    rows = read_measured("--results", *results)
    others = [row for row in rows if row.workload != workload]
    if not others:
        remedy = f"have results of {workload} only, which advice for it must not know: measure other workloads, too"
        raise RefusedInput("--results", "the documents", remedy)
    constants = fit(others)
    error = typical_error(others, runs)
    advice = advice_for(asked, constants, runs)
    about = {"workload": workload, "size": size} if workload is not None else {"profile": str(profile)}
    document = {
        **about,
        **dataclasses.asdict(advice),
        "runs": runs,
        "typical_error": error,
        "asked": dataclasses.asdict(asked),
        "constants": constants.to_document(),
        "forebay": build_and_host(),
    }
    write_json(json_target, document)
    out = terminal(json_target)
    out.print(f"mode: {advice.mode}")
    out.print(f"overlapped allocation: {'yes' if advice.overlap_allocation else 'no'}")
    table = Table(box=None, pad_edge=False)
    table.add_column("mode")
    table.add_column("expected", justify="right")
    for mode, seconds in sorted(advice.expected.items(), key=lambda item: item[1]):
        table.add_row(mode, format_ns(seconds * 1e9))
    out.print(table)
    for line in advice.why:
        out.print(f"- {line}")
    for line in _cautions(asked, others, constants, error):
        out.print(f"- {line}")


def _cautions(asked: Profile, rows: Sequence[Measured], constants: Constants, error: float | None) -> Iterator[str]:
    """How far the model may be off, and what it leaves out."""
    if error is None:
        yield "The results do not say how far the model is off: measure more workloads."
    else:
        percent = f"{error * 100:.{0 if error > _WHOLE_PERCENT else 1}f} %"
        yield f"For workloads that it is not fitted to, the model's median error is {percent}."
    if left_out := sorted({row.mode for row in rows} - set(constants.modes())):
        yield f"Modes that were measured without those that they are compared with are left out: {', '.join(left_out)}."
    most = max(row.profile.all_bytes for row in rows)
    if asked.all_bytes > _BEYOND * most:
        yield (
            f"The program has {format_bytes(int(asked.all_bytes))}, and what was measured {format_bytes(int(most))} at "
            "most: the model may be wrong, and does not know what fits into the GPU."
        )
