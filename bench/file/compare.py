# SPDX-License-Identifier: Apache-2.0
"""The engines of `forebay bench`, and fio's, on one file: `python bench/file/compare.py --filename F --json OUT.json`.

Measures each engine at each block size and depth, sequentially and at random; then reads of 4 MiB to 8 GiB. An engine
whose data passes through the page cache is measured from a cold cache and from a warm one; with --memory-limit from a
cold one that never holds the file. Every result is written at once: the same command goes on where an earlier one
ended. `--tables OUT.json` prints the tables of a file.

The engines with O_DIRECT measure the file's drive. A warm cache measures memory. Where a cold run reads more than half
of the file, the tables mark its figures: take a longer file, or a shorter --runtime. Beneath a virtual machine a host
may cache the file too.
"""

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import comparison
import memory_limit
import page_cache
import ways
from ways import Case, Place

ROOT = Path(__file__).resolve().parents[2]
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SEQUENTIAL_BS, SEQUENTIAL_DEPTH = 1 << 20, 32


def parse_bytes(text: str) -> int:
    """Bytes in `64k`, `1M`, `2G`."""
    match = re.fullmatch(r"(\d+)([kmg]?)", text.strip().lower())
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"'{text}': give bytes such as 4k, 1M or 8G")
    return int(match[1]) * UNITS[match[2]]


def parsed(text: str, parse: Any = str) -> list[Any]:  # noqa: ANN401 (any function)
    """The values of a list with commas."""
    return [parse(part) for part in text.split(",") if part]


def arguments() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--filename", type=Path, help="the file; it must be there, and full of bytes")
    add("--json", type=Path, help="where the results go, and come from if there are some")
    add("--tables", type=Path, metavar="JSON", help="print the tables of an earlier run and measure nothing")
    add("--engines", default=",".join((*ways.OURS, *ways.FIOS)))
    add("--workloads", default="read,randread", help="those that write destroy the file's data")
    add("--bs", default="4k,16k,64k,256k,1M")
    add("--depths", default="1,8,32")
    add("--sizes", default="4M,16M,64M,256M,1G,2G,4G,8G", help="bytes to read sequentially; empty: none")
    caches = "of the engines that read through the page cache: cold, warm, or limited, with --memory-limit"
    add("--caches", default="cold,warm", help=caches)
    limit = "memory of each program, with what the page cache holds for it; less than the file has, and needs root"
    add("--memory-limit", type=parse_bytes, default=0, metavar="BYTES", help=limit)
    add("--runtime", type=float, default=3.0, metavar="SECONDS", help="of each measurement")
    add("--repeats", type=int, default=3)
    add("--size", type=parse_bytes, default=0, help="bytes of the file to use; all by default")
    add("--drive", default="", metavar="URI", help="what the engine gpu opens; file:FILENAME by default")
    add("--device", default="auto", help="as of forebay bench")
    add("--forebay", default=str(ROOT / ".venv/bin/forebay"))
    add("--fio", default="fio")
    return parser


def cases_of(given: argparse.Namespace, size: int) -> Iterator[Case]:
    """All that is to be measured. Repeats are outermost, so that what changes with time changes for every engine."""
    engines, caches = parsed(given.engines), parsed(given.caches)
    for repeat in range(given.repeats):
        for workload in parsed(given.workloads):
            for bs in parsed(given.bs, parse_bytes):
                for depth in parsed(given.depths, int):
                    for engine in engines:
                        for cache in caches if engine in ways.BY_CACHE else ["any"]:
                            yield Case(engine, workload, bs, depth, size, given.runtime, cache, repeat)
        for count in parsed(given.sizes, parse_bytes):
            if count > size:
                continue
            for engine in engines:
                # fio's jobs would each read a part, and end at different times.
                if engine == "fio_mmap":
                    continue
                for cache in caches if engine in ways.BY_CACHE else ["any"]:
                    yield Case(engine, "read", SEQUENTIAL_BS, SEQUENTIAL_DEPTH, count, 0.0, cache, repeat)


def machine(place: Place) -> dict[str, Any]:
    """Where this is measured, in the words of the system."""

    def said_by(*command: str) -> str:
        if not shutil.which(command[0]):
            return ""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    total = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    commit = os.environ.get("FOREBAY_COMMIT") or said_by(
        "git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"
    )
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "processor": model[1] if model else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(total[1]) * 1024 if total else None,
        "gpu": said_by("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "file_system": said_by("findmnt", "--noheadings", "--output", "FSTYPE,SOURCE,OPTIONS", "--target", place.file),
        "block_devices": said_by("lsblk", "--nodeps", "--noheadings", "--output", "NAME,MODEL,SIZE,ROTA"),
        "fio": said_by(place.fio, "--version"),
        "commit": commit or "unknown",
    }


def opened(path: Path, settings: dict[str, Any], where: dict[str, Any]) -> dict[str, Any]:
    """The document of an earlier run with the same settings at the same commit, or a new one."""
    new = {"schema_version": 1, "benchmark": "file_compare", "machine": where, "settings": settings}
    if not path.exists():
        return {**new, "command": shlex.join(sys.argv), "cannot": {}, "results": []}
    document = json.loads(path.read_text())
    for what, mine in (("settings", settings), ("machine", where)):
        differing = [name for name in mine if document.get(what, {}).get(name) != mine[name]]
        if differing:
            sys.exit(f"--json: '{path}': was measured with another {', '.join(differing)}; name another file")
    return {**document, "cannot": {}}  # what was missing may be there now


def save(path: Path, document: dict[str, Any]) -> None:
    """Writes the document in one step, so that an interrupt leaves the old one or the new one."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(path)


def prepare(case: Case, file: Path) -> dict[str, Any]:
    """Brings the page cache into the case's state; returns what it then holds.

    The cache is dropped for engines that bypass it too: a virtual machine gives dropped pages back to its host, which
    slows all that runs then.
    """
    page_cache.drop(file)
    if case.cache == "warm":
        page_cache.fill(file)
    return {"cached_share": round(page_cache.cached_share(file), 4)}


def measure(document: dict[str, Any], cases: list[Case], place: Place, save_to: Path) -> int:
    """Measures what the document does not have yet; returns how many cases failed."""
    there = {row["key"] for row in document["results"]}
    failed = 0
    for number, case in enumerate(cases, 1):
        if case.key in there or case.way in document["cannot"]:
            continue
        about = {**asdict(case), "engine": case.way, "key": case.key}
        try:
            cache = prepare(case, place.file)
            row = {**about, **cache, **ways.run(case, place)}
        except ways.CannotError as why:
            document["cannot"][case.way] = str(why)
            print(f"{case.way}: {why}", file=sys.stderr)
        except (OSError, subprocess.TimeoutExpired) as why:
            failed += 1
            print(f"{case.key}: FAILED: {why}", file=sys.stderr)
        else:
            document["results"].append(row)
            rate = f"{row['bytes_per_s'] / 1e6:.0f} MB/s, {row['iops']:.0f} IOPS"
            print(f"{number}/{len(cases)} {case.key}: {rate}", file=sys.stderr)
        save(save_to, document)
    return failed


def main() -> int:
    """Measures and prints the tables; 1 if a measurement failed."""
    parser = arguments()
    given = parser.parse_args()
    if given.tables:
        print("\n\n".join(comparison.tables(json.loads(given.tables.read_text()))))
        return 0
    if not given.filename or not given.json:
        parser.error("give --filename and --json, or --tables")
    if not given.filename.is_file():
        parser.error(f"--filename: '{given.filename}': no such file; make it first: head -c 8G /dev/zero >FILE")
    file = given.filename.resolve()
    size = given.size or file.stat().st_size // SEQUENTIAL_BS * SEQUENTIAL_BS
    for engine in parsed(given.engines):
        if engine not in (*ways.OURS, *ways.FIOS):
            parser.error(f"--engines: '{engine}': give some of {', '.join((*ways.OURS, *ways.FIOS))}")
    if ("limited" in parsed(given.caches)) != bool(given.memory_limit):
        parser.error("--caches limited and --memory-limit: give both or none")
    if given.memory_limit and parsed(given.caches) != ["limited"]:
        parser.error(f"--caches: '{given.caches}': give limited alone: the limit is one for all runs")
    if given.memory_limit and given.memory_limit >= size:
        parser.error(f"--memory-limit: '{given.memory_limit}': give less than the {size} bytes of the file")
    if given.memory_limit:
        try:
            with memory_limit.group(given.memory_limit):
                pass
        except OSError as why:
            parser.error(
                f"--memory-limit: '{given.memory_limit}': {why}; run as root, where control groups can be made"
            )
    place = Place(file, given.drive or f"file:{file}", given.device, given.forebay, given.fio, given.memory_limit)
    settings = {**{name: str(value) for name, value in vars(given).items() if name != "json"}, "size": size}
    document = opened(given.json, settings, machine(place))
    if not shutil.which(given.fio):
        document["cannot"].update(dict.fromkeys(ways.FIOS, f"there is no {given.fio} here"))
    failed = measure(document, list(cases_of(given, size)), place, given.json)
    print("\n\n".join(comparison.tables(document)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
