# SPDX-License-Identifier: Apache-2.0
"""Whether a drive's timing shows through NBD: `python bench/export_nbd.py --json FILE`.

`forebay drive export-nbd` serves an emulated drive at a Unix socket, and fio's engine `nbd` reads random blocks of
4 KiB from it, N at a time. A closed loop of N reads is to have the rate min(iops, N / (latency + transport)). The
transport is what nbdkit, the socket and fio add: the mean latency of one read at a time of a drive without a timing
model.

Each rate is measured with a server of its own, whose report says whether the emulator kept the drive's times. Where it
did not, or other programs took more than a tenth of a core, the machine was measured and not the drive. Then the rate
is measured again, `--tries` times in all. All tries are in the document.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

IOPS, LATENCY_US = 20_000, 500
SIZE = "64M"
IDEAL = f"emulated:size={SIZE}"
DRIVE = f"{IDEAL},iops={IOPS},latency_us={LATENCY_US}"
DEPTHS = (1, 2, 5, 8, 10, 12, 16, 20, 30, 40)
TOLERANCE = 0.05
IDEAL_RUNS = 3
OTHERS_MAX = 0.1  # cores


@contextlib.contextmanager
def exported(uri: str, folder: Path) -> Iterator[tuple[str, dict]]:
    """A server of its own; yields its NBD URI, and a dictionary that is the drive's report afterwards."""
    report_file, drive = folder / "report.json", {}
    server = subprocess.Popen(
        [sys.executable, "-m", "forebay", "drive", "export-nbd", uri, "--socket", str(folder / "nbd.sock"),
         "--json", str(report_file)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        ready = server.stdout.readline()
        if not ready:
            raise SystemExit(f"export-nbd ended with status {server.wait()}")
        yield ready.removeprefix("serving at ").strip(), drive
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()
    if server.returncode != 0:
        raise SystemExit(f"export-nbd ended with status {server.returncode}")
    drive.update(json.loads(report_file.read_text())["forebay"]["drives"][0])


def fio(nbd_uri: str, depth: int, seconds: float) -> dict:
    """What fio says of `depth` random reads at a time."""
    said = subprocess.run(
        ["fio", "--name=nbd", "--ioengine=nbd", f"--uri={nbd_uri}", "--rw=randread", "--bs=4k", f"--iodepth={depth}",
         f"--size={SIZE}", "--time_based", f"--runtime={seconds}", "--ramp_time=0.3", "--output-format=json"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    (job,) = json.loads(said[said.index("{") :])["jobs"]  # it says first that it is connected
    if job["error"]:
        raise SystemExit(f"fio: error {job['error']}")
    return job


def busy_s() -> float:
    """Processor time that all programs of the machine have had, of all cores together."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """What this program and its children, once they have ended, have had of it."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def await_quiet(patience_s: float) -> None:
    """Returns once other programs leave the machine alone for half a second, or after `patience_s`."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        before = busy_s()
        time.sleep(0.5)
        if busy_s() - before < OTHERS_MAX * 0.5:
            return


def measure(uri: str, depth: int, options: argparse.Namespace) -> dict:
    """One server, one run of fio."""
    await_quiet(options.patience)
    with tempfile.TemporaryDirectory() as folder:
        began, others = time.monotonic(), own_s() - busy_s()
        with exported(uri, Path(folder)) as (nbd_uri, drive):
            job = fio(nbd_uri, depth, options.runtime)
        others = (own_s() - busy_s() - others) / (began - time.monotonic())
    read = job["read"]
    return {
        "iops": read["iops"],
        "lat_ns": {
            "mean": read["lat_ns"]["mean"],
            "p50": read["clat_ns"]["percentile"]["50.000000"],
            "p99": read["clat_ns"]["percentile"]["99.000000"],
        },
        "fio_cpu_percent": job["usr_cpu"] + job["sys_cpu"],
        "others_cores": others,
        "fidelity": drive["fidelity"],
        "lateness": drive["lateness"],
        "target_mean_ns": drive["latency"]["target"]["mean_ns"],
    }


def is_of_the_drive(run: dict) -> bool:
    """Whether a run measured the drive, and not a machine that was busy otherwise."""
    return run["fidelity"] == "ok" and run["others_cores"] <= OTHERS_MAX


def measured(uri: str, depth: int, options: argparse.Namespace) -> tuple[dict, list[dict]]:
    """The first run that measured the drive, or else the last; and those before it."""
    runs = [measure(uri, depth, options)]
    while not is_of_the_drive(runs[-1]) and len(runs) < options.tries:
        runs.append(measure(uri, depth, options))
    return runs[-1], runs[:-1]


def measure_depth(depth: int, transport_ns: float, options: argparse.Namespace) -> dict:
    """One row."""
    run, left_out = measured(DRIVE, depth, options)
    expected = min(IOPS, depth / (LATENCY_US * 1e-6 + transport_ns * 1e-9))
    return {
        "iodepth": depth,
        "expected_iops": expected,
        "ratio": run["iops"] / expected,
        **run,
        "left_out": left_out,
    }


def line(row: dict) -> str:
    """A row of the table."""
    latency = row["lat_ns"]
    return (
        f"{row['iodepth']:>4} {row['iops']:>9,.0f} {row['expected_iops']:>9,.0f} {row['ratio']:>7.3f} "
        f"{latency['mean'] / 1e3:>9.0f} {latency['p99'] / 1e3:>9.0f} {row['target_mean_ns'] / 1e3:>11.0f} "
        f"{row['lateness']['mean_ns'] / 1e3:>9.1f} {row['others_cores']:>7.2f} "
        f"{len(row['left_out']) + 1:>6}  {row['fidelity']}"
    )


def processor() -> str:
    """The name of the processor."""
    with Path("/proc/cpuinfo").open() as lines:
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(names, platform.machine())


def version(*command: str) -> str:
    """What a program says of itself."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--runtime", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument(
        "--patience", type=float, default=0, metavar="SECONDS", help="before each try, wait for other programs to end"
    )
    options = parser.parse_args()
    for program in ("fio", "nbdkit"):
        if shutil.which(program) is None:
            parser.error(f"{program}: is not installed; scripts/setup --test does that")
    if "nbd" not in version("fio", "--enghelp").split():
        parser.error("fio: has no engine nbd; install one that was built with libnbd")

    ideal = [measured(IDEAL, 1, options)[0] for _ in range(IDEAL_RUNS)]
    transport_ns = statistics.median(run["lat_ns"]["mean"] for run in ideal)
    print(f"transport: {transport_ns / 1e3:.1f} us, the mean latency of one read at a time at profile ideal")
    print(
        "   N      IOPS  expected   ratio  mean, us   p99, us  target, us  late, us  others  tries  fidelity",
        flush=True,
    )
    rows = []
    for depth in DEPTHS:
        rows.append(measure_depth(depth, transport_ns, options))
        print(line(rows[-1]), flush=True)

    from forebay import build_info

    document = {
        "schema_version": 1,
        "benchmark": "export-nbd",
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "nbdkit": version("nbdkit", "--version").removeprefix("nbdkit "),
            "fio": version("fio", "--version"),
            "commit": build_info()["commit"],
        },
        "command": f"python bench/export_nbd.py --runtime {options.runtime:g} --tries {options.tries} "
        f"--json {options.json.name}",
        "drive": DRIVE,
        "transport": {"drive": IDEAL, "iodepth": 1, "mean_ns": transport_ns, "runs": ideal},
        "tolerance": TOLERANCE,
        "results": rows,
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    wrong = [row for row in rows if abs(row["ratio"] - 1) > TOLERANCE or not is_of_the_drive(row)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
