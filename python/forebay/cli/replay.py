# SPDX-License-Identifier: Apache-2.0
"""`forebay replay`: block traces on drives."""

from typing import Annotated, Any

import typer

from forebay import replay as replaying
from forebay import trace as traces
from forebay.cli.contract import (
    AllowDestroyOption,
    DeviceOption,
    JsonOption,
    NotVerifiedError,
    SeedOption,
    check_json_target,
    notice,
    progress,
    require_raw_writable,
    terminal,
    write_json,
)
from forebay.cli.job_table import conditions, job_table
from forebay.cli.timing import timing
from forebay.storage import Storage
from forebay.units import format_bytes, format_count, format_ns


def replay(
    trace: Annotated[
        str,
        typer.Argument(metavar="TRACE", help="The file: an MSR Cambridge trace or an iolog of fio, gzipped or not."),
    ],
    drive: Annotated[
        list[str],
        typer.Option(
            "--drive", metavar="URI", help="The drive, such as emulated:size=64M. Repeat it to stripe several."
        ),
    ],
    trace_format: Annotated[
        str,
        typer.Option(
            "--format", metavar="auto|msr|iolog", help="The format of TRACE. auto: what its first line looks like."
        ),
    ] = "auto",
    disk: Annotated[
        int | None,
        typer.Option("--disk", metavar="NUMBER", min=0, help="Replay only this DiskNumber of an MSR trace."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="Replay only this file of an iolog.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="closed|open",
            help="closed: N operations are always in flight. open: each is submitted at the trace's time.",
        ),
    ] = "closed",
    iodepth: Annotated[
        int | None,
        typer.Option(
            "--iodepth",
            metavar="N",
            help="Operations in flight, of all threads together; in an open loop at most this many.",
            show_default="1 closed, 64 open",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="X",
            help="Replay an open loop X times as fast as the trace was recorded.",
            show_default="as fast as it was",
        ),
    ] = None,
    wrap: Annotated[
        bool,
        typer.Option(
            "--wrap",
            help="Fit operations to the drive: offsets modulo its size, lengths to whole blocks. Without it, an "
            "operation that does not fit is refused.",
        ),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the data that is read of blocks that the replay wrote.")
    ] = False,
    gpu_threads: Annotated[
        int | None,
        typer.Option(
            "--gpu-threads",
            metavar="T",
            help="Threads that submit, on the GPU or the CPU. They share N.",
            show_default="1 on the CPU; on a GPU N, at most 1024",
        ),
    ] = None,
    allow_destroy: AllowDestroyOption = False,
    seed: SeedOption = 1,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Replay a block trace on a drive, and check that every operation of it was done."""
    check_json_target(json_target)
    job = replaying.Job(
        mode=mode,
        iodepth=iodepth,
        speed=speed,
        wrap=wrap,
        verify=verify,
        randseed=seed,
        gpu_threads=gpu_threads,
    )
    job.validate()
    if gpu_threads and gpu_threads > job.effective_iodepth:
        running = format_count(job.effective_iodepth, "thread")
        notice(f"--gpu-threads {gpu_threads}: only {running} will run, one for each operation of --iodepth")
    with progress(f"reading {trace}", None):
        loaded = traces.load(trace, trace_format, disk=disk, file=file)
    if loaded.trims:
        notice(f"{format_count(loaded.trims, 'trim')} of the trace not replayed: kernels have no command for it")
    writes = replaying.writes(loaded)
    with Storage(*drive, device=device, read_only=not writes, allow_destroy=allow_destroy) as storage:
        if writes:
            require_raw_writable(storage, drive)
        with progress(f"replaying {len(loaded.operations)} operations", None):
            document = replaying.run(storage, loaded, job)
    if early := document["forebay"]["trace"]["out_of_order"]:
        notice(
            f"{format_count(early, 'operation')} of the trace out of order: the replay is in the order of the times, "
            "not of the lines"
        )
    write_json(json_target, document)
    _show(document, json_target)
    _judge(document["forebay"])


def _judge(ours: dict[str, Any]) -> None:
    if ours["open_loop"] == "late":
        p99 = format_ns(ours["lag_ns"]["percentile"]["99.000000"])
        notice(f"the replay did not keep up with the trace: p99 lag is {p99}; raise --iodepth or lower --speed")
    if ours["errors"]:
        raise NotVerifiedError(
            f"{format_count(ours['errors'], 'operation')} failed; the first is of line {ours['first_error_line']}: "
            f"{ours['first_error']}"
        )
    if ours["mismatches"]:
        raise NotVerifiedError(
            f"{ours['mismatches']} of {format_count(ours['verified_blocks'], 'block')} did not verify: the data is not "
            f"what the replay wrote; the first is at byte {ours['first_mismatch_byte']}"
        )
    if not ours["verified"]:
        raise NotVerifiedError(
            f"what the trace asked, what completed and what the drive counted differ: {ours['counts']}"
        )


def _show(document: dict[str, Any], json_target: str | None) -> None:
    job, ours = document["jobs"][0], document["forebay"]
    trace, done = ours["trace"], ours["counts"]["completed"]
    out = terminal(json_target)
    out.print(timing(ours), highlight=False, soft_wrap=True)
    out.print(job_table(f"{trace['name']}, {ours['mode']} loop, iodepth {job['job options']['iodepth']}", job))
    out.print(
        f"{format_count(trace['lines'], 'line')} of {trace['format']}: "
        f"{format_count(trace['operations'], 'operation')}, "
        f"{format_count(trace['trims_skipped'], 'trim')} skipped, {trace['left_out']} of another disk or file, "
        f"{format_count(trace['other_lines'], 'other line')}"
        + (f"; {trace['wrapped']} wrapped into the drive" if trace["wrapped"] else ""),
        highlight=False,
        soft_wrap=True,
    )
    out.print(
        f"completed: {format_count(done['reads'], 'read')} of {format_bytes(done['bytes_read'])}, "
        f"{format_count(done['writes'], 'write')} of {format_bytes(done['bytes_written'])}, "
        f"{done['flushes']} {'flush' if done['flushes'] == 1 else 'flushes'}",
        highlight=False,
        soft_wrap=True,
    )
    if ours["open_loop"]:
        percentiles = ours["lag_ns"]["percentile"]
        out.print(
            f"{ours['open_loop']}, at {ours['speed']:g} times the trace's speed: lag p50 "
            f"{format_ns(percentiles['50.000000'])}, p99 {format_ns(percentiles['99.000000'])}, "
            f"max {format_ns(ours['lag_ns']['max'])}; {ours['lag_above_bound']} of {ours['lag_ns']['N']} above "
            f"{format_ns(ours['lag_bound_ns'])}",
            highlight=False,
            soft_wrap=True,
        )
    outcome = "counts verified; " + _checked(ours["verified_blocks"]) if ours["verified"] else "DID NOT VERIFY"
    out.print(f"{conditions(job, ours)}; {outcome}", highlight=False, soft_wrap=True)


def _checked(blocks: int | None) -> str:
    if blocks is None:
        return "data not checked (use --verify)"
    return "data verified" if blocks else "data not checked: the trace reads no block that it wrote before"
