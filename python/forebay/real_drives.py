# SPDX-License-Identifier: Apache-2.0
"""Real drives: what the system tells of them, and which driver has them."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay._native import core
from forebay.units import format_bytes

SCHEME = "pci:"
LANE_GT_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""The generation of PCI Express by what a lane transfers."""

Listener = Callable[[str, str], None]


def inspect(uri: str) -> dict[str, Any]:
    """What the system tells of a drive ``pci:ADDRESS``; changes nothing. docs/reference/json.md has the keys.

    Raises:
        RefusedInput: There is no such drive.
    """
    return json.loads(core().inspect_real_drive(uri))


def inspect_all(root: Path) -> dict[str, Any]:
    """``drives``, each as ``inspect`` has it, and ``gpus``, below the root folder of a machine.

    Raises:
        OperationFailed: The extension module does not load.
    """
    return json.loads(core().inspect_real_drives("" if root == Path("/") else str(root)))


def attach(uri: str, tell: Listener, *, dry_run: bool = False) -> dict[str, Any]:
    """Gives a drive to the driver vfio-pci, where it stays. `tell` hears each step before it is done.

    Raises:
        RefusedInput: The drive is in use, or the system does not allow it; nothing was changed.
        OperationFailed: A step failed, and those before it are undone.
    """
    with _interruptible_steps(tell) as heard:
        return json.loads(core().attach_real_drive(uri, dry_run, heard))


def detach(uri: str, tell: Listener, *, dry_run: bool = False) -> dict[str, Any]:
    """Gives a drive back to the system's driver. `tell` hears each step before it is done.

    Raises:
        RefusedInput: The drive is in use, or another driver than vfio-pci has it; nothing was changed.
        OperationFailed: A step failed, and those before it are undone.
    """
    with _interruptible_steps(tell) as heard:
        return json.loads(core().detach_real_drive(uri, dry_run, heard))


@contextmanager
def _interruptible_steps(tell: Listener) -> Iterator[Listener]:
    """From the first step on Ctrl-C is heard between two steps, so that those before it are undone."""
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)

    def hear(what: str, line: str) -> None:
        if on_main and before not in (signal.SIG_IGN, signal.SIG_DFL, None):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        tell(what, line)

    try:
        yield hear
    finally:
        if on_main and before is not None:
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Link:
    """A link of PCI Express: transfers a second of a lane in GT/s, and lanes; None: not known."""

    speed: float | None
    width: float | None

    def __str__(self) -> str:
        if not self.speed or not self.width:
            return "not known"
        generation = LANE_GT_S.get(self.speed)
        return f"{self.speed:g} GT/s x{self.width:g}" + (f" (gen{generation}x{self.width:g})" if generation else "")


def links(found: dict[str, Any]) -> tuple[Link, Link]:
    """The link as it is and as it could be, of a drive or a GPU."""
    link = found["link"]
    return Link(link["speed_gt_s"], link["width"]), Link(link["speed_max_gt_s"], link["width_max"])


def is_slow(found: dict[str, Any]) -> bool:
    """Whether the link is known to be slower or narrower than it could be."""
    now, most = links(found)
    return bool(
        (now.speed and most.speed and now.speed < most.speed) or (now.width and most.width and now.width < most.width)
    )


def group(found: dict[str, Any]) -> str:
    """The IOMMU group of a drive, in words."""
    iommu = found["iommu"]
    if iommu["group"] is None:
        return "no IOMMU"
    others = [f"{other['address']} (driver {other['driver'] or 'none'})" for other in iommu["others"]]
    kind = f", {iommu['type']}" if iommu["type"] else ""
    return f"group {iommu['group']}{kind}, " + (f"shared with {', '.join(others)}" if others else "not shared")


def power(found: dict[str, Any]) -> str:
    """The power state of a drive, in words."""
    state = found["power"]
    may = " and may be switched off (D3cold)" if state["d3cold_allowed"] else ""
    sleeps = f"sleeps when idle{may}" if state["control"] == "auto" else "stays on"
    return f"{state['state'] or state['runtime_status'] or 'state not known'}, {sleeps}"


def users(found: dict[str, Any]) -> list[str]:
    """What the system uses of a drive, a text for each namespace in use."""
    return [f"{one['device']}: {one['used_by']}" for one in found["namespaces"] if one["used_by"]]


def namespace(one: dict[str, Any]) -> str:
    """A namespace of a drive, in words."""
    size = f"{one['device']}: {format_bytes(one['size_bytes'])}, blocks of {one['block_bytes']} bytes"
    used = f"; in use: {one['used_by']}" if one["used_by"] else "; not in use"
    if one["contents"] is None:
        return f"{size}{used}; contents not known: {one['contents_unknown']}"
    return f"{size}{used}; {', '.join(one['contents']) or 'no data that libblkid knows'}"


_COMMON = {
    "switch": "below the switch at {at}: data between them need not reach the processor",
    "root port": "below the root port {at}",
    "host bridge": "below other root ports of {at}: data between them crosses the processor",
    "nothing": "below another host bridge: data between them crosses the processor, or from one to another",
}


def near(one: dict[str, Any]) -> str:
    """Where a GPU is, seen from a drive."""
    return f"{one['gpu']}: {_COMMON[one['common']].format(at=one['at'])}"


def bridges(found: dict[str, Any]) -> str:
    """The bridges above a drive or a GPU and their Access Control Services, in words."""
    return ", ".join(f"{one['address']} (ACS {one['access_control']})" for one in found["bridges"]) or "none"
