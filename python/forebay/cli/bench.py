# SPDX-License-Identifier: Apache-2.0
"""`forebay bench`: block workloads in fio's words."""

import threading
import time
from typing import Annotated, Any

import typer

from forebay import bench
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
from forebay.errors import RefusedInput
from forebay.storage import Storage
from forebay.units import parse_duration, parse_size

app = typer.Typer(no_args_is_help=True, help="Measure drives with a block workload, in fio's words.")

_HELP = {
    "randread": "Random reads.",
    "randwrite": "Random writes.",
    "read": "Sequential reads.",
    "write": "Sequential writes.",
    "randrw": "Random reads and writes, mixed.",
}


def _add(workload: str) -> None:
    def command(
        drive: Annotated[list[str], typer.Option("--drive", metavar="URI", help="A drive; repeat to stripe.")],
        bs: Annotated[str, typer.Option("--bs", help="Bytes of each command.")] = "512",
        iodepth: Annotated[int, typer.Option("--iodepth", help="Commands in flight, of all threads together.")] = 1,
        size: Annotated[str, typer.Option("--size", help="Bytes of the region, from the start; default: all.")] = "",
        runtime: Annotated[str, typer.Option("--runtime", help="Time measured; else one pass over SIZE.")] = "",
        ramp_time: Annotated[str, typer.Option("--ramp-time", help="Time before it; default 250ms at most.")] = "",
        rwmixread: Annotated[int, typer.Option("--rwmixread", help="Percentage of reads, for randrw.")] = 50,
        seed: SeedOption = 1,
        verify: Annotated[bool, typer.Option("--verify", help="Lay a pattern down, check every read.")] = False,
        verify_only: Annotated[
            bool, typer.Option("--verify-only", help="Check every read against the pattern of an earlier --verify.")
        ] = False,
        gpu_threads: Annotated[int, typer.Option("--gpu-threads", help="Threads that share IODEPTH.")] = 1,
        allow_destroy: Annotated[
            bool, typer.Option("--allow-destroy", help="Write although the drive carries a catalogue of extents.")
        ] = False,
        device: DeviceOption = "auto",
        json_target: JsonOption = None,
    ) -> None:
        job = bench.Job(
            rw=workload,
            bs=parse_size("--bs", bs),
            iodepth=iodepth,
            size=_region(size),
            runtime=_runtime(runtime),
            ramp_time=parse_duration("--ramp-time", ramp_time) if ramp_time else None,
            rwmixread=rwmixread,
            randseed=seed,
            verify=verify or verify_only,
            verify_only=verify_only,
            gpu_threads=gpu_threads,
        )
        _run(job, drive, device, json_target, allow_destroy=allow_destroy)

    app.command(workload, help=_HELP[workload])(command)


for _workload in _HELP:
    _add(_workload)


def _runtime(runtime: str) -> float:
    """Seconds; 0 where none were named."""
    if not runtime:
        return 0.0
    seconds = parse_duration("--runtime", runtime)
    if seconds == 0:
        raise RefusedInput("--runtime", runtime, "must be more than 0; leave it out for one pass over --size")
    return seconds


def _region(size: str) -> int:
    """Bytes; 0 where none were named."""
    if not size:
        return 0
    size_bytes = parse_size("--size", size)
    if size_bytes == 0:
        raise RefusedInput("--size", size, "must be at least one block; leave it out for the whole drive")
    return size_bytes


def _run(job: bench.Job, drives: list[str], device: str, json_target: str | None, *, allow_destroy: bool) -> None:
    check_json_target(json_target)
    job.validate()
    if job.size and job.size % job.bs:
        raise RefusedInput("--size", job.size, f"must be a multiple of --bs, {job.bs} bytes")
    if job.gpu_threads > job.iodepth:
        notice(f"--gpu-threads {job.gpu_threads}: {job.iodepth} run, as many as --iodepth leaves one command each")
    with Storage(*drives, device=device, read_only=not job.writes, allow_destroy=allow_destroy) as storage:
        if job.writes:
            require_raw_writable(storage, drives)
        document = _with_progress(storage, job)
    write_json(json_target, document)
    _show(document, json_target)

    outcome = document["forebay"]
    if outcome["errors"]:
        raise NotVerifiedError(f"{outcome['errors']} commands failed, the first with: {outcome['first_error']}")
    if outcome["verified"] is False:
        raise NotVerifiedError(
            f"{outcome['mismatches']} of {outcome['verified_blocks']} blocks did not verify, "
            f"the first at byte {outcome['first_mismatch_byte']}"
        )


def _with_progress(storage: Storage, job: bench.Job) -> dict[str, Any]:
    """Runs the job; while it runs, the bar follows the clock, as the threads report nothing before they end."""
    with progress(f"{job.rw} on {len(storage.report()['drives'])} drive(s)", 1.0) as set_done:
        done = threading.Event()

        def follow_clock() -> None:
            began = time.monotonic()
            whole = job.runtime + job.effective_ramp_time
            while whole > 0 and not done.wait(0.1):
                set_done(min((time.monotonic() - began) / whole, 1.0))

        clock = threading.Thread(target=follow_clock, daemon=True)

        def tell(phase: str, share: float) -> None:
            if phase == "run" and share == 0:
                clock.start()
            elif phase == "run":
                done.set()
                clock.join()
            else:
                set_done(share)

        return bench.run(storage, job, tell)


def _show(document: dict[str, Any], json_target: str | None) -> None:
    job, ours = document["jobs"][0], document["forebay"]
    out = terminal(json_target)
    title = f"{job['jobname']}, bs {job['job options']['bs']}, iodepth {job['job options']['iodepth']}"
    out.print(job_table(title, job))
    verified = {None: "not verified", True: "verified", False: "DID NOT VERIFY"}[ours["verified"]]
    out.print(
        f"{ours['gpu_threads']} thread(s) on {ours['device']}; {ours['seconds']:.2f} s measured; "
        f"processor {job['usr_cpu']:.0f} % user, {job['sys_cpu']:.0f} % system; "
        f"fidelity: {ours['fidelity']}; {verified}",
        highlight=False,
    )
