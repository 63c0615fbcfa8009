# SPDX-License-Identifier: Apache-2.0
"""`forebay drive serve` and `forebay run`, with clients in other processes."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from forebay import OperationFailed, Storage
from forebay.daemon import await_ready, end, listens, shared_gpu
from processes import default_signals

URI = "emulated:size=8M,residency=served"
MESSAGE = b"across processes"


class Daemon:
    """`forebay drive serve` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.socket = str(folder / "daemon.sock")
        self.report = folder / "report.json"
        self.process = subprocess.Popen(
            [*FOREBAY, "drive", "serve", "--socket", self.socket, "--json", str(self.report), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=default_signals,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"serving at {self.socket}\n"

    def engine(self) -> int:
        """The process that has the drives; 0 between two of them."""
        main = self.process.pid
        return int((Path(f"/proc/{main}/task/{main}/children").read_text().split() or [0])[0])

    def end(self) -> dict:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return json.loads(self.report.read_text())


FOREBAY = (sys.executable, "-m", "forebay")


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    started = Daemon(tmp_path, URI)
    monkeypatch.setenv("FOREBAY_DAEMON", started.socket)
    yield started
    started.process.kill()
    started.process.communicate()


def test_two_processes_share_a_drive_and_the_daemon_counts(daemon):
    writer = (
        f"from forebay import Storage\nwith Storage({URI!r}, device='cpu') as s: s.pwrite({MESSAGE!r}, 4096).result()"
    )
    subprocess.run([sys.executable, "-c", writer], check=True, timeout=60)
    with Storage(URI, device="cpu") as storage:
        back = bytearray(len(MESSAGE))
        storage.pread(back, 4096).result()
        assert bytes(back) == MESSAGE
        (drive,) = storage.report()["drives"]
        assert (drive["residency"], drive["restarts"]) == ("served", 0)
    report = daemon.end()
    assert daemon.process.returncode == 0
    assert report["schema_version"] == 1
    assert report["restarts"] == 0
    assert report["drives"][0]["statistics"] == drive["statistics"]
    assert not Path(daemon.socket).exists()


@pytest.mark.usefixtures("daemon")
def test_bench_on_a_served_drive_verifies(forebay):
    outcome = forebay(
        "bench", "randrw", "--drive", URI, "--bs", "4k", "--iodepth", "8", "--size", "1M", "--verify", "--device",
        "cpu", "--json", "-",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert outcome.json()["forebay"]["drives"][0]["residency"] == "served"


def test_the_engine_starts_again_when_it_dies(daemon):
    with Storage(URI, device="cpu") as storage:
        storage.pwrite(MESSAGE, 0).result()
    os.kill(daemon.engine(), signal.SIGKILL)
    assert "restarts: 1" in daemon.process.stderr.readline()
    with Storage(URI, device="cpu") as storage:
        back = bytearray(len(MESSAGE))
        storage.pread(back, 0).result()
        assert bytes(back) == MESSAGE
    assert daemon.end()["restarts"] == 1


def test_a_client_whose_engine_died_is_told(daemon):
    storage = Storage(URI, device="cpu")
    os.kill(daemon.engine(), signal.SIGKILL)
    assert "restarts: 1" in daemon.process.stderr.readline()
    with pytest.raises(OperationFailed, match="open the drive again"):
        storage.report()
    storage.close()


def test_a_storage_that_goes_holds_no_other_thread_up(daemon):
    storage = Storage(URI, device="cpu")
    engine = daemon.engine()
    stood_still = [0.0]
    ended = threading.Event()

    def beat():
        last = time.monotonic()
        while not ended.is_set():
            time.sleep(0.01)
            now = time.monotonic()
            stood_still[0] = max(stood_still[0], now - last)
            last = now

    beating = threading.Thread(target=beat)
    go_on = subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {engine}"])
    os.kill(engine, signal.SIGSTOP)
    try:
        beating.start()
        began = time.monotonic()
        del storage
        gc.collect()
        took = time.monotonic() - began
    finally:
        go_on.wait(60)
        ended.set()
        beating.join()
    assert took > 2, "it waited for the daemon"
    assert stood_still[0] < took / 2


def test_one_daemon_a_socket(daemon, forebay):
    forebay("drive", "serve", "--socket", daemon.socket).refused("socket", "a drive daemon listens there already")


def test_serve_refuses(forebay, tmp_path):
    socket = tmp_path / "daemon.sock"
    forebay("drive", "serve", "emulated:size=1M", "--socket", socket).refused("residency=served")
    forebay("drive", "serve", "emulated:size=9,residency=served", "--socket", socket).refused("size", "9", "lba_bytes")
    forebay("drive", "serve", "--socket", tmp_path / "no" / "s").refused("socket")
    assert not socket.exists()


def test_without_a_daemon(forebay, monkeypatch, tmp_path):
    monkeypatch.setenv("FOREBAY_DAEMON", str(tmp_path / "nobody"))
    forebay("drive", "info", URI).refused("residency", "forebay drive serve", "forebay run")


def test_run_starts_a_daemon_and_ends_it(forebay, tmp_path):
    socket = tmp_path / "s"
    info = [*FOREBAY, "drive", "info", URI, "--json", "-"]
    outcome = forebay("run", "--socket", socket, "--", *info)
    assert outcome.status == 0, outcome.err
    assert outcome.json()["size_bytes"] == 8 << 20
    assert not socket.exists()


def test_run_says_once_why_no_daemon_can_be(forebay, tmp_path):
    forebay("run", "--socket", tmp_path / ("s" * 120), "--", "true").refused("socket", "1 to 107 bytes")
    forebay("run", "--socket", tmp_path / "no" / "s", "--", "true").refused("socket", "no")


@pytest.mark.parametrize(("program_status", "status"), [(0, 1), (7, 7)])
def test_run_fails_when_its_daemon_could_not_write_a_drive_back(forebay, tmp_path, program_status, status):
    image = tmp_path / "image"
    image.write_bytes(bytes(8 << 20))
    program = f"""
import os, sys, forebay
with forebay.Storage("emulated:backing=file,residency=served,path={image}") as storage:
    os.truncate({str(image)!r}, 0)
    assert storage.pwrite(bytes(4096)).exception()
sys.exit({program_status})
"""
    outcome = forebay("run", "--socket", tmp_path / "s", "--", sys.executable, "-c", program)
    assert outcome.status == status, outcome.err
    assert "the drive daemon ended with status 1" in outcome.err
    assert "not all drives were written back" in outcome.err


def test_run_uses_the_daemon_that_is_there(daemon, forebay):
    forebay("run", "--socket", daemon.socket, *FOREBAY, "drive", "info", URI)
    assert listens(daemon.socket)
    assert [drive["uri"] for drive in daemon.end()["drives"]] == [URI]


def processes_of(socket: Path) -> list[int]:
    """Every process that names the socket in its command line, or was forked from one that does."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str(socket).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def until(condition) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL, signal.SIGTERM])
def test_run_that_is_ended_leaves_no_daemon_and_no_socket(tmp_path, number):
    socket = tmp_path / "s"
    program = "import sys, time; print('runs', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [*FOREBAY, "run", "--socket", socket, "--", sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=default_signals,
    ) as run:  # fmt: skip
        assert run.stdout.readline() == "runs\n"
        assert listens(str(socket))
        run.send_signal(number)
        run.wait(60)
        assert until(lambda: not socket.exists())
        assert until(lambda: not processes_of(socket))


def test_serve_writes_back_and_reports_when_the_terminal_hangs_up(daemon):
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.process.wait(60) == 0
    assert len(json.loads(daemon.report.read_text())["drives"]) == 1
    assert not Path(daemon.socket).exists()


def test_a_supervisor_whose_reader_has_gone_keeps_its_drives(daemon):
    with Storage(URI, device="cpu") as storage:
        storage.pwrite(MESSAGE, 0).result()
    first = daemon.engine()
    daemon.process.stderr.close()
    daemon.process.stdout.close()
    os.kill(first, signal.SIGKILL)
    assert until(lambda: daemon.engine() not in (0, first))
    with Storage(URI, device="cpu") as storage:
        back = bytearray(len(MESSAGE))
        storage.pread(back, 0).result()
        assert bytes(back) == MESSAGE
    assert daemon.end()["restarts"] == 1


SLOW = "emulated:profile=970-pro,size=1T,precondition=random,data=none,residency=served"


def test_an_interrupt_while_a_drive_is_opened_ends_the_daemon(tmp_path):
    socket = tmp_path / "s"
    with subprocess.Popen(
        [*FOREBAY, "drive", "serve", SLOW, "--socket", socket], stderr=subprocess.PIPE, preexec_fn=default_signals
    ) as daemon:
        try:
            assert until(socket.exists)
            daemon.send_signal(signal.SIGINT)
            assert daemon.wait(60) == 0
        finally:
            daemon.kill()
    assert not socket.exists()
    assert until(lambda: not processes_of(socket))


def test_run_passes_the_exit_status_on(forebay, tmp_path):
    def status(*program: str) -> int:
        return forebay("run", "--socket", tmp_path / "s", "--", *program).status

    assert status("true") == 0
    assert status("sh", "-c", "exit 7") == 7
    assert status("sh", "-c", "kill -TERM $$") == 128 + signal.SIGTERM
    forebay("run", "--socket", tmp_path / "s", "--", "/no/such").refused("program", "/no/such")
    assert not (tmp_path / "s").exists()


def stand_in(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_a_daemon_that_hangs_is_killed():
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    with stand_in(deaf) as daemon:
        assert daemon.stdout.readline() == "deaf\n"
        with pytest.raises(OperationFailed, match=r"did not end within 0.1 s"):
            end(daemon, 0.1)
        assert daemon.returncode == -signal.SIGKILL
    with stand_in("import signal; signal.pause()") as daemon:
        with pytest.raises(OperationFailed, match=r"did not serve within 0.1 s"):
            await_ready(daemon, 0.1)
        assert daemon.wait() == -signal.SIGKILL
    with stand_in("import sys; sys.exit(3)") as daemon, pytest.raises(OperationFailed, match="ended with status 3"):
        await_ready(daemon, 60)


TRAIN = Path(__file__).parents[1] / "gpu" / "train_beside_a_drive.py"


@pytest.mark.usefixtures("daemon")
def test_the_drive_of_a_program_that_trains_is_checked(tmp_path):
    result = tmp_path / "result.json"
    outcome = subprocess.run(
        [sys.executable, TRAIN, "--without-training", "--device", "cpu", "--drive", URI, "--seconds", "0.5", "--json",
         result],
        check=False, timeout=60,
    )  # fmt: skip
    assert outcome.returncode == 0
    drive = json.loads(result.read_text())["drive"]
    assert drive["verified"]
    assert drive["client"] == drive["drive"]
    assert drive["client"]["write_commands"] > 0


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_run_refuses_multiprocessors_of_no_gpu(forebay):
    forebay("run", "--sms", "8", "--", "true").refused("--sms", "8")


@pytest.mark.parametrize(("set_before", "given"), [(None, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}), ("8", {})])
def test_a_program_under_an_mps_of_the_caller_gets_channels_for_streams_that_wait(monkeypatch, set_before, given):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somewhere")
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    if set_before:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", set_before)
    with shared_gpu() as variables:
        assert variables == given
