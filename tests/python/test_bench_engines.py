# SPDX-License-Identifier: Apache-2.0
"""`forebay bench --ioengine`: the workloads on a file by the ways of the operating system."""

import json

import pytest
from forebay import Storage, file_bench
from forebay._native import core

HOST_ENGINES = ("mmap", "pread", "io_uring")
SIZE = 2 << 20


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\1" * SIZE)
    return path


def keys(value):
    """The names in a document, nested; where there is a list, those of its first element."""
    if isinstance(value, list):
        return keys(value[0]) if value else None
    return {name: keys(inner) for name, inner in value.items()} if isinstance(value, dict) else None


@pytest.mark.parametrize("engine", HOST_ENGINES)
def test_json_has_the_shape_that_the_engine_gpu_gives_it(forebay, path, engine):
    options = ("--bs", "4k", "--iodepth", "8", "--json", "-")
    drive = forebay("bench", "randread", "--drive", f"file:{path}", "--device", "cpu", *options).json()
    document = forebay(
        "bench", "randread", "--ioengine", engine, "--filename", path, "--device", "cpu", *options
    ).json()
    assert keys(document["jobs"]) == keys(drive["jobs"])
    (job,) = document["jobs"]
    assert job["job options"]["ioengine"] == engine
    assert job["read"]["total_ios"] == SIZE // 4096
    assert job["read"]["clat_ns"]["N"] == job["read"]["slat_ns"]["N"] == SIZE // 4096
    ours = document["forebay"]
    assert ours["ioengine"] == engine
    assert ours["device"] == "cpu"
    assert ours["path"] == "file"
    assert ours["gpu_threads"] == (1 if engine == "io_uring" else 8)
    assert ours["verified"] is None
    assert ours["cufile"] is None
    assert ours["commit"]
    file = ours["file"]
    assert file["path"] == str(path)
    assert file["size_bytes"] == SIZE
    assert file["file_system"]
    assert not file["block_device"]
    assert not file["has_holes"]
    assert file["direct"] == ("O_DIRECT" in ours["way"])
    assert engine != "mmap" or not file["direct"]
    assert set(drive["forebay"]) >= set(ours) - {"way", "cufile", "file"}


@pytest.mark.parametrize("engine", HOST_ENGINES)
@pytest.mark.parametrize("workload", ["read", "write", "randread", "randwrite", "randrw"])
def test_every_workload_verifies(forebay, path, engine, workload):
    outcome = forebay(
        *("bench", workload, "--ioengine", engine, "--drive", f"file:{path}", "--device", "cpu", "--bs", "16K"),
        *("--iodepth", "4", "--verify", "--allow-destroy", "--json", "-"),
    )
    assert outcome.status == 0, outcome.err
    document = outcome.json()
    assert document["forebay"]["verified"] is True
    assert document["forebay"]["verified_blocks"] > 0
    job = document["jobs"][0]
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == SIZE // (16 << 10)


@pytest.mark.parametrize("engine", HOST_ENGINES)
def test_what_one_engine_wrote_the_others_verify(forebay, path, engine):
    write = ("bench", "write", "--ioengine", engine, "--filename", path, "--bs", "64k", "--verify", "--allow-destroy")
    assert forebay(*write, "--device", "cpu").status == 0
    check = ("bench", "read", "--bs", "4k", "--verify-only", "--device", "cpu")
    for other in HOST_ENGINES:
        assert forebay(*check, "--ioengine", other, "--filename", path).status == 0, other
    assert forebay(*check, "--drive", f"file:{path}").status == 0
    with path.open("r+b") as file:
        file.seek(5 * 4096 + 7)
        file.write(b"\0")
    outcome = forebay(*check, "--ioengine", engine, "--filename", path, "--json", path.with_name("out.json"))
    assert outcome.status == 1
    assert "1 of 512 blocks did not verify" in outcome.err
    assert str(5 * 4096) in outcome.err
    assert json.loads(path.with_name("out.json").read_text())["jobs"][0]["error"] != 0


def test_the_table_says_how_the_data_moved(forebay, path):
    outcome = forebay("bench", "randread", "--ioengine", "mmap", "--filename", path, "--bs", "4k", "--device", "cpu")
    assert outcome.status == 0
    assert "engine: memcpy" in outcome.out
    assert "through the page cache" in outcome.out
    assert "1 thread on cpu;" in outcome.out
    assert "timing" not in outcome.out


def test_holes_are_said(forebay, tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(SIZE)
    outcome = forebay("bench", "read", "--ioengine", "pread", "--filename", path, "--bs", "4k", "--json", "-")
    assert outcome.json()["forebay"]["file"]["has_holes"]
    assert "has holes" in outcome.err


def test_an_error_of_the_system_is_said_in_its_words(forebay, path, monkeypatch):
    document = json.loads(
        core().run_file_io(str(path), "pread", -1, **options(size_bytes=SIZE), tell=None),
    )
    failing = {**document, "errors": 2, "first_error": "Input/output error"}
    monkeypatch.setattr(file_bench, "interruptible", lambda *_arguments, **_named: json.dumps(failing))
    outcome = forebay("bench", "read", "--ioengine", "pread", "--filename", path, "--bs", "4k", "--device", "cpu")
    assert outcome.status == 1
    assert "2 commands failed; the first error is: Input/output error" in outcome.err


def options(**differing):
    given = {
        "random": False,
        "read_percent": 100,
        "block_bytes": 4096,
        "iodepth": 1,
        "gpu_threads": 1,
        "size_bytes": 0,
        "runtime_s": 0.0,
        "ramp_time_s": 0.0,
        "seed": 1,
        "verify": False,
        "lay_down": True,
    }
    return {**given, **differing}


def test_the_engines_of_the_command_are_those_of_the_extension(path):
    for engine in file_bench.ENGINES:
        if engine in HOST_ENGINES:
            core().run_file_io(str(path), engine, -1, **options(), tell=None)
        else:
            with pytest.raises(ValueError, match="moves data to and from a GPU"):
                core().run_file_io(str(path), engine, -1, **options(), tell=None)
    with pytest.raises(ValueError, match=", ".join(file_bench.ENGINES)):
        core().run_file_io(str(path), "libaio", -1, **options(), tell=None)


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["--ioengine", "libaio", "--filename", "PATH"],
            ["--ioengine", "libaio", "gpu, mmap, pread, io_uring, cufile"],
        ),
        (["--ioengine", "cufile", "--filename", "PATH"], ["--ioengine", "cufile", "--device cuda:N"]),
        (["--ioengine", "pread"], ["--filename", "is missing", "bench randread --help"]),
        (["--ioengine", "pread", "--filename", "PATH", "--drive", "file:PATH"], ["--filename", "--drive"]),
        (["--ioengine", "pread", "--drive", "emulated:size=4M"], ["--drive", "emulated:size=4M", "file:PATH"]),
        (["--ioengine", "pread", "--drive", "file:"], ["--drive", "file:PATH"]),
        (["--ioengine", "mmap", "--drive", "file:PATH,queues=2"], ["--drive", "queues=2", "keys"]),
        (["--ioengine", "mmap", "--drive", "file:PATH", "--drive", "file:PATH"], ["--drive", "one file"]),
        (["--ioengine", "mmap", "--filename", "PATH", "--bs", "1000"], ["--bs", "'1000'", "512 bytes"]),
        (["--ioengine", "mmap", "--filename", "PATH", "--bs", "4M"], ["--bs", "must not exceed", "of the file"]),
        (["--ioengine", "mmap", "--filename", "PATH", "--iodepth", "2000"], ["--iodepth", "1024"]),
        (["--ioengine", "pread", "--filename", "PATH", "--iodepth", "4", "--gpu-threads", "2"], ["--gpu-threads"]),
        (["--ioengine", "pread", "--filename", "PATH", "--device", "cuda:99"], ["device", "cuda:99"]),
        (["--ioengine", "pread", "--filename", "PATH", "--device", "tpu"], ["device", "tpu", "cpu, auto or cuda:N"]),
        (["--ioengine", "pread", "--filename", "/no/such/file"], ["--filename", "/no/such/file", "head -c"]),
        (["--ioengine", "pread", "--filename", "/dev/null"], ["--filename", "/dev/null", "ordinary file"]),
        (["--filename", "PATH"], ["--filename", "--drive file:PATH"]),
        ([], ["--drive", "is missing", "bench randread --help"]),
    ],
)
def test_options_that_do_not_fit_are_refused(forebay, path, arguments, parts):
    default = [] if "--device" in arguments else ["--device", "cpu"]
    given = [argument.replace("PATH", str(path)) for argument in arguments]
    forebay("bench", "randread", *given, *default).refused(*parts)


@pytest.mark.parametrize("engine", HOST_ENGINES)
def test_a_file_is_overwritten_only_when_that_is_allowed(forebay, path, engine):
    before = path.read_bytes()
    for arguments in (["write"], ["randrw"], ["read", "--verify"]):
        forebay("bench", *arguments, "--ioengine", engine, "--filename", path).refused("--filename", "--allow-destroy")
    assert path.read_bytes() == before


def test_a_drive_in_the_file_and_an_engine_lock_each_other_out(forebay, path):
    write = ("bench", "write", "--ioengine", "pread", "--filename", path, "--bs", "4k", "--allow-destroy")
    with Storage(f"file:{path}", device="cpu", read_only=True):
        forebay(*write).refused("--filename", "close that one first")
        assert forebay("bench", "read", "--ioengine", "pread", "--filename", path, "--bs", "4k").status == 0
    assert forebay(*write).status == 0
