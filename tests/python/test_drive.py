# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput, Storage
from forebay.cli import main

KILLS = int(os.environ.get("FOREBAY_KILLS", "8"))


@pytest.fixture
def uri(forebay, tmp_path):
    return forebay("drive", "create", tmp_path / "drive.img", "--size", "8M", "--json", "-").json()["uri"]


def test_create_makes_a_sparse_file_of_that_size(forebay, tmp_path):
    outcome = forebay("drive", "create", tmp_path / "d.img", "--size", "16M")
    assert outcome.status == 0
    assert (tmp_path / "d.img").stat().st_size == 16 << 20
    uri = outcome.out.strip().splitlines()[-1]
    assert forebay("drive", "info", uri, "--json", "-").json()["size_bytes"] == 16 << 20


def test_create_refuses(forebay, tmp_path):
    path = tmp_path / "d.img"
    forebay("drive", "create", path, "--size", "1M", "--profile", "ideal,iops=5").refused("--profile", "comma")
    forebay("drive", "create", "x" * 300, "--size", "1M").refused("path", "too long")
    forebay("drive", "create", path, "--size", "1000").refused("size")
    assert not path.exists()
    forebay("drive", "create", path, "--size", "1M", "--profile", "no-such").refused("no-such")
    assert not path.exists()
    forebay("drive", "create", tmp_path / "no" / "d.img", "--size", "1M").refused("d.img")
    path.write_text("precious")
    forebay("drive", "create", path, "--size", "1M").refused("d.img", "exists")
    assert path.read_text() == "precious"


def test_extents_survive_from_one_command_to_the_next(forebay, tmp_path, uri):
    data = np.random.default_rng(1).bytes(1_234_567)
    (tmp_path / "in").write_bytes(data)
    assert forebay("drive", "ls", uri, "--json", "-").json()["extents"] == []
    assert forebay("drive", "import", uri, "embedding/0", tmp_path / "in").status == 0
    (extent,) = forebay("drive", "ls", uri, "--json", "-").json()["extents"]
    assert (extent["name"], extent["bytes"]) == ("embedding/0", len(data))
    assert "embedding/0" in forebay("drive", "ls", uri).out
    assert forebay("drive", "export", uri, "embedding/0", tmp_path / "out").status == 0
    assert (tmp_path / "out").read_bytes() == data

    forebay("drive", "import", uri, "embedding/0", tmp_path / "in").refused("embedding/0")
    assert forebay("drive", "import", "--replace", uri, "embedding/0", tmp_path / "in").status == 0
    forebay("drive", "export", uri, "nothing", tmp_path / "other").refused("nothing")
    forebay("drive", "export", uri, "embedding/0", tmp_path / "out").refused("out", "exists")
    assert forebay("drive", "rm", uri, "embedding/0").status == 0
    assert forebay("drive", "ls", uri, "--json", "-").json()["extents"] == []


def test_import_refuses_what_does_not_fit(forebay, tmp_path, uri):
    (tmp_path / "big").write_bytes(bytes(9 << 20))
    forebay("drive", "import", uri, "big", tmp_path / "big").refused("9437184", "8388608")
    (tmp_path / "empty").write_bytes(b"")
    forebay("drive", "import", uri, "empty", tmp_path / "empty").refused("empty")


def test_import_refuses_what_has_no_size(forebay, uri):
    forebay("drive", "import", uri, "x", "/dev/null").refused("/dev/null", "ordinary file")
    forebay("drive", "import", uri, "x", "/no/such").refused("/no/such", "no such file")


@pytest.mark.parametrize("size", [3, 30])
def test_import_of_a_file_that_changes_meanwhile_fails(forebay, tmp_path, uri, monkeypatch, size):
    path = tmp_path / "in"
    path.write_bytes(bytes(10))
    make = Storage.new_extent

    def make_late(*arguments, **named):
        path.write_bytes(bytes(size))
        return make(*arguments, **named)

    monkeypatch.setattr(Storage, "new_extent", make_late)
    outcome = forebay("drive", "import", uri, "x", path)
    assert outcome.status == 1
    assert "its size changed" in outcome.err
    assert forebay("drive", "ls", uri, "--json", "-").json()["extents"] == []


def test_import_that_does_not_fit_leaves_what_it_would_replace(forebay, tmp_path, uri):
    (tmp_path / "small").write_bytes(b"kept")
    (tmp_path / "big").write_bytes(bytes(9 << 20))
    assert forebay("drive", "import", uri, "edges", tmp_path / "small").status == 0
    forebay("drive", "import", "--replace", uri, "edges", tmp_path / "big").refused("9437184")
    assert forebay("drive", "export", uri, "edges", tmp_path / "out").status == 0
    assert (tmp_path / "out").read_bytes() == b"kept"


def test_import_under_a_name_in_use_is_refused_before_anything_is_written(forebay, tmp_path, uri):
    (tmp_path / "in").write_bytes(b"kept")
    assert forebay("drive", "import", uri, "edges", tmp_path / "in").status == 0
    forebay("drive", "import", uri, "edges", tmp_path / "in").refused("name", "edges", "in use")


def test_import_that_is_killed_at_any_point_leaves_the_old_extent_or_the_new_one(forebay, tmp_path):
    drive = tmp_path / "drive.img"
    uri = f"emulated:backing=file,bandwidth=100M,path={drive}"
    old, new = b"old" * 1_000_000, b"new." * 1_000_000
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    assert forebay("drive", "create", drive, "--size", "16M").status == 0
    assert forebay("drive", "import", uri, "edges", tmp_path / "old").status == 0
    blank = drive.read_bytes()
    found = []
    # A warm process forks one import after the other; each is killed a little later than the one before.
    for step in range(KILLS):
        drive.write_bytes(blank)
        child = os.fork()
        if child == 0:
            os.close(1)
            os._exit(main(["drive", "import", "--replace", uri, "edges", str(tmp_path / "new")]))
        time.sleep(0.15 * step / KILLS)  # what is to be killed at any point
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        (tmp_path / "out").unlink(missing_ok=True)
        assert forebay("drive", "export", f"file:{drive}", "edges", tmp_path / "out").status == 0
        found.append((tmp_path / "out").read_bytes())
        assert found[-1] in (old, new), f"killed after step {step} of {KILLS}"
    assert old in found


def test_import_onto_a_disk_that_is_full_leaves_no_half_made_extent(forebay, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        (tmp_path / "in").write_bytes(b"x" * (4 << 20))
        assert forebay("drive", "create", disk / "drive.img", "--size", "8M").status == 0
        uri = f"emulated:backing=file,path={disk / 'drive.img'}"
        outcome = forebay("drive", "import", uri, "edges", tmp_path / "in")
        assert outcome.status == 1
        assert "write fault" in outcome.err
        assert forebay("drive", "ls", uri, "--json", "-").json()["extents"] == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_names_are_text(forebay, tmp_path, uri):
    (tmp_path / "in").write_bytes(b"data")
    forebay("drive", "import", uri, "\udcff", tmp_path / "in").refused("udcff", "UTF-8")


def test_info(forebay, uri):
    outcome = forebay("drive", "info", uri)
    assert outcome.status == 0
    assert "8.0 MiB" in outcome.out


def test_storage_reads_what_it_wrote():
    with Storage("emulated:size=4M", device="cpu") as storage:
        data = np.random.default_rng(2).integers(0, 255, 100_001, dtype=np.uint8)
        assert storage.pwrite(data, 12_345).result() == data.nbytes
        back = np.empty_like(data)
        assert storage.pread(back, 12_345).result() == data.nbytes
        assert np.array_equal(back, data)
        storage.flush()
        assert storage.size_bytes == 4 << 20
        assert storage.block_bytes == 512
        assert storage.report()["device"] == "cpu"


def test_storage_refuses():
    with pytest.raises(RefusedInput) as refused:
        Storage("emulated:size=4M,colour=red")
    assert refused.value.field
    assert refused.value.remedy
    assert isinstance(refused.value, ValueError)
    with pytest.raises(RefusedInput):
        Storage()
    with Storage("emulated:size=4M", device="cpu") as storage:
        with pytest.raises(RefusedInput):
            storage.pread(bytearray(512), 4 << 20).result()
        with pytest.raises((BufferError, ValueError, TypeError)):
            storage.pread(b"read-only" * 100, 0).result()
    with pytest.raises(OperationFailed, match="closed"):
        storage.flush()


def test_names_that_look_like_markup_are_printed_as_they_are(forebay, tmp_path):
    image = tmp_path / "run[a]:x:.img"
    made = forebay("drive", "create", image, "--size", "4M")
    assert made.status == 0
    assert f"path={image}" in made.out
    uri = f"emulated:backing=file,path={image}"
    (tmp_path / "data").write_bytes(b"bytes")
    stored = forebay("drive", "import", uri, "edges[/2024]", tmp_path / "data")
    assert (stored.status, stored.out.split(":")[0]) == (0, "edges[/2024]")
    listed = forebay("drive", "ls", uri)
    assert listed.status == 0
    assert "edges[/2024]" in listed.out
