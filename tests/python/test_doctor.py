# SPDX-License-Identifier: Apache-2.0
import errno
import os

import pytest
from forebay import doctor, drive_checks, real_drives
from forebay.errors import OperationFailed
from forebay.findings import Machine

IO_URING = "proc/sys/kernel/io_uring_disabled"


@pytest.fixture
def found():
    def examine(root, tools=(), **differing):
        machine = Machine(root, lambda name: f"/bin/{name}" if name in tools else None, **differing)
        return {check.name: check for check in doctor.examine(machine)}

    return examine


@pytest.fixture
def put(tmp_path):
    def write(path, text=""):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


@pytest.fixture
def device(put, tmp_path):
    """Makes a device at a path below /sys/devices; `->NAME` links to a driver, `group` to its IOMMU group."""

    def make(path, files):
        folder, buses = tmp_path / "sys/devices" / path, tmp_path / "sys/bus/pci"
        for name, text in files.items():
            if name == "group":
                put(f"sys/bus/pci/groups/{text}/devices/{folder.name}")
                (folder / "iommu_group").symlink_to(buses / "groups" / text)
            elif text.startswith("->"):
                (folder / name).symlink_to(buses / "drivers" / text[2:])
            elif text:
                put(f"sys/devices/{path}/{name}", f"{text}\n")
        (buses / "devices").mkdir(parents=True, exist_ok=True)
        (buses / "devices" / folder.name).symlink_to(folder)
        return folder.name

    return make


def test_this_machine(forebay):
    document = forebay("doctor", "--json", "-").json()
    names = [check["name"] for check in document["checks"]]
    assert {"cpu", "memory", "cuda build", "nvidia driver", "gpus", "nvme drives", "iommu", "vfio"} <= set(names)
    assert {"hugepages", "memlock", "mps", "qemu", "profiles"} <= set(names)
    assert names == list(doctor.NAMES)
    for check in document["checks"]:
        assert check["status"] in ("ok", "warning", "missing")
        assert check["found"]
        assert (check["status"] == "ok") == (check["cause"] == "" and check["remedy"] == ""), check


def test_table_says_why(forebay):
    outcome = forebay("doctor")
    assert outcome.status == 0
    assert "cpu" in outcome.out
    assert "nvme drives" in outcome.out


def test_a_bare_machine(found, tmp_path):
    checks = found(tmp_path)
    for name in ("nvme drives", "iommu", "vfio", "qemu", "mps", "nvidia driver"):
        assert checks[name].status == "missing", name
        assert checks[name].remedy
    assert checks["hugepages"].status == "warning"


def test_a_full_machine(found, put, device, tmp_path):
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Thu\n")
    put(
        "proc/meminfo",
        "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"
        "HugePages_Total: 512\nHugePages_Free: 500\nHugepagesize: 2048 kB\n",
    )
    put("sys/kernel/iommu_groups/0/type")
    put("dev/vfio/vfio")
    put("dev/vfio/0")
    put("sys/bus/pci/drivers/vfio-pci/bind")
    drive = device("pci0000:00/0000:01:00.0", {"class": "0x010802", "driver": "->vfio-pci", "group": "0"})
    checks = found(tmp_path, {"qemu-system-x86_64", "nvidia-cuda-mps-control"})
    for name in ("memory", "nvidia driver", "nvme drives", "iommu", "vfio", "hugepages", "qemu", "mps"):
        assert checks[name].status == "ok", checks[name]
    assert checks["nvidia driver"].found == "580.82.07"
    assert drive == "0000:01:00.0"
    assert checks["nvme drives"].found == "0000:01:00.0: driver vfio-pci"
    assert "500 of 512" in checks["hugepages"].found


# ---- real drives

SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0/"
DRIVE = {
    "class": "0x010802",
    "vendor": "0x144d",
    "driver": "->nvme",
    "nvme/nvme0/model": "A DRIVE",
    "nvme/nvme0/state": "live",
    "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "4",
    "max_link_speed": "16.0 GT/s PCIe",
    "max_link_width": "4",
    "power_state": "D0",
    "power/control": "on",
}
GPU = {"class": "0x030200", "vendor": "0x10de", "driver": "->nvidia"}
BRIDGE = {"class": "0x060400"}


def test_of_a_drive_is_told_what_has_it(found, put, device, tmp_path):
    address = device(f"{SWITCH}0000:02:00.0/0000:03:00.0", {**DRIVE, "nvme/nvme0/nvme0n1/size": "1"})
    put("sys/class/block/nvme0n1/dev", "259:1\n")
    put("proc/self/mountinfo", "36 35 259:1 / /data rw - ext4 /dev/nvme0n1 rw\n")
    checks = found(tmp_path)
    assert checks["nvme drives"].status == "warning"
    assert checks["nvme drives"].found == f"{address}: A DRIVE, driver nvme, /dev/nvme0n1: it is mounted at /data"
    assert "none of them can be opened now" in checks["nvme drives"].cause
    for name, text in (
        ("drive links", "16 GT/s x4 (gen4x4)"),
        ("drive groups", "no IOMMU"),
        ("drive power", "D0, stays on"),
    ):
        assert (checks[name].status, checks[name].found) == ("ok", f"{address}: {text}")


def test_a_slow_link(found, device, tmp_path):
    device(f"{SWITCH}0000:03:00.0", {**DRIVE, "current_link_speed": "8.0 GT/s PCIe"})
    check = found(tmp_path)["drive links"]
    assert (check.status, check.found) == ("warning", "0000:03:00.0: 8 GT/s x4 (gen3x4) of 16 GT/s x4 (gen4x4)")


def test_a_narrow_link(found, device, tmp_path):
    device(f"{SWITCH}0000:03:00.0", {**DRIVE, "current_link_width": "2"})
    assert found(tmp_path)["drive links"].status == "warning"


def test_a_drive_that_sleeps(found, device, tmp_path):
    device(f"{SWITCH}0000:03:00.0", {**DRIVE, "power/control": "auto", "d3cold_allowed": "1"})
    check = found(tmp_path)["drive power"]
    assert (check.status, check.found) == (
        "warning",
        "0000:03:00.0: D0, sleeps when idle and may be switched off (D3cold)",
    )
    assert check.remedy == "echo on > /sys/bus/pci/devices/0000:03:00.0/power/control"


@pytest.mark.parametrize(("driver", "status"), [("->nvidia", "warning"), ("->vfio-pci", "ok"), ("", "ok")])
def test_a_group_that_is_shared(found, device, tmp_path, driver, status):
    device(f"{SWITCH}0000:03:00.0", {**DRIVE, "group": "7"})
    device(f"{SWITCH}0000:04:00.0", {**GPU, "driver": driver, "group": "7"})
    check = found(tmp_path)["drive groups"]
    name = driver.removeprefix("->") or "none"
    assert (check.status, check.found) == (status, f"0000:03:00.0: group 7, shared with 0000:04:00.0 (driver {name})")


def test_what_drives_and_gpus_share(found, device, tmp_path):
    for bridge in ("pci0000:00/0000:00:01.0", SWITCH[:-1], f"{SWITCH}0000:02:00.0", f"{SWITCH}0000:02:01.0"):
        device(bridge, BRIDGE)
    device(f"{SWITCH}0000:02:00.0/0000:03:00.0", DRIVE)
    assert found(tmp_path)["drive topology"].found == "no drive and GPU of NVIDIA together"
    device(f"{SWITCH}0000:02:01.0/0000:04:00.0", GPU)
    device("pci0000:00/0000:00:02.0/0000:05:00.0", GPU)
    check = found(tmp_path)["drive topology"]
    assert check.status == "ok"
    assert "GPU 0000:04:00.0: below the switch at 0000:01:00.0" in check.found
    assert "GPU 0000:05:00.0: below other root ports of pci0000:00" in check.found
    assert "0000:02:00.0 (ACS unknown)" in check.found
    config = bytearray(4096)
    config[0x100:0x108] = b"\x0d\x00\x01\x00\x00\x00\x0c\x00"  # redirects requests and completions
    (tmp_path / "sys/devices" / SWITCH / "0000:02:00.0/config").write_bytes(config)
    check = found(tmp_path)["drive topology"]
    assert check.status == "warning"
    assert "(ACS on)" in check.found
    assert "disable_acs_redir=0000:02:00.0" in check.remedy


@pytest.mark.parametrize(
    ("release", "driver", "status"),
    [
        ("6.11.9", True, "ok"),
        ("6.12.0-amd64", True, "warning"),
        ("7.1.2", True, "warning"),
        ("6.12.0", False, "ok"),
        ("", True, "ok"),
    ],
)
def test_kernels_on_which_a_gpu_cannot_write_doorbells(found, put, tmp_path, release, driver, status):
    put("proc/sys/kernel/osrelease", f"{release}\n")
    if driver:
        put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Thu\n")
    check = found(tmp_path)["doorbells"]
    assert check.status == status
    assert check.found.startswith("threads of the CPU write them directly")
    assert "no GPU has used a real drive so far" in check.found
    assert ("one of the CPU would relay" in check.found) == (status == "warning")


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Thu\n"


@pytest.mark.parametrize(
    ("driver", "modules", "says"),
    [
        (None, ["dmabuf_import"], "1, host memory; no driver of NVIDIA's is loaded"),
        (OPEN, [], "1, host memory; not 2 and 3, in the GPU's memory: the module dmabuf_import is not loaded"),
        (OPEN, ["iommu_map_pa"], "the module dmabuf_import is not loaded"),
        (CLOSED, ["dmabuf_import"], "NVIDIA's kernel modules are not the open ones"),
        (CLOSED, [], "dmabuf_import is not loaded, and NVIDIA's kernel modules are not the open ones"),
        (OPEN, ["dmabuf_import"], "2 and 3, in the GPU's memory, with access=sysfs (never run on hardware)"),
        (OPEN, ["dmabuf_import", "iommu_map_pa"], "with access=sysfs or vfio (never run on hardware)"),
    ],
)
def test_placements_of_a_real_drive(found, put, tmp_path, driver, modules, says):
    if driver is not None:
        put("proc/driver/nvidia/version", driver)
    for module in modules:
        put(f"dev/{module}", "")
    check = found(tmp_path)["placements"]
    assert check.status == "ok"
    assert says in check.found


def test_without_the_extension_nothing_is_known_of_drives(found, monkeypatch, tmp_path):
    def does_not_load():
        raise OperationFailed("no such module")

    monkeypatch.setattr(real_drives, "core", does_not_load)
    checks = found(tmp_path)
    for name in drive_checks.NAMES:
        assert (checks[name].status, checks[name].cause) == ("missing", "no such module")


# ---- what the system allows


def test_a_container_is_known_by_what_it_leaves(found, put, tmp_path):
    assert found(tmp_path)["container"].status == "ok"
    marks = {
        "proc/self/cgroup": ("0::/kubepods/besteffort/pod1\n", "kubepods"),
        "proc/1/cgroup": ("1:name=systemd:/lxc/box\n", "lxc"),
        "run/systemd/container": ("systemd-nspawn\n", "systemd-nspawn"),
        "proc/1/environ": ("HOME=/\0container=podman\0A=b\0", "podman"),
        "run/.containerenv": ("", "podman, by /run/.containerenv"),
        ".dockerenv": ("", "docker"),
    }
    for path, (text, kind) in marks.items():
        put(path, text)
        check = found(tmp_path)["container"]
        assert check.status == "warning"
        assert kind in check.found
        assert path in check.found or "process 1" in check.found
        assert "--ulimit memlock" in check.remedy


@pytest.mark.parametrize(
    ("text", "status", "mode"),
    [
        ("[none] integrity confidentiality\n", "ok", "none"),
        ("none [integrity] confidentiality\n", "warning", "integrity"),
        ("none integrity [confidentiality]\n", "warning", "confidentiality"),
    ],
)
def test_lockdown(found, put, tmp_path, text, status, mode):
    put("sys/kernel/security/lockdown", text)
    check = found(tmp_path)["lockdown"]
    assert (check.status, check.found) == (status, mode)
    assert (check.remedy == "") == (status == "ok")


@pytest.mark.parametrize(
    ("limit", "status", "shown"), [(None, "ok", "unlimited"), (2 << 30, "ok", "KiB"), (8 << 20, "warning", "8192 KiB")]
)
def test_locked_memory(found, tmp_path, limit, status, shown):
    check = found(tmp_path, memlock_bytes=lambda: limit)["memlock"]
    assert check.status == status
    assert shown in check.found
    if status == "warning":
        assert "io_uring" in check.cause
        assert "ulimit -l" in check.remedy


def test_io_uring_that_works(found, put, tmp_path):
    assert found(tmp_path, io_uring_errno=lambda: 0)["io_uring"].found == "can be set up"
    put(IO_URING, "1\n")
    check = found(tmp_path, io_uring_errno=lambda: 0)["io_uring"]
    assert check.status == "ok"
    assert "io_uring_disabled is 1" in check.found


@pytest.mark.parametrize(
    ("files", "error", "cause", "remedy"),
    [
        ({IO_URING: "2\n"}, errno.EPERM, "io_uring_disabled is 2", "sysctl kernel.io_uring_disabled=0"),
        ({IO_URING: "1\n"}, errno.EPERM, "io_uring_disabled is 1", "io_uring_group"),
        ({IO_URING: "0\n", "proc/self/status": "Seccomp:\t2\n"}, errno.EPERM, "seccomp filter", "--security-opt"),
        ({"proc/self/status": "Seccomp:\t2\n"}, errno.ENOSYS, "seccomp filter", "--security-opt"),
        ({"proc/self/status": "Seccomp:\t0\n"}, errno.ENOSYS, "the kernel has none", "Linux 5.1"),
        ({}, errno.ENOMEM, "security module or a limit", "ulimit -l"),
    ],
)
def test_io_uring_that_does_not(found, put, tmp_path, files, error, cause, remedy):
    for path, text in files.items():
        put(path, text)
    check = found(tmp_path, io_uring_errno=lambda: error)["io_uring"]
    assert check.status == "missing"
    assert os.strerror(error) in check.found
    assert cause in check.cause
    assert remedy in check.remedy


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("ext4", 0, "ok"),
        ("tmpfs", 0, "warning"),
        ("fuse.sshfs", errno.EINVAL, "missing"),
        ("nfs4", errno.EACCES, "warning"),
    ],
)
def test_file_systems_with_and_without_o_direct(found, put, tmp_path, kind, error, status):
    put("proc/self/mountinfo", f"27 1 254:0 / / rw,relatime - {kind} source rw\n")
    asked = []
    check = found(tmp_path, path=tmp_path, direct_errno=lambda path: asked.append(path) or error)["o_direct"]
    assert asked == [tmp_path]
    assert check.status == status
    assert f"{kind} at {tmp_path}" in check.found
    assert (check.remedy == "") == (status == "ok")
    if status != "ok":
        assert "--path" in check.remedy


def test_o_direct_is_tried_and_leaves_nothing_behind(found, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(bytes(4096))
    for path in (folder, folder / "file"):
        assert found(tmp_path, path=path)["o_direct"].status in ("ok", "warning", "missing")
    assert [entry.name for entry in folder.iterdir()] == ["file"]
    gone = found(tmp_path, path=folder / "gone")["o_direct"]
    assert gone.status == "warning"
    assert "No such file" in gone.cause


def test_cufile(found, put, tmp_path):
    check = found(tmp_path, loads=lambda _library: False)["cufile"]
    assert check.status == "missing"
    assert "LD_LIBRARY_PATH" in check.remedy
    check = found(tmp_path, loads=lambda library: library == "libcufile.so.0")["cufile"]
    assert check.status == "warning"
    assert "compatibility mode" in check.cause
    assert "modprobe nvidia-fs" in check.remedy
    put("proc/driver/nvidia-fs/version", "version: 2.26.6\n")
    check = found(tmp_path, loads=lambda library: library.startswith("/usr/local/cuda"))["cufile"]
    assert check.status == "ok"
    assert "nvidia-fs 2.26.6" in check.found


# ---- what is required


def test_what_is_required_and_there_passes(forebay):
    assert forebay("doctor", "--require", "extension", "--require", "CPU").status == 0


def test_what_is_required_and_missing_fails_after_the_table(forebay, monkeypatch):
    monkeypatch.setenv("FOREBAY_WORDNET", "/no/such/folder")
    outcome = forebay("doctor", "--require", "cpu", "--require", "wordnet", "--json", "-")
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert "wordnet: no /no/such/folder/data.noun" in outcome.err
    assert "apt install wordnet-base" in outcome.err
    assert "cpu:" not in outcome.err
    assert [check["name"] for check in outcome.json()["checks"]] == list(doctor.NAMES)
    assert forebay("doctor", "--require", "cpu").status == 0


def test_names_may_have_dashes_and_underlines():
    assert doctor.named(["nvme-drives", "CUDA_build", "io uring", "o-direct"]) == [
        "nvme drives",
        "cuda build",
        "io_uring",
        "o_direct",
    ]


def test_unknown_names_are_refused_with_the_names(forebay):
    forebay("doctor", "--require", "iommuu").refused("--require", "'iommuu'", *doctor.NAMES)


def test_a_path_that_is_not_there_is_refused(forebay, tmp_path):
    forebay("doctor", "--path", tmp_path / "gone").refused("--path", "gone", "No such file")
