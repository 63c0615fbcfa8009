# SPDX-License-Identifier: Apache-2.0
"""`forebay doctor`: what this machine can do, what it cannot, why, and the remedy."""

import platform

import typer
from rich.table import Table
from rich.text import Text

from forebay.cli.contract import FAILED, JsonOption, check_json_target, terminal, write_json
from forebay.doctor import MISSING, OK, WARNING, as_json, examine, usable

_STYLES = {OK: "green", WARNING: "yellow", MISSING: "dim"}


def doctor(json_target: JsonOption = None) -> None:
    """Check what this machine can do. For each thing that it cannot do, print why and the remedy."""
    check_json_target(json_target)
    checks = examine()
    write_json(json_target, {"host": platform.node(), "system": platform.platform(), "checks": as_json(checks)})
    table = Table.grid(padding=(0, 2))
    for check in checks:
        found = Text(check.found)
        if check.cause:
            found.append(f"\n{check.cause}\n→ {check.remedy}", style="dim")
        table.add_row(Text(check.status, style=_STYLES[check.status]), Text(check.name, style="bold"), found)
    terminal(json_target).print(table)
    if not usable(checks):
        raise typer.Exit(FAILED)
