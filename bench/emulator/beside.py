# SPDX-License-Identifier: Apache-2.0
"""What a drive on a GPU costs the programs beside it: `python bench/emulator/beside.py BENCH --json FILE`.

BENCH is `emulated_drive_bench`. The programs are a matrix product (cuBLAS, by PyTorch) and an addition that is bound by
memory; each runs alone, beside an idle drive and beside a loaded one.

Drive, load and the programs measured are processes that share the GPU by MPS, whose control daemon must run
(CUDA_MPS_PIPE_DIRECTORY); the last two have what the drive's multiprocessors leave.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

RUNS = 5
SECONDS = 0.3
LOADS = ("40 MIOPS, 50 us", "100 MIOPS, 50 us")
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def measure_forever() -> None:
    """Measures once for each line of standard input, and prints what it found as a line of JSON."""
    import torch

    side, elements = 8192, 1 << 28
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    x, y = (torch.randn(elements, device="cuda") for _ in range(2))
    total = torch.empty_like(x)
    # Each with what one call of it does: floating-point operations, and bytes.
    work = {
        "gemm": (lambda: torch.matmul(a, b, out=product), 2 * side**3),
        "add": (lambda: torch.add(x, y, out=total), 3 * x.element_size() * elements),
    }
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds_of(call: Callable[[], object], times: int) -> float:
        begin.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3

    print(json.dumps({"device": torch.cuda.get_device_name(0), "torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        found = {}
        for name, (call, amount) in work.items():
            seconds_of(call, 3)
            times = max(1, round(SECONDS / (seconds_of(call, 5) / 5)))
            found[name] = [amount * times / seconds_of(call, times) for _ in range(RUNS)]
        print(json.dumps(found), flush=True)


class Worker:
    """A process that measures when it is told to."""

    def __init__(self, percentage: int | None) -> None:
        variables = {"CUDA_MODULE_LOADING": "LAZY"}  # PyTorch has gigabytes of kernels
        if percentage is not None:
            variables[PERCENTAGE] = str(percentage)
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.machine = self._line()

    def _line(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the measuring process ended with status {self._process.wait()}")
        return json.loads(line)

    def measure(self) -> dict:
        """Rates of each program, in what it does a second."""
        self._process.stdin.write("measure\n")
        self._process.stdin.flush()
        return self._line()

    def close(self) -> None:
        """Lets it end."""
        self._process.communicate()


def drives(bench: Path) -> dict[str, str]:
    """URI by name of the benchmark's cases."""
    listed = subprocess.run(
        [bench, "--list", "--group", "target", "--residency", "served"], check=True, capture_output=True, text=True
    )
    return {name: uri for _, name, uri in (line.split("\t") for line in listed.stdout.splitlines())}


def sms_of(uri: str) -> int:
    """Multiprocessors of a drive."""
    return next(int(pair[4:]) for pair in uri.split(",") if pair.startswith("sms="))


@contextlib.contextmanager
def serving(bench: Path, uri: str, socket: str) -> Iterator[None]:
    """A drive that a daemon serves."""
    daemon = subprocess.Popen([bench, "--serve", uri, "--socket", socket], stdout=subprocess.PIPE, text=True)
    try:
        if daemon.stdout.readline().strip() != "ready":
            raise SystemExit(f"the drive daemon ended with status {daemon.wait()}")
        yield
    finally:
        daemon.terminate()
        daemon.communicate()


@contextlib.contextmanager
def loading(bench: Path, name: str, socket: str, percentage: int, found: dict) -> Iterator[None]:
    """A client that keeps the drive busy; what it did is in `found` afterwards."""
    client = subprocess.Popen(
        [bench, "--load", name, "--group", "target", "--residency", "served"],
        env={**os.environ, "FOREBAY_DAEMON": socket, PERCENTAGE: str(percentage)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if client.stdout.readline().strip() != "running":
            raise SystemExit(f"the client ended with status {client.wait()}")
        yield
    finally:
        rest, _ = client.communicate()  # ends its input, and so its runs
        with contextlib.suppress(json.JSONDecodeError):
            found.update(json.loads(rest))
    if client.returncode != 0:
        raise SystemExit(f"beside: the drive's client ended with status {client.returncode}")


def result(beside: str, rates: dict, alone: dict | None, drive: dict | None) -> dict:
    """One condition, in proportion to the same share of the GPU with nothing beside it."""
    row: dict = {"beside": beside}
    if drive:
        row["drive"] = drive
    for name, values in rates.items():
        middle = statistics.median(values)
        row[name] = {"per_second": sorted(values), "median": middle}
        if alone is not None:
            row[name]["of_alone"] = middle / alone[name]["median"]
    return row


def table(results: list[dict]) -> str:
    """A line for each condition."""
    lines = [f"{'beside':32} {'GEMM, TFLOP/s':>14} {'':>8} {'add, GB/s':>10} {'':>8} {'drive, MIOPS':>13}"]
    for row in results:
        cells = [f"{row['beside']:32}"]
        for name, unit, width in (("gemm", 1e12, 14), ("add", 1e9, 10)):
            of = row[name].get("of_alone")
            cells.append(f"{row[name]['median'] / unit:{width}.1f} {'' if of is None else f'{100 * of:.1f} %':>8}")
        cells.append(f"{row['drive']['iops'] / 1e6:13.2f}" if row.get("drive") else "")
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)


def driver() -> str:
    """The version of the NVIDIA driver; `unknown` where it cannot be asked."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, check=True, capture_output=True, text=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return said[0] if said else "unknown"


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        measure_forever()
        return
    if options.bench is None or options.json is None:
        parser.error("BENCH and --json FILE are needed")
    uris = drives(options.bench)
    sms = sms_of(uris[LOADS[0]])
    whole = Worker(None)
    results = [result("nothing, all of the GPU", whole.measure(), None, None)]
    machine = whole.machine
    whole.close()
    multiprocessors = int(
        subprocess.run([options.bench, "--multiprocessors"], check=True, capture_output=True, text=True).stdout
    )
    share = 100 * (multiprocessors - sms) // multiprocessors
    worker = Worker(share)
    results.append(result(f"nothing, {share} % of the GPU", worker.measure(), None, None))
    alone = results[-1]
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/daemon.sock"
        for name in LOADS:
            with serving(options.bench, uris[name], socket):
                if name == LOADS[0]:
                    results.append(result(f"an idle drive of {sms} SMs", worker.measure(), alone, None))
                drive: dict = {}
                with loading(options.bench, name, socket, share, drive):
                    rates = worker.measure()
                results.append(result(f"a drive at {name}", rates, alone, drive))
    worker.close()
    document = {
        "schema_version": 1,
        "benchmark": "beside",
        "machine": {
            **machine,
            "driver": driver(),
            "multiprocessors": multiprocessors,
            "commit": os.environ.get("FOREBAY_COMMIT", "unknown"),
        },
        "command": f"beside.py {options.bench.name} --json {options.json.name}",
        "results": results,
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
