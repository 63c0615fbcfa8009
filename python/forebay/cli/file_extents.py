# SPDX-License-Identifier: Apache-2.0
"""`forebay drive extents`."""

import json
from typing import Annotated

import typer
from rich.table import Table

from forebay._native import core
from forebay.cli.contract import JsonOption, check_json_target, terminal, write_json
from forebay.units import format_bytes


def extents(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of a file system, ext4 or XFS.")],
    json_target: JsonOption = None,
) -> None:
    """Tell where a file lies on the block device of its file system."""
    check_json_target(json_target)
    found = json.loads(core().placement_of(file))
    write_json(json_target, found)
    out = terminal(json_target)
    size = format_bytes(found["file_bytes"])
    out.print(f"{file}: {size} on /dev/{found['device']}", highlight=False, soft_wrap=True, markup=False)
    table = Table("byte of the file", "byte of the device", "bytes")
    for extent in found["extents"]:
        table.add_row(*(str(extent[key]) for key in ("byte", "byte_on_device", "bytes")))
    out.print(table)
