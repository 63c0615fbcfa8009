# SPDX-License-Identifier: Apache-2.0
"""Processes that tests send signals to."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence


def default_signals() -> None:
    """For `preexec_fn`: jobs in the background of a shell, or under nohup, ignore these, and so do their children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def started(command: Sequence[object]) -> "Iterator[subprocess.Popen[str]]":
    """A process whose output is read here; it is killed where the block leaves it running."""
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    ) as run:
        try:
            yield run
        finally:
            run.kill()
