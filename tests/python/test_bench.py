# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

import pytest
from forebay import Storage, build_info

DRIVE = "emulated:size=4M"
PERCENTILES = {"1.000000", "50.000000", "90.000000", "99.000000", "99.900000", "99.990000"}


def test_json_has_the_shape_of_fio(forebay):
    document = forebay(
        "bench", "randread", "--drive", DRIVE, "--bs", "4K", "--iodepth", "8", "--size", "2M", "--json", "-"
    ).json()
    (job,) = document["jobs"]
    assert job["jobname"] == "randread"
    assert job["job options"]["ioengine"] == "gpu"
    assert job["error"] == 0
    assert job["usr_cpu"] >= 0
    assert job["sys_cpu"] >= 0
    read, write = job["read"], job["write"]
    assert read["total_ios"] == 512
    assert read["io_bytes"] == 2 << 20
    assert read["runtime"] >= 0
    assert read["iops"] > 0
    assert read["bw_bytes"] == pytest.approx(read["iops"] * 4096, rel=0.01)
    assert read["bw"] == pytest.approx(read["bw_bytes"] / 1024, abs=1)
    latency = read["clat_ns"]
    assert latency["N"] == 512
    assert latency["min"] <= latency["mean"] <= latency["max"]
    assert latency["stddev"] >= 0
    assert set(latency["percentile"]) >= PERCENTILES
    values = [latency["percentile"][key] for key in sorted(latency["percentile"], key=float)]
    assert values == sorted(values)
    assert latency["min"] <= values[0]
    assert values[-1] <= latency["max"]
    assert write["total_ios"] == 0
    assert write["iops"] == 0

    ours = document["forebay"]
    assert ours["device"] == "cpu"
    assert ours["placement"] == 1
    assert ours["fidelity"] in ("ok", "exceeded")
    assert ours["verified"] is None
    assert ours["commit"]
    assert ours["path"] == "storage_direct"
    assert ours["profile"] == "ideal"
    assert ours["residency"] == "threads"
    assert ours["lateness"]["bound_ns"] > 0


@pytest.mark.parametrize("workload", ["read", "write", "randread", "randwrite", "randrw"])
def test_every_workload_verifies(forebay, workload):
    outcome = forebay(
        "bench",
        workload,
        "--drive",
        DRIVE,
        "--bs",
        "1K",
        "--iodepth",
        "16",
        "--gpu-threads",
        "3",
        "--verify",
        "--json",
        "-",
    )
    assert outcome.status == 0, outcome.err
    document = outcome.json()
    assert document["forebay"]["verified"] is True
    assert document["forebay"]["verified_blocks"] > 0
    assert document["forebay"]["gpu_threads"] == 3
    job = document["jobs"][0]
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == 4096
    assert (job["read"]["total_ios"] > 0) == (workload in ("read", "randread", "randrw"))
    assert (job["write"]["total_ios"] > 0) == (workload in ("write", "randwrite", "randrw"))


def test_mix_follows_rwmixread(forebay):
    job = forebay("bench", "randrw", "--drive", DRIVE, "--rwmixread", "80", "--iodepth", "8", "--json", "-").json()[
        "jobs"
    ][0]
    assert job["read"]["total_ios"] / 8192 == pytest.approx(0.8, abs=0.03)


def test_several_drives_are_one_region(forebay):
    document = forebay(
        "bench",
        "read",
        "--drive",
        DRIVE,
        "--drive",
        "emulated:size=4M,seed=2",
        "--bs",
        "128K",
        "--verify",
        "--json",
        "-",
    ).json()
    assert document["jobs"][0]["read"]["io_bytes"] == 8 << 20
    assert len(document["forebay"]["drives"]) == 2


def test_fewer_threads_than_asked_is_said(forebay):
    outcome = forebay("bench", "randread", "--drive", DRIVE, "--iodepth", "2", "--gpu-threads", "8", "--json", "-")
    assert "--gpu-threads 8" in outcome.err
    assert outcome.json()["forebay"]["gpu_threads"] == 2


def test_table_is_on_standard_output(forebay):
    outcome = forebay("bench", "randread", "--drive", DRIVE, "--verify")
    assert outcome.status == 0
    assert "IOPS" in outcome.out
    assert "B/s" in outcome.out
    assert "timing: not modelled" in outcome.out
    assert "1 thread on " in outcome.out
    assert "data verified" in outcome.out


def test_data_that_was_not_checked_is_said(forebay):
    assert "data not checked (use --verify)" in forebay("bench", "randread", "--drive", DRIVE).out


def make_drive(forebay, path):
    return forebay("drive", "create", path, "--size", "4M", "--json", "-").json()["uri"]


def test_verify_sees_data_that_was_changed_behind_its_back(forebay, tmp_path):
    path = tmp_path / "drive.img"
    uri = make_drive(forebay, path)
    check = ("bench", "read", "--drive", uri, "--bs", "4K", "--iodepth", "4", "--verify-only")
    assert forebay("bench", "write", "--drive", uri, "--bs", "4K", "--verify").status == 0
    assert forebay(*check).status == 0

    with path.open("r+b") as image:
        image.seek(5 * 4096 + 100)
        byte = image.read(1)[0]
        image.seek(5 * 4096 + 100)
        image.write(bytes([byte ^ 1]))
    outcome = forebay(*check, "--json", tmp_path / "out.json")
    assert outcome.status == 1
    assert "1 of 1024 blocks did not verify" in outcome.err
    assert str(5 * 4096) in outcome.err
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["forebay"]["verified"] is False
    assert document["jobs"][0]["error"] != 0

    assert forebay(*check, "--seed", "2").status == 1


def test_a_drive_with_extents_is_not_overwritten(forebay, tmp_path):
    uri = make_drive(forebay, tmp_path / "drive.img")
    (tmp_path / "data").write_bytes(b"x" * 1000)
    assert forebay("drive", "import", uri, "data", tmp_path / "data").status == 0
    forebay("bench", "randwrite", "--drive", uri).refused("--drive", "--allow-destroy")
    forebay("bench", "randread", "--drive", uri, "--verify").refused("--drive", "--allow-destroy")
    assert forebay("bench", "randread", "--drive", uri).status == 0
    assert forebay("drive", "rm", uri, "data").status == 0
    forebay("bench", "randwrite", "--drive", uri).refused("--drive", "catalogue", "--allow-destroy")
    assert forebay("bench", "randwrite", "--drive", uri, "--allow-destroy", "--size", "64K").status == 0


def test_what_only_reads_shares_a_file_with_others_that_only_read(forebay, tmp_path):
    uri = make_drive(forebay, tmp_path / "drive.img")
    (tmp_path / "data").write_bytes(b"x" * 1000)
    assert forebay("drive", "import", uri, "data", tmp_path / "data").status == 0
    with Storage(uri, device="cpu", read_only=True) as storage:
        assert not storage.raw_writable
        assert forebay("bench", "randread", "--drive", uri).status == 0
        assert forebay("drive", "info", uri).status == 0
        assert forebay("drive", "ls", uri).status == 0
        assert forebay("drive", "export", uri, "data", tmp_path / "copy").status == 0
        forebay("bench", "randwrite", "--drive", uri, "--allow-destroy").refused("path", "another drive")
    assert (tmp_path / "copy").read_bytes() == b"x" * 1000


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("emulated:size=4M,iopps=3", ["iopps", "iops"]),
        ("emulated:size=1000", ["size", "1000"]),
        ("emulated:size=4Q", ["size", "4Q"]),
        ("emulated:", ["size"]),
        ("emulated:size=4M,profile=no-such-drive", ["no-such-drive"]),
        ("emulated:size=4M,backing=file,path=/no/such/file", ["/no/such/file"]),
        ("nonsense:size=4M", ["nonsense"]),
        ("", [""]),
    ],
)
def test_bad_uris_are_refused(forebay, uri, parts):
    forebay("bench", "randread", "--drive", uri).refused(*parts)


def test_a_truncated_profile_is_refused(forebay, tmp_path):
    (tmp_path / "cut.toml").write_text('name = "cut"\n[read]\na_op_ps = ')
    forebay("bench", "randread", "--drive", f"emulated:size=4M,profile={tmp_path}/cut.toml").refused("cut.toml")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--bs", "100"], ["bs", "'100'", "512"]),
        (["--bs", "1000"], ["bs", "'1000'", "512"]),
        (["--bs", "1G"], ["bs", "'1073741824'", "must not exceed"]),
        (["--size", "8M"], ["size", "8388608"]),
        (["--iodepth", "0"], ["iodepth", "'0'"]),
        (["--device", "cuda:99"], ["cuda:99"]),
        (["--device", "tpu"], ["tpu"]),
    ],
)
def test_options_that_do_not_fit_the_drive_are_refused(forebay, options, parts):
    forebay("bench", "randread", "--drive", DRIVE, *options).refused(*parts)


def test_a_throttled_drive_gives_its_rate(forebay):
    """200 IOPS are within any machine's reach; the margins leave room for one that is busy with something else."""
    uri = "emulated:size=4M,iops=200,latency_us=5000,channels=1"
    job = forebay("bench", "randread", "--drive", uri, "--iodepth", "4", "--runtime", "1", "--json", "-").json()[
        "jobs"
    ][0]
    read = job["read"]
    assert read["runtime"] == 1000
    assert 20 < read["iops"] < 300
    assert read["iops"] * read["clat_ns"]["mean"] * 1e-9 == pytest.approx(4, rel=0.4)


@pytest.mark.gpu
@pytest.mark.skipif(not build_info()["gpus"], reason="there is no GPU that this build can use")
def test_a_kernel_that_cuda_would_load_at_its_first_launch_does_not_wait_for_the_drive():
    drive = "emulated:size=64M,backing=hbm,sms=4"
    command = [sys.executable, "-m", "forebay", "bench", "randread", "--drive", drive, "--size", "2M", "--json", "-"]
    lazily = {**os.environ, "CUDA_MODULE_LOADING": "LAZY"}
    done = subprocess.run(command, env=lazily, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["jobs"][0]["read"]["io_bytes"] == 2 << 20
