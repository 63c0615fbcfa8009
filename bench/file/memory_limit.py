# SPDX-License-Identifier: Apache-2.0
"""A limit on the memory of the programs that are measured, with what the page cache holds for them: a control group."""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_numbers = itertools.count()


def _place(root: Path) -> tuple[Path, str]:
    """The folder in which groups with a limit are made, and the name of the file that has the limit."""
    if (root / "cgroup.controllers").is_file():  # version 2
        if "memory" not in (root / "cgroup.subtree_control").read_text().split():
            (root / "cgroup.subtree_control").write_text("+memory")
        return root, "memory.max"
    if (root / "memory").is_dir():  # version 1
        return root / "memory", "memory.limit_in_bytes"
    raise OSError(f"there is no control group for memory under {root}")


@contextlib.contextmanager
def group(limit_bytes: int, root: Path = ROOT) -> Iterator[Path]:
    """Makes a group; yields the file that takes the numbers of its processes. OSError where the system refuses one."""
    parent, limit_name = _place(root)
    folder = parent / f"forebay-bench-{os.getpid()}-{next(_numbers)}"
    folder.mkdir()
    try:
        (folder / limit_name).write_text(str(limit_bytes))
        yield folder / "cgroup.procs"
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Ends what a program left behind in its group, and then removes the group."""
    for attempt in range(100):
        for process in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError:  # the system has not yet let go of a process
            if attempt == 99:
                raise
            time.sleep(0.05)
        else:
            return


def within(processes: Path, command: list[str]) -> list[str]:
    """The command, run in the group."""
    return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(processes), *command]
