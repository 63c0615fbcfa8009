# SPDX-License-Identifier: Apache-2.0
"""The ways to a file's data that `compare.py` compares: engines of `forebay bench`, and fio's own."""

import contextlib
import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import memory_limit

OURS = ("gpu", "mmap", "pread", "io_uring", "cufile")
FIOS = ("fio_mmap", "fio_io_uring")
# What these read comes from the page cache, or may: `gpu` on a `file:` drive looks at the page cache when it opens it.
BY_CACHE = ("gpu", "mmap", "fio_mmap")
EXTRA_S = 60.0  # beyond the time that a run measures
REFUSED = 2


class CannotError(Exception):
    """This machine cannot run a way; the text is what the program said."""


@dataclass(frozen=True)
class Case:
    """One measurement. `seconds` is 0 where the run ends once `size` bytes have moved.

    `cache` is cold, warm, limited (cold, and the program has too little memory for the file) or any.
    """

    way: str
    workload: str
    bs: int
    depth: int
    size: int
    seconds: float
    cache: str
    repeat: int

    @property
    def key(self) -> str:
        """What distinguishes the case from all others."""
        return " ".join(str(value) for value in asdict(self).values())


@dataclass(frozen=True)
class Place:
    """Where to measure. `drive` is what the engine gpu opens."""

    file: Path
    drive: str
    device: str
    forebay: str
    fio: str
    memory_limit: int = 0  # bytes of memory that each program has; 0: no limit


def command_of(case: Case, place: Place) -> list[str]:
    """The command line that measures a case, whose JSON goes to standard output."""
    return _fio(case, place) if case.way in FIOS else _forebay(case, place)


def _forebay(case: Case, place: Place) -> list[str]:
    where = ["--drive", place.drive] if case.way == "gpu" else ["--filename", str(place.file)]
    # A thread of a CPU keeps any number of commands in flight. More of them would only switch between them.
    threads = ["--gpu-threads", str(case.depth)] if case.way == "gpu" and place.device != "cpu" else []
    runtime = ["--runtime", str(case.seconds)] if case.seconds else []
    destroy = ["--allow-destroy"] if "write" in case.workload else []
    return [
        *(place.forebay, "bench", case.workload, "--ioengine", case.way, *where, "--device", place.device),
        *("--bs", str(case.bs), "--iodepth", str(case.depth), "--size", str(case.size), *threads, *runtime, *destroy),
        *("--json", "-"),
    ]


def _fio(case: Case, place: Place) -> list[str]:
    how = (
        ["--ioengine=io_uring", "--direct=1", "--fixedbufs", "--registerfiles", f"--iodepth={case.depth}"]
        if case.way == "fio_io_uring"
        # mmap has one block in flight for each job. Jobs of a sequential workload share the file.
        else ["--ioengine=mmap", f"--numjobs={case.depth}", "--thread", f"--invalidate={int(case.cache != 'warm')}"]
    )
    share = case.size // _jobs(case) // case.bs * case.bs
    spread = case.way == "fio_mmap" and not case.workload.startswith("rand")
    region = [f"--size={share}", f"--offset_increment={share}"] if spread else [f"--size={case.size}"]
    # As `forebay bench` has it by default.
    ramp = min(case.seconds / 10, 0.25)
    time = ["--time_based", f"--runtime={_us(case.seconds)}", f"--ramp_time={_us(ramp)}"] if case.seconds else []
    return [
        *(place.fio, "--name=compare", f"--filename={place.file}", f"--rw={case.workload}", f"--bs={case.bs}"),
        *("--group_reporting", "--norandommap", "--randrepeat=0", *how, *region, *time, "--output-format=json"),
    ]


def _us(seconds: float) -> str:
    """In whole microseconds: fio cuts fractions off."""
    return f"{round(seconds * 1e6)}us"


def _jobs(case: Case) -> int:
    return case.depth if case.way == "fio_mmap" else 1


def run(case: Case, place: Place) -> dict[str, Any]:
    """Measures a case; returns its figures. Raises CannotError where the way is refused, OSError where it fails."""
    command = command_of(case, place)
    with contextlib.ExitStack() as held:
        started = command
        if place.memory_limit:
            started = memory_limit.within(held.enter_context(memory_limit.group(place.memory_limit)), command)
        timeout = case.seconds + EXTRA_S + case.size / 5e6
        done = subprocess.run(started, capture_output=True, text=True, check=False, timeout=timeout)
    if done.returncode == REFUSED and case.way in OURS:
        raise CannotError(done.stderr.strip())
    if done.returncode != 0:
        raise OSError(f"status {done.returncode}: {' '.join(command)}: {done.stderr.strip()}")
    document = json.loads(done.stdout[done.stdout.index("{") :])
    return {"command": " ".join(command), **figures(document, _jobs(case))}


def figures(document: dict[str, Any], jobs: int) -> dict[str, Any]:
    """What is kept of a document in fio's shape. fio's CPU time is that of one job, on average."""
    job = document["jobs"][0]
    kind = max(("read", "write"), key=lambda kind: job[kind]["total_ios"])
    direction = job[kind]
    latency = direction["clat_ns"]
    kept = {
        "kind": kind,
        "ios": direction["total_ios"],
        "iops": direction["iops"],
        "bytes_per_s": direction["bw_bytes"],
        "mean_ns": latency["mean"],
        "p50_ns": latency["percentile"]["50.000000"],
        "p99_ns": latency["percentile"]["99.000000"],
        "p99.9_ns": latency["percentile"]["99.900000"],
        "max_ns": latency["max"],
        "user_percent": job["usr_cpu"] * jobs,
        "system_percent": job["sys_cpu"] * jobs,
    }
    ours = document.get("forebay")
    if ours:
        kept["threads"] = ours["gpu_threads"]
        kept["device"] = ours["device"]
        if "drives" in ours:
            kept.update(fidelity=ours["fidelity"], residency=ours["residency"])
            drive = ours["drives"][0]
            kept.update(link=drive["link"], io=drive.get("file", {}).get("io"))
        if "file" in ours:
            kept.update(way=ours["way"], cufile=ours["cufile"], direct=ours["file"]["direct"])
    return kept
