# SPDX-License-Identifier: Apache-2.0
"""`bench/file/compare.py`: what it measures, that it goes on where it ended, and its tables."""

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from forebay.mounts import mount_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/file"))

import compare  # noqa: E402
import comparison  # noqa: E402
import memory_limit  # noqa: E402
import page_cache  # noqa: E402
import ways  # noqa: E402

SIZE = 4 << 20
SHORT = (
    *("--engines", "mmap,pread,cufile", "--workloads", "randread", "--bs", "4k", "--depths", "4"),
    *("--sizes", "1M,8M", "--runtime", "0.01", "--repeats", "1", "--device", "cpu"),
)
FIGURES = {
    "ios": 10,
    "iops": 1000.0,
    "bytes_per_s": 4_096_000,
    "mean_ns": 1000.0,
    "p99_ns": 2000,
    "user_percent": 50.0,
    "system_percent": 25.0,
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\1" * SIZE)
    return path


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs compare.py in this process; returns its status and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, arguments)])
        status = compare.main()
        return status, capsys.readouterr()

    return run


def case(way="io_uring", **differing):
    given = {
        "way": way,
        "workload": "randread",
        "bs": 4096,
        "depth": 8,
        "size": SIZE,
        "seconds": 1.5,
        "cache": "any",
        "repeat": 0,
    }
    return ways.Case(**{**given, **differing})


def place(**differing):
    return ways.Place(
        **{"file": Path("F"), "drive": "file:F", "device": "cpu", "forebay": "f", "fio": "fio", **differing}
    )


# ---- memory that is limited


def test_a_program_has_no_more_memory_than_its_group():
    try:
        with memory_limit.group(96 << 20) as processes:
            folder = processes.parent

            def status(take_bytes):
                take = [sys.executable, "-c", f"bytearray({take_bytes}).replace(b'x', b'y')"]
                return subprocess.run(memory_limit.within(processes, take), check=False).returncode

            assert status(1 << 20) == 0
            assert status(400 << 20) != 0
            # What a program leaves behind is ended with its group.
            left = [sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '1000'])"]
            subprocess.run(memory_limit.within(processes, left), check=True)
    except OSError as why:
        pytest.skip(f"control groups cannot be made here: {why}")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--engines", "mmap,foo"], "--engines: 'foo'"),
        (["--memory-limit", "1M"], "give both or none"),
        (["--caches", "limited"], "give both or none"),
        (["--caches", "limited,cold", "--memory-limit", "1M"], "give limited alone"),
        (["--caches", "limited", "--memory-limit", "1G"], "give less than the"),
    ],
)
def test_what_cannot_be_measured_is_refused(command, file, tmp_path, capsys, asked, said):
    with pytest.raises(SystemExit) as ended:
        command("--filename", file, "--json", tmp_path / "out.json", *asked)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# ---- what is run


def test_a_run_measures_each_engine_and_says_what_it_cannot(command, file, tmp_path):
    out = tmp_path / "out.json"
    status, printed = command("--filename", file, "--json", out, *SHORT)
    assert status == 0, printed.err
    document = json.loads(out.read_text())
    assert document["benchmark"] == "file_compare"
    assert document["machine"]["commit"]
    assert "--filename" in document["command"]
    assert list(document["cannot"]) == ["cufile"]
    assert "--device cuda:N" in document["cannot"]["cufile"]
    timed = [row for row in document["results"] if row["seconds"]]
    assert [(row["engine"], row["cache"]) for row in timed] == [
        ("mmap", "cold"),
        ("mmap", "warm"),
        ("pread", "any"),
    ]
    assert all(row["ios"] > 0 and "bench randread" in row["command"] for row in timed)
    # One of the two sizes is longer than the file.
    assert {row["size"] for row in document["results"] if not row["seconds"]} == {1 << 20}
    assert "### randread: MB/s" in printed.out
    assert "mmap, cold" in printed.out
    assert "cufile: forebay: --ioengine" in printed.out


def test_a_run_goes_on_where_an_earlier_one_ended(command, file, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    asked = []

    def interrupted(what, _where):
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(what.key)
        return FIGURES

    monkeypatch.setattr(ways, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command("--filename", file, "--json", out, *SHORT)
    first = json.loads(out.read_text())["results"]
    assert [row["key"] for row in first] == asked
    monkeypatch.setattr(ways, "run", lambda what, _where: asked.append(what.key) or FIGURES)
    status, _ = command("--filename", file, "--json", out, *SHORT)
    assert status == 0
    rows = json.loads(out.read_text())["results"]
    assert rows[:3] == first
    assert len({row["key"] for row in rows}) == len(rows) > 3
    assert not set(asked[:3]) & set(asked[3:])


def test_results_of_other_settings_are_not_mixed(command, file, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    monkeypatch.setattr(ways, "run", lambda _what, _where: FIGURES)
    given = ("--filename", file, "--json", out, *SHORT)
    assert command(*given)[0] == 0
    before = out.read_text()
    with pytest.raises(SystemExit, match="another runtime"):
        command(*given, "--runtime", "0.02")
    assert out.read_text() == before
    status, printed = command("--tables", out)
    assert status == 0
    assert "| pread |" in printed.out


def test_a_failure_fails_the_run_and_is_tried_again(command, file, tmp_path, monkeypatch):
    out = tmp_path / "out.json"

    def fail(_case, _place):
        raise OSError("the drive is gone")

    monkeypatch.setattr(ways, "run", fail)
    status, printed = command("--filename", file, "--json", out, *SHORT)
    assert status == 1
    assert "the drive is gone" in printed.err
    assert json.loads(out.read_text())["results"] == []


def test_bytes_are_read_as_fio_reads_them():
    assert [compare.parse_bytes(text) for text in ("512", "4k", "1M", "8G")] == [512, 4096, 1 << 20, 8 << 30]
    for text in ("", "0", "4q", "-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="such as 4k"):
            compare.parse_bytes(text)


# ---- command lines


def test_the_engine_gpu_gets_the_drive_and_a_thread_for_each_command():
    words = ways.command_of(case("gpu"), place(drive="emulated:size=4M", device="cuda:0"))
    assert words[words.index("--drive") + 1] == "emulated:size=4M"
    assert words[words.index("--gpu-threads") + 1] == "8"
    assert "--filename" not in words
    assert "--gpu-threads" not in ways.command_of(case("gpu"), place(device="cpu"))


def test_writes_are_allowed_only_where_they_are_asked_for():
    assert "--allow-destroy" in ways.command_of(case(workload="randwrite"), place())
    assert "--allow-destroy" not in ways.command_of(case(), place())


def test_fio_gets_whole_microseconds_and_divides_a_sequential_file():
    words = ways.command_of(case("fio_io_uring"), place())
    assert {"--direct=1", "--iodepth=8", "--runtime=1500000us", "--ramp_time=150000us", f"--size={SIZE}"} <= {*words}
    words = ways.command_of(case("fio_mmap", workload="read", cache="warm"), place())
    share = SIZE // 8
    assert {"--numjobs=8", "--invalidate=0", f"--size={share}", f"--offset_increment={share}"} <= {*words}
    assert "--invalidate=1" in ways.command_of(case("fio_mmap", cache="cold"), place())


def test_the_processor_time_of_fios_jobs_is_added_up():
    job = {
        "usr_cpu": 10.0,
        "sys_cpu": 5.0,
        "write": {"total_ios": 0},
        "read": {
            "total_ios": 7,
            "iops": 70.0,
            "bw_bytes": 700,
            "clat_ns": {"mean": 1.0, "max": 4, "percentile": {"50.000000": 1, "99.000000": 2, "99.900000": 3}},
        },
    }
    kept = ways.figures({"jobs": [job]}, 8)
    assert (kept["user_percent"], kept["system_percent"], kept["kind"]) == (80.0, 40.0, "read")


# ---- the page cache


def test_the_cache_of_a_file_is_dropped_and_filled(file):
    if mount_of(file, Path("/proc/self/mountinfo").read_text()).type in ("tmpfs", "ramfs"):
        pytest.skip("the file lies in memory, and the cache is all there is of it")
    page_cache.fill(file)
    assert page_cache.cached_share(file) == 1.0
    page_cache.drop(file)
    assert page_cache.cached_share(file) < 1.0


# ---- tables


def row(**differing):
    given = {
        "engine": "pread",
        "cache": "any",
        "workload": "read",
        "bs": 4096,
        "depth": 1,
        "size": SIZE,
        "seconds": 1.0,
        **FIGURES,
    }
    return {**given, **differing}


def lines(*rows, **document):
    return "\n".join(comparison.tables({"results": list(rows), **document})).splitlines()


def after(title, found):
    """The lines of a table below its heading."""
    return list(itertools.takewhile(lambda line: line.startswith("|"), found[found.index(f"### {title}") + 2 :]))


def test_a_cell_is_the_median_of_the_repeats():
    found = lines(*(row(iops=iops) for iops in (1000.0, 9000.0, 2000.0)))
    assert after("read: thousand IOPS", found) == ["| | 4 KiB, QD1 |", "|---|---|", "| pread | 2 |"]
    assert after("read: CPU cores in use", found)[-1] == "| pread | 0.75 |"


def test_the_scaling_is_the_rate_at_the_most_over_that_at_the_least():
    found = lines(row(), row(depth=8, iops=5000.0), row(depth=32, iops=12_000.0), row(engine="mmap", cache="cold"))
    assert after("read: rate at QD32 over that at QD1", found)[-2:] == ["| pread | 12 |", "| mmap, cold | - |"]


def test_a_cold_cache_that_did_not_stay_cold_is_marked():
    half = SIZE // 4096 // 2
    found = lines(row(engine="mmap", cache="cold", ios=half), row(engine="gpu", cache="cold", ios=half + 1))
    assert after("read: MB/s", found)[-2:] == ["| mmap, cold | 4.1 |", "| gpu, cold | 4.1~ |"]
    assert any(line.startswith("~ The run read more than half") for line in found)


def test_transfers_of_so_many_bytes_have_a_table_of_their_own():
    found = lines(row(seconds=0.0, size=4 << 20), row(seconds=0.0, size=1 << 30, bytes_per_s=2_000_000_000))
    assert after("read of so many bytes once, blocks of 4 KiB, QD1: MB/s", found) == [
        "| | 4 MiB | 1 GiB |",
        "|---|---|---|",
        "| pread | 4.1 | 2000 |",
    ]


def test_what_was_not_measured_is_listed():
    assert lines(cannot={"cufile": "no GPU"})[-1] == "- cufile: no GPU"
