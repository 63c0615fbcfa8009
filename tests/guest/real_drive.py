# SPDX-License-Identifier: Apache-2.0
"""Guests with an NVMe controller that this project did not write: QEMU's."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import guest
import guest_python

sys.path.insert(0, str(guest.ROOT / "scripts"))

import tutorials

SECOND = "second-drive"
SERIAL = "forebay-qemu"  # as `qemu_options` of the tests in C++ has it, and what follows too
PROPERTIES = "max_ioqpairs=16,msix_qsize=17,mdts=7"
WITH_QUIRKS = "use-intel-id=on"  # the numbers of a controller that is known not to keep to the specification
DRIVE_BYTES = 64 << 20

# Finds the controllers, and shows whether the system's driver has the first.
COMMON = f"""
address_of() {{
  for c in /sys/class/nvme/nvme*; do grep -q $1 $c/serial && basename $(readlink -f $c/device); done
}}
address=$(address_of {SERIAL})
second=$(address_of {SECOND})
export FOREBAY_PCI_DRIVE=pci:$address
driver() {{ basename $(readlink /sys/bus/pci/devices/$address/driver || echo none); }}
driver > /results/before
"""


SETUP = {
    "sysfs": "echo 24 > /proc/sys/vm/nr_hugepages",
    "vfio": "\n".join(f"insmod /drivers/{driver}.ko" for driver in guest.VFIO),
}


def boot(
    script: str,
    programs: list[str | Path],
    folder: Path,
    *,
    iommu: bool = False,
    iops: int = 0,
    plugins: list[Path] | None = None,
    limit_s: int = guest.LIMIT_S,
) -> Path:
    """Runs a script in a guest with two controllers of QEMU, whose addresses it finds in $address and $second.

    Returns the folder with what the script left in /results.
    """
    disks = []
    for serial in (SERIAL, SECOND):
        image = folder / f"{serial}.img"
        with image.open("wb") as file:
            file.truncate(DRIVE_BYTES)
        properties = PROPERTIES if serial == SERIAL else f"{PROPERTIES},{WITH_QUIRKS}"
        disks.append(guest.Disk(serial, image, kind="nvme", properties=properties, iops=iops))
    results = folder / "results"
    files = [guest.built(name) if isinstance(name, str) else name for name in programs]
    guest.boot(COMMON + script, files, disks, results, iommu=iommu, plugins=plugins, limit_s=limit_s)
    return results


def conformance(access: str, folder: Path, *, as_for_a_gpu: bool = False) -> Path:
    """Runs the conformance list through one kind of access. Leaves `output`, `outcomes.json`, `before` and `after`.

    With `as_for_a_gpu`, memory and doorbells are those for a GPU.
    """
    script = f"""
{SETUP[access]}
{"export FOREBAY_PCI_AS_FOR_A_GPU=1" if as_for_a_gpu else ""}
export GTEST_OUTPUT=json:/results/outcomes.json
conformance_test --gtest_brief=1 --gtest_filter='conformance/pci_{access}.*' > /results/output 2>&1
echo "status $?" >> /results/output
driver > /results/after
"""
    return boot(script, ["conformance_test"], folder, iommu=access == "vfio")


# What a distribution has set up: the modules where modprobe finds them. Of vfio-pci it says that vfio_iommu_type1 is
# wanted too.
MODULES = f"""
modules=/lib/modules/$(uname -r)
mkdir -p $modules
cp /drivers/*.ko $modules
for driver in {" ".join(guest.VFIO)}; do
  echo "$driver.ko: $needed" >> $modules/modules.dep
  needed="$driver.ko $needed"
done
"""


@dataclass(frozen=True)
class Ran:
    """A command of a page, what it printed, its exit status, and the driver that then had the drive."""

    command: str
    output: str
    status: int
    driver: str


def follow(page: Path, folder: Path) -> list[Ran]:
    """Runs the commands of a page, with an IOMMU and a drive of the address and the serial number in the page."""
    text = page.read_text()
    (address,) = set(re.findall(r"pci:([0-9a-f:.]+)", text))
    (serial,) = set(re.findall(r"allow_destroy=(\w+)", text))
    blocks = [block for block in tutorials.blocks_of(text) if not block.comment("not run:")]
    assert all(block.language == "bash" for block in blocks), "each block has commands, or says why it is not run"
    commands = [line for block in blocks for line in block.lines]
    root = folder / "root"
    guest_python.install(root)
    after = f"basename $(readlink /sys/bus/pci/devices/{address}/driver || echo none)"
    script = MODULES + guest_python.run_commands(root, commands, after)
    image = folder / "drive.img"
    with image.open("wb") as file:
        file.truncate(DRIVE_BYTES)
    # The first bus behind a bridge is bus 1.
    disk = guest.Disk(serial, image, kind="nvme", properties=f"{PROPERTIES},bus=slot1")
    results = folder / "results"
    guest.boot(
        script,
        [Path(guest.program("lspci"))],
        [disk],
        results,
        iommu=True,
        memory="1G",
        root=root,
        devices=("pcie-root-port,id=slot1,chassis=1",),
    )

    def left(number: int, what: str) -> str:
        return (results / f"{number}.{what}").read_text()

    return [
        Ran(command, left(number, "output"), int(left(number, "status")), left(number, "after").strip())
        for number, command in enumerate(commands)
    ]
