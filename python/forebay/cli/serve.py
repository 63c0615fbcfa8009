# SPDX-License-Identifier: Apache-2.0
"""`forebay drive serve` and `forebay run`: drives in a process of their own, and programs that use them."""

import json
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import Annotated

import typer

from forebay import daemon
from forebay._native import core
from forebay.cli.contract import JsonOption, check_json_target, notice, write_json
from forebay.errors import RefusedInput

_STDIN = 0

SocketOption = Annotated[
    str | None,
    typer.Option("--socket", metavar="PATH", help="Where the daemon listens; default: FOREBAY_DAEMON, or the user's."),
]


def serve(
    uris: Annotated[
        list[str] | None, typer.Argument(metavar="[URI]...", help="Drives to open at once, with residency=served.")
    ] = None,
    socket: SocketOption = None,
    with_stdin: Annotated[
        bool,
        typer.Option("--until-stdin-ends", help="End, too, when whoever has the other end of standard input ends."),
    ] = False,
    json_target: JsonOption = None,
) -> None:
    """Serve emulated drives to other processes, until interrupted; others are opened when a client names them."""
    check_json_target(json_target)
    path = socket or daemon.default_socket()

    def ready() -> None:
        line = f"{daemon.READY}{path}"
        print(line, file=sys.stderr if json_target == "-" else sys.stdout, flush=True)

    with daemon.shared_gpu() as variables:
        os.environ.update(variables)
        for name, value in variables.items():
            notice(f"clients on the GPU need {name}={value}")
        report = json.loads(core().serve(path, uris or [], _STDIN if with_stdin else -1, ready, notice))
    write_json(json_target, report)


def run_program(
    command: Annotated[list[str], typer.Argument(metavar="-- PROGRAM [ARG]...", help="What to run.")],
    sms: Annotated[
        int | None, typer.Option("--sms", help="Multiprocessors of the GPU that the program leaves to the drives.")
    ] = None,
    socket: SocketOption = None,
) -> None:
    """Run a program beside a drive daemon, which is started if none runs; the exit status is the program's."""
    path = socket or daemon.default_socket()
    with daemon.shared_gpu() as variables:
        environment = {**os.environ, **variables, daemon.VARIABLE: path}
        limit = daemon.limit_to_rest(sms, with_gpu=bool(variables) or "CUDA_MPS_PIPE_DIRECTORY" in environment)
        try:
            status = os.EX_OK
            with daemon.running(path, environment):
                status = _run(command, {**environment, **limit})
        except daemon.DidNotServe as ended:
            status = ended.status  # it has said why
        except daemon.LostData as lost:
            if status == os.EX_OK:
                raise
            notice(str(lost))
    raise typer.Exit(status)


_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _run(command: list[str], environment: dict[str, str]) -> int:
    try:
        program = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise RefusedInput("program", command[0], f"{error.strerror}; name a program that can be run") from error

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # A terminal has sent its interrupt to the program itself.
        if number != signal.SIGINT:
            program.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        status = program.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
