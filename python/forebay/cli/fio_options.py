# SPDX-License-Identifier: Apache-2.0
"""Options of fio that `forebay bench` does not have, and what to use instead."""

_WORKLOAD = "the workload is the command, as in `forebay bench randread`"
_THREADS = (
    "--iodepth N is the number of commands in flight of all threads together, and --gpu-threads T the number of "
    "threads that share them"
)
_DIRECT = (
    "leave it out: every command goes to the drive, and nothing is cached; of the engines that measure a file, mmap "
    "goes through the page cache, and the others pass by it where the file system allows that"
)
_RATE = "give the emulated drive a rate, as in --drive emulated:size=64M,iops=20000"
_DRAW = "leave it out: each random block is drawn from the whole region, and --seed fixes the draws"
_DOCUMENT = "--json FILE writes a document in the shape of fio's JSON"

_INSTEAD = {
    "--rw": _WORKLOAD,
    "--readwrite": _WORKLOAD,
    "--blocksize": "use --bs SIZE",
    "--numjobs": _THREADS,
    "--thread": _THREADS,
    "--direct": _DIRECT,
    "--buffered": _DIRECT,
    "--io_size": "--size S is the region from byte 0, and the run ends once S bytes have moved, or after --runtime",
    "--offset": "leave it out: the region begins at byte 0, and --size says where it ends",
    "--time_based": "leave it out: with --runtime a run always lasts for that time",
    "--rwmixwrite": "use --rwmixread with 100 minus the percentage of writes",
    "--rate": _RATE,
    "--rate_iops": _RATE,
    "--norandommap": _DRAW,
    "--randrepeat": _DRAW,
    "--group_reporting": "leave it out: the result is that of all threads together",
    "--output": _DOCUMENT,
    "--output-format": _DOCUMENT,
    "--name": "leave it out: a command runs one job",
}


def instead_of(option: str) -> str | None:
    """What to use for an option of fio, if there is something; other words that fio has are not known here."""
    return _INSTEAD.get(option)
