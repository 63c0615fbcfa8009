# SPDX-License-Identifier: Apache-2.0
"""What is said of real drives, and how steps are told; real ones are attached in tests/guest/test_real_drive.py."""

import json
import os
import signal

import pytest
from forebay import real_drives
from forebay.errors import RefusedInput

NOWHERE = "pci:ffff:ff:1f.7"  # no machine has a drive there
FOUND = {
    "address": "0000:01:00.0",
    "vendor": "0x144d",
    "device": "0xa80a",
    "quirks": ["Write Zeroes is not used"],
    "driver": "nvme",
    "driver_override": None,
    "serial": "S1",
    "model": "[bold]A DRIVE",  # as it stands, and no markup
    "firmware": "1.0",
    "state": "live",
    "namespaces": [
        {
            "device": "/dev/nvme0n1",
            "nsid": 1,
            "size_bytes": 1 << 30,
            "block_bytes": 512,
            "used_by": "it is mounted at /data",
            "contents": ["ext4 file system"],
            "contents_unknown": None,
        },
        {
            "device": "/dev/nvme0n2",
            "nsid": 2,
            "size_bytes": 1 << 20,
            "block_bytes": 4096,
            "used_by": None,
            "contents": None,
            "contents_unknown": "Permission denied; run as root to look for data",
        },
    ],
    "numa_node": 1.0,
    "link": {"speed_gt_s": 8.0, "speed_max_gt_s": 16.0, "width": 4.0, "width_max": 4.0},
    "iommu": {"group": "7", "type": "DMA", "translated": True, "others": [{"address": "0000:01:00.1", "driver": None}]},
    "power": {"state": "D0", "runtime_status": "active", "control": "on", "d3cold_allowed": True},
    "bridges": [{"address": "0000:00:01.0", "access_control": "unknown"}],
    "gpus": [{"gpu": "0000:02:00.0", "common": "host bridge", "at": "pci0000:00"}],
    "access": "vfio",
    "refused": {"read": None, "write": "drive: 'pci:0000:01:00.0': it has data"},
}


@pytest.fixture
def core(monkeypatch):
    """Stands for the extension; its functions are set by the test."""

    class Core:
        pass

    monkeypatch.setattr(real_drives, "core", lambda: Core)
    return Core


def test_a_drive_is_shown(forebay, core):
    core.inspect_real_drive = lambda uri: json.dumps({"uri": uri, **FOUND})
    outcome = forebay("drive", "info", "pci:0000:01:00.0")
    assert outcome.status == 0
    words = " ".join(outcome.out.replace("│", " ").split())
    for text in (
        "Write Zeroes is not used",
        "[bold]A DRIVE",
        "/dev/nvme0n1: 1.0 GiB, blocks of 512 bytes; in use: it is mounted at /data; ext4 file system",
        "contents not known: Permission denied; run as root to look for data",
        "8 GT/s x4 (gen3x4), at most 16 GT/s x4 (gen4x4)",
        "group 7, DMA, shared with 0000:01:00.1 (driver none)",
        "D0, stays on",
        "0000:00:01.0 (ACS unknown)",
        "0000:02:00.0: below other root ports of pci0000:00",
        "nothing was found that would be refused",
        "refused: drive: 'pci:0000:01:00.0': it has data",
    ):
        assert all(word in words for word in text.split()), text
    assert forebay("drive", "info", "pci:0000:01:00.0", "--json", "-").json()["model"] == "[bold]A DRIVE"


@pytest.mark.parametrize("command", ["info", "attach", "detach"])
def test_a_drive_that_is_not_there(forebay, command):
    forebay("drive", command, NOWHERE).refused(NOWHERE, "there is no PCI device at this address", "lspci -D")
    forebay("drive", command, "pci:here").refused("pci:here", "give a bus address")


@pytest.mark.parametrize("command", ["attach", "detach"])
def test_only_a_real_drive_without_keys_is_attached(forebay, command):
    forebay("drive", command, "emulated:size=1M").refused("emulated:size=1M", "must be a real drive")
    forebay("drive", command, f"{NOWHERE},nsid=2").refused("must have no keys here", f"give {NOWHERE}")


def test_another_access_is_not_attached(forebay):
    forebay("drive", "attach", NOWHERE, "--access", "sysfs").refused("--access: 'sysfs'", "must be vfio")


def done(**more):
    return json.dumps({"driver_before": "nvme", "driver": "vfio-pci", "steps": [], **more})


def test_each_step_is_told_before_it_is_done(forebay, core):
    def attach(uri, _dry_run, tell):
        assert uri == NOWHERE
        tell("reserve it", "echo vfio-pci > /sys/override")
        return done(contents=["/dev/nvme0n1 has a swap"], group_file="/dev/vfio/7")

    core.attach_real_drive = attach
    told = forebay("drive", "attach", NOWHERE).out.splitlines()
    assert told[0] == "reserve it: echo vfio-pci > /sys/override"
    assert told[1].startswith("/dev/nvme0n1 has a swap: it is kept")
    assert told[2] == f"{NOWHERE}: vfio-pci has it"
    assert "/dev/vfio/7" in told[3]
    assert forebay("drive", "attach", NOWHERE, "--dry-run").out.splitlines()[-1] == "nothing was done (--dry-run)"
    document = forebay("drive", "attach", NOWHERE, "--json", "-").json()
    assert (document["uri"], document["dry_run"], document["driver"]) == (NOWHERE, False, "vfio-pci")


@pytest.fixture
def _interrupts_raise():
    """Also where a shell started the tests in the background, and so with an interrupt that is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts_raise")
def test_an_interrupt_is_heard_between_two_steps(core):
    told = []

    def detach(_uri, _dry_run, tell):
        for step in ("one", "two", "three"):
            tell(step, "")
        return done()

    def tell(what, _line):
        told.append(what)
        if what == "two":
            os.kill(os.getpid(), signal.SIGINT)

    core.detach_real_drive = detach
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        real_drives.detach(NOWHERE, tell)
    assert told == ["one", "two"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_refusal_leaves_the_handler_of_interrupts(core):
    def attach(*_):
        raise RefusedInput("drive", NOWHERE, "is in use")

    core.attach_real_drive = attach
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RefusedInput):
        real_drives.attach(NOWHERE, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is before
