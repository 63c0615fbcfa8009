# SPDX-License-Identifier: Apache-2.0
"""Boots a Linux guest that runs one script, in QEMU, with disks whose writes may be recorded."""

import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "build" / "guest-kernel"  # scripts/guest_kernel makes it
QEMU = "qemu-system-x86_64"
BUSYBOX = Path("/bin/busybox")
DRIVERS = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk")
# Not inserted: a script that needs them does that.
DEVICE_MAPPER = ("dm-mod", "dm-delay", "dm-flakey")
NBD = ("nbd",)
VFIO = ("vfio_virqfd", "irqbypass", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci")
DONE = "guest: done"
LIMIT_S = 300
RESULTS_BYTES = 64 << 20

# The guest's disks are named by their serial numbers: /disks/NAME, and /disks/NAME.1 for its first partition.
INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for driver in {" ".join(DRIVERS)}; do insmod /drivers/$driver.ko; done
mkdir -p /disks /tmp
for disk in /sys/block/vd* /sys/block/nvme*; do
  [ -e $disk ] || continue
  serial=$disk/serial
  [ -e $serial ] || serial=$disk/device/serial
  for node in /dev/${{disk##*/}}*; do
    partition=${{node#/dev/${{disk##*/}}}}
    ln -s $node /disks/$(cat $serial)${{partition:+.$partition}}
  done
done
mkdir -p /results
sh /script
tar -cf /disks/results -C /results .
echo '{DONE}'
sync
poweroff -f
"""


class GuestError(Exception):
    """A guest that did not get to its end; the message has what it printed."""


@dataclass(frozen=True)
class Disk:
    """A disk of the guest in a raw file; with `log`, each of its writes is recorded there.

    The guest's kernel polls a disk of the kind ``nvme`` for those who ask it to. ``properties`` are more of QEMU's, as
    in ``mdts=5``.
    """

    name: str
    path: Path
    log: Path | None = None
    kind: str = "virtio-blk-pci"
    properties: str = ""
    iops: int = 0  # 0: as many as it can


def program(name: str) -> str:
    """Finds a program that may lie where only root's PATH leads; returns the name if there is none."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or name


def missing(*programs: str) -> str | None:
    """Says what there is not to boot a guest, or which of these programs; None where all is there."""
    for name in (QEMU, "cpio", "ldd", *programs):
        if not shutil.which(program(name)):
            return f"there is no {name} here: scripts/setup --test installs it"
    if not BUSYBOX.is_file():
        return f"there is no {BUSYBOX} here: scripts/setup --test installs busybox-static"
    if not all((KERNEL / name).is_file() for name in ("vmlinuz", *(f"{driver}.ko" for driver in _drivers()))):
        return "there is no kernel for a guest: scripts/guest_kernel fetches it, or says why it cannot"
    return None


def built(name: str) -> Path:
    """Finds a program of the tests in the build that `make test` makes."""
    builds = [ROOT / "build" / preset / "bin" / name for preset in ("cuda", "cpu")]
    return max(builds, key=lambda path: path.stat().st_mtime if path.is_file() else 0)


def _drivers() -> tuple[str, ...]:
    return (*DRIVERS, *DEVICE_MAPPER, *NBD, *VFIO)


def libraries(program: Path) -> list[Path]:
    """Finds the libraries that a program or another library needs."""
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return [Path(word) for line in listing.splitlines() for word in line.split() if word.startswith("/")]


def _initramfs(script: str, programs: list[Path], plugins: list[Path], root: Path | None, to: Path) -> None:
    """Packs the script, the programs, which lie in /bin there, with their libraries, and what is in `root`.

    Plugins are packed in their places.
    """
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for folder in ("bin", "dev", "drivers", "proc", "sys"):
            (top / folder).mkdir()
        for file in [BUSYBOX, *programs]:
            shutil.copy(file, top / "bin" / file.name)
        if root:
            shutil.copytree(root, top, symlinks=True, dirs_exist_ok=True)
        linked = {library for program in [*programs, *plugins] for library in libraries(program)}
        for library in linked | set(plugins):
            there = top / library.relative_to("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, there)
        for driver in _drivers():
            shutil.copy(KERNEL / f"{driver}.ko", top / "drivers")
        (top / "script").write_text(script)
        (top / "init").write_text(INIT)
        (top / "init").chmod(0o755)
        names = "\0".join(str(path.relative_to(top)) for path in sorted(top.rglob("*")))
        with to.open("wb") as archive:
            subprocess.run(
                ["cpio", "--create", "--format=newc", "--null", "--quiet"],
                cwd=top,
                input=names.encode(),
                stdout=archive,
                check=True,
            )


def _machine(accelerator: str, *, iommu: bool = False, memory: str = "512M") -> list[str]:
    return [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-machine", "q35,kernel-irqchip=split" if iommu and accelerator == "kvm" else "q35"),
        *("-smp", "2", "-m", memory, "-kernel", str(KERNEL / "vmlinuz")),
        *("-accel", accelerator, "-cpu", "host" if accelerator == "kvm" else "max"),
        *(("-device", "intel-iommu,intremap=on") if iommu else ()),
    ]


# Some of them save seconds on an emulated processor.
_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check lpj=4000000 "
    "random.trust_cpu=on cryptomgr.notests nvme.poll_queues=1"
)


@functools.cache
def accelerator() -> str:
    """Returns ``kvm`` where a guest runs under it, else ``tcg``: that /dev/kvm opens does not say that guests run."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    # A kernel without anything to start panics, and QEMU ends with status 0.
    try:
        probe = subprocess.run([*_machine("kvm"), "-append", _ARGUMENTS], capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return "tcg"
    return "kvm" if probe.returncode == 0 and b"Kernel panic" in probe.stdout else "tcg"


def _attach(disk: Disk) -> list[str]:
    # What reaches the host's disk, and when, says nothing about the guest's.
    file = "driver=file,cache.no-flush=on,discard=unmap"
    arguments = ["-blockdev", f"{file},node-name={disk.name}-file,filename={disk.path}"]
    node = f"{disk.name}-file"
    if disk.log:
        disk.log.write_bytes(b"")
        arguments += ["-blockdev", f"{file},node-name={disk.name}-log,filename={disk.log}"]
        arguments += [
            "-blockdev",
            f"driver=blklogwrites,node-name={disk.name},file={node},log={disk.name}-log,log-sector-size=512",
        ]
        node = disk.name
    if disk.iops:
        arguments += ["-object", f"throttle-group,id={disk.name}-group,x-iops-total={disk.iops}"]
        slow = f"driver=throttle,node-name={disk.name}-slow,throttle-group={disk.name}-group,file={node}"
        arguments += ["-blockdev", slow]
        node = f"{disk.name}-slow"
    device = f"{disk.kind},drive={node},serial={disk.name}" + (f",{disk.properties}" if disk.properties else "")
    return [*arguments, "-device", device]


def boot(
    script: str,
    programs: list[Path],
    disks: list[Disk],
    results: Path,
    *,
    iommu: bool = False,
    memory: str = "512M",
    root: Path | None = None,
    devices: tuple[str, ...] = (),
    plugins: list[Path] | None = None,
    limit_s: int = LIMIT_S,
) -> str:
    """Runs the script as the only thing in a guest, and returns what the guest printed.

    What the script leaves in /results is then in the folder `results`. With `iommu`, one translates for all devices.
    The guest's root folder also has what the folder `root` has. `devices` are more of QEMU's, before the disks.
    `plugins` are files that the programs load, and that lie where they lie here.
    """
    with tempfile.TemporaryDirectory() as name:
        initramfs = Path(name) / "initramfs"
        archive = Path(name) / "results.tar"
        with archive.open("wb") as file:
            file.truncate(RESULTS_BYTES)
        _initramfs(script, programs, plugins or [], root, initramfs)
        command = [*_machine(accelerator(), iommu=iommu, memory=memory), "-initrd", str(initramfs)]
        for device in devices:
            command += ["-device", device]
        command += ["-append", _ARGUMENTS + (" intel_iommu=on" if iommu else "")]
        for disk in [*disks, Disk("results", archive)]:
            command += _attach(disk)
        try:
            ran = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise GuestError(f"not done after {limit_s} s:\n{late.stdout}\n{late.stderr}") from late
        if ran.returncode != 0 or DONE not in ran.stdout:
            raise GuestError(f"QEMU ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
        results.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "--extract", f"--file={archive}", f"--directory={results}"], check=True)
    return ran.stdout
