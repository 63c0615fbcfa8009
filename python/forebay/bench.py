# SPDX-License-Identifier: Apache-2.0
"""Block workloads in fio's words, with results in fio's shape."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay import fio
from forebay._native import core, interruptible
from forebay.errors import RefusedInput
from forebay.provenance import provenance
from forebay.storage import Storage

MAX_IN_FLIGHT = 1 << 20
GPU = "gpu"  # the engine whose threads drive the drive themselves, on a GPU or on the CPU
# Workload -> (random, has reads, has writes).
WORKLOADS = {
    "read": (False, True, False),
    "write": (False, False, True),
    "randread": (True, True, False),
    "randwrite": (True, False, True),
    "randrw": (True, True, True),
}


@dataclass(frozen=True)
class Job:
    """One workload; the fields are fio's options of the same name, in bytes and seconds."""

    rw: str
    bs: int = 512
    iodepth: int = 1
    size: int = 0
    runtime: float = 0.0
    ramp_time: float | None = None
    rwmixread: int = 50
    randseed: int = 1
    verify: bool = False
    verify_only: bool = False
    gpu_threads: int = 1

    def validate(self) -> None:
        """Refuses what no drive could do."""
        if self.rw not in WORKLOADS:
            raise RefusedInput("rw", self.rw, f"must be one of {', '.join(WORKLOADS)}")
        if self.bs <= 0:
            raise RefusedInput("--bs", self.bs, "must be at least one block of the drive, such as 512 or 4k")
        if not 1 <= self.iodepth <= MAX_IN_FLIGHT:
            remedy = f"must be at least 1 and at most {MAX_IN_FLIGHT}: the commands in flight, of all threads"
            raise RefusedInput("--iodepth", self.iodepth, remedy)
        if not 1 <= self.gpu_threads <= MAX_IN_FLIGHT:
            raise RefusedInput("--gpu-threads", self.gpu_threads, f"must be at least 1 and at most {MAX_IN_FLIGHT}")
        if not 0 <= self.rwmixread <= 100:
            raise RefusedInput("--rwmixread", self.rwmixread, "must be from 0 to 100: it is the percentage of reads")

    @property
    def read_percent(self) -> int:
        """How many of a hundred commands are reads."""
        _, reads, writes = WORKLOADS[self.rw]
        return self.rwmixread if reads and writes else 100 if reads else 0

    @property
    def writes(self) -> bool:
        """Whether anything on the drives changes."""
        return self.read_percent < 100 or (self.verify and not self.verify_only)

    @property
    def effective_ramp_time(self) -> float:
        """What is asked for, or a tenth of the run, 0.25 seconds at most."""
        return min(self.runtime / 10, 0.25) if self.ramp_time is None else self.ramp_time


def run(storage: Storage, job: Job, tell: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Runs one job on a storage, whose own threads submit; returns the JSON document, without its schema version.

    `tell` is called with the name of the phase and the share of it that is done.
    """
    job.validate()
    before = time.time()
    native = json.loads(interruptible(core().run_block_io, storage._native, **native_options(job), tell=tell))
    return document(job, GPU, native, before, {**provenance(storage), "populated": native["populated"]})


def native_options(job: Job) -> dict[str, Any]:
    """The job as the extension takes it."""
    return {
        "random": WORKLOADS[job.rw][0],
        "read_percent": job.read_percent,
        "block_bytes": job.bs,
        "iodepth": job.iodepth,
        "gpu_threads": job.gpu_threads,
        "size_bytes": job.size,
        "runtime_s": job.runtime,
        "ramp_time_s": job.effective_ramp_time,
        "seed": job.randseed,
        "verify": job.verify,
        "lay_down": not job.verify_only,
    }


def document(
    job: Job, ioengine: str, native: dict[str, Any], before: float, conditions: dict[str, Any]
) -> dict[str, Any]:
    """The JSON document of a job that began at `before` and of which the extension returned `native`."""
    failed = native["errors"] != 0
    verified = None if not job.verify else not failed and native["mismatches"] == 0
    return {
        **fio.timestamps(before),
        "jobs": [
            {
                "jobname": job.rw,
                "error": fio.EIO if failed or verified is False else 0,
                "elapsed": round(time.time() - before),
                "job options": {
                    "ioengine": ioengine,
                    "rw": job.rw,
                    "bs": str(job.bs),
                    "iodepth": str(job.iodepth),
                    "size": str(native["size_bytes"]),
                    "runtime": str(job.runtime),
                    "rwmixread": str(job.read_percent),
                    "randseed": str(job.randseed),
                },
                "usr_cpu": native["usr_cpu"],
                "sys_cpu": native["sys_cpu"],
                "read": fio.direction(native["read"], native["read"]["clat_ns"]["N"] * job.bs, native["seconds"]),
                "write": fio.direction(native["write"], native["write"]["clat_ns"]["N"] * job.bs, native["seconds"]),
            }
        ],
        "forebay": {
            **conditions,
            "ioengine": ioengine,
            "verified": verified,
            "verified_blocks": native["verified_blocks"],
            "mismatches": native["mismatches"],
            "first_mismatch_byte": native["first_mismatch_byte"],
            "errors": native["errors"],
            "first_error": native["first_error"],
            "gpu_threads": native["threads"],
            "seconds": native["seconds"],
            "ramp_seconds": job.effective_ramp_time if job.runtime else 0.0,
            "cpu_percent_of": "one CPU, the whole process: the threads of emulated drives count",
            "latency_from": "slat: the submitting call; clat: its return to the sight of the completion; lat: both",
        },
    }
