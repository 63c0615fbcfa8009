# SPDX-License-Identifier: Apache-2.0
"""`forebay drive info`, `attach` and `detach` of real drives."""

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from forebay import real_drives
from forebay.cli.contract import JsonOption, check_json_target, terminal, write_json
from forebay.errors import RefusedInput

Uri = Annotated[str, typer.Argument(metavar="URI", help="The drive, such as pci:0000:01:00.0.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only check, and print the steps.")]

_VFIO = "vfio"


def info(uri: str, json_target: str | None) -> None:
    """Prints what the system tells of a real drive, and changes nothing."""
    found = real_drives.inspect(uri)
    write_json(json_target, found)
    out = terminal(json_target)
    out.print(uri, highlight=False, soft_wrap=True)
    table = Table(show_header=False)
    for name, value in _rows(found):
        table.add_row(name, Text(value))
    out.print(table)


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    now, most = real_drives.links(found)
    override = found["driver_override"]
    rows = [
        ("device", f"{found['vendor'][2:]}:{found['device'][2:]}"),
        *(("quirk", one) for one in found["quirks"]),
        ("driver", (found["driver"] or "none") + (f", reserved for {override}" if override else "")),
        *((key, found[key]) for key in ("model", "serial", "firmware", "state") if found[key]),
        *(("namespace", real_drives.namespace(one)) for one in found["namespaces"]),
        ("NUMA node", "not known" if found["numa_node"] is None else f"{found['numa_node']:g}"),
        ("link", f"{now}, at most {most}"),
        ("IOMMU", real_drives.group(found)),
        ("power", real_drives.power(found)),
        ("bridges", real_drives.bridges(found)),
        *(("GPU", real_drives.near(one)) for one in found["gpus"]),
        ("access", found["access"] or "none"),
    ]
    for what, key in (("to read", "read"), ("to write", "write")):
        refused = found["refused"][key]
        rows.append((f"open {what}", f"refused: {refused}" if refused else "nothing was found that would be refused"))
    return rows


def attach(
    uri: Uri,
    access: Annotated[
        str, typer.Option("--access", metavar=_VFIO, help="How programs reach the drive afterwards.")
    ] = _VFIO,
    dry_run: DryRunOption = False,
    json_target: JsonOption = None,
) -> None:
    """Give a real drive to the driver vfio-pci, where it stays. What lies on it is kept."""
    check_json_target(json_target)
    if access != _VFIO:
        remedy = "must be vfio; for access=sysfs nothing is attached, since opening a drive takes it"
        raise RefusedInput("--access", access, remedy)
    out = terminal(json_target)
    done = real_drives.attach(uri, _tell(json_target), dry_run=dry_run)
    write_json(json_target, {"uri": uri, "dry_run": dry_run, **done})
    for contents in done["contents"]:
        kept = f"{contents}: it is kept, and nothing of it can be reached until the drive is detached"
        out.print(kept, highlight=False, soft_wrap=True)
    if dry_run:
        out.print("nothing was done (--dry-run)", highlight=False)
        return
    out.print(f"{uri}: vfio-pci has it", highlight=False, soft_wrap=True)
    out.print(
        f"To use it without root, a user needs the permission for {done['group_file']}, and for locked memory "
        f"(ulimit -l). To give it back: forebay drive detach {uri}",
        highlight=False,
        soft_wrap=True,
    )


def detach(uri: Uri, dry_run: DryRunOption = False, json_target: JsonOption = None) -> None:
    """Give a real drive back to the system's driver."""
    check_json_target(json_target)
    done = real_drives.detach(uri, _tell(json_target), dry_run=dry_run)
    write_json(json_target, {"uri": uri, "dry_run": dry_run, **done})
    out = terminal(json_target)
    if dry_run:
        out.print("nothing was done (--dry-run)", highlight=False)
    else:
        out.print(f"{uri}: {done['driver']} has it", highlight=False, soft_wrap=True)


def _tell(json_target: str | None) -> real_drives.Listener:
    out = terminal(json_target)

    def tell(what: str, line: str) -> None:
        out.print(f"{what}: {line}", highlight=False, soft_wrap=True, markup=False)

    return tell
