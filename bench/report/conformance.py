# SPDX-License-Identifier: Apache-2.0
"""Writes the table of `docs/reference/drive-uri.md` that says where the conformance list passes.

`python bench/report/conformance.py` writes it from `bench/results/*-conformance.json`. `--check` compares it with what
is there, and fails on a difference. `--run PROGRAM` first runs the list anew, as root, on each file system that can be
made here: `--run build/cpu/bin/conformance_test`. `--run-on-gpu PROGRAM FILE` does nothing but run the list on a GPU,
with `conformance_on_gpu_test`, and writes what came of it to FILE.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "cpu-conformance.json"
ON_GPU = ROOT / "bench" / "results" / "h100-conformance.json"
PAGE = ROOT / "docs" / "reference" / "drive-uri.md"
BEGIN, END = "<!-- conformance: begin -->\n", "<!-- conformance: end -->\n"

# tests/conformance/file_test.cpp. The first file system is that of the folder of tests.
ON_FILE_SYSTEM = {"file_on_disk": "a file on {}", "file_on_block_device": "a loop device over a file on {}"}
ELSEWHERE = {
    "emulated": "memory of the client (`backing=memory`)",
    "file_in_memory": "a file on tmpfs",
    "qemu": "QEMU's controller, which is no part of Forebay",
    "qemu_blocks_of_4096": "the same, with blocks of 4,096 bytes",
    "qemu_gpu_memory": "the same, with memory that stands in for a GPU's, found by kernel modules that the test plays",
    "qemu_second_namespace": "the same, the second of two namespaces",
    "pci_sysfs": "the same in a guest, by `pci:` with `access=sysfs`",
    "pci_vfio": "the same in a guest, by `pci:` with `access=vfio`",
    "resident": "memory of a GPU, on which the engine stays (`backing=peer:N`, `residency=served`)",
    "visiting": "host memory; the engine is on a GPU while it is needed (`backing=host`)",
}
FILE_SYSTEMS = {"ext4": 256 << 20, "xfs": 512 << 20}  # and how large a disk each is tested on


def outcomes(document: dict) -> dict[str, dict]:
    """Counts the checks by target in what GoogleTest writes."""
    found = {}
    for suite in document["testsuites"]:
        checks = suite["testsuite"]
        found[suite["name"].removeprefix("conformance/").removeprefix("on_gpu/")] = {
            "checks": len(checks),
            "failed": [check["name"].removeprefix("conforms/") for check in checks if "failures" in check],
            "skipped": sum(check["result"] == "SKIPPED" for check in checks),
        }
    return found


def _run(begin: list[str], program: Path, suites: str, folder: Path) -> dict[str, dict]:
    out = folder / "outcomes.json"
    command = [*begin, program, f"--gtest_filter={suites}.*", f"--gtest_output=json:{out}"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if not out.exists():
        sys.exit(f"{program}: ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
    document = json.loads(out.read_text())
    out.unlink()
    return outcomes(document)


def _commit() -> str:
    if commit := os.environ.get("FOREBAY_COMMIT"):
        return commit
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    return subprocess.run(describe, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run(program: Path) -> dict:
    """Runs the list on all targets, those on a file system once for each of them."""
    sys.path.insert(0, str(ROOT / "tests" / "guest"))
    import real_drive  # it lies with the tests, and needs what they need

    program = program.resolve()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target, outcome in _run([], program, "conformance/*", folder).items():
            if not target.startswith((*ON_FILE_SYSTEM, "pci_")):
                rows.append({"target": target, **outcome})
        for access in ("sysfs", "vfio"):
            there = folder / access
            there.mkdir()
            document = json.loads((real_drive.conformance(access, there) / "outcomes.json").read_text())
            rows += [
                {"target": target, **outcome} for target, outcome in outcomes(document).items() if outcome["checks"]
            ]
        for kind, size_bytes in FILE_SYSTEMS.items():
            make = shutil.which(f"mkfs.{kind}", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
            if not make:
                sys.exit(f"mkfs.{kind} is not installed")
            disk, mounted = folder / f"{kind}.img", folder / kind
            with disk.open("wb") as file:
                file.truncate(size_bytes)
            subprocess.run([make, "-q", disk], check=True)
            mounted.mkdir()
            # For itself alone: the mount goes when the program ends.
            inside = f'mount -t {kind} -o loop {disk} {mounted}; export TMPDIR={mounted}; exec "$@"'
            begin = ["unshare", "--mount", "sh", "-ec", inside, "sh"]
            for target, outcome in _run(begin, program, "conformance/file_on_*", folder).items():
                rows.append({"target": target, "file_system": kind, **outcome})
            disk.unlink()
    return {
        "benchmark": "conformance",
        "machine": {"kernel": platform.release(), "commit": _commit()},
        "command": f"python bench/report/conformance.py --run {os.path.relpath(program, ROOT)}",
        "rows": rows,
    }


def run_on_gpu(program: Path) -> dict:
    """Runs the list on drives whose engine is on GPU 0."""
    ask = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    with tempfile.TemporaryDirectory() as folder:
        outcomes_of_targets = _run([], program.resolve(), "on_gpu/*", Path(folder))
    return {
        "benchmark": "conformance",
        "machine": {"gpu": gpu, "driver": driver, "kernel": platform.release(), "commit": _commit()},
        "command": f"python bench/report/conformance.py --run-on-gpu {program} FILE",
        "rows": [{"target": target, **outcome} for target, outcome in outcomes_of_targets.items()],
    }


def place_of(row: dict) -> tuple[str, str]:
    """Where the bytes of a row's drive are, and by which `io` it reaches them."""
    target, _, io = row["target"].rpartition("_")
    if io not in ("uring", "mmap"):
        return ELSEWHERE[row["target"]], ""
    return (ON_FILE_SYSTEM[target].format(row["file_system"]) if target in ON_FILE_SYSTEM else ELSEWHERE[target]), io


def cell(row: dict | None) -> str:
    """What came of the checks of a row."""
    if row is None:
        return ""
    passed = row["checks"] - len(row["failed"]) - row["skipped"]
    text = f"{passed} of {row['checks']}"
    if row["skipped"]:
        text += f", {row['skipped']} skipped"
    return text + (f", failed: {', '.join(row['failed'])}" if row["failed"] else "")


def table(document: dict, on_gpu: dict) -> str:
    """The table, a row for each place."""
    by_place: dict[str, dict[str, dict]] = {}
    for row in sorted(document["rows"], key=lambda row: row["target"].startswith(("qemu", "pci_"))):
        place, io = place_of(row)
        by_place.setdefault(place, {})[io] = row
    lines = ["| where the bytes are | `io=uring` | `io=mmap` | no `io` |", "|---|---|---|---|"]
    for place, by_io in by_place.items():
        lines.append(f"| {place} | {' | '.join(cell(by_io.get(io)) for io in ('uring', 'mmap', ''))} |")
    lines += [f"| {place_of(row)[0]} |  |  | {cell(row)} |" for row in on_gpu["rows"]]
    kernel = ".".join(document["machine"]["kernel"].split(".")[:2])
    gpu = on_gpu["machine"]
    note = (
        f"Checks that passed, on Linux {kernel}, at commit {document['machine']['commit']}\n"
        f"([file](../../bench/results/{RESULTS.name})); the last rows on an {gpu['gpu']}, driver {gpu['driver']}, at\n"
        f"commit {gpu['commit']} ([file](../../bench/results/{ON_GPU.name})):"
    )
    return note + "\n\n" + "\n".join(lines) + "\n"


def with_table(page: str, text: str) -> str:
    """The page with this table in the place of its own."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE.name}: the lines {BEGIN.strip()} and {END.strip()} are missing: the table stands between them")
    return before + begin + text + end + after


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page would change")
    parser.add_argument("--run", type=Path, metavar="PROGRAM", help="run the list anew with this conformance_test")
    parser.add_argument("--run-on-gpu", nargs=2, type=Path, metavar=("PROGRAM", "FILE"), help="run the list on a GPU")
    given = parser.parse_args()
    if given.run_on_gpu:
        program, file = given.run_on_gpu
        file.write_text(json.dumps(run_on_gpu(program), indent=1) + "\n")
        return
    if given.run:
        RESULTS.write_text(json.dumps(run(given.run), indent=1) + "\n")
    page = PAGE.read_text()
    wanted = with_table(page, table(json.loads(RESULTS.read_text()), json.loads(ON_GPU.read_text())))
    if given.check and wanted != page:
        sys.exit(f"{PAGE.name}: not what {RESULTS.name} says: run python bench/report/conformance.py")
    if wanted != page:
        PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
