# SPDX-License-Identifier: Apache-2.0
"""Block workloads on a file by the ways that the operating system offers: what GPU threads are compared with."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay import bench
from forebay._native import core, interruptible
from forebay.devices import chosen_device
from forebay.errors import RefusedInput
from forebay.mounts import mount_of
from forebay.provenance import build_and_host

ENGINES = ("mmap", "pread", "io_uring", "cufile")


def file_of(drives: list[str], filename: str | None, ioengine: str) -> str:
    """The path of the file to measure: what --filename names, or the file of a URI `file:PATH`."""
    if filename is not None and drives:
        raise RefusedInput("--filename", filename, "names a file and so does --drive; give one of them")
    if filename is not None:
        return filename
    if len(drives) != 1:
        raise RefusedInput("--drive", " ".join(drives), f"--ioengine {ioengine} measures one file; give --drive once")
    scheme, colon, path = drives[0].partition(":")
    if scheme != "file" or not colon or not path:
        remedy = f"--ioengine {ioengine} measures a file; give --drive file:PATH or --filename PATH"
        raise RefusedInput("--drive", drives[0], remedy)
    if "," in path:
        remedy = f"--ioengine {ioengine} has no use for keys, which say how a drive is emulated; leave them out"
        raise RefusedInput("--drive", drives[0], remedy)
    return path


def require_overwritable(path: str, job: bench.Job, *, allow_destroy: bool) -> None:
    """Refuses to write to a file, which may be any file of the user's, before that was allowed."""
    if job.writes and not allow_destroy:
        remedy = "the workload overwrites what the file holds; to let it, add --allow-destroy"
        raise RefusedInput("--filename", path, remedy)


def run(
    path: str, ioengine: str, job: bench.Job, device: str, tell: Callable[[str, float], None] | None = None
) -> dict[str, Any]:
    """Runs one job on a file; returns the JSON document, without its schema version.

    `device` is where the data of reads ends and that of writes begins. `tell` is as in `bench.run`.
    """
    job.validate()
    where, gpu = chosen_device(device)
    before = time.time()
    options = bench.native_options(job)
    native = json.loads(interruptible(core().run_file_io, os.fspath(path), ioengine, gpu, **options, tell=tell))
    conditions = {
        "device": where,
        "path": "file",
        "way": native["way"],
        "cufile": native["cufile"],
        "file": {**native["file"], **_file_system(path)},
        **build_and_host(),
    }
    return bench.document(job, ioengine, native, before, conditions)


def _file_system(path: str) -> dict[str, Any]:
    try:
        mount = mount_of(path, Path("/proc/self/mountinfo").read_text())
    except OSError:
        mount = None
    return {"file_system": mount and mount.type, "mounted_from": mount and mount.source}
