# SPDX-License-Identifier: Apache-2.0
"""What real drives meet on this machine: checks of `forebay doctor`."""

import re
from typing import Any

from forebay import real_drives
from forebay.errors import OperationFailed
from forebay.findings import MISSING, OK, WARNING, Check, Machine

Found = dict[str, Any]

_VFIO = "vfio-pci"
# Linux 6.12 removed the last function by which NVIDIA's module found the pages behind the registers of another device:
# https://github.com/NVIDIA/open-gpu-kernel-modules/pull/742.
_NO_REGISTERS_FOR_GPUS = (6, 12)


def drive_checks(machine: Machine) -> list[Check]:
    """What is found out about each NVMe controller, real drives that no driver has among them."""
    try:
        found = real_drives.inspect_all(machine.root)
    except OperationFailed as error:
        return [Check(name, MISSING, "not known", str(error), "run `make`") for name in NAMES]
    drives = found["drives"]
    return [
        _held(drives),
        *(check(drives) for check in (_links, _groups, _power)),
        _topology(found),
        _placements(machine),
        _doorbells(machine),
    ]


NAMES = ("nvme drives", "drive links", "drive groups", "drive power", "drive topology", "placements", "doorbells")


def _each(drives: list[Found], what: Any) -> str:  # noqa: ANN401 (a function of a drive)
    return "; ".join(f"{drive['address']}: {what(drive)}" for drive in drives) or "no drive"


def _held(drives: list[Found]) -> Check:
    if not drives:
        return Check(
            "nvme drives", MISSING, "none", "no NVMe controller on the PCI bus", "nothing to do: use emulated drives"
        )

    def holder(drive: Found) -> str:
        name = f"{drive['model']}, " if drive["model"] else ""
        return name + ", ".join([f"driver {drive['driver'] or 'none'}", *real_drives.users(drive)])

    found = _each(drives, holder)
    if any(drive["refused"]["read"] is None for drive in drives):
        return Check("nvme drives", OK, found)
    return Check(
        "nvme drives",
        WARNING,
        found,
        f"none of them can be opened now: {drives[0]['refused']['read']}",
        f"see `forebay drive info pci:{drives[0]['address']}`, and the page Use a real drive",
    )


def _links(drives: list[Found]) -> Check:
    def link(drive: Found) -> str:
        now, most = real_drives.links(drive)
        return f"{now} of {most}" if real_drives.is_slow(drive) else str(now)

    found = _each(drives, link)
    if not any(real_drives.is_slow(drive) for drive in drives):
        return Check("drive links", OK, found)
    return Check(
        "drive links",
        WARNING,
        found,
        "a link is slower or narrower than it could be: the slot, a riser or a cable, or a drive that is idle",
        "look again while the drive is busy; then use another slot",
    )


def _groups(drives: list[Found]) -> Check:
    found = _each(drives, real_drives.group)

    def is_shared(drive: Found) -> bool:
        return any(other["driver"] not in (None, _VFIO) for other in drive["iommu"]["others"])

    if not any(is_shared(drive) for drive in drives):
        return Check("drive groups", OK, found)
    return Check(
        "drive groups",
        WARNING,
        found,
        "devices of an IOMMU group reach each other, so VFIO gives a drive away only if no driver of the system has "
        "another device of its group",
        "use a slot below a bridge with access control services (ACS), or unbind the others",
    )


def _power(drives: list[Found]) -> Check:
    def sleeps(drive: Found) -> bool:
        return drive["power"]["control"] == "auto" or drive["power"]["state"] not in (None, "unknown", "D0")

    found = _each(drives, real_drives.power)
    asleep = next((drive["address"] for drive in drives if sleeps(drive)), None)
    if asleep is None:
        return Check("drive power", OK, found)
    return Check(
        "drive power",
        WARNING,
        found,
        "the system may switch off a drive that no driver of its own has, and then its registers read as ones",
        f"echo on > /sys/bus/pci/devices/{asleep}/power/control",
    )


def _topology(found: Found) -> Check:
    drives, gpus = found["drives"], found["gpus"]
    if not drives or not gpus:
        return Check("drive topology", OK, "no drive and GPU of NVIDIA together")

    def shares(drive: Found) -> str:
        return (
            ", ".join(f"GPU {real_drives.near(one)}" for one in drive["gpus"])
            + f"; bridges {real_drives.bridges(drive)}"
        )

    text = _each(drives, shares)
    redirected = [
        bridge["address"]
        for drive in drives
        for one in drive["gpus"]
        if one["common"] == "switch"
        for bridge in _below(drive["bridges"], one["at"])
        if bridge["access_control"] == "on"
    ]
    if not redirected:
        return Check("drive topology", OK, text)
    return Check(
        "drive topology",
        WARNING,
        text,
        f"a drive and a GPU share a switch, but access control services (ACS) of {redirected[0]} send what they "
        "exchange up to the processor",
        "nothing to do in placement 1, where data of real drives goes to host memory. Linux switches that off with "
        f"pci=disable_acs_redir={redirected[0]}, which makes larger IOMMU groups",
    )


def _below(bridges: list[Found], at: str) -> list[Found]:
    """The bridges below one, from the processor down."""
    addresses = [bridge["address"] for bridge in bridges]
    return bridges[addresses.index(at) + 1 :] if at in addresses else []


def _placements(machine: Machine) -> Check:
    """Where queues and data of a real drive can be, for threads of a GPU."""
    host = "1, host memory"
    version = machine.read("proc/driver/nvidia/version")
    if version is None:
        return Check("placements", OK, f"{host}; no driver of NVIDIA's is loaded")
    tells, maps = ((machine.root / "dev" / name).exists() for name in ("dmabuf_import", "iommu_map_pa"))
    lacks = []
    if not tells:
        lacks.append("the module dmabuf_import is not loaded")
    # Only these make dma-bufs.
    if "Open Kernel Module" not in version:
        lacks.append("NVIDIA's kernel modules are not the open ones")
    if lacks:
        return Check("placements", OK, f"{host}; not 2 and 3, in the GPU's memory: {', and '.join(lacks)}")
    ways = "sysfs" if not maps else "sysfs or vfio"
    return Check("placements", OK, f"{host}; 2 and 3, in the GPU's memory, with access={ways} (never run on hardware)")


def _doorbells(machine: Machine) -> Check:
    """What would write the doorbells of a real drive."""
    release = (machine.read("proc/sys/kernel/osrelease") or "").strip()
    version = re.match(r"(\d+)\.(\d+)", release)
    has_driver = machine.read("proc/driver/nvidia/version") is not None
    refuses = has_driver and version is not None and (int(version[1]), int(version[2])) >= _NO_REGISTERS_FOR_GPUS
    of_gpu = "threads of a GPU would too"
    if refuses:
        of_gpu = "for threads of a GPU one of the CPU would relay them"
    elif not has_driver:
        of_gpu = "no driver of NVIDIA's is loaded that would say what threads of a GPU can do"
    found = (
        f"threads of the CPU write them directly, {of_gpu} (no GPU has used a real drive so far); "
        f"Linux {release or 'not known'}"
    )
    if not refuses:
        return Check("doorbells", OK, found)
    return Check(
        "doorbells",
        WARNING,
        found,
        "from Linux 6.12 on NVIDIA's driver does not map a drive's registers for a GPU (cudaHostRegisterIoMemory)",
        "nothing to do; with an older kernel GPU threads need no relay",
    )
