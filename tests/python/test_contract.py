# SPDX-License-Identifier: Apache-2.0
"""The command contract: exit status, one line for refused input, one JSON document."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import default_signals, started

DRIVE = "emulated:size=4M"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nonsense"], ["nonsense"]),
        (["bench", "nonsense"], ["nonsense"]),
        (["bench", "randread"], ["--drive"]),
        (["bench", "randread", "--drive", DRIVE, "--ioddepth", "4"], ["--ioddepth", "--iodepth"]),
        (["bench", "randread", "--drive"], ["--drive", "needs a value"]),
        (["bench", "randread", "--drive", DRIVE, "more"], ["'more'", "no more arguments"]),
        (["bench", "randread", "--drive", DRIVE, "--iodepth", "many"], ["--iodepth", "many", "a whole number"]),
        (["bench", "randread", "--drive", DRIVE, "--verify=crc32c"], ["--verify", "'crc32c'", "takes no value"]),
        (["bench", "randread", "--drive", DRIVE, "--numjobs", "4"], ["--numjobs", "--iodepth", "--gpu-threads"]),
        (["bench", "--rw=randread"], ["--rw", "the workload is the command"]),
        (["bench", "randread", "--drive", DRIVE, "--direct=1"], ["--direct", "leave it out", "nothing is cached"]),
        (["bench", "randread", "--drive", DRIVE, "--ramp_time=1"], ["--ramp_time", "did you mean --ramp-time?"]),
        (["bench", "randread", "--drive", DRIVE, "--iodepth", "0"], ["--iodepth", "'0'", "at least 1"]),
        (["bench", "randread", "--drive", DRIVE, "--gpu-threads", "0"], ["--gpu-threads", "'0'"]),
        (["bench", "randread", "--drive", DRIVE, "--iodepth", "5000000000"], ["--iodepth", "'5000000000'", "1048576"]),
        (["bench", "randread", "--drive", DRIVE, "--gpu-threads", "5000000000"], ["--gpu-threads", "1048576"]),
        (["bench", "randread", "--drive", DRIVE, "--size", "99999999T"], ["--size", "'99999999T'"]),
        (["demo", "--drive", "emulated:size=8M", "--iodepth", "0"], ["--iodepth", "'0'"]),
        (["bench", "randread", "--drive", DRIVE, "--bs", "0"], ["--bs", "'0'"]),
        (["bench", "randread", "--drive", DRIVE, "--bs", "4X"], ["--bs", "'4X'", "4K"]),
        (["bench", "randread", "--drive", DRIVE, "--size", "1000"], ["--size", "'1000'", "multiple"]),
        (["bench", "randread", "--drive", DRIVE, "--runtime", "long"], ["--runtime", "'long'"]),
        (["bench", "randread", "--drive", DRIVE, "--runtime", "0"], ["--runtime", "'0'", "leave it out"]),
        (["bench", "randrw", "--drive", DRIVE, "--rwmixread", "101"], ["--rwmixread", "'101'"]),
        (["bench", "randread", "--drive", DRIVE, "--seed", "-1"], ["--seed", "'-1'", "2^63 - 1"]),
        (["bench", "randread", "--drive", DRIVE, "--json", "/no/such/place.json"], ["--json", "/no/such"]),
        (["bench", "randread", "--drive", DRIVE, "--json", ""], ["--json", "''"]),
        (["bench", "randread", "--drive", DRIVE, "--json", "x" * 300], ["--json", "too long"]),
        (["bench", "randread", "--drive", DRIVE, "--size", "0"], ["--size", "'0'", "leave it out"]),
        (["bench", "randread", "--drive", DRIVE, "--runtime", "9" * 400], ["--runtime", "1000000"]),
        (["bench", "randread", "--drive", DRIVE, "--bs", "9" * 5000], ["--bs", "8 EiB"]),
        (["graph", "info"], ["FILE"]),
        (["graph", "info", "/no/such.sg"], ["/no/such.sg", "no such file"]),
        (["graph", "info", "/no/such.txt"], ["/no/such.txt", ".sg"]),
        (["graph", "bfs"], ["-f"]),
        (["graph", "info", "x" * 300 + ".sg"], ["graph file", "too long", "check the path"]),
        (["graph", "convert", "a.el", "/no/such/y.sg"], ["TO", "there is no directory"]),
        (["graph", "bfs", "-f", "/no/such.sg", "-n", "0"], ["-n", "'0'"]),
        (["graph", "bfs", "-f", "/no/such.sg", "-n", "9" * 30], ["-n", "1000000"]),
        (["graph", "bfs", "-f", "/no/such.sg", "--memory", "hbm"], ["--memory", "'hbm'", "use host"]),
        (["drive", "create", "x.img"], ["--size"]),
        (["drive", "import", DRIVE, "x", "/no/such/file"], ["/no/such/file"]),
        (["demo", "--plot", "/"], ["--plot", "is a directory"]),
        (["demo", "--wordnet", "/no/such"], ["/no/such", "wordnet-base"]),
    ],
)
def test_refused_with_one_line(forebay, arguments, parts):
    forebay(*arguments).refused(*parts)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["bench", "--help"], ["bench", "randread", "--help"], ["graph", "bfs", "--help"], []]
)
def test_help_is_on_standard_output(forebay, arguments):
    outcome = forebay(*arguments)
    assert outcome.status == 0
    assert "Usage" in outcome.out
    assert "<bool>" not in outcome.out
    assert outcome.err == ""


def test_what_nobody_foresaw_is_one_line_and_no_traceback(forebay, monkeypatch):
    def fail(_machine):
        raise KeyError("unforeseen")

    monkeypatch.setattr("forebay.cli.doctor.examine", fail)
    outcome = forebay("doctor")
    assert outcome.status == 1
    assert outcome.err == (
        "forebay: KeyError: 'unforeseen': this is a defect of Forebay; "
        "run it again with FOREBAY_TRACEBACK=1 and report what it prints\n"
    )
    monkeypatch.setenv("FOREBAY_TRACEBACK", "1")
    with pytest.raises(KeyError):
        forebay("doctor")


def test_a_document_that_cannot_be_written_is_a_failure_that_says_so(forebay):
    outcome = forebay("doctor", "--json", "/dev/full")
    assert outcome.status == 1
    assert outcome.err == "forebay: --json: '/dev/full': cannot be written: No space left on device\n"


def test_a_full_standard_output_is_a_failure_without_a_traceback():
    command = f"{sys.executable} -m forebay drive info emulated:size=1M --json - >/dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.returncode == 1
    assert done.stderr == "forebay: standard output: No space left on device\n"


def test_a_reader_that_goes_away_is_no_traceback():
    command = f"{sys.executable} -m forebay bench randread --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert "Traceback" not in done.stderr


def test_an_interrupt_ends_a_long_run_at_once():
    command = [sys.executable, "-m", "forebay", "bench", "write", "--drive", DRIVE, "--verify", "--runtime", "10m"]
    with started(command) as run:
        wait_until_it_runs(run.pid)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert (out, err) == ("", "forebay: interrupted\n")


def wait_until_it_runs(pid):
    """Returns once the process spends processor time faster than by starting up: the threads of a drive never rest."""
    ticks = os.sysconf("SC_CLK_TCK")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        if (int(user) + int(system)) / ticks > 1.5:
            return
        time.sleep(0.05)
    pytest.fail("no run within 60 seconds")


def test_json_file(forebay, tmp_path):
    (tmp_path / "g.el").write_text("0 1\n1 2\n")
    outcome = forebay("graph", "info", tmp_path / "g.el", "--json", tmp_path / "out.json")
    assert outcome.status == 0
    assert "vertices" in outcome.out
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["schema_version"] == 1
    assert document["vertices"] == 3


def test_json_on_standard_output_stands_alone(forebay, tmp_path):
    (tmp_path / "g.el").write_text("0 1\n1 2\n")
    document = forebay("graph", "info", tmp_path / "g.el", "--json", "-").json()
    assert document["edges"] == 2
    assert document["degree_max"] == 1


def test_convert(forebay, tmp_path):
    (tmp_path / "g.el").write_text("0 1\n1 2\n1 2\n2 2\n")
    assert forebay("graph", "convert", tmp_path / "g.el", tmp_path / "g.sg").status == 0
    document = forebay("graph", "info", tmp_path / "g.sg", "--json", "-").json()
    assert document["directed"] is True
    assert document["edges"] == 2
    document = forebay("graph", "convert", "-s", tmp_path / "g.sg", tmp_path / "u.sg", "--json", "-").json()
    assert document["directed"] is False
    assert document["edges"] == 2
    assert document["arcs"] == 4
    forebay("graph", "convert", tmp_path / "g.el", tmp_path / "g.txt").refused("TO", "g.txt")


def run_shell(words, cwd=None, before=""):
    """Runs the program with the redirections of a shell."""
    command = f"{before} {sys.executable} -m forebay {words}"
    return subprocess.run(  # noqa: S602
        command, shell=True, capture_output=True, text=True, check=False, cwd=cwd, timeout=60
    )


@pytest.mark.parametrize(
    "words", ["doctor >&-", "doctor --json - >&-", "drive info emulated:size=1M >&-", "--help >&-"]
)
def test_a_closed_standard_output_is_a_failure_that_says_so(words):
    done = run_shell(words)
    assert (done.returncode, done.stderr) == (1, "forebay: standard output: Bad file descriptor\n")


def test_a_closed_standard_output_is_no_file_of_the_drive(tmp_path):
    """What the command opens must not get its number, and then be printed to."""
    assert run_shell(f"drive create {tmp_path}/a.img --size 1M").returncode == 0
    run_shell(f"drive info emulated:backing=file,path={tmp_path}/a.img >&-")
    assert (tmp_path / "a.img").read_bytes() == bytes(1 << 20)


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_standard_error_the_exit_status_stands(where):
    done = run_shell(f"graph info /no/such.sg {where}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    assert run_shell(f"drive info emulated:size=1M --bad {where}").returncode == 2


def test_a_closed_standard_input_is_no_matter():
    assert run_shell("drive info emulated:size=1M <&-").returncode == 0


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("doctor", 0),
        ("drive info emulated:size=1M", 0),
        ("graph info a.sg", 2),
        ("drive create a.img --size 1M", 2),
        ("doctor --json a.json", 2),
        ("demo --json a/a.json --plot a.png", 2),
    ],
)
def test_a_working_directory_that_is_gone_is_no_defect(tmp_path, words, status):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = run_shell(words, cwd=gone, before=f"rmdir {gone};")
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == (1 if status else 0), done.stderr


def test_an_encoding_without_the_characters_is_no_failure():
    done = run_shell("doctor", before="PYTHONIOENCODING=ascii")
    assert (done.returncode, done.stderr) == (0, "")


LARGE = 100_000_000  # bytes


def interrupt(command, ready, limit_s=60):
    """Runs a command, sends it Ctrl-C once `ready(pid)`, and returns how it ended."""
    with started([sys.executable, "-m", "forebay", *map(str, command)]) as run:
        ready(run.pid)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=limit_s)
    return run.returncode, out, err


def wait_until_it_has_open(path):
    """A function that returns once a process has a file open."""

    def wait(pid):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                if any(link.resolve() == path for link in Path(f"/proc/{pid}/fd").iterdir()):
                    return
        pytest.fail("the file was not opened within 60 seconds")

    return wait


@pytest.mark.parametrize("kind", ["el", "trace", "wordnet"])
def test_an_interrupt_ends_the_reading_of_a_large_file(tmp_path, kind):
    line = {"el": b"0 1\n", "trace": b"1,host,0,Read,0,4096,1\n", "wordnet": b"  1 a licence\n"}[kind]
    path = tmp_path / {"el": "g.el", "trace": "t.csv", "wordnet": "data.noun"}[kind]
    path.write_bytes(line * (LARGE // len(line)))
    command = {
        "el": ["graph", "info", path],
        "trace": ["replay", path, "--drive", DRIVE],
        "wordnet": ["demo", "--wordnet", tmp_path, "--drive", DRIVE],
    }[kind]
    assert interrupt(command, wait_until_it_has_open(path)) == (130, "", "forebay: interrupted\n")


def test_an_interrupt_ends_a_slow_open():
    uri = "emulated:profile=970-pro,size=1T,precondition=random"
    assert interrupt(["drive", "info", uri], wait_until_it_runs) == (130, "", "forebay: interrupted\n")


def test_an_interrupt_ends_what_the_main_thread_does_not_hear():
    """A library that does not look for signals, as C code does not while it computes."""
    script = (
        "import ctypes, sys, forebay.cli.doctor as doctor\n"
        "from forebay.cli import main\n"
        "mutex = ctypes.create_string_buffer(64)\n"
        "lock = ctypes.CDLL(None).pthread_mutex_lock\n"
        "lock(mutex)\n"
        "doctor.examine = lambda _machine: (print('deaf', flush=True), lock(mutex))\n"
        "sys.exit(main(['doctor']))\n"
    )
    with started([sys.executable, "-c", script]) as run:
        assert run.stdout.readline() == "deaf\n"
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (130, "forebay: interrupted\n")


def test_an_interrupt_while_modules_load_is_one_line():
    script = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from forebay.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=default_signals,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "forebay: interrupted\n")
