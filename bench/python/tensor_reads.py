# SPDX-License-Identifier: Apache-2.0
"""Measures reads into tensors: their rate beside that of the library's own client, and a training loop beside them.

The rates: `Storage.pread` fills tensors of `--bs` bytes, `--depth` of them at a time, and `forebay.bench` reads the
same drive with as many in flight, or `--client-depth`. The two take turns `--repeats` times. The training loop: each
step queues matrix products on one stream and starts the read of the next batch, with which another stream is ordered.
An event that the products come before is asked right before the call and right after it. If it was reached meanwhile,
the call may have waited for the GPU. Events also measure the steps, with reads and without. What each step saw is
compared with what was written.

The training loop needs `--tensors torch`. A table goes to standard output, and with `--json` a document to a file.
Status 1: a bound was missed.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from forebay import RefusedInput, Storage, bench
from forebay.provenance import provenance
from forebay.units import parse_size

RATE_LEAST = 0.95  # of the client's rate
JUDGED_LEAST = 0.9  # of the calls must come while the GPU is behind the host


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
        client.append(client_rate(storage, args.bs, args.client_depth or args.depth, args.seconds))
        tensors.append(tensor_rate(storage, buffers, args.bs, args.seconds))
    ratio = statistics.median(tensors) / statistics.median(client)
    return {
        "client_bytes_per_second": client,
        "tensor_bytes_per_second": tensors,
        "ratio_of_medians": ratio,
        "bound": RATE_LEAST,
        "held": ratio >= RATE_LEAST,
    }


class Training:
    """A loop of matrix products, each step on the batch that was read during the step before.

    One stream computes, the other reads. They order each other by events, as a program does that loads its batches in
    the background. The host only queues.
    """

    SIDE = 4096  # of the matrices

    def __init__(self, storage: Storage, args: argparse.Namespace) -> None:
        import torch

        self._torch, self._storage = torch, storage
        self._steps, self._products = args.steps, args.products
        self._compute, self._load = torch.cuda.Stream(), torch.cuda.Stream()
        self._weights = torch.full((self.SIDE, self.SIDE), 1 / self.SIDE, device="cuda")
        self._batches = [torch.zeros_like(self._weights) for _ in range(2)]
        self._products_of = [torch.zeros_like(self._weights) for _ in range(2)]
        self._seen = torch.zeros(self._steps, device="cuda")
        self.batch_bytes = self._weights.numel() * 4
        self._on_drive = min(storage.size_bytes // self.batch_bytes, 16)
        if self._on_drive < 2:
            raise RefusedInput("--drive", storage.size_bytes, f"needs room for two batches of {self.batch_bytes} bytes")
        for number in range(self._on_drive):
            batch = torch.full_like(self._weights, self._value(number))
            torch.cuda.synchronize()
            storage.pwrite(batch, number * self.batch_bytes).result()

    def _value(self, number: int) -> float:
        """What every element of a batch is."""
        return float(1 + number % self._on_drive)

    def loop(self, *, reads: bool) -> dict[str, Any]:
        """Runs the steps, with reads or on batches that are there."""
        torch = self._torch
        filled, used = [None, None], [torch.cuda.Event(), torch.cuda.Event()]
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(self._steps + 1)]
        futures: list[Future[int]] = []
        call_seconds: list[float] = []
        judged = waited = 0

        def read(number: int) -> None:
            buffer = self._batches[number % 2]
            self._load.wait_event(used[number % 2])
            begun = time.perf_counter()
            offset = number % self._on_drive * self.batch_bytes
            futures.append(self._storage.pread(buffer, offset, stream=self._load))
            call_seconds.append(time.perf_counter() - begun)
            filled[number % 2] = torch.cuda.Event()
            filled[number % 2].record(self._load)

        torch.cuda.synchronize()
        begun = time.perf_counter()
        if reads:
            read(0)
        with torch.cuda.stream(self._compute):
            for number in range(self._steps):
                batch = self._batches[number % 2]
                if reads:
                    self._compute.wait_event(filled[number % 2])
                marks[number].record(self._compute)
                self._seen[number : number + 1].copy_(batch.view(-1)[-1:])
                for product in range(self._products):
                    torch.mm(batch, self._weights, out=self._products_of[product % 2])
                used[number % 2].record(self._compute)
                if reads and number + 1 < self._steps:
                    ahead = not used[number % 2].query()
                    read(number + 1)
                    judged += ahead
                    # Reached now: the call took as long as the work of the GPU that was queued before it.
                    waited += ahead and used[number % 2].query()
            marks[self._steps].record(self._compute)
        queued_seconds = time.perf_counter() - begun
        torch.cuda.synchronize()  # the benchmark's own wait, after the loop
        moved = sum(future.result() for future in futures)
        wrong = sum(value != self._value(number) for number, value in enumerate(self._seen.tolist())) if reads else 0
        step_seconds = [one.elapsed_time(another) / 1e3 for one, another in pairwise(marks)]
        return {
            "step_seconds_median": statistics.median(step_seconds),
            "step_seconds_max": max(step_seconds[1:], default=step_seconds[0]),
            "loop_seconds": marks[0].elapsed_time(marks[-1]) / 1e3,
            "queued_after_seconds": queued_seconds,
            "call_seconds": call_seconds,
            "calls_judged": judged,
            "calls_that_waited": waited,
            "wrong_batches": wrong,
            "bytes": moved,
        }


def training(storage: Storage, args: argparse.Namespace) -> dict[str, Any]:
    """The loop with reads and without, in turn."""
    made = Training(storage, args)
    for reads in (False, True):  # loads kernels, registers memory, locks the host's
        made.loop(reads=reads)
    without, beside = [], []
    for _ in range(args.repeats):
        without.append(made.loop(reads=False))
        beside.append(made.loop(reads=True))
    calls = [seconds for one in beside for seconds in one["call_seconds"]]
    judged = sum(one["calls_judged"] for one in beside)
    return {
        "steps": args.steps,
        "products": args.products,
        "batch_bytes": made.batch_bytes,
        "step_seconds_without_reads": [one["step_seconds_median"] for one in without],
        "step_seconds_with_reads": [one["step_seconds_median"] for one in beside],
        "step_seconds_max_without_reads": max(one["step_seconds_max"] for one in without),
        "step_seconds_max_with_reads": max(one["step_seconds_max"] for one in beside),
        "loop_seconds_without_reads": [one["loop_seconds"] for one in without],
        "loop_seconds_with_reads": [one["loop_seconds"] for one in beside],
        "queued_after_seconds": [one["queued_after_seconds"] for one in beside],
        "calls": len(calls),
        "calls_judged": judged,
        "calls_that_waited": sum(one["calls_that_waited"] for one in beside),
        "call_seconds_median": statistics.median(calls),
        "call_seconds_max": max(calls),
        "wrong_batches": sum(one["wrong_batches"] for one in beside),
        "bytes": sum(one["bytes"] for one in beside),
        "held": judged >= JUDGED_LEAST * len(calls)
        and not any(one["calls_that_waited"] or one["wrong_batches"] for one in beside)
        and all(one["bytes"] == args.steps * made.batch_bytes for one in beside),
    }


def command(arguments: list[str], json_file: Path | None) -> str:
    """The command as the documentation writes it: where this machine keeps Python and the file says nothing."""
    named = ["FILE" if json_file and argument == str(json_file) else argument for argument in arguments]
    return shlex.join(["python", "bench/python/tensor_reads.py", *named])


def gpu() -> dict[str, str] | None:
    """Name and driver of GPU 0; None where there is none."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    name, driver = answer.stdout.strip().split(", ")
    return {"name": name, "driver": driver}


def table(document: dict[str, Any]) -> str:
    """The figures that matter, a line each."""
    verdict = {True: "held", False: "MISSED"}
    rates, loop, built = document["rates"], document["training"], document["forebay"]
    client, tensors = (statistics.median(rates[f"{one}_bytes_per_second"]) / 1e9 for one in ("client", "tensor"))
    lines = [
        ("drive", ", ".join(drive["uri"] for drive in built["drives"])),
        ("fidelity, commit", f"{built['fidelity']}, {built['commit']}"),
        ("client", f"{client:.2f} GB/s"),
        (f"into {document['tensors']}", f"{tensors:.2f} GB/s, {rates['ratio_of_medians']:.3f} of the client's"),
        (f"at least {rates['bound']}", verdict[rates["held"]]),
    ]
    if loop:
        without, beside = (statistics.median(loop[f"step_seconds_{how}_reads"]) * 1e3 for how in ("without", "with"))
        lines += [
            ("a step without reads", f"{without:.3f} ms"),
            ("a step beside reads", f"{beside:.3f} ms, {beside / without:.3f} times"),
            (
                "a call takes",
                f"{loop['call_seconds_median'] * 1e6:.0f} us, {loop['call_seconds_max'] * 1e6:.0f} at most",
            ),
            (
                "calls that waited",
                f"{loop['calls_that_waited']} of {loop['calls_judged']} judged, {loop['calls']} made",
            ),
            ("wrong batches", str(loop["wrong_batches"])),
            ("no call waits", verdict[loop["held"]]),
        ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def main() -> int:
    """Measures, prints a table and writes the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drive", default="emulated:size=4G,backing=hbm,profile=990-pro", help="the drive's URI")
    parser.add_argument("--device", default="auto", help="the storage's device")
    parser.add_argument("--tensors", choices=("torch", "cupy", "numpy"), default="torch", help="what is read into")
    parser.add_argument("--bs", type=lambda text: parse_size("--bs", text), default=1 << 20, help="bytes of a read")
    parser.add_argument("--depth", type=int, default=32, help="reads under way at a time")
    parser.add_argument("--client-depth", type=int, help="reads that the client has under way at a time")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of a rate")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each rate")
    parser.add_argument("--steps", type=int, default=40, help="of the training loop")
    parser.add_argument("--products", type=int, default=6, help="matrix products of a step")
    parser.add_argument("--json", type=Path, help="the file for the document")
    args = parser.parse_args()
    with Storage(args.drive, device=args.device) as storage:
        document = {
            "schema_version": 1,
            "command": command(sys.argv[1:], args.json),
            "gpu": gpu(),
            "tensors": args.tensors,
            "block_bytes": args.bs,
            "depth": args.depth,
            "client_depth": args.client_depth or args.depth,
            "rates": rates(storage, args),
            "training": training(storage, args) if args.tensors == "torch" else None,
            "transfers": storage.report()["transfers"],
            "forebay": provenance(storage),
        }
    print(table(document))
    if args.json:
        args.json.write_text(json.dumps(document, indent=2) + "\n")
    held = document["rates"]["held"] and (document["training"] is None or document["training"]["held"])
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
