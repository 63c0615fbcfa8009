# SPDX-License-Identifier: Apache-2.0
"""Counts the kernels that do not start because other streams of the GPU wait.

CUDA gives a process a number of channels to a GPU (`CUDA_DEVICE_MAX_CONNECTIONS`), which its streams share. For each
number of channels, a process of its own lets N streams wait for a word in page-locked memory, beside a kernel that
stays on the GPU, as an emulated drive's engine does. Then it launches a small kernel on each of 40 new streams, and
counts those that have not ended after `--patience-ms`. The GPU has room for all of them. They end once the word is
set, or the case fails.

Needs CuPy. Set nothing in the environment: the program sets the number of channels itself, and leaves it unset for the
case `unset`. Run it under MPS to measure what MPS gives. A table goes to standard output, and with `--json` a document
to a file.
"""

import argparse
import ctypes
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from forebay import build_info
from tensor_reads import gpu

NEW_STREAMS = 40
MPS_ENABLED = 133  # cudaDevAttrMpsEnabled
WAIT_UNTIL_EQUAL_OR_MORE = 0  # CU_STREAM_WAIT_VALUE_GEQ
SOURCE = """
extern "C" __global__ void add(int* total) { atomicAdd(total, 1); }
extern "C" __global__ void stay(volatile unsigned* stop) { while (!*stop) __nanosleep(1000); }
"""


def kept_waiting(waiting: list[int], patience_s: float) -> dict[str, Any]:
    """Measures in this process: how many of the new streams' kernels do not end, for each number of waiting streams."""
    import cupy

    driver = ctypes.CDLL("libcuda.so.1")
    add, stay = (cupy.RawKernel(SOURCE, name) for name in ("add", "stay"))
    words = cupy.cuda.alloc_pinned_memory(256)
    word = ctypes.c_uint32.from_address(words.ptr)
    stop = ctypes.c_uint32.from_address(words.ptr + 128)
    total = cupy.zeros(1, cupy.int32)
    engine = cupy.cuda.Stream(non_blocking=True)
    stop_address = cupy.uint64(words.ptr + 128)

    def launch_stay() -> None:
        with engine:
            stay((4,), (128,), (stop_address,))

    word.value, stop.value = 0, 1
    with engine:  # loads the kernels, as the next call does
        add((1,), (1,), (total,))
    launch_stay()
    cupy.cuda.Device().synchronize()

    def one(count: int) -> int:
        waits_for = word.value + 1
        users = [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]
        new = [cupy.cuda.Stream(non_blocking=True) for _ in range(NEW_STREAMS)]
        before = int(total.get()[0])
        stop.value = 0
        launch_stay()
        for stream in users:
            failed = driver.cuStreamWaitValue32_v2(
                ctypes.c_void_p(stream.ptr), ctypes.c_uint64(words.ptr), waits_for, WAIT_UNTIL_EQUAL_OR_MORE
            )
            if failed:
                raise RuntimeError(f"cuStreamWaitValue32: CUDA error {failed}")
        for stream in (*users, *new):
            with stream:
                add((1,), (1,), (total,))
        time.sleep(patience_s)
        stuck = sum(not stream.done for stream in new)
        word.value, stop.value = waits_for, 1
        cupy.cuda.Device().synchronize()
        if int(total.get()[0]) != before + count + NEW_STREAMS:
            raise RuntimeError("a kernel was lost")
        return stuck

    mps = cupy.cuda.runtime.deviceGetAttribute(MPS_ENABLED, 0)
    return {"mps": bool(mps), "stuck": {str(count): one(count) for count in waiting}}


def in_a_process(channels: int | None, args: argparse.Namespace) -> dict[str, Any]:
    """Measures in a process that CUDA gives so many channels."""
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_DEVICE_MAX_CONNECTIONS"}
    if channels is not None:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = str(channels)
    waiting = [count for count in args.waiting if count <= (channels or max(args.waiting))]
    command = [sys.executable, __file__, "--in-this-process", "--patience-ms", str(args.patience_ms)]
    command += ["--waiting", ",".join(map(str, waiting))]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{channels or 'unset'} channels: status {ran.returncode}\n{ran.stderr}")
    return {"channels": channels, **json.loads(ran.stdout)}


def table(document: dict[str, Any]) -> str:
    """A row for each number of channels, a column for each number of waiting streams."""
    waiting = sorted({int(count) for row in document["rows"] for count in row["stuck"]})
    lines = ["channels  " + "".join(f"{count:>5}" for count in waiting) + "   streams that wait"]
    for row in document["rows"]:
        name = f"{row['channels'] or 'unset'}{', MPS' if row['mps'] else ''}"
        lines.append(f"{name:<10}" + "".join(f"{row['stuck'].get(str(count), '-'):>5}" for count in waiting))
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    return [int(one) for one in text.split(",")]


def main() -> int:
    """Measures, prints a table and writes the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=numbers, default=[2, 4, 8, 16, 32], help="numbers of channels, 1 to 32")
    parser.add_argument("--waiting", type=numbers, default=[0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 30, 32])
    parser.add_argument("--patience-ms", type=float, default=20.0, help="the time that the new kernels have")
    parser.add_argument("--json", type=Path, help="the file for the document")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_this_process:
        print(json.dumps(kept_waiting(args.waiting, args.patience_ms / 1e3)))
        return 0
    named = ["FILE" if args.json and argument == str(args.json) else argument for argument in sys.argv[1:]]
    document = {
        "schema_version": 1,
        "command": shlex.join(["python", "bench/python/waiting_streams.py", *named]),
        "gpu": gpu(),
        "new_streams": NEW_STREAMS,
        "patience_ms": args.patience_ms,
        "rows": [in_a_process(channels, args) for channels in (None, *args.channels)],
        "forebay": {"commit": build_info()["commit"], "fidelity": "no drive"},
    }
    print(table(document))
    if args.json:
        args.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
