# SPDX-License-Identifier: Apache-2.0
"""`forebay doctor`: what this machine can do, what it cannot, why, and the remedy."""

import platform
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from forebay.cli.contract import FAILED, JsonOption, NotVerifiedError, check_json_target, terminal, write_json
from forebay.doctor import as_json, examine, named, usable
from forebay.errors import RefusedInput
from forebay.findings import MISSING, OK, WARNING, Machine

_STYLES = {OK: "green", WARNING: "yellow", MISSING: "dim"}


def doctor(
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", metavar="CHECK", help="Exit with status 1 if this check is missing. Repeat it for several."
        ),
    ] = None,
    path: Annotated[
        str,
        typer.Option(
            "--path",
            metavar="PATH",
            help="The folder or file whose file system is checked.",
            show_default="this folder",
        ),
    ] = ".",
    json_target: JsonOption = None,
) -> None:
    """Check what this machine can do. For each thing that it cannot do, print why and the remedy."""
    check_json_target(json_target)
    required = named(require or [])
    _check_path(path)
    checks = examine(Machine(path=Path(path)))
    write_json(json_target, {"host": platform.node(), "system": platform.platform(), "checks": as_json(checks)})
    table = Table.grid(padding=(0, 2))
    for check in checks:
        found = Text(check.found)
        if check.cause:
            found.append(f"\n{check.cause}\n→ {check.remedy}", style="dim")
        table.add_row(Text(check.status, style=_STYLES[check.status]), Text(check.name, style="bold"), found)
    terminal(json_target).print(table)
    if missing := [check for check in checks if check.name in required and check.status == MISSING]:
        what = "; ".join(f"{check.name}: {check.found}: {check.cause}; {check.remedy}" for check in missing)
        raise NotVerifiedError(f"missing, and required: {what}")
    if not usable(checks):
        raise typer.Exit(FAILED)


def _check_path(path: str) -> None:
    try:
        Path(path).stat()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RefusedInput("--path", path, f"{why}; name a folder or a file that is there") from None
