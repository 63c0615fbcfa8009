# SPDX-License-Identifier: Apache-2.0
"""NVMe controllers that this project did not write, driven through the PCI bus, in a guest."""

import os
import random
from pathlib import Path

import guest
import pytest

SERIAL = "forebay-qemu"  # as `qemu_options` of the tests in C++ has it, and what follows too
PROPERTIES = "max_ioqpairs=16,msix_qsize=17,mdts=7"
DRIVE_BYTES = 64 << 20

# Finds the controller, and shows whether the system's driver has it.
COMMON = f"""
address=$(for c in /sys/class/nvme/nvme*; do
  grep -q {SERIAL} $c/serial && basename $(readlink -f $c/device)
done)
export FOREBAY_PCI_DRIVE=pci:$address
driver() {{ basename $(readlink /sys/bus/pci/devices/$address/driver || echo none); }}
driver > /results/before
"""


def boot(script: str, programs: list[str], folder: Path, *, iommu: bool = False, iops: int = 0) -> str:
    """Runs a script in a guest with QEMU's controller, whose address it finds in $address."""
    if reason := guest.missing():
        if os.environ.get("FOREBAY_REQUIRE_QEMU") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    image = folder / "drive.img"
    with image.open("wb") as file:
        file.truncate(DRIVE_BYTES)
    disk = guest.Disk(SERIAL, image, kind="nvme", properties=PROPERTIES, iops=iops)
    paths = [guest.built(name) for name in programs]
    results = folder / "results"
    guest.boot(COMMON + script, paths, [disk], results, iommu=iommu)
    return (results / "output").read_text()


SETUP = {
    "sysfs": "echo 24 > /proc/sys/vm/nr_hugepages",
    "vfio": "\n".join(f"insmod /drivers/{driver}.ko" for driver in guest.VFIO),
}


@pytest.mark.parametrize("access", ["sysfs", "vfio"])
def test_the_conformance_list_passes(tmp_path, access):
    script = f"""
{SETUP[access]}
conformance_test --gtest_brief=1 --gtest_filter='conformance/pci_{access}.*' > /results/output 2>&1
echo "status $?" >> /results/output
driver > /results/after
"""
    said = boot(script, ["conformance_test"], tmp_path, iommu=access == "vfio")
    assert said.endswith("status 0\n"), said
    assert "[  PASSED  ]" in said
    assert "SKIPPED" not in said
    assert (tmp_path / "results" / "before").read_text() == "nvme\n"
    assert (tmp_path / "results" / "after").read_text() == "nvme\n", "the system's driver does not have it back"


# Kills a client some time after its start. Meanwhile another program takes all huge pages that become free: if a
# command that was under way then still wrote into one, the program would see that.
KILL = """
kill_after() {
  real_drive_client load $FOREBAY_PCI_DRIVE,access=$access > /load.txt 2>&1 &
  client=$!
  usleep $1
  $before
  kill -9 $client
  real_drive_client watch $watch > /watch.txt 2>&1 || echo "after $1 us: canaries: $(cat /watch.txt)" >> /results/output
  for i in $(seq 100); do [ $(driver) = nvme ] && break; usleep 100000; done
  [ $(driver) = nvme ] || echo "after $1 us: the driver is $(driver)" >> /results/output
  wait $client
}
"""


@pytest.mark.parametrize("access", ["sysfs", "vfio"])
def test_a_client_may_be_killed_at_any_time(tmp_path, access):
    seed = int(os.environ.get("FOREBAY_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"replay with FOREBAY_SEED={seed}")
    kills = int(os.environ.get("FOREBAY_KILLS") or 20)
    delays_us = [random.Random(seed + i).randrange(1_000_000) for i in range(kills)]
    script = f"""
echo 24 > /proc/sys/vm/nr_hugepages
{SETUP[access]}
access={access} watch=200 before=:
{KILL}
for delay in {" ".join(map(str, delays_us))}; do kill_after $delay; done
while [ ! -e /dev/nvme0n1 ]; do usleep 10000; done
real_drive_client verify $FOREBAY_PCI_DRIVE,access={access} >> /results/output 2>&1
"""
    said = boot(script, ["real_drive_client"], tmp_path, iommu=access == "vfio", iops=400)
    assert said == "verified\n"


def test_without_its_guard_a_killed_client_leaves_a_drive_that_writes_into_the_memory_of_others(tmp_path):
    script = f"""
{SETUP["sysfs"]}
access=sysfs watch=3000 before="killall -9 forebay-guard"
{KILL}
kill_after 3000000
"""
    said = boot(script, ["real_drive_client"], tmp_path, iops=50)
    assert "canaries: 24 huge pages" in said
    assert "the driver is none" in said
