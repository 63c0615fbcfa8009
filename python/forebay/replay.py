# SPDX-License-Identifier: Apache-2.0
"""Block traces replayed on drives, with results in fio's shape."""

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay import fio
from forebay._native import core, interruptible
from forebay.errors import RefusedInput
from forebay.provenance import provenance
from forebay.storage import Storage
from forebay.trace import WRITE, Trace

MODES = ("closed", "open")
MAX_IN_FLIGHT = 1 << 16
_OPEN_IODEPTH = 64
_GPU_THREADS_MAX = 1024  # as many as get a warp each


@dataclass(frozen=True)
class Job:
    """How to replay a trace."""

    mode: str = "closed"
    iodepth: int | None = None
    speed: float | None = None
    wrap: bool = False
    verify: bool = False
    randseed: int = 1
    gpu_threads: int | None = None

    def validate(self) -> None:
        """Refuses what no drive could do."""
        if self.mode not in MODES:
            raise RefusedInput("--mode", self.mode, f"must be one of {', '.join(MODES)}")
        if self.iodepth is not None and not 1 <= self.iodepth <= MAX_IN_FLIGHT:
            raise RefusedInput("--iodepth", self.iodepth, f"must be a whole number from 1 to {MAX_IN_FLIGHT}")
        if self.gpu_threads is not None and not 1 <= self.gpu_threads <= MAX_IN_FLIGHT:
            raise RefusedInput("--gpu-threads", self.gpu_threads, f"must be a whole number from 1 to {MAX_IN_FLIGHT}")
        if self.speed is None:
            return
        if self.mode != "open":
            raise RefusedInput(
                "--speed",
                self.speed,
                "is only for --mode open: a closed loop does not follow the trace's times; add that, or leave it out",
            )
        if not (math.isfinite(self.speed) and 1e-6 <= self.speed <= 1e6):
            raise RefusedInput(
                "--speed", self.speed, "must be from 1e-6 to 1e6: it is a factor on the trace's own speed"
            )

    @property
    def effective_iodepth(self) -> int:
        """What is asked for; else one at a time in a closed loop, and room for what comes together in an open one."""
        return self.iodepth or (_OPEN_IODEPTH if self.mode == "open" else 1)

    @property
    def effective_speed(self) -> float:
        """What is asked for, or the trace's own."""
        return 1.0 if self.speed is None else self.speed


def run(storage: Storage, trace: Trace, job: Job) -> dict[str, Any]:
    """Replays a trace; returns the JSON document, without its schema version."""
    job.validate()
    is_open = job.mode == "open"
    operations, early = _scheduled(trace, job) if is_open else (trace.operations, 0)
    on_cpu = storage.report()["device"] == "cpu"
    threads = job.gpu_threads or (1 if on_cpu else min(job.effective_iodepth, _GPU_THREADS_MAX))
    before = time.time()
    native = json.loads(
        interruptible(
            core().run_replay,
            storage._native,
            operations,
            trace_name=trace.path,
            open_loop=is_open,
            iodepth=job.effective_iodepth,
            gpu_threads=threads,
            wrap=job.wrap,
            verify=job.verify,
            seed=job.randseed,
        )
    )
    report = provenance(storage)
    counts = _counts(native, report)
    verified = native["errors"] == 0 and native["mismatches"] == 0 and _agree(counts)
    completed, seconds = native["completed"], native["seconds"]
    return {
        **fio.timestamps(before),
        "jobs": [
            {
                "jobname": "replay",
                "error": 0 if verified else fio.EIO,
                "elapsed": round(time.time() - before),
                "job options": {
                    "read_iolog": trace.path,
                    "iodepth": str(job.effective_iodepth),
                    "randseed": str(job.randseed),
                },
                "usr_cpu": native["usr_cpu"],
                "sys_cpu": native["sys_cpu"],
                "read": fio.direction(native["read"], completed["bytes_read"], seconds),
                "write": fio.direction(native["write"], completed["bytes_written"], seconds),
                "sync": {"total_ios": completed["flushes"], **native["flush"]},
            }
        ],
        "forebay": {
            **report,
            "trace": {
                "name": trace.path,
                "format": trace.format,
                "lines": trace.lines,
                "operations": len(operations),
                "trims_skipped": trace.trims,
                "left_out": trace.left_out,
                "other_lines": trace.other_lines,
                "out_of_order": early,
                "wrapped": native["wrapped"],
                "duration_ns": trace.duration_ns,
            },
            "mode": job.mode,
            "speed": job.effective_speed if is_open else None,
            "open_loop": _punctuality(native) if is_open else None,
            "lag_ns": native["lag_ns"] if is_open else None,
            "lag_bound_ns": native["lag_bound_ns"] if is_open else None,
            "lag_above_bound": native["above_bound"] if is_open else None,
            "counts": counts,
            "verified": verified,
            "verified_blocks": native["verified_blocks"] if job.verify else None,
            "mismatches": native["mismatches"] if job.verify else None,
            "first_mismatch_byte": native["first_mismatch_byte"],
            "errors": native["errors"],
            "first_error": native["first_error"],
            "first_error_line": native["first_error_line"],
            "gpu_threads": native["threads"],
            "seconds": seconds,
            "cpu_percent_of": "one CPU, the whole process: the threads of emulated drives count",
            "latency_from": "slat: the submitting call; clat: its return to the sight of the completion; lat: both",
        },
    }


def writes(trace: Trace) -> bool:
    """Whether a replay changes anything on the drives."""
    return bool((trace.operations["kind"] == WRITE).any())


def _scheduled(trace: Trace, job: Job) -> tuple[np.ndarray, int]:
    """The operations at the times when they are due, in the order of these, and how many of them the trace has late."""
    if not trace.timed:
        raise RefusedInput("--mode", job.mode, f"{trace.path} has no times to follow; use --mode closed")
    if trace.duration_ns / job.effective_speed >= 2**63:
        raise RefusedInput("--speed", job.effective_speed, "makes the replay longer than 292 years; give more")
    times = trace.operations["at_ns"]
    early = int((times[1:] < np.maximum.accumulate(times)[:-1]).sum())
    operations = trace.operations[np.argsort(times, kind="stable")]
    operations["at_ns"] = (operations["at_ns"] / job.effective_speed).astype(np.uint64)
    return operations, early


def _punctuality(native: dict[str, Any]) -> str:
    on_time = native["lag_ns"]["percentile"]["99.000000"] <= native["lag_bound_ns"]
    return "on time" if on_time else "late"


def _counts(native: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """What was asked, what completed, and what the drives counted, in operations, in bytes and in commands."""
    statistics = [drive["statistics"] for drive in report["drives"]]
    keys = ("read_commands", "write_commands", "flush_commands", "bytes_read", "bytes_written")
    return {
        "asked": {**native["asked"], **native["commands"]},
        "completed": native["completed"],
        "drive": {key: sum(one[key] for one in statistics) for key in keys},
    }


def _agree(counts: dict[str, Any]) -> bool:
    asked = counts["asked"]
    return all(asked[key] == value for side in ("completed", "drive") for key, value in counts[side].items())
