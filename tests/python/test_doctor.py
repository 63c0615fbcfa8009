# SPDX-License-Identifier: Apache-2.0
import errno
import os

import pytest
from forebay import doctor
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


def test_a_full_machine(found, put, tmp_path):
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Thu\n")
    put(
        "proc/meminfo",
        "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"
        "HugePages_Total: 512\nHugePages_Free: 500\nHugepagesize: 2048 kB\n",
    )
    put("sys/class/nvme/nvme0/model", "A DRIVE \n")
    put("sys/class/nvme/nvme0/address", "0000:01:00.0\n")
    put("sys/bus/pci/devices/0000:01:00.0/resource0")
    put("sys/kernel/iommu_groups/0/type")
    put("dev/vfio/vfio")
    checks = found(tmp_path, {"qemu-system-x86_64", "nvidia-cuda-mps-control"})
    for name in ("memory", "nvidia driver", "nvme drives", "iommu", "vfio", "hugepages", "qemu", "mps"):
        assert checks[name].status == "ok", checks[name]
    assert checks["nvidia driver"].found == "580.82.07"
    assert "0000:01:00.0 (A DRIVE)" in checks["nvme drives"].found
    assert "500 of 512" in checks["hugepages"].found


def test_drives_that_may_not_be_opened(found, tmp_path):
    (tmp_path / "sys/class/nvme/nvme0").mkdir(parents=True)
    (tmp_path / "sys/class/nvme/nvme0/address").write_text("0000:01:00.0\n")
    check = found(tmp_path)["nvme drives"]
    assert check.status == "warning"
    assert "vfio-pci" in check.remedy


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
