# SPDX-License-Identifier: Apache-2.0
import pytest
from forebay import doctor


@pytest.fixture
def found():
    def examine(root, tools=()):
        machine = doctor.Machine(root, lambda name: f"/bin/{name}" if name in tools else None)
        return {check.name: check for check in doctor.examine(machine)}

    return examine


def test_this_machine(forebay):
    document = forebay("doctor", "--json", "-").json()
    names = [check["name"] for check in document["checks"]]
    assert {"cpu", "memory", "cuda build", "nvidia driver", "gpus", "nvme drives", "iommu", "vfio"} <= set(names)
    assert {"hugepages", "memlock", "mps", "qemu", "profiles"} <= set(names)
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


def test_a_full_machine(found, tmp_path):
    def put(path, text=""):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

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
