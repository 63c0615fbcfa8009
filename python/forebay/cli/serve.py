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
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The Unix socket that the daemon listens at.",
        show_default="FOREBAY_DAEMON, else this user's",
    ),
]


def serve(
    uris: Annotated[
        list[str] | None,
        typer.Argument(metavar="URI", help="Drives to open at the start. Each has residency=served."),
    ] = None,
    socket: SocketOption = None,
    with_stdin: Annotated[
        bool,
        typer.Option("--until-stdin-ends", help="End also at the end of standard input."),
    ] = False,
    json_target: JsonOption = None,
) -> None:
    """Serve drives to other processes, until Ctrl-C or SIGTERM.

    An emulated drive that is not named here is opened when the first client names it. A real drive must be named.
    """
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
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="The program to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARG", help="Arguments of the program, options too.")
    ] = None,
    sms: Annotated[
        int | None,
        typer.Option(
            "--sms",
            metavar="N",
            help="Multiprocessors of the GPU that the program leaves to the drives.",
            show_default="32, a quarter of the GPU at most",
        ),
    ] = None,
    socket: SocketOption = None,
) -> None:
    """Run a program beside a drive daemon, so that it can open drives with residency=served.

    A daemon is started if none listens, and ended after the program. The exit status is the program's.
    Options of this command stand before PROGRAM; all that follows PROGRAM goes to it.
    Example: forebay run --sms 16 ./search --verbose
    """
    path = socket or daemon.default_socket()
    with daemon.shared_gpu() as variables:
        environment = {**os.environ, **variables, daemon.VARIABLE: path}
        limit = daemon.limit_to_rest(sms, with_gpu=bool(variables) or "CUDA_MPS_PIPE_DIRECTORY" in environment)
        try:
            status = os.EX_OK
            with daemon.running(path, environment):
                status = _run([program, *(arguments or [])], {**environment, **limit})
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
        raise RefusedInput(
            "program", command[0], f"cannot be run: {error.strerror}; name a program that can"
        ) from error

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
