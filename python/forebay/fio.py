# SPDX-License-Identifier: Apache-2.0
"""The shape of fio's JSON, which fio's tools read."""

import time
from typing import Any

EIO = 5  # what fio reports where an operation failed or did not verify


def timestamps(began: float) -> dict[str, Any]:
    """When a run began, as fio says it."""
    return {"timestamp": int(began), "time": time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(began))}


def direction(latencies: dict[str, Any], io_bytes: int, seconds: float) -> dict[str, Any]:
    """The figures that fio gives for the reads or the writes of a job, which moved `io_bytes` bytes."""
    count = latencies["clat_ns"]["N"]
    per_second = 1 / seconds if seconds > 0 else 0.0
    return {
        "io_bytes": io_bytes,
        "io_kbytes": io_bytes // 1024,
        "bw_bytes": round(io_bytes * per_second),
        "bw": round(io_bytes * per_second / 1024),
        "iops": count * per_second,
        "runtime": round(seconds * 1000),
        "total_ios": count,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latencies["slat_ns"],
        "clat_ns": latencies["clat_ns"],
        "lat_ns": latencies["lat_ns"],
    }
