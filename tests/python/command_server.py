# SPDX-License-Identifier: Apache-2.0
"""Runs command lines, each in a forked child of this process, which has the package loaded and no drive open.

Reads a request in JSON a line, and answers each with a line: the exit status, or null where the child took too long,
or too much processor time.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
from pathlib import Path

import forebay.plots  # noqa: F401 (loaded before the children need it)
from forebay.cli import main


def run_child(request):
    os.chdir(request["cwd"])
    for number, key, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        os.dup2(os.open(request[key], flags), number)
    if request["user"]:
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    status = main(request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def answer(request):
    child = os.fork()
    if child == 0:
        try:
            run_child(request)
        finally:
            os._exit(99)
    handle = os.pidfd_open(child)
    ended, _, _ = select.select([handle], [], [], request["limit_s"])
    if not ended:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    _, status, used = os.wait4(child, 0)
    in_time = ended and used.ru_utime + used.ru_stime <= request["processor_limit_s"]
    return os.waitstatus_to_exitcode(status) if in_time else None


if __name__ == "__main__":
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        main(["doctor"])  # the first command loads what the children need
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
