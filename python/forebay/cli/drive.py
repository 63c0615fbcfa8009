# SPDX-License-Identifier: Apache-2.0
"""`forebay drive`: make drives, name and move what lies on them, and fit a profile to a real one."""

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from forebay import calibrate as fitting
from forebay import real_drives
from forebay.cli import real_drive
from forebay.cli.application import Application
from forebay.cli.contract import (
    JsonOption,
    check_json_target,
    notice,
    progress,
    terminal,
    write_json,
)
from forebay.errors import OperationFailed, RefusedInput
from forebay.files import check_new_file, making, reading
from forebay.storage import Storage, create_drive
from forebay.units import format_bytes, format_rate, parse_size

app = Application(
    no_args_is_help=True,
    help="Make emulated drives, copy files to and from them, serve and export them, fit profiles to real drives, and "
    "attach real drives.",
)

_CHUNK_BYTES = 8 << 20

Uri = Annotated[str, typer.Argument(metavar="URI", help="The drive, such as emulated:backing=file,path=graph.img.")]
Name = Annotated[str, typer.Argument(metavar="EXTENT", help="The name of the extent.")]


@app.command()
def create(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make, or to make longer.")],
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Bytes of the drive, such as 64M or 2G.")],
    resize: Annotated[
        bool,
        typer.Option(
            "--resize", help="Make a file that exists longer. It keeps its data and extents; it is never made shorter."
        ),
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME|FILE.toml",
            help="Whose speed the drive has. ideal: as fast as the machine allows.",
        ),
    ] = "ideal",
    json_target: JsonOption = None,
) -> None:
    """Make a file that holds the data of an emulated drive, or make it longer, and print the URI that opens it."""
    check_json_target(json_target)
    size_bytes = parse_size("--size", size)
    if not resize:
        check_new_file("path", path)
    for field, value in (("path", path), ("--profile", profile)):
        if "," in str(value):
            raise RefusedInput(
                field, value, "must have no comma, which separates the parts of a drive URI; use another name"
            )
    uri = f"emulated:profile={profile},size={size_bytes},backing=file,path={path}"
    create_drive(uri, resize=resize)
    try:
        with Storage(uri, device="cpu") as storage:
            report = storage.report()
    except BaseException:
        if not resize:
            path.unlink()
        raise
    write_json(json_target, {"uri": uri, "path": str(path), "size_bytes": size_bytes, "forebay": report})
    out = terminal(json_target)
    out.print(f"{path}: a drive of {format_bytes(size_bytes)}. Its URI:", highlight=False)
    out.print(uri, highlight=False, soft_wrap=True)


@app.command()
def info(uri: Uri, json_target: JsonOption = None) -> None:
    """Print what a drive is: its size, its block, its profile, its extents.

    Of a real drive, pci:ADDRESS: what uses it, how it is connected, what opening it is refused for. It changes nothing.
    """
    check_json_target(json_target)
    if uri.startswith(real_drives.SCHEME):
        real_drive.info(uri, json_target)
        return
    with Storage(uri, device="cpu", read_only=True) as storage:
        report, extents = storage.report(), storage.extents()
        document = {
            "uri": uri,
            "size_bytes": storage.size_bytes,
            "block_bytes": storage.block_bytes,
            "extents": extents,
            "forebay": report,
        }
    write_json(json_target, document)
    table = Table(show_header=False)
    table.add_row("size", f"{format_bytes(document['size_bytes'])} ({document['size_bytes']} bytes)")
    table.add_row("block", f"{document['block_bytes']} bytes")
    table.add_row("extents", str(len(extents)) if extents else "none")
    for drive in report["drives"]:
        for key in ("profile", "residency", "model", "serial"):
            if key in drive:
                table.add_row(key, str(drive[key]))
        if drive.get("file_bytes", drive["size_bytes"]) != drive["size_bytes"]:
            table.add_row("file", f"{drive['file_bytes']} bytes")
    out = terminal(json_target)
    out.print(uri, highlight=False, soft_wrap=True)
    out.print(table)


@app.command("ls")
def list_extents(uri: Uri, json_target: JsonOption = None) -> None:
    """List the extents of a drive. An extent is a part of the drive that has a name."""
    check_json_target(json_target)
    with Storage(uri, device="cpu", read_only=True) as storage:
        extents = storage.extents()
    write_json(json_target, {"uri": uri, "extents": extents})
    table = Table("extent", "first byte", "bytes", "size")
    for column in table.columns[1:]:
        column.justify = "right"
    for extent in extents:
        table.add_row(extent["name"], str(extent["first_byte"]), str(extent["bytes"]), format_bytes(extent["bytes"]))
    terminal(json_target).print(table if extents else "no extents")


@app.command("import")
def import_extent(
    uri: Uri,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to copy.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the extent if the drive has one of that name.")
    ] = False,
    json_target: JsonOption = None,
) -> None:
    """Copy a file onto a drive, into a new extent."""
    check_json_target(json_target)
    with reading("file", file) as source:
        size_bytes = os.fstat(source.fileno()).st_size
        if size_bytes == 0:
            raise RefusedInput("file", file, "is empty; an extent has at least one byte")
        with Storage(uri, device="cpu") as storage, progress(f"importing {name}", 1.0) as tell:
            with storage.new_extent(name, size_bytes, replace=replace) as write:
                done = 0
                while chunk := source.read(min(_CHUNK_BYTES, size_bytes - done)):
                    write(chunk, done)
                    done += len(chunk)
                    tell(done / size_bytes)
                if done != size_bytes or source.read(1):
                    raise OperationFailed(f"{file}: its size changed while it was read; import it again")
            (extent,) = (extent for extent in storage.extents() if extent["name"] == name)
    write_json(json_target, {"uri": uri, "extent": extent})
    terminal(json_target).print(f"{name}: {format_bytes(size_bytes)} at byte {extent['first_byte']}", highlight=False)


@app.command("export")
def export_extent(
    uri: Uri,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make.")],
    json_target: JsonOption = None,
) -> None:
    """Copy an extent of a drive into a new file."""
    check_json_target(json_target)
    check_new_file("file", file)
    with Storage(uri, device="cpu", read_only=True) as storage, progress(f"exporting {name}", 1.0) as tell:
        found = [extent for extent in storage.extents() if extent["name"] == name]
        if not found:
            raise RefusedInput("extent", name, f"is not on the drive; `forebay drive ls {uri}` lists what is")
        size_bytes = found[0]["bytes"]
        with making("file", file) as target:
            for at in range(0, size_bytes, _CHUNK_BYTES):
                chunk = bytearray(min(_CHUNK_BYTES, size_bytes - at))
                storage.read_extent(name, chunk, at)
                target.write(chunk)
                tell((at + len(chunk)) / size_bytes)
    write_json(json_target, {"uri": uri, "extent": found[0], "file": str(file)})
    terminal(json_target).print(f"{file}: {format_bytes(size_bytes)}", highlight=False)


@app.command("rm")
def remove_extent(uri: Uri, name: Name, json_target: JsonOption = None) -> None:
    """Remove an extent from a drive. Its bytes are free for others."""
    check_json_target(json_target)
    with Storage(uri, device="cpu") as storage:
        storage.remove_extent(name)
        storage.flush()
    write_json(json_target, {"uri": uri, "removed": name})
    terminal(json_target).print(f"{name}: removed", highlight=False)


@app.command()
def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FIO.json", help="Files that fio --output-format=json wrote of a real drive."),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the new profile.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE.toml", help="The file to make, with the profile.", show_default="NAME.toml"
        ),
    ] = None,
    json_target: JsonOption = None,
) -> None:
    """Make a profile from what fio measured on a real drive, so that an emulated drive has the same speed."""
    check_json_target(json_target)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise RefusedInput(
            "--name", name, "must be letters, digits, dots, dashes and underscores, and begin with a letter or a digit"
        )
    output = output or Path(f"{name}.toml")
    if output.suffix != ".toml" or "," in str(output):
        raise RefusedInput(
            "--output", output, "must end in .toml, and have no comma, which separates the parts of a drive URI"
        )
    check_new_file("--output", output)

    fit = fitting.calibrate(files, name)
    with making("--output", output) as target:
        target.write(fitting.to_toml(fit).encode())
    uri = f"emulated:profile={output},size=1M"
    try:
        with Storage(uri, device="cpu"):  # what was written loads
            pass
    except BaseException:
        output.unlink()
        raise
    write_json(json_target, {"output": str(output), "uri": uri, **fitting.to_json(fit)})
    for unused in fit.unused:
        notice(f"not used: {unused.file}: {', '.join(unused.jobs)}: {unused.reason}")
    for assumed in fit.assumed:
        notice(f"assumed: {assumed}")
    _show_fit(fit, json_target)
    terminal(json_target).print(f"{output}: profile {name}. A drive with it: {uri}", highlight=False, soft_wrap=True)


def _show_fit(fit: fitting.Fit, json_target: str | None) -> None:
    out = terminal(json_target)
    table = Table("", "block", "jobs", "in flight", "measured", "model", "error")
    for column in (1, 3, 4, 5, 6):
        table.columns[column].justify = "right"
    for direction in fitting.DIRECTIONS:
        for row in fit.of(direction).residuals():
            table.add_row(
                direction,
                format_bytes(row["bs"]),
                ", ".join(row["jobs"]),
                str(row["in_flight"]),
                format_rate(row["iops"]),
                format_rate(row["model_iops"]),
                f"{row['error_percent']:+.1f} %",
            )
    out.print(table)
    for direction in fitting.DIRECTIONS:
        cost = fit.of(direction)
        out.print(
            f"{direction}: {cost.per_command_ns.value:.6g} ns a command, {cost.per_byte_ns.value:.6g} ns a byte, "
            f"granule {cost.granule_bytes.value:.0f} bytes, least latency {cost.latency_min_us.value:.6g} us",
            highlight=False,
            soft_wrap=True,
        )
