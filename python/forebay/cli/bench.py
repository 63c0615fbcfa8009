# SPDX-License-Identifier: Apache-2.0
"""`forebay bench`: block workloads in fio's words."""

import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from forebay import bench, file_bench
from forebay.cli.application import Application
from forebay.cli.contract import (
    AllowDestroyOption,
    DeviceOption,
    JsonOption,
    NotVerifiedError,
    SeedOption,
    check_json_target,
    missing,
    notice,
    progress,
    require_raw_writable,
    terminal,
    write_json,
)
from forebay.cli.job_table import conditions, job_table
from forebay.cli.timing import timing
from forebay.errors import RefusedInput
from forebay.storage import Storage
from forebay.units import format_count, parse_duration, parse_size

app = Application(
    no_args_is_help=True,
    help="Measure drives with a block workload, with fio's workloads and option names.\n\n"
    "Example: forebay bench randread --drive emulated:size=64M,iops=20000 --bs 4k --iodepth 16 --runtime 3",
)

_ENGINES = (bench.GPU, *file_bench.ENGINES)
_HELP = {
    "randread": "Read blocks at random offsets.",
    "randwrite": "Write blocks at random offsets.",
    "read": "Read blocks one after the other.",
    "write": "Write blocks one after the other.",
    "randrw": "Read and write blocks at random offsets.",
}


def _add(workload: str) -> None:
    def command(
        drive: Annotated[
            list[str] | None,
            typer.Option(
                "--drive", metavar="URI", help="The drive, such as emulated:size=64M. Repeat it to stripe several."
            ),
        ] = None,
        ioengine: Annotated[
            str,
            typer.Option(
                "--ioengine",
                metavar="|".join(_ENGINES),
                help="gpu: threads of --device drive the drive themselves. The others measure a file, by CPU threads.",
            ),
        ] = bench.GPU,
        filename: Annotated[
            str | None,
            typer.Option(
                "--filename", metavar="FILE", help="The file or block device that an engine other than gpu measures."
            ),
        ] = None,
        bs: Annotated[str, typer.Option("--bs", metavar="SIZE", help="Bytes of each command. fio's default is 4k.")] = (
            "512"
        ),
        iodepth: Annotated[
            int, typer.Option("--iodepth", metavar="N", help="Commands in flight, of all threads together.")
        ] = 1,
        size: Annotated[
            str,
            typer.Option(
                "--size", metavar="SIZE", help="Bytes to use, from byte 0 on.", show_default="all of the drives"
            ),
        ] = "",
        runtime: Annotated[
            str,
            typer.Option(
                "--runtime",
                metavar="TIME",
                help="Time to measure: seconds, or with a unit as in 500ms or 2m.",
                show_default="until SIZE bytes have moved",
            ),
        ] = "",
        ramp_time: Annotated[
            str,
            typer.Option(
                "--ramp-time",
                metavar="TIME",
                help="Time that the load runs before the measurement begins.",
                show_default="a tenth of --runtime, 250ms at most",
            ),
        ] = "",
        rwmixread: Annotated[
            int, typer.Option("--rwmixread", metavar="PERCENT", help="Reads among the commands. Only for randrw.")
        ] = 50,
        seed: SeedOption = 1,
        verify: Annotated[
            bool, typer.Option("--verify", help="Write a pattern first, then check the data of every read.")
        ] = False,
        verify_only: Annotated[
            bool,
            typer.Option("--verify-only", help="Check every read against what an earlier --verify wrote."),
        ] = False,
        gpu_threads: Annotated[
            int,
            typer.Option(
                "--gpu-threads", metavar="T", help="Threads that submit, on the GPU or the CPU. They share N."
            ),
        ] = 1,
        allow_destroy: AllowDestroyOption = False,
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
        check_json_target(json_target)
        _check(job)
        if ioengine == bench.GPU:
            outcome = _run_on_drives(job, drive or [], filename, device, allow_destroy=allow_destroy)
        else:
            outcome = _run_on_file(job, ioengine, drive or [], filename, device, allow_destroy=allow_destroy)
        write_json(json_target, outcome)
        _show(outcome, json_target)
        _require_success(outcome["forebay"])

    app.command(workload, help=_HELP[workload])(command)


for _workload in _HELP:
    _add(_workload)


def _runtime(runtime: str) -> float:
    """Seconds; 0 where none were named."""
    if not runtime:
        return 0.0
    seconds = parse_duration("--runtime", runtime)
    if seconds == 0:
        raise RefusedInput(
            "--runtime", runtime, "must be more than 0; leave it out to run until --size bytes have moved"
        )
    return seconds


def _region(size: str) -> int:
    """Bytes; 0 where none were named."""
    if not size:
        return 0
    size_bytes = parse_size("--size", size)
    if size_bytes == 0:
        raise RefusedInput("--size", size, "must be at least one block; leave it out for the whole drive")
    return size_bytes


def _check(job: bench.Job) -> None:
    job.validate()
    if job.size and job.size % job.bs:
        raise RefusedInput("--size", job.size, f"must be a multiple of --bs, {job.bs} bytes")


def _run_on_drives(
    job: bench.Job, drives: list[str], filename: str | None, device: str, *, allow_destroy: bool
) -> dict[str, Any]:
    if filename is not None:
        remedy = f"--ioengine {bench.GPU} opens drives; give --drive file:PATH, or another engine"
        raise RefusedInput("--filename", filename, remedy)
    if not drives:
        raise missing("--drive", "the engine gpu needs a drive, such as emulated:size=64M")
    if job.gpu_threads > job.iodepth:
        running = format_count(job.iodepth, "thread")
        notice(f"--gpu-threads {job.gpu_threads}: only {running} will run, one for each command of --iodepth")
    with Storage(*drives, device=device, read_only=not job.writes, allow_destroy=allow_destroy) as storage:
        if job.writes:
            require_raw_writable(storage, drives)
        what = format_count(len(storage.report()["drives"]), "drive")
        return _with_progress(job, what, lambda tell: bench.run(storage, job, tell))


def _run_on_file(
    job: bench.Job, ioengine: str, drives: list[str], filename: str | None, device: str, *, allow_destroy: bool
) -> dict[str, Any]:
    if ioengine not in file_bench.ENGINES:
        raise RefusedInput("--ioengine", ioengine, f"must be one of {', '.join(_ENGINES)}")
    if not drives and filename is None:
        raise missing("--filename", f"the engine {ioengine} needs a file or a block device")
    path = file_bench.file_of(drives, filename, ioengine)
    file_bench.require_overwritable(path, job, allow_destroy=allow_destroy)
    outcome = _with_progress(job, path, lambda tell: file_bench.run(path, ioengine, job, device, tell))
    if outcome["forebay"]["file"]["has_holes"] and not job.writes:
        notice(f"{path} has holes: reads of them move nothing from the disk; fill the file first for figures of it")
    return outcome


def _require_success(outcome: dict[str, Any]) -> None:
    if outcome["errors"]:
        failed = format_count(outcome["errors"], "command")
        raise NotVerifiedError(f"{failed} failed; the first error is: {outcome['first_error']}")
    if outcome["verified"] is False:
        raise NotVerifiedError(
            f"{outcome['mismatches']} of {format_count(outcome['verified_blocks'], 'block')} did not verify: the data "
            f"is not what was written; the first is at byte {outcome['first_mismatch_byte']}"
        )


def _with_progress(job: bench.Job, what: str, run: Callable[[Callable[[str, float], None]], Any]) -> dict[str, Any]:
    """Runs the job; while it runs, the bar follows the clock, as the threads report nothing before they end."""
    with progress(f"{job.rw} on {what}", 1.0) as set_done:
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

        return run(tell)


def _show(document: dict[str, Any], json_target: str | None) -> None:
    job, ours = document["jobs"][0], document["forebay"]
    out = terminal(json_target)
    title = f"{job['jobname']}, bs {job['job options']['bs']}, iodepth {job['job options']['iodepth']}"
    out.print(f"engine: {ours['way']}" if "file" in ours else timing(ours), highlight=False, soft_wrap=True)
    out.print(job_table(title, job))
    checked = {None: "data not checked (use --verify)", True: "data verified", False: "DATA DID NOT VERIFY"}
    out.print(f"{conditions(job, ours)}; {checked[ours['verified']]}", highlight=False, soft_wrap=True)
