# SPDX-License-Identifier: Apache-2.0
"""What this machine can do for Forebay, what it cannot, why, and the remedy."""

import os
import re
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from forebay import drive_checks, memory, system_checks
from forebay.errors import OperationFailed, RefusedInput
from forebay.findings import MISSING, OK, WARNING, Check, Machine
from forebay.graph import wordnet

# In the order in which they should be read.
NAMES = (
    *("cpu", "memory", "container", "extension", "profiles", "cuda build", "nvidia driver", "gpus", "mps"),
    *drive_checks.NAMES,
    *("iommu", "vfio", "lockdown", "hugepages", "memlock", "io_uring", "o_direct", "cufile"),
    *("qemu", "wordnet"),
)


def examine(machine: Machine | None = None) -> list[Check]:
    """All checks, in the order of `NAMES`."""
    machine = machine or Machine()
    built = _built()
    return [
        _cpu(machine),
        _memory(machine),
        system_checks.container(machine),
        _extension(built),
        _profiles(),
        _cuda_build(built),
        _driver(machine),
        _gpus(machine, built),
        _mps(machine),
        *drive_checks.drive_checks(machine),
        _iommu(machine),
        _vfio(machine),
        system_checks.lockdown(machine),
        _hugepages(machine),
        system_checks.memlock(machine),
        system_checks.io_uring(machine),
        system_checks.o_direct(machine),
        system_checks.cufile(machine),
        _qemu(machine),
        _wordnet(),
    ]


def as_json(checks: list[Check]) -> list[dict[str, str]]:
    """The checks for a JSON document."""
    return [asdict(check) for check in checks]


def usable(checks: list[Check]) -> bool:
    """Whether emulated drives on this machine's processors work, which is the least that Forebay needs."""
    return all(check.status != MISSING for check in checks if check.name == "extension")


def named(wanted: list[str]) -> list[str]:
    """The names of checks that a person wrote: dashes and underlines stand for spaces, or for themselves."""
    known = {_simple(name): name for name in NAMES}
    for name in wanted:
        if _simple(name) not in known:
            raise RefusedInput("--require", name, f"is no check; give one of {', '.join(NAMES)}")
    return [known[_simple(name)] for name in wanted]


def _simple(name: str) -> str:
    return re.sub(r"[-_ ]+", " ", name.strip().lower())


def _built() -> dict[str, Any] | str:
    from forebay.storage import build_info

    try:
        return build_info()
    except OperationFailed as error:
        return str(error)


def _cpu(machine: Machine) -> Check:
    cores = len(os.sched_getaffinity(0))
    model = re.search(r"^model name\s*: (.*)$", machine.read("proc/cpuinfo") or "", re.MULTILINE)
    found = f"{cores} cores, {model[1] if model else 'model not known'}"
    if cores >= 4:
        return Check("cpu", OK, found)
    return Check(
        "cpu",
        WARNING,
        found,
        "emulated drives and the programs that use them share few cores, so fast drives complete late",
        "use four cores or more, or check that results say timing: kept",
    )


def _memory(machine: Machine) -> Check:
    facts = _meminfo(machine)
    if "MemAvailable" not in facts:
        return Check("memory", WARNING, "not known", "no /proc/meminfo", "mount /proc")
    available = facts["MemAvailable"] / 2**20
    found = f"{available:.1f} GiB available of {facts.get('MemTotal', 0) / 2**20:.1f}"
    if available >= 2:
        return Check("memory", OK, found)
    return Check(
        "memory",
        WARNING,
        found,
        "emulated drives keep their data in memory unless told otherwise",
        "free memory, or use backing=file",
    )


def _meminfo(machine: Machine) -> dict[str, int]:
    return memory.facts(machine.read("proc/meminfo") or "")


def _extension(built: dict[str, Any] | str) -> Check:
    if isinstance(built, str):
        return Check("extension", MISSING, "forebay._core does not load", built, "run `make`")
    return Check("extension", OK, f"forebay {built['version']}, commit {built['commit']}")


def _profiles() -> Check:
    from forebay.storage import profile_folders

    try:
        folders = profile_folders()
    except OperationFailed as error:
        return Check("profiles", MISSING, "not known", str(error), "run `make`")
    for folder in folders:
        names = sorted(path.stem for path in Path(folder).glob("*.toml"))
        if names:
            return Check("profiles", OK, f"{folder}: {', '.join(names)}")
    return Check(
        "profiles",
        WARNING,
        "none but the built-in `ideal`",
        f"no profile in {', '.join(folders) or 'any folder'}",
        "set FOREBAY_PROFILE_DIR to the profiles/ folder of the sources",
    )


def _cuda_build(built: dict[str, Any] | str) -> Check:
    if isinstance(built, dict) and built["cuda"]:
        return Check("cuda build", OK, "CUDA is built in")
    return Check(
        "cuda build",
        MISSING,
        "CUDA is not built in",
        "this build is for the CPU only",
        "run `make` on a machine with a GPU, or configure with --preset cuda",
    )


def _driver(machine: Machine) -> Check:
    version = re.search(r"Module\s+([\d.]+)", machine.read("proc/driver/nvidia/version") or "")
    if version:
        return Check("nvidia driver", OK, version[1])
    # A container may hide /proc/driver and yet have the tool.
    asked = _ask_nvidia_smi(machine, "driver_version").split("\n")[0]
    if asked:
        return Check("nvidia driver", OK, asked)
    return Check(
        "nvidia driver",
        MISSING,
        "not loaded",
        "no /proc/driver/nvidia/version",
        "install NVIDIA's driver, 580 or newer",
    )


def _ask_nvidia_smi(machine: Machine, what: str) -> str:
    """What nvidia-smi says of each GPU, a line each; empty where there is no such tool or no GPU."""
    tool = machine.which("nvidia-smi")
    if not tool:
        return ""
    query = [tool, f"--query-gpu={what}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _gpus(machine: Machine, built: dict[str, Any] | str) -> Check:
    names = "; ".join(_ask_nvidia_smi(machine, "name,memory.total").split("\n"))
    usable_gpus = built["gpus"] if isinstance(built, dict) else []
    if usable_gpus:
        return Check("gpus", OK, f"{', '.join(usable_gpus)}" + (f" ({names})" if names else ""))
    if names:
        return Check("gpus", WARNING, names, "this build or its driver cannot use them", "see the two checks above")
    return Check("gpus", MISSING, "none", "no GPU was found", "nothing to do: threads run on the CPU")


def _mps(machine: Machine) -> Check:
    found = machine.which("nvidia-cuda-mps-control")
    if found:
        return Check("mps", OK, found)
    return Check(
        "mps",
        MISSING,
        "no nvidia-cuda-mps-control",
        "needed only for an emulated drive that shares one GPU with its clients",
        "install it with NVIDIA's driver",
    )


def _iommu(machine: Machine) -> Check:
    groups = len(list((machine.root / "sys/kernel/iommu_groups").glob("*")))
    if groups:
        return Check("iommu", OK, f"{groups} groups")
    return Check(
        "iommu",
        MISSING,
        "off",
        "no group in /sys/kernel/iommu_groups; VFIO needs one for each drive",
        "switch it on in the firmware; on Intel, also boot with intel_iommu=on",
    )


def _vfio(machine: Machine) -> Check:
    device = machine.root / "dev/vfio/vfio"
    if not device.exists():
        return Check("vfio", MISSING, "no /dev/vfio/vfio", "the module is not loaded", "modprobe vfio-pci")
    if not os.access(device, os.R_OK | os.W_OK):
        return Check(
            "vfio", WARNING, "/dev/vfio/vfio", "this user may not open it", "run as root, or grant it by a udev rule"
        )
    return Check("vfio", OK, "/dev/vfio/vfio")


def _hugepages(machine: Machine) -> Check:
    facts = _meminfo(machine)
    total, free = facts.get("HugePages_Total", 0), facts.get("HugePages_Free", 0)
    if total:
        return Check("hugepages", OK, f"{free} of {total} free, {facts.get('Hugepagesize', 0)} KiB each")
    return Check(
        "hugepages",
        WARNING,
        "none reserved",
        "needed only for real drives without an IOMMU: long runs of physical memory",
        "echo 512 > /proc/sys/vm/nr_hugepages",
    )


def _qemu(machine: Machine) -> Check:
    found = machine.which("qemu-system-x86_64")
    if found:
        return Check("qemu", OK, found)
    return Check(
        "qemu",
        MISSING,
        "no qemu-system-x86_64",
        "needed only for tests, which drive its NVMe controller",
        "apt install qemu-system-x86",
    )


def _wordnet() -> Check:
    directory = wordnet.default_directory()
    if (directory / "data.noun").is_file():
        return Check("wordnet", OK, str(directory))
    return Check(
        "wordnet",
        MISSING,
        f"no {directory}/data.noun",
        "needed only for `forebay demo`, which searches it",
        "apt install wordnet-base, or set FOREBAY_WORDNET",
    )
