# SPDX-License-Identifier: Apache-2.0
"""A drive as a network block device: nbdkit in a process of its own, with Forebay's plugin."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

from forebay._native import core
from forebay.errors import OperationFailed, RefusedInput
from forebay.files import check_new_file

USUAL_PORT = 10809
LOOPBACK = "127.0.0.1"

_PLUGIN = Path(__file__).parent / "nbdkit-forebay-plugin.so"
_THREADS = 64  # of each connection: so many of its requests are on the drive at once
_SOCKET_NAME_BYTES_MAX = 107
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Place:
    """Where a server listens: its NBD URI, and nbdkit's options for it."""

    uri: str
    options: tuple[str, ...]
    socket: Path | None = None


def unix_place(path: str) -> Place:
    """A Unix socket that is to be made. Refuses a path where there is something, or where none can be made."""
    name = str(Path(path).absolute())
    if len(os.fsencode(name)) > _SOCKET_NAME_BYTES_MAX:
        raise RefusedInput(
            "--socket", path, f"its whole path must have at most {_SOCKET_NAME_BYTES_MAX} bytes; name a shorter one"
        )
    check_new_file("--socket", path)
    return Place(f"nbd+unix:///?socket={quote(name)}", ("--unix", name), Path(name))


def tcp_place(address: str, port: int) -> Place:
    """An address and a port of this machine. Refuses those that no program can listen at."""
    if not 1 <= port <= 65535:
        raise RefusedInput("--port", port, "must be 1 to 65535")
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise RefusedInput("--address", address, f"names no address; {LOOPBACK} is this machine alone") from None
    for family, kind, protocol, _, where in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(where)
            except OSError as error:
                raise _refused(error, address, port) from None
    host = f"[{address}]" if ":" in address else address
    return Place(f"nbd://{host}:{port}", ("--port", str(port), "--ipaddr", address))


def _refused(error: OSError, address: str, port: int) -> RefusedInput:
    if error.errno == errno.EADDRINUSE:
        return RefusedInput("--port", port, f"another program listens there at {address}; name another port")
    if error.errno == errno.EACCES:
        return RefusedInput("--port", port, "this user may not listen there; name a port from 1024 on")
    return RefusedInput(
        "--address", address, f"is no address of this machine: {error.strerror}; {LOOPBACK} is this machine alone"
    )


def serve(
    uri: str, place: Place, *, read_only: bool, allow_destroy: bool, ready: Callable[[], None]
) -> tuple[dict[str, Any], str | None]:
    """Serves a drive until a signal ends this process: Ctrl-C, SIGTERM or SIGHUP.

    Args:
        uri: The drive.
        place: Where to listen.
        read_only: Refuse writes.
        allow_destroy: Let clients overwrite the drive's catalogue.
        ready: Called once clients can connect.

    Returns:
        The report of the drive's storage, once the drive is flushed and closed; and what went wrong at that, if
        anything did.

    Raises:
        RefusedInput: There is no nbdkit, or the URI is not valid.
        OperationFailed: The drive does not open, or nbdkit fails.
        KeyboardInterrupt: A signal came before clients could connect.
    """
    _require_nbdkit()
    core()  # sets the place of profiles in the environment
    lines, report = os.pipe()
    until, lifeline = os.pipe()
    ends: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        if not ends:
            os.close(lifeline)
        ends.append(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        nbdkit = _start(uri, place, {"read-only": read_only, "allow-destroy": allow_destroy}, report, until)
        os.close(report)
        os.close(until)
        with nbdkit, os.fdopen(lines) as news:
            try:
                told = _listen(news, ready)
            finally:  # however it ends, nbdkit does too
                if not ends:
                    end(0, None)
    finally:
        if place.socket:
            place.socket.unlink(missing_ok=True)
        for number, handler in before.items():
            signal.signal(number, handler)
    return _outcome(told, nbdkit.returncode, interrupted=any(ends))


def _require_nbdkit() -> None:
    if shutil.which("nbdkit") is None:
        missing = "nbdkit is not installed"
    elif not _PLUGIN.exists():
        missing = "Forebay was built without nbdkit's headers"
    else:
        return
    remedy = "on Debian run `apt-get install nbdkit nbdkit-plugin-dev`, then `make`"
    raise RefusedInput("command", "export-nbd", f"{missing}; {remedy}")


def _start(uri: str, place: Place, switches: dict[str, bool], report: int, until: int) -> "subprocess.Popen[bytes]":
    # The filter reads, changes and writes the blocks that a request covers in part, while no other request is at work.
    options = ("--foreground", "--filter=blocksize", f"--threads={_THREADS}", *place.options)
    parameters = {"uri": uri, **switches, "report": report, "until": until}
    return subprocess.Popen(
        ["nbdkit", *options, str(_PLUGIN), *(f"{key}={value}" for key, value in parameters.items())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(report, until),
        start_new_session=True,  # a terminal's signals are for this process, which then ends nbdkit in order
    )


def _listen(lines: Any, ready: Callable[[], None]) -> dict[str, Any]:  # noqa: ANN401 (a text file)
    """What the plugin tells, by kind."""
    told: dict[str, Any] = {}
    for line in lines:
        news = json.loads(line)
        if "opened" in news:
            ready()
        told.update(news)
    return told


def _outcome(told: dict[str, Any], status: int, *, interrupted: bool) -> tuple[dict[str, Any], str | None]:
    if refused := told.get("refused"):
        field = "URI" if refused["field"] == "drives" else refused["field"]
        raise RefusedInput(field, refused["value"], refused["remedy"])
    if interrupted and "opened" not in told:
        raise KeyboardInterrupt
    if "closed" not in told:
        raise OperationFailed(told.get("failed") or f"nbdkit ended with status {status}; what it said is above")
    return told["closed"], told.get("failed")
