# SPDX-License-Identifier: Apache-2.0
"""The drive daemon from outside: where it listens, whether it does, and how it is started and ended."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from forebay._native import core
from forebay.errors import OperationFailed, RefusedInput

VARIABLE = "FOREBAY_DAEMON"
READY = "serving at "
USUAL_SMS = 32

_MPS_CONTROL = "nvidia-cuda-mps-control"
_MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_MPS_LOGS = "CUDA_MPS_LOG_DIRECTORY"
_MPS_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_CHANNELS = "CUDA_DEVICE_MAX_CONNECTIONS"
_MPS_TIMEOUT_S = 30
_START_TIMEOUT_S = 180
_END_TIMEOUT_S = 150  # its own limit for writing drives back is 120


class DidNotServe(OperationFailed):
    """A daemon that ended before it served, and has said why on standard error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the drive daemon ended with status {status} before it served")
        self.status = status


def default_socket() -> str:
    """Where a daemon listens unless told otherwise, and where clients look."""
    return core().daemon_socket()


def listens(path: str) -> bool:
    """Whether a daemon does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except (OSError, ValueError):
            return False
    return True


class LostData(OperationFailed):
    """A daemon that could not write its drives back, and has said why on standard error."""


@contextlib.contextmanager
def running(path: str, environment: dict[str, str]) -> Iterator[None]:
    """A daemon at `path`: the one that is there, or one that is started and ended here.

    Throws LostData where that one ends with a failure.
    """
    if listens(path):
        yield
        return
    daemon = subprocess.Popen(
        [sys.executable, "-m", "forebay", "drive", "serve", "--socket", path, "--until-stdin-ends"],
        env=environment,
        stdin=subprocess.PIPE,  # held open, so that it ends however this process does
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt at the terminal ends the program, and then the daemon is ended
    )
    try:
        await_ready(daemon)
        yield
    except BaseException:
        end(daemon)
        raise
    end(daemon)
    if daemon.returncode != 0:
        raise LostData(f"the drive daemon ended with status {daemon.returncode}; its own message is above")


def end(daemon: "subprocess.Popen[str]", limit_s: float = _END_TIMEOUT_S) -> None:
    """Has it write its drives back and end. Throws OperationFailed, and kills it, where that takes too long."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(limit_s)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
        raise OperationFailed(f"the drive daemon did not end within {limit_s:g} s, and was killed") from None
    finally:
        if daemon.stdin:
            daemon.stdin.close()


def await_ready(daemon: "subprocess.Popen[str]", limit_s: float = _START_TIMEOUT_S) -> None:
    """Returns once it serves. Throws DidNotServe where it ends before, OperationFailed where it has to be killed."""
    expired = threading.Event()

    def give_up() -> None:
        expired.set()
        daemon.kill()

    timer = threading.Timer(limit_s, give_up)
    timer.start()
    try:
        for line in daemon.stdout or ():
            if line.startswith(READY):
                threading.Thread(target=_discard, args=(daemon.stdout,), daemon=True).start()
                return
        if expired.is_set():
            raise OperationFailed(f"the drive daemon did not serve within {limit_s:g} s, and was killed")
        raise DidNotServe(daemon.wait())
    except OperationFailed:
        if daemon.stdout:
            daemon.stdout.close()
        raise
    finally:
        timer.cancel()


def _discard(stream: IO[str]) -> None:
    with stream:
        for _ in stream:
            pass


@contextlib.contextmanager
def shared_gpu() -> Iterator[dict[str, str]]:
    """What processes that share a GPU must have in their environment: NVIDIA's MPS, started and ended here.

    Empty where there is no GPU or no MPS. Where the caller's environment names an MPS, that one is used. MPS gives a
    program two channels to the GPU unless it asks for more, and with two no stream may wait for a transfer.
    """
    channels = {} if os.environ.get(_CHANNELS) else {_CHANNELS: "32"}
    if os.environ.get(_MPS_PIPES) or not (Path("/dev/nvidiactl").exists() and shutil.which(_MPS_CONTROL)):
        yield channels if os.environ.get(_MPS_PIPES) else {}
        return
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"forebay-mps-{os.getuid()}"  # noqa: S108 (a socket's)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RefusedInput(_MPS_PIPES, folder, "belongs to another user; set it to a folder of your own")
    variables = {_MPS_PIPES: str(folder), _MPS_LOGS: str(folder)}
    environment = {**os.environ, **variables}
    ours = subprocess.run(
        [_MPS_CONTROL, "-d"], env=environment, capture_output=True, check=False, timeout=_MPS_TIMEOUT_S
    )
    try:
        yield variables | channels  # where one runs there already, that one is used, and left running
    finally:
        if ours.returncode == 0:
            # MPS waits for its clients; what they left of it ends with the last of them.
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [_MPS_CONTROL],
                    input=b"quit\n",
                    env=environment,
                    capture_output=True,
                    check=False,
                    timeout=_MPS_TIMEOUT_S,
                )


def limit_to_rest(sms: int | None, *, with_gpu: bool) -> dict[str, str]:
    """What leaves `sms` of the GPU's multiprocessors to the drives. Throws RefusedInput for what it does not have."""
    if not with_gpu:
        if sms is not None:
            raise RefusedInput(
                "--sms", sms, "is only for a GPU that NVIDIA's MPS shares, and there is none here; leave it out"
            )
        return {}
    have = core().multiprocessors(0)
    sms = min(USUAL_SMS, have // 4) if sms is None else sms
    if not 0 < sms < have:
        raise RefusedInput(
            "--sms",
            sms,
            f"must be 1 to {have - 1}: the GPU has {have} multiprocessors, and the program needs at least one",
        )
    return {_MPS_PERCENTAGE: str(100 * (have - sms) // have)}
