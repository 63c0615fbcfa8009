# SPDX-License-Identifier: Apache-2.0
"""`forebay drive export-nbd`: other programs see a drive as a network block device."""

import sys
from typing import Annotated

import typer

from forebay import daemon, nbd
from forebay.cli.contract import AllowDestroyOption, JsonOption, check_json_target, terminal, write_json
from forebay.cli.drive import Uri
from forebay.cli.timing import timing
from forebay.errors import OperationFailed, RefusedInput


def export_nbd(
    uri: Uri,
    socket: Annotated[
        str | None, typer.Option("--socket", metavar="PATH", help="Listen at a Unix socket, and make it.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="Listen at a TCP port.", show_default=str(nbd.USUAL_PORT)),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="Listen at this address of the machine. Every program that reaches it can read and write the drive.",
            show_default=f"{nbd.LOOPBACK}, this machine alone",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse writes.")] = False,
    allow_destroy: AllowDestroyOption = False,
    json_target: JsonOption = None,
) -> None:
    """Serve a drive to other programs by the NBD protocol, with nbdkit, until Ctrl-C or SIGTERM.

    They see its bytes as a disk, with its timing and its errors.
    """
    check_json_target(json_target)
    if socket is not None:
        for option, value in (("--port", port), ("--address", address)):
            if value is not None:
                raise RefusedInput(option, value, "is for TCP, and --socket for a Unix socket; leave one of them out")
        place = nbd.unix_place(socket)
    else:
        place = nbd.tcp_place(address or nbd.LOOPBACK, nbd.USUAL_PORT if port is None else port)

    def ready() -> None:
        print(f"{daemon.READY}{place.uri}", file=sys.stderr if json_target == "-" else sys.stdout, flush=True)

    report, failure = nbd.serve(uri, place, read_only=read_only, allow_destroy=allow_destroy, ready=ready)
    write_json(json_target, {"uri": uri, "nbd_uri": place.uri, "forebay": report})
    terminal(json_target).print(timing(report), highlight=False, soft_wrap=True)
    if failure:
        raise OperationFailed(failure)
