# SPDX-License-Identifier: Apache-2.0
"""The table that shows a job in fio's shape, and what is below it."""

from typing import Any

from rich.table import Table

from forebay.units import format_bandwidth, format_count, format_ns, format_rate

_PERCENTILES = ("50.000000", "99.000000", "99.900000")


def job_table(title: str, job: dict[str, Any]) -> Table:
    """A row for the reads, the writes and the flushes of a job, where it has any."""
    table = Table(title=title)
    for heading in ("", "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "max"):
        table.add_column(heading, justify="left" if not heading else "right")
    for kind in ("read", "write", "sync"):
        figures = job.get(kind)
        if not figures or not figures["total_ios"]:
            continue
        latency = figures["clat_ns"]
        table.add_row(
            kind,
            format_rate(figures["iops"]) if "iops" in figures else "",
            format_bandwidth(figures["bw_bytes"]) if "bw_bytes" in figures else "",
            format_ns(latency["mean"]),
            *(format_ns(latency["percentile"][percent]) for percent in _PERCENTILES),
            format_ns(latency["max"]),
        )
    return table


def conditions(job: dict[str, Any], ours: dict[str, Any]) -> str:
    """Under what a job ran: its threads, its time and the processor's."""
    threads = format_count(ours["gpu_threads"], "thread")
    where = ours["device"]
    if "file" in ours:  # which the CPU's threads read, wherever its data ends
        where = "cpu" if where == "cpu" else f"cpu, data in the memory of {where}"
    ways = {_way(drive["file"]): None for drive in ours.get("drives", ()) if "file" in drive}
    by = f", {' and '.join(ways)}" if ways else ""
    return (
        f"{threads} on {where}{by}; {ours['seconds']:.2f} s measured; "
        f"CPU time {job['usr_cpu']:.0f} % user, {job['sys_cpu']:.0f} % system (100 % is one core)"
    )


def _way(file: dict[str, Any]) -> str:
    """How a drive reaches its file."""
    if file["io"] == "mmap":
        return "the file mapped (io=mmap)"
    return f"the file by io_uring, {'O_DIRECT' if file['direct'] else 'through the page cache'}"
