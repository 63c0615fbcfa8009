# SPDX-License-Identifier: Apache-2.0
"""Measures reads into tensors: their rate beside that of the library's own client, and a training loop beside them.

The rates: `Storage.pread` fills tensors of `--bs` bytes, `--depth` of them at a time, and `forebay.bench` reads the
same drive with the same sizes in flight. The two take turns `--repeats` times. The training loop: each step queues work
of the GPU, starts reads that its stream is ordered with, and looks at once whether the event before the reads has been
reached. If it has not, the call did not wait for the GPU. The time of the steps is measured by events, with reads and
without.

Without `--tensors torch` or `cupy` the buffers are NumPy arrays, and there is no training loop. One JSON document goes
to standard output; status 1: a bound was missed.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from forebay import Storage, bench
from forebay.provenance import provenance
from forebay.units import parse_size

RATE_LEAST = 0.95  # of the client's rate
STEP_CYCLES = 20_000_000  # of the GPU: about 10 ms, far longer than a call may take


def buffers_of(kind: str, count: int, size_bytes: int) -> list[Any]:
    """Tensors for the reads that are in flight at a time."""
    if kind == "torch":
        import torch

        return [torch.empty(size_bytes, dtype=torch.uint8, device="cuda") for _ in range(count)]
    if kind == "cupy":
        import cupy

        return [cupy.empty(size_bytes, dtype=cupy.uint8) for _ in range(count)]
    return [np.zeros(size_bytes, np.uint8) for _ in range(count)]


def tensor_rate(storage: Storage, buffers: list[Any], size_bytes: int, seconds: float) -> float:
    """Bytes a second, with one read under way into each buffer."""
    blocks = storage.size_bytes // size_bytes
    under_way: deque[tuple[object, Future[int]]] = deque()
    done = 0

    def start(buffer: object, number: int) -> None:
        under_way.append((buffer, storage.pread(buffer, number % blocks * size_bytes)))

    for number, buffer in enumerate(buffers):
        start(buffer, number)
    number = len(buffers)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        buffer, read = under_way.popleft()
        done += read.result()
        start(buffer, number)
        number += 1
    elapsed = time.perf_counter() - begun
    for _, read in under_way:
        read.result()
    return done / elapsed


def client_rate(storage: Storage, size_bytes: int, depth: int, seconds: float) -> float:
    """Bytes a second of the library's own threads."""
    job = bench.Job("read", bs=size_bytes, iodepth=depth, runtime=seconds, size=storage.size_bytes)
    return float(bench.run(storage, job)["jobs"][0]["read"]["bw_bytes"])


def rates(storage: Storage, args: argparse.Namespace) -> dict[str, Any]:
    """The rates of both, in turn."""
    buffers = buffers_of(args.tensors, args.depth, args.bs)
    tensor_rate(storage, buffers, args.bs, args.seconds / 4)  # registers the buffers, and allocates the drive's pages
    client, tensors = [], []
    for _ in range(args.repeats):
        client.append(client_rate(storage, args.bs, args.depth, args.seconds))
        tensors.append(tensor_rate(storage, buffers, args.bs, args.seconds))
    ratio = statistics.median(tensors) / statistics.median(client)
    return {
        "client_bytes_per_second": client,
        "tensor_bytes_per_second": tensors,
        "ratio_of_medians": ratio,
        "bound": RATE_LEAST,
        "held": ratio >= RATE_LEAST,
    }


def training(storage: Storage, args: argparse.Namespace) -> dict[str, Any]:
    """A loop whose steps take their input from the drive, and the same loop without reads."""
    import torch

    stream = torch.cuda.Stream()
    weights = torch.randn(1024, 1024, device="cuda")
    buffers = [torch.zeros(1024 * 1024, dtype=torch.float32, device="cuda") for _ in range(2)]
    size_bytes = buffers[0].numel() * 4
    reads: list[Future[int]] = []
    waited = 0
    call_seconds: list[float] = []

    def step(number: int, read: Callable[[object, int], None] | None) -> None:
        nonlocal waited
        buffer = buffers[number % 2]
        torch.cuda._sleep(STEP_CYCLES)
        before = torch.cuda.Event()
        before.record(stream)
        if read:
            begun = time.perf_counter()
            read(buffer, number)
            call_seconds.append(time.perf_counter() - begun)
            waited += before.query()  # reached: the call lasted as long as the GPU's work
        torch.mm(buffer.view(1024, 1024), weights)

    def loop(read: Callable[[object, int], None] | None) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            begin.record(stream)
            for number in range(args.steps):
                step(number, read)
            end.record(stream)
        end.synchronize()  # the benchmark's own wait, after the loop
        return begin.elapsed_time(end) / 1e3

    def read(buffer: object, number: int) -> None:
        offset = number % (storage.size_bytes // size_bytes) * size_bytes
        reads.append(storage.pread(buffer, offset, stream=stream))

    loop(read)  # loads kernels, registers memory
    waited = 0
    reads.clear()
    call_seconds.clear()
    without = loop(None)
    with_reads = loop(read)
    moved = sum(one.result() for one in reads)
    return {
        "steps": args.steps,
        "calls_that_waited": waited,
        "call_seconds_max": max(call_seconds),
        "call_seconds_median": statistics.median(call_seconds),
        "loop_seconds_without_reads": without,
        "loop_seconds_with_reads": with_reads,
        "bytes": moved,
        "held": waited == 0 and moved == args.steps * size_bytes,
    }


def gpu() -> dict[str, str] | None:
    """Name and driver of GPU 0; None where there is none."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    name, driver = answer.stdout.strip().split(", ")
    return {"name": name, "driver": driver}


def main() -> int:
    """Measures, and prints the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drive", default="emulated:size=4G,backing=hbm,profile=990-pro", help="the drive's URI")
    parser.add_argument("--device", default="auto", help="the storage's device")
    parser.add_argument("--tensors", choices=("torch", "cupy", "numpy"), default="torch", help="what is read into")
    parser.add_argument("--bs", type=lambda text: parse_size("--bs", text), default=1 << 20, help="bytes of a read")
    parser.add_argument("--depth", type=int, default=32, help="reads under way at a time")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of a rate")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each rate")
    parser.add_argument("--steps", type=int, default=100, help="of the training loop")
    args = parser.parse_args()
    with Storage(args.drive, device=args.device) as storage:
        document = {
            "schema_version": 1,
            "command": shlex.join([sys.executable, *sys.argv]),
            "gpu": gpu(),
            "tensors": args.tensors,
            "block_bytes": args.bs,
            "depth": args.depth,
            "rates": rates(storage, args),
            "training": training(storage, args) if args.tensors == "torch" else None,
            "forebay": provenance(storage),
        }
    json.dump(document, sys.stdout, indent=2)
    print()
    held = document["rates"]["held"] and (document["training"] is None or document["training"]["held"])
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
