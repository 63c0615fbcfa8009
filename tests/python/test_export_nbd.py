# SPDX-License-Identifier: Apache-2.0
"""`forebay drive export-nbd`: what other programs do with an exported drive."""

import contextlib
import errno
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay import nbd
from nbd_client import FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES, Client
from processes import default_signals

pytestmark = pytest.mark.skipif(
    not all(shutil.which(program) for program in ("nbdkit", "nbdcopy", "nbdinfo", "mkfs.ext4")),
    reason="nbdkit, libnbd-bin or e2fsprogs is not installed: scripts/setup --test does that",
)

MIB = 1 << 20


class Server:
    """`forebay drive export-nbd` in a process of its own."""

    def __init__(self, folder: Path, uri: str, *arguments: str) -> None:
        self.socket = folder / "nbd.sock"
        self.report = folder / "report.json"
        self.uri = f"nbd+unix:///?socket={self.socket}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forebay", "drive", "export-nbd", uri, "--socket", str(self.socket),
             "--json", str(self.report), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default_signals,
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line == f"serving at {self.uri}\n", self.process.stderr.read()

    def client(self) -> Client:
        return Client(self.socket)

    def nbdkit(self) -> int:
        main = self.process.pid
        (found,) = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return int(found)

    def end(self, number: int = signal.SIGTERM) -> dict:
        """Ends it by a signal; returns the report of its one drive."""
        self.process.send_signal(number)
        _, self.err = self.process.communicate(timeout=60)
        document = json.loads(self.report.read_text())
        assert document["nbd_uri"] == self.uri
        (drive,) = document["forebay"]["drives"]
        return drive


@contextlib.contextmanager
def serving(folder: Path, uri: str, *arguments: str) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    server = Server(folder, uri, *arguments)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A drive that several tests use; each writes what it reads."""
    with serving(tmp_path_factory.mktemp("shared"), "emulated:size=64M") as server:
        yield server


@pytest.fixture
def image(forebay, tmp_path):
    """A drive in a file: the file and the URI."""
    path = tmp_path / "drive.img"
    return path, forebay("drive", "create", path, "--size", "32M", "--json", "-").json()["uri"]


def run(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def test_says_what_clients_may_rely_on(shared):
    (export,) = json.loads(run("nbdinfo", "--json", shared.uri))["exports"]
    assert export["export-size"] == 64 * MIB
    for what in ("can_multi_conn", "can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero"):
        assert export[what], what
    assert not export["is_read_only"]
    assert (export["block_size_minimum"], export["block_size_preferred"]) == (1, 4096)


def test_a_file_system_written_through_it_verifies(tmp_path, image):
    path, uri = image
    tree = tmp_path / "tree"
    tree.mkdir()
    content = random.Random(1).randbytes(5 * MIB + 123)
    (tree / "file").write_bytes(content)
    made, back = tmp_path / "made.img", tmp_path / "back.img"
    with made.open("wb") as file:
        file.truncate(32 * MIB)
    run("mkfs.ext4", "-q", "-d", tree, made)
    with serving(tmp_path, uri) as server:
        run("nbdcopy", "--flush", made, server.uri)
        run("nbdcopy", server.uri, back)
        drive = server.end()
    assert server.process.returncode == 0, server.err
    assert drive["statistics"]["bytes_written"] > len(content)
    assert drive["fidelity"] == "ok"
    assert not server.socket.exists()
    for disk in (back, path):
        run("e2fsck", "-fn", disk)
        run("debugfs", "-R", f"dump file {tmp_path / 'dumped'}", disk)
        assert (tmp_path / "dumped").read_bytes() == content


@pytest.mark.skipif(
    not shutil.which("nbdfuse") or not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid() != 0,
    reason="nbdfuse cannot mount here",
)
def test_a_file_system_that_is_made_and_changed_on_the_drive_verifies(tmp_path, image):
    path, uri = image
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    content = random.Random(2).randbytes(MIB + 77)
    (tmp_path / "content").write_bytes(content)
    with serving(tmp_path, uri) as server:
        disk = mounted / "nbd"
        # --command: it ends with the program, which unmounts.
        script = f"mkfs.ext4 -q -F {disk} && debugfs -w -R 'write {tmp_path}/content file' {disk} && e2fsck -fn {disk}"
        with subprocess.Popen(["nbdfuse", str(disk), server.uri]) as fuse:
            try:
                deadline = time.monotonic() + 30
                while not disk.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                run("sh", "-c", script)
            finally:
                fuse.terminate()
                fuse.wait(60)
        drive = server.end()
    assert server.process.returncode == 0, server.err
    assert drive["statistics"]["write_commands"] > 10
    run("e2fsck", "-fn", path)
    run("debugfs", "-R", f"dump file {tmp_path / 'dumped'}", path)
    assert (tmp_path / "dumped").read_bytes() == content


def test_flush_and_fua_make_the_drive_flush(tmp_path, image):
    path, uri = image
    with serving(tmp_path, uri) as server:
        with server.client() as client:
            assert client.call(WRITE, 0, data=b"a" * 4096) == 0
            assert client.call(WRITE, 4096, data=b"b" * 4096, flags=FUA) == 0
            assert path.read_bytes()[:8192] == b"a" * 4096 + b"b" * 4096
            assert client.call(WRITE_ZEROES, 0, 512, flags=FUA) == 0
            assert client.call(TRIM, 512, 512, flags=FUA) == 0
            assert client.call(FLUSH) == 0
        drive = server.end()
    # And one at the end.
    assert (drive["statistics"]["write_commands"], drive["statistics"]["flush_commands"]) == (2, 5)
    assert path.read_bytes()[:8192] == bytes(1024) + b"a" * 3072 + b"b" * 4096


def test_an_error_of_the_drive_is_eio_and_the_server_lives(tmp_path):
    with serving(tmp_path, "emulated:size=1M,errors_ppm=300000", "--read-only") as server:
        with server.client() as client:
            errors = [client.call(READ, 0, 512) for _ in range(200)]
        with server.client() as other:
            errors += [other.call(READ, 4096, 512) for _ in range(50)]
        drive = server.end()
    assert set(errors) == {0, errno.EIO}
    assert drive["statistics"]["injected_errors"] == errors.count(errno.EIO)
    assert server.process.returncode == 0


def test_a_drive_that_does_not_take_the_last_flush_fails_the_command(tmp_path, image):
    path, uri = image
    with serving(tmp_path, uri) as server:
        os.truncate(path, 0)
        with server.client() as client:
            assert client.call(WRITE, 0, data=bytes(4096)) == errno.EIO
            assert client.call(FLUSH) == errno.EIO
        drive = server.end()
    assert drive["statistics"]["flush_commands"] == 2
    assert server.process.returncode == 1
    assert "did not take the last flush" in server.err


def test_any_range_reads_what_was_last_written_there(shared):
    seed = int(os.environ.get("FOREBAY_SEED") or random.getrandbits(32))
    again = f"the seed was {seed}: FOREBAY_SEED={seed} python -m pytest tests/python/test_export_nbd.py -k any_range"
    draw = random.Random(seed)
    size = 3 * MIB
    with shared.client() as client:
        assert client.call(WRITE_ZEROES, 0, size) == 0
        expected = bytearray(size)
        for step in range(150):
            at = draw.randrange(size)
            length = min(draw.choice((1, 300, 512, 5000, 70_000)), size - at)
            kind = draw.choice((WRITE, WRITE_ZEROES, TRIM, READ))
            if kind == READ:
                assert client.read(at, length) == expected[at : at + length], f"step {step}: {again}"
                continue
            data = draw.randbytes(length) if kind == WRITE else bytes(length)
            if kind == TRIM:  # only whole blocks are trimmed
                at, end = -(-at // 512) * 512, (at + length) // 512 * 512
                length = max(end - at, 0)
                if length == 0:
                    continue
                data = bytes(length)
            assert client.call(kind, at, length, data if kind == WRITE else b"") == 0
            expected[at : at + length] = data
        assert client.read(0, size) == expected, again


def test_requests_of_one_connection_are_on_the_drive_together(tmp_path):
    # The drive completes one command each 20 ms: only commands that wait for others take longer.
    with serving(tmp_path, "emulated:size=1M,iops=50,channels=1") as server:
        with server.client() as client:
            for i in range(32):
                client.send(READ, i * 4096, 4096)
            assert {client.receive()[1] for _ in range(32)} == {0}
        drive = server.end()
    assert drive["latency"]["target"]["max_ns"] > 8 * 20e6


def test_two_clients_see_what_the_other_wrote(shared):
    with shared.client() as first, shared.client() as second:
        for i in range(50):
            at, data = (8 + i % 5) * MIB, bytes([i]) * 70_000
            writer, reader = (first, second) if i % 2 else (second, first)
            assert writer.call(WRITE, at, data=data) == 0
            assert reader.read(at, len(data)) == data
        # Both at once, parts of one block too.
        for i in range(64):
            for client, offset in ((first, 0), (second, 100)):
                client.send(WRITE, 16 * MIB + i * 200 + offset, data=bytes([i + offset]) * 100)
        for client in (first, second):
            assert {client.receive()[1] for _ in range(64)} == {0}
        expected = b"".join(bytes([i]) * 100 + bytes([i + 100]) * 100 for i in range(64))
        assert first.read(16 * MIB, len(expected)) == expected


def test_a_request_may_carry_more_than_a_command_of_the_drive(shared):
    data = random.Random(3).randbytes(9 * MIB + 512)
    with shared.client() as client:
        assert client.call(WRITE, 20 * MIB, data=data) == 0
        assert client.read(20 * MIB, len(data)) == data
        assert client.call(WRITE_ZEROES, 20 * MIB, len(data)) == 0
        assert client.read(20 * MIB, len(data)) == bytes(len(data))


def test_what_lies_outside_is_refused(shared):
    with shared.client() as client:
        assert client.call(READ, 64 * MIB - 512, 1024) == errno.EINVAL
        assert client.call(WRITE, 64 * MIB, data=bytes(512)) in (errno.EINVAL, errno.ENOSPC)
        assert client.read(64 * MIB - 512, 512) == bytes(512)


def test_read_only_refuses_writes_and_lets_others_read(tmp_path, image):
    path, uri = image
    path.write_bytes(b"x" * path.stat().st_size)
    with serving(tmp_path / "a", uri, "--read-only") as one, serving(tmp_path / "b", uri, "--read-only") as two:
        for server in (one, two):
            subprocess.run(["nbdinfo", "--is", "read-only", server.uri], check=True)
            with server.client() as client:
                assert client.call(WRITE, 0, data=bytes(512)) == errno.EPERM
                assert client.call(WRITE_ZEROES, 0, 512) == errno.EPERM
                assert client.call(TRIM, 0, 512) == errno.EPERM
                assert client.read(0, 4096) == b"x" * 4096
        assert one.end()["statistics"]["flush_commands"] == 0


def test_the_catalogue_of_a_drive_is_protected(forebay, tmp_path, image):
    _, uri = image
    (tmp_path / "data").write_bytes(b"precious")
    assert forebay("drive", "import", uri, "edges", tmp_path / "data").status == 0
    export = ("drive", "export-nbd", uri, "--socket", tmp_path / "nbd.sock")
    forebay(*export).refused("URI", "catalogue", "--read-only", "--allow-destroy")
    for option in ("--read-only", "--allow-destroy"):
        with serving(tmp_path, uri, option) as server:
            server.end()
        assert server.process.returncode == 0, server.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ends_in_order_by_a_signal_with_clients_connected(tmp_path, image, number):
    path, uri = image
    with serving(tmp_path, uri) as server, server.client() as client:
        assert client.call(WRITE, 512, data=b"z" * 512) == 0
        drive = server.end(number)
        assert (server.process.returncode, server.err) == (0, "")
    assert drive["statistics"]["flush_commands"] == 1
    assert path.read_bytes()[512:1024] == b"z" * 512
    assert not server.socket.exists()


def test_nbdkit_ends_with_the_command(tmp_path):
    with serving(tmp_path, "emulated:size=1M") as server:
        handle = os.pidfd_open(server.nbdkit())
        server.process.kill()
        ended, _, _ = select.select([handle], [], [], 60)
        os.close(handle)
        assert ended


def test_a_dead_nbdkit_is_a_failure(tmp_path):
    with serving(tmp_path, "emulated:size=1M") as server:
        os.kill(server.nbdkit(), signal.SIGKILL)
        _, err = server.process.communicate(timeout=60)
        assert server.process.returncode == 1
        assert "nbdkit ended with status -9" in err
        assert not server.socket.exists()
        assert not server.report.exists() or not server.report.read_text()


def test_an_interrupt_while_the_drive_is_opened_is_heard(tmp_path):
    uri = "emulated:profile=970-pro,size=64G,data=none,precondition=random"
    with subprocess.Popen(
        [sys.executable, "-m", "forebay", "drive", "export-nbd", uri, "--socket", str(tmp_path / "s")],
        stderr=subprocess.PIPE, text=True, preexec_fn=default_signals,
    ) as opening:  # fmt: skip
        children = Path(f"/proc/{opening.pid}/task/{opening.pid}/children")
        while not children.read_text().split():
            assert opening.poll() is None
        opening.send_signal(signal.SIGINT)
        _, err = opening.communicate(timeout=30)
    assert opening.returncode == 130
    assert err.strip().endswith("interrupted")


def test_tcp_serves_at_loopback():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", "forebay", "drive", "export-nbd", "emulated:size=1M", "--port", str(port)],
        stdout=subprocess.PIPE, text=True, preexec_fn=default_signals,
    ) as server:  # fmt: skip
        try:
            assert server.stdout.readline() == f"serving at nbd://127.0.0.1:{port}\n"
            assert int(run("nbdinfo", "--size", f"nbd://127.0.0.1:{port}")) == MIB
        finally:
            server.terminate()
        assert server.wait(60) == 0


def test_refuses_what_cannot_be(forebay, tmp_path, monkeypatch):
    uri = "emulated:size=1M"
    export = ("drive", "export-nbd", uri)
    there = tmp_path / "there"
    there.write_text("precious")
    forebay(*export, "--socket", there).refused("--socket", "there", "exists")
    assert there.read_text() == "precious"
    forebay(*export, "--socket", tmp_path / "no" / "s").refused("--socket", "no directory")
    forebay(*export, "--socket", tmp_path / ("s" * 120)).refused("--socket", "107 bytes")
    forebay(*export, "--socket", tmp_path / "s", "--port", 1234).refused("--port", "1234", "--socket")
    forebay(*export, "--port", 0).refused("--port", "'0'", "1 to 65535")
    forebay(*export, "--address", "203.0.113.1").refused("--address", "203.0.113.1", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        forebay(*export, "--port", port).refused("--port", str(port), "another program listens")
    socket_option = ("--socket", tmp_path / "s")
    forebay("drive", "export-nbd", "emulated:size=9", *socket_option).refused("size", "'9'")
    forebay("drive", "export-nbd", "nonsense", *socket_option).refused("nonsense")
    forebay("drive", "export-nbd", "", *socket_option).refused("''")
    forebay(*export, *socket_option, "--json", tmp_path / "no" / "j").refused("--json")
    assert not (tmp_path / "s").exists()

    monkeypatch.setattr(nbd, "_PLUGIN", tmp_path / "none.so")
    forebay(*export, *socket_option).refused("export-nbd", "headers", "nbdkit-plugin-dev")
    monkeypatch.setenv("PATH", str(tmp_path))
    forebay(*export, *socket_option).refused("export-nbd", "not installed", "apt-get install nbdkit")
