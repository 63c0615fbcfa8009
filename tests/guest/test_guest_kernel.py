# SPDX-License-Identifier: Apache-2.0
"""How the kernel of a guest is fetched, from an archive that the test makes."""

import shutil
import subprocess
from pathlib import Path

import guest
import pytest

TOOLS = (
    "bash",
    "cat",
    "cp",
    "dirname",
    "find",
    "git",
    "head",
    "mkdir",
    "mktemp",
    "nproc",
    "rm",
    "sed",
    "tail",
    "touch",
)
DRIVERS = (*guest.DRIVERS, *guest.DEVICE_MAPPER, *guest.NBD, *guest.VFIO)
NAME = "linux-image-6.1.0-1-cloud-amd64"


@pytest.fixture
def root(tmp_path) -> Path:
    """A clone with the script, and a PATH on which only its tools are."""
    (tmp_path / "scripts").mkdir()
    for name in ("guest_kernel", "lib.bash"):
        shutil.copy(guest.ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def command(root: Path, name: str, body: str) -> None:
    path = root / "bin" / name
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


def archive(root: Path, *, works: str, drivers: tuple[str, ...] = DRIVERS) -> None:
    """An archive with one package; `works` is the condition under which it can be had."""
    command(root, "apt-cache", f"echo {NAME[:11]}-cloud-amd64; echo '  Depends: {NAME}'")
    command(
        root,
        "apt-get",
        f'[[ "$1" != update ]] || {{ touch "{root}/updated"; exit 0; }}; {works} || {{ echo "E: 404" >&2; exit 1; }}; '
        "touch package.deb",
    )
    command(root, "sudo", '"$@"')
    files = ["boot/vmlinuz-6", *(f"lib/modules/6/drivers/{driver}.ko" for driver in drivers)]
    command(root, "dpkg-deb", f'cd "$3"; mkdir -p boot lib/modules/6/drivers; touch {" ".join(files)}')


def fetch(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", root / "scripts" / "guest_kernel"],
        env={"PATH": str(root / "bin"), "TMPDIR": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_kernel_and_drivers_are_fetched_once(root):
    archive(root, works="true")
    assert NAME in fetch(root).stderr
    assert sorted(path.name for path in (root / "build" / "guest-kernel").iterdir()) == sorted(
        [*(f"{driver}.ko" for driver in DRIVERS), "vmlinuz"]
    )
    assert fetch(root).stderr == ""
    assert not (root / "updated").exists()


def test_drivers_that_an_older_kernel_has_not_are_fetched_with_their_kernel(root):
    archive(root, works="true")
    fetch(root)
    folder = root / "build" / "guest-kernel"
    (folder / "dm-flakey.ko").unlink()
    (folder / "vmlinuz").write_text("older")
    assert NAME in fetch(root).stderr
    assert (folder / "dm-flakey.ko").exists()
    assert (folder / "vmlinuz").read_text() == ""


def test_old_lists_of_packages_are_renewed(root):
    archive(root, works=f'[[ -e "{root}/updated" ]]')
    fetch(root)
    assert (root / "build" / "guest-kernel" / "vmlinuz").exists()


def test_an_archive_that_does_not_answer_is_no_error(root):
    archive(root, works="false")
    assert "no kernel for a guest: apt-get cannot fetch it: E: 404" in fetch(root).stderr
    assert not (root / "build" / "guest-kernel" / "vmlinuz").exists()


def test_a_package_without_a_driver_is_no_error(root):
    archive(root, works="true", drivers=DRIVERS[:-1])
    assert f"the package has no {DRIVERS[-1]}.ko" in fetch(root).stderr
    assert not (root / "build" / "guest-kernel" / "vmlinuz").exists()


def test_another_distribution_is_no_error(root):
    assert "there is no apt-get here" in fetch(root).stderr
