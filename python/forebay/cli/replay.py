# SPDX-License-Identifier: Apache-2.0
"""`forebay replay`: block traces on drives."""

from typing import Annotated, Any

import typer

from forebay import replay as replaying
from forebay import trace as traces
from forebay.cli.contract import (
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
from forebay.cli.job_table import job_table
from forebay.storage import Storage
from forebay.units import format_bytes, format_ns


def replay(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, gzipped or not: MSR Cambridge or fio iolog.")],
    drive: Annotated[list[str], typer.Option("--drive", metavar="URI", help="A drive; repeat to stripe.")],
    trace_format: Annotated[str, typer.Option("--format", metavar="auto|msr|iolog", help="What the file is.")] = "auto",
    disk: Annotated[int | None, typer.Option("--disk", min=0, help="Only this disk of an MSR trace.")] = None,
    file: Annotated[str | None, typer.Option("--file", help="Only this file of an iolog.")] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode", metavar="closed|open", help="Always IODEPTH in flight, or each operation at the trace's time."
        ),
    ] = "closed",
    iodepth: Annotated[
        int | None, typer.Option("--iodepth", help="Operations in flight; default: 1, or at most 64 in an open loop.")
    ] = None,
    speed: Annotated[float | None, typer.Option("--speed", help="Times the trace's own, in an open loop.")] = None,
    wrap: Annotated[
        bool, typer.Option("--wrap", help="Take offsets modulo the drive, and whole blocks, instead of refusing.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check what is read of blocks that the replay wrote before.")
    ] = False,
    gpu_threads: Annotated[
        int | None, typer.Option("--gpu-threads", help="Threads that share IODEPTH; default: what suits the device.")
    ] = None,
    allow_destroy: Annotated[
        bool, typer.Option("--allow-destroy", help="Write although the drive carries a catalogue of extents.")
    ] = False,
    seed: SeedOption = 1,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Replay a block trace on a drive, and check that nothing of it was left out."""
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
        notice(f"--gpu-threads {gpu_threads}: {job.effective_iodepth} run, one for each operation in flight")
    with progress(f"reading {trace}", None):
        loaded = traces.load(trace, trace_format, disk=disk, file=file)
    if loaded.trims:
        notice(f"{loaded.trims} trims are skipped: kernels have no command for them")
    writes = replaying.writes(loaded)
    with Storage(*drive, device=device, read_only=not writes, allow_destroy=allow_destroy) as storage:
        if writes:
            require_raw_writable(storage, drive)
        with progress(f"replaying {len(loaded.operations)} operations", None):
            document = replaying.run(storage, loaded, job)
    if early := document["forebay"]["trace"]["out_of_order"]:
        notice(f"{early} operations are earlier than one above them; the replay is in the order of the times")
    write_json(json_target, document)
    _show(document, json_target)
    _judge(document["forebay"])


def _judge(ours: dict[str, Any]) -> None:
    if ours["open_loop"] == "late":
        p99 = format_ns(ours["lag_ns"]["percentile"]["99.000000"])
        notice(f"the replay did not keep up with the trace: p99 lag {p99}; raise --iodepth or lower --speed")
    if ours["errors"]:
        raise NotVerifiedError(
            f"{ours['errors']} operations failed, the first that of line {ours['first_error_line']} "
            f"with: {ours['first_error']}"
        )
    if ours["mismatches"]:
        raise NotVerifiedError(
            f"{ours['mismatches']} of {ours['verified_blocks']} blocks did not verify, "
            f"the first at byte {ours['first_mismatch_byte']}"
        )
    if not ours["verified"]:
        raise NotVerifiedError(f"asked, completed and counted by the drive differ: {ours['counts']}")


def _show(document: dict[str, Any], json_target: str | None) -> None:
    job, ours = document["jobs"][0], document["forebay"]
    trace, done = ours["trace"], ours["counts"]["completed"]
    out = terminal(json_target)
    out.print(job_table(f"{trace['name']}, {ours['mode']} loop, iodepth {job['job options']['iodepth']}", job))
    out.print(
        f"{trace['lines']} lines of {trace['format']}: {trace['operations']} operations, "
        f"{trace['trims_skipped']} trims skipped, {trace['left_out']} left out, {trace['other_lines']} other lines"
        + (f"; {trace['wrapped']} wrapped into the drive" if trace["wrapped"] else ""),
        highlight=False,
    )
    out.print(
        f"completed: {done['reads']} reads of {format_bytes(done['bytes_read'])}, "
        f"{done['writes']} writes of {format_bytes(done['bytes_written'])}, {done['flushes']} flushes",
        highlight=False,
    )
    if ours["open_loop"]:
        percentiles = ours["lag_ns"]["percentile"]
        out.print(
            f"{ours['open_loop']}, at {ours['speed']:g} times the trace's speed: lag p50 "
            f"{format_ns(percentiles['50.000000'])}, p99 {format_ns(percentiles['99.000000'])}, "
            f"max {format_ns(ours['lag_ns']['max'])}; {ours['lag_above_bound']} of {ours['lag_ns']['N']} above "
            f"{format_ns(ours['lag_bound_ns'])}",
            highlight=False,
        )
    out.print(
        f"{ours['gpu_threads']} thread(s) on {ours['device']}; {ours['seconds']:.2f} s; "
        f"processor {job['usr_cpu']:.0f} % user, {job['sys_cpu']:.0f} % system; fidelity: {ours['fidelity']}; "
        f"{'verified' if ours['verified'] else 'DID NOT VERIFY'}",
        highlight=False,
    )
