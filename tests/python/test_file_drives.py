# SPDX-License-Identifier: Apache-2.0
"""Drives in files and on block devices, from the command line: what is refused, and what is kept."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from forebay import OperationFailed, RefusedInput, Storage, create_drive
from loop_devices import loop_device

MIB = 1 << 20


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "drive.img"
    path.write_bytes(bytes(16 * MIB))
    return path


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"data" * 1000)
    return path


@pytest.fixture
def refuses(forebay, data):
    """Runs a command that reads the drive and one that writes it, and asserts that both are refused alike."""

    def check(uri, *parts, reading=True):
        if reading:
            forebay("drive", "info", uri).refused(*parts)
        forebay("drive", "import", uri, "data", data).refused(*parts)

    return check


# ---- what holds no drive


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("directory", "is a directory"),
        ("fifo", "is a FIFO"),
        ("socket", "is a socket"),
        ("device", "is a character device"),
        ("missing", "no such file"),
        ("empty", "is empty"),
        ("below a file", "Not a directory"),
    ],
)
@pytest.mark.parametrize("uri", ["file:{}", "emulated:backing=file,path={}"])
def test_what_holds_no_bytes_is_refused(refuses, tmp_path, kind, part, uri):
    path = tmp_path / "drive.img"
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        case "device":
            path.symlink_to("/dev/null")
        case "empty":
            path.touch()
        case "below a file":
            path.touch()
            path /= "below"
    refuses(uri.format(path), f"path: '{path}': ", part, "; ")


@pytest.mark.parametrize("size", ["1000", "513"])
def test_a_size_that_is_no_multiple_is_refused(refuses, image, size):
    refuses(f"file:{image},size={size}", f"size: '{size}'", "multiple of lba_bytes, which is 512")


def test_a_size_that_is_not_the_files_is_refused(refuses, image):
    refuses(f"file:{image},size=1M", "size: '1048576'", "16777216 bytes; leave size out")


def test_a_file_has_one_writer(refuses, image):
    with Storage(f"file:{image}", device="cpu"):
        refuses(f"file:{image}", f"path: '{image}'", "another drive has the file open; close that one first")


def test_a_file_that_is_read_has_other_readers_and_no_writer(forebay, refuses, image):
    with Storage(f"file:{image}", device="cpu", read_only=True):
        assert forebay("drive", "info", f"file:{image}").status == 0
        refuses(f"file:{image}", "another drive has the file open", reading=False)


# ---- any length


def test_a_file_of_any_length_keeps_it(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"-" * 1001)
    with Storage(f"file:{path}", device="cpu") as storage:
        assert storage.size_bytes == 1024
        assert storage.report()["drives"][0]["file_bytes"] == 1001
        storage.pwrite(b"x" * 1001).result()
        with pytest.raises(OperationFailed, match="write fault"):
            storage.pwrite(b"y", 1001).result()
        back = bytearray(1024)
        storage.pread(back).result()
        assert back == b"x" * 1001 + bytes(23)
    assert path.read_bytes() == b"x" * 1001


def test_info_tells_the_length_of_a_file_that_ends_within_a_block(forebay, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"-" * 1001)
    out = forebay("drive", "info", f"file:{path}").out
    assert "1024 bytes" in out
    assert "1001 bytes" in out


def test_a_write_behind_the_end_is_told_on_standard_error(capfd, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"-" * 700)
    with Storage(f"file:{path}", device="cpu") as storage, pytest.raises(OperationFailed):
        storage.pwrite(b"y", 1000).result()
    (line,) = capfd.readouterr().err.splitlines()
    assert "its file ends at byte 700, within the last block" in line
    assert "forebay drive create --resize" in line


# ---- growth


def test_resize_keeps_what_is_there_and_gives_room(forebay, tmp_path, data):
    path = tmp_path / "drive.img"
    assert forebay("drive", "create", path, "--size", "2M").status == 0
    assert forebay("drive", "import", f"file:{path}", "first", data).status == 0
    assert forebay("drive", "import", f"file:{path}", "second", data).status == 2
    outcome = forebay("drive", "create", path, "--size", "8M", "--resize", "--json", "-").json()
    assert outcome["size_bytes"] == path.stat().st_size == 8 * MIB
    assert forebay("drive", "import", outcome["uri"], "second", data).status == 0
    for name in ("first", "second"):
        assert forebay("drive", "export", f"file:{path}", name, tmp_path / name).status == 0
        assert (tmp_path / name).read_bytes() == data.read_bytes()


def test_resize_refuses(forebay, image):
    resize = ("drive", "create", image, "--resize", "--size")
    forebay(*resize, "8M").refused("size", "8388608", "16777216 bytes", "no drive is made shorter")
    forebay(*resize, "17000000").refused("size", "multiple of lba_bytes")
    forebay("drive", "create", image.parent / "other", "--resize", "--size", "8M").refused("other", "no such file")
    forebay("drive", "create", image.parent, "--resize", "--size", "8M").refused("is a directory")
    for read_only in (False, True):
        with Storage(f"file:{image}", device="cpu", read_only=read_only):
            forebay(*resize, "32M").refused("another drive has the file open")
    assert image.stat().st_size == 16 * MIB
    assert not (image.parent / "other").exists()


def test_create_drive_resizes(image):
    create_drive(f"file:{image},size=32M", resize=True)
    assert image.stat().st_size == 32 * MIB
    with pytest.raises(RefusedInput, match="no drive is made shorter"):
        create_drive(f"file:{image},size=16M", resize=True)


# ---- several files


def test_files_of_different_sizes_make_a_stripe_of_the_smallest(tmp_path):
    sizes = (2 * MIB, 5 * MIB, 3 * MIB)
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(bytes(size))
    with Storage(*(f"file:{path}" for path in paths), device="cpu") as storage:
        assert storage.size_bytes == 3 * 2 * MIB
        storage.pwrite(b"".join(bytes([1 + i]) * 65536 for i in range(3 * 32))).result()
    for drive, path in enumerate(paths):
        pieces = b"".join(bytes([1 + drive + 3 * i]) * 65536 for i in range(32))
        assert path.read_bytes() == pieces + bytes(sizes[drive] - 2 * MIB)


def test_one_file_twice_is_refused(image):
    with pytest.raises(RefusedInput, match="another drive has the file open"):
        Storage(f"file:{image}", f"file:{image}", device="cpu")
    with pytest.raises(RefusedInput, match="is the same drive as"):
        Storage(f"file:{image}", f"file:{image}", device="cpu", read_only=True)


def test_files_of_blocks_of_different_sizes_are_refused(image, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(bytes(MIB))
    with pytest.raises(RefusedInput, match="use drives with the same block size"):
        Storage(f"file:{image}", f"file:{other},lba_bytes=4096", device="cpu")


# ---- file systems


def on_a_file_system(kind, folder, source):
    """The begin of a command that runs with a file system mounted on a folder, for itself alone."""
    mount = f"mount -t {kind} {source} {folder}"
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", mount], check=False, capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"nothing can be mounted here: {probe.stderr.strip()}")
    return ["unshare", "--mount", "sh", "-ec", f'{mount}; exec "$@"', "sh"]


def make_file_system(kind, on):
    """Makes a file system on a device; skips the test where that program is missing."""
    command = [f"mkfs.{kind}", "-q", on]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")


WRITE_GROW_READ = """
import sys, forebay
path = sys.argv[1] + "/drive.img"
forebay.create_drive(f"file:{path},size=4M")
text = bytes(range(256)) * 4096
with forebay.Storage(f"file:{path}", device="cpu") as storage:
    with storage.new_extent("text", len(text)) as write:
        write(text, 0)
forebay.create_drive(f"file:{path},size=8M", resize=True)
uri = f"file:{path}"
reading = {"device": "cpu", "read_only": True}
with forebay.Storage(uri, **reading) as one, forebay.Storage(uri, **reading) as two:
    for storage in (one, two):
        back = bytearray(len(text))
        storage.read_extent("text", back)
        assert back == text
        assert storage.size_bytes == 8 << 20
with open(path, "ab") as file:
    file.write(b"tail")
with forebay.Storage(uri, device="cpu", allow_destroy=True) as storage:
    storage.pwrite(b"TAIL", 8 << 20).result()
    storage.flush()
    try:
        storage.pwrite(b"more", (8 << 20) + 4).result()
    except forebay.OperationFailed:
        pass
    else:
        raise AssertionError("what lies behind the end was dropped")
with open(path, "rb") as file:
    file.seek(8 << 20)
    assert file.read() == b"TAIL"
"""


@pytest.mark.parametrize(("kind", "size_bytes"), [("tmpfs", 0), ("ext4", 64 * MIB), ("xfs", 320 * MIB)])
def test_drives_lie_on_every_file_system(tmp_path, kind, size_bytes):
    folder, disk = tmp_path / "mounted", tmp_path / "disk"
    folder.mkdir()
    disk.touch()
    os.truncate(disk, size_bytes)
    with contextlib.ExitStack() as opened:
        source = kind
        if size_bytes:
            source = opened.enter_context(loop_device(disk))
            make_file_system(kind, source)
        begin = on_a_file_system(kind, folder, source)
        run = subprocess.run(
            [*begin, sys.executable, "-c", WRITE_GROW_READ, folder], check=False, capture_output=True, text=True
        )
    assert run.returncode == 0, run.stderr


# ---- block devices


@pytest.fixture
def device(image):
    with loop_device(image) as path:
        yield path


def test_a_block_device_is_a_drive(forebay, device, data, tmp_path):
    uri = f"file:{device}"
    document = forebay("drive", "info", uri, "--json", "-").json()
    assert document["size_bytes"] == document["forebay"]["drives"][0]["file_bytes"] == 16 * MIB
    assert forebay("drive", "import", uri, "data", data).status == 0
    assert forebay("drive", "export", uri, "data", tmp_path / "out").status == 0
    assert (tmp_path / "out").read_bytes() == data.read_bytes()
    assert forebay("drive", "rm", uri, "data").status == 0


def test_a_block_device_that_is_mounted_is_refused(device, tmp_path, data):
    make_file_system("ext4", device)
    folder = tmp_path / "mounted"
    folder.mkdir()
    begin = [*on_a_file_system("ext4", folder, device), sys.executable, "-m", "forebay", "drive"]
    uri = f"file:{device},allow_destroy={device}"
    run = subprocess.run([*begin, "import", uri, "data", data], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert f"path: '{device}': it is mounted at {folder}; end that first" in run.stderr
    run = subprocess.run([*begin, "info", f"file:{device}"], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_block_device_has_one_writer(refuses, device):
    with Storage(f"file:{device}", device="cpu"):
        refuses(f"file:{device}", f"path: '{device}'", "another")


def test_what_is_on_a_block_device_is_not_overwritten(forebay, refuses, device, data, image):
    make_file_system("ext4", device)
    before = image.read_bytes()
    refuses(f"file:{device}", f"path: '{device}'", "ext4 file system", f"allow_destroy={device}", reading=False)
    refuses(f"file:{device},allow_destroy=/dev/sdz", "allow_destroy: '/dev/sdz'", "does not name the device")
    assert forebay("drive", "info", f"file:{device}").status == 0
    assert image.read_bytes() == before
    assert forebay("drive", "import", f"file:{device},allow_destroy={device}", "data", data).status == 2
    uri = f"file:{device},allow_destroy={device}"
    with Storage(uri, device="cpu", allow_destroy=True) as storage:
        storage.create_extent("data", MIB)
    assert forebay("drive", "ls", f"file:{device}", "--json", "-").json()["extents"][0]["name"] == "data"


def test_blocks_shorter_than_the_devices_are_refused(forebay, refuses, image):
    with loop_device(image, 4096) as device:
        refuses(f"file:{device}", "lba_bytes: '512'", "give lba_bytes=4096")
        assert forebay("drive", "info", f"file:{device},lba_bytes=4096").status == 0


def test_a_block_device_that_is_write_protected_is_only_read(forebay, refuses, image):
    with loop_device(image, read_only=True) as device:
        refuses(f"file:{device}", f"path: '{device}'", "is write protected", reading=False)
        assert forebay("drive", "info", f"file:{device}").status == 0


def test_a_block_device_is_not_made_and_does_not_grow(forebay, device):
    with pytest.raises(RefusedInput, match="is a block device, which has its size; open it without create"):
        create_drive(f"file:{device},size=16M")
    forebay("drive", "create", device, "--size", "32M", "--resize").refused(device, "is a block device")
    assert Path(device).is_block_device()


def test_only_a_block_device_may_be_destroyed(refuses, image):
    refuses(f"file:{image},allow_destroy={image}", f"allow_destroy: '{image}'", "is only for a block device")
    refuses(f"emulated:size=1M,allow_destroy={image}", "allow_destroy", "is only for a drive on a block device")
