# SPDX-License-Identifier: Apache-2.0
"""`forebay drive calibrate`: fio's JSON of a drive whose parameters are known gives those parameters back."""

import copy
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from forebay import Storage
from forebay.calibrate import fit_line

SIZES = {"512": 512, "1k": 1024, "2k": 2048, "4k": 4096, "8k": 8192, "64k": 65536, "128k": 131072}


@dataclass(frozen=True)
class Drive:
    """The model that measurements are made from."""

    per_command_ns: float
    per_byte_ns: float
    granule: int
    latency_us: float

    def cost_ns(self, size):
        return self.per_command_ns + self.per_byte_ns * -(-size // self.granule) * self.granule

    def measure(self, size, in_flight):
        """IOPS and latency in ns: the drive is either waited for, or its latency is."""
        lone = self.latency_us * 1e3 + self.cost_ns(size) - self.cost_ns(self.granule)
        latency = max(lone, in_flight * self.cost_ns(size))
        return in_flight * 1e9 / latency, latency


P5800X = Drive(133.0, 0.1344, 512, 6.0)
FLASH = Drive(10.0, 0.0714, 4096, 60.0)
BUFFERED = Drive(1190.0, 0.0909, 4096, 15.0)


def direction(iops=0.0, latency_ns=0.0, size=4096):
    total = round(iops * 10)
    stats = {"min": latency_ns, "max": latency_ns, "mean": latency_ns, "stddev": 0.0, "N": total}
    return {
        "io_bytes": total * size,
        "bw_bytes": round(iops * size),
        "iops": iops,
        "total_ios": total,
        "slat_ns": {**stats, "mean": 0.0},
        "clat_ns": {**stats, "percentile": {"1.000000": latency_ns, "50.000000": latency_ns}} if total else stats,
        "lat_ns": stats,
    }


def job(drive, bs, in_flight, *, rw="randread", groupid=0, share=1.0, noise=None, **options):
    """An entry of `jobs` as fio 3.33 writes it; `share` of the drive's IOPS is its own."""
    iops, latency = drive.measure(SIZES[bs], in_flight)
    if noise is not None:
        iops *= 1 + noise.uniform(-0.02, 0.02)
    busy, idle = direction(iops * share, latency, SIZES[bs]), direction()
    return {
        "jobname": f"{rw}-{bs}-{in_flight}",
        "groupid": groupid,
        "error": 0,
        "job options": {"rw": rw, "bs": bs, "iodepth": str(in_flight), **options},
        "read": busy if "read" in rw else idle,
        "write": busy if "write" in rw else idle,
    }


def run_of(*jobs, **shared):
    """The document of jobs that ran one after the other."""
    document = {"fio version": "fio-3.33", "timestamp": 1, "global options": {"ioengine": "io_uring", **shared}}
    return {**document, "jobs": [{**entry, "groupid": i} for i, entry in enumerate(jobs)]}


def sweep(drive, sizes=("512", "4k", "128k"), rw="randread", depth=256, noise=None):
    return [
        job(drive, sizes[0], 1, rw=rw),
        *(job(drive, bs, d, rw=rw, noise=noise) for bs in sizes for d in (4, depth // 2, depth)),
    ]


@pytest.fixture
def calibrate(forebay, tmp_path):
    """Runs the command on documents; returns the outcome, the JSON and the profile."""

    def run(*documents, name="mine"):
        files = []
        for i, document in enumerate(documents):
            files.append(tmp_path / f"fio{i}.json")
            files[-1].write_text(document if isinstance(document, str) else json.dumps(document))
        output = tmp_path / f"{name}.toml"
        output.unlink(missing_ok=True)
        outcome = forebay("drive", "calibrate", *files, "--name", name, "--output", output, "--json", "-")
        profile = tomllib.loads(output.read_text()) if outcome.status == 0 else None
        assert output.exists() == (outcome.status == 0)
        return outcome, profile

    return run


def meets(table, drive, tolerance=0.01):
    assert table["per_command_ns"]["value"] == pytest.approx(drive.per_command_ns, rel=tolerance)
    assert table["per_byte_ns"]["value"] == pytest.approx(drive.per_byte_ns, rel=tolerance)
    assert table["granule_bytes"]["value"] == drive.granule
    assert table["latency_min_us"]["value"] == pytest.approx(drive.latency_us, rel=tolerance)


def test_a_known_drive_is_given_back(calibrate):
    document = run_of(*sweep(P5800X), *sweep(BUFFERED, rw="randwrite"))
    outcome, profile = calibrate(document)
    meets(profile["read"], P5800X)
    meets(profile["write"], BUFFERED)
    points = outcome.json()["read"]["points"]
    assert [point["bs"] for point in points] == [512, 4096, 131072]
    assert all(abs(point["error_percent"]) < 0.1 for point in points)
    assert outcome.json()["assumed"] == []


@pytest.mark.parametrize("granule", [512, 1024, 2048, 4096])
def test_each_granule_is_found(calibrate, granule):
    drive = Drive(100.0, 0.2, granule, 20.0)
    _, profile = calibrate(run_of(*sweep(drive, ("512", "1k", "2k", "4k", "128k"))))
    meets(profile["read"], drive)


def test_the_smaller_granule_is_taken_where_no_block_tells(calibrate):
    outcome, profile = calibrate(run_of(*sweep(FLASH, ("4k", "8k", "128k"))))
    assert profile["read"]["granule_bytes"]["value"] == 512
    assert "assumed" in profile["read"]["granule_bytes"]["source"]
    assert any("granule" in assumed for assumed in outcome.json()["assumed"])
    # A lone block of 4 KiB takes as long as it did, although it is of several granules.
    cost = FLASH.per_byte_ns * (4096 - 512)
    assert profile["read"]["latency_min_us"]["value"] * 1e3 + cost == pytest.approx(60e3, rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_two_percent_moves_the_rates_by_little_more(calibrate, seed):
    noise = np.random.default_rng(seed)
    outcome, profile = calibrate(run_of(*sweep(P5800X, tuple(SIZES), noise=noise)))
    read = profile["read"]
    for size in SIZES.values():
        granule = read["granule_bytes"]["value"]
        cost = read["per_command_ns"]["value"] + read["per_byte_ns"]["value"] * -(-size // granule) * granule
        assert cost == pytest.approx(P5800X.cost_ns(size), rel=0.04)
    assert max(abs(point["error_percent"]) for point in outcome.json()["read"]["points"]) < 4


def test_several_files(calibrate, tmp_path):
    outcome, profile = calibrate(run_of(*sweep(P5800X, ("512", "4k"))), run_of(*sweep(P5800X, ("64k", "128k"))))
    meets(profile["read"], P5800X)
    source = profile["read"]["per_byte_ns"]["source"]
    assert f"{tmp_path}/fio0.json: randread-512-" in source
    assert f"{tmp_path}/fio1.json: randread-64k-" in source
    assert outcome.json()["files"] == [str(tmp_path / "fio0.json"), str(tmp_path / "fio1.json")]


def test_every_number_names_a_file(calibrate, tmp_path):
    _, profile = calibrate(run_of(*sweep(P5800X)))
    for table in ("read", "write", "other", "geometry"):
        for key, number in profile[table].items():
            assert str(tmp_path / "fio0.json") in number["source"], (table, key)
    assert "randread-512-1" in profile["read"]["latency_min_us"]["source"]


def test_the_profile_opens_a_drive(forebay, tmp_path):
    (tmp_path / "fio.json").write_text(json.dumps(run_of(*sweep(P5800X))))
    output = tmp_path / "mine.toml"
    outcome = forebay("drive", "calibrate", tmp_path / "fio.json", "--name", "my-drive", "--output", output)
    assert outcome.status == 0
    assert "512 B" in outcome.out
    assert "+0.0 %" in outcome.out or "-0.0 %" in outcome.out
    uri = outcome.out.split("A drive with it:")[1].strip()
    assert uri == f"emulated:profile={output},size=1M"
    with Storage(uri, device="cpu") as storage:
        drive = storage.report()["drives"][0]
        assert drive["profile"] == "my-drive"
        assert drive["timing"]["read"]["per_command_ns"] == pytest.approx(133.0, rel=0.01)
        storage.pwrite(b"x" * 4096, 0).result()


def test_missing_writes_are_assumed_and_said_so(calibrate):
    outcome, profile = calibrate(run_of(*sweep(P5800X)))
    meets(profile["write"], P5800X)
    for number in profile["write"].values():
        assert number["source"].startswith("assumed equal to reads")
    assert len(outcome.json()["assumed"]) == 2
    assert outcome.err.count("forebay: assumed: writes") == 2
    assert outcome.json()["write"]["points"] == []


def test_the_latency_of_writes_is_taken_where_only_it_was_measured(calibrate):
    _, profile = calibrate(run_of(*sweep(P5800X), job(BUFFERED, "4k", 1, rw="randwrite")))
    assert profile["write"]["per_command_ns"]["source"].startswith("assumed equal to reads")
    assert profile["write"]["latency_min_us"]["source"].startswith("median clat of 4.0 KiB writes")
    assert 14 < profile["write"]["latency_min_us"]["value"] <= 15


def test_jobs_that_ran_side_by_side_are_one_measurement(calibrate):
    one, half = sweep(P5800X), []
    for entry in one:
        depth = int(entry["job options"]["iodepth"])
        if depth == 1:
            half.append([entry])
            continue
        iops = entry["read"]["iops"] / 2
        split = copy.deepcopy(entry)
        split["job options"] |= {"iodepth": str(depth // 2), "numjobs": "2"}
        split["read"]["iops"] = iops
        half.append([split, copy.deepcopy(split)])
    apart = {"fio version": "fio-3.33", "jobs": [{**e, "groupid": i} for i, pair in enumerate(half) for e in pair]}
    merged = [
        e if e["job options"]["iodepth"] == "1" else {**e, "job options": {**e["job options"], "numjobs": "4"}}
        for e in one
    ]
    for document, depth in ((apart, 256), (run_of(*merged), 1024)):
        outcome, profile = calibrate(document)
        meets(profile["read"], P5800X)
        assert outcome.json()["read"]["points"][0]["in_flight"] in (depth, depth // 2)


def test_options_shared_by_all_jobs_count(calibrate):
    jobs = [job(P5800X, "512", 1), job(P5800X, "512", 256), job(P5800X, "128k", 256)]
    for entry in jobs[1:]:
        del entry["job options"]["iodepth"]
    for entry in jobs[:1]:
        entry["job options"]["bs"] = "512B"
    _, profile = calibrate(run_of(*jobs, iodepth="256"))
    assert profile["read"]["per_byte_ns"]["value"] == pytest.approx(0.1344, rel=0.01)


def test_what_cannot_be_used_is_said(calibrate):
    mixed = job(P5800X, "4k", 64, rw="randrw")
    mixed["read"] = mixed["write"] = direction(1e9, 1e4, 4096)
    odd = job(P5800X, "4k", 64)
    odd["read"]["io_bytes"] *= 2
    outcome, profile = calibrate(
        run_of(
            *sweep(P5800X),
            mixed,
            odd,
            {**job(P5800X, "4k", 64, rate_iops="1000"), "jobname": "slow"},
            {**job(P5800X, "8k", 2), "jobname": "shallow"},
            {**job(P5800X, "4k", 64), "jobname": "idle", "read": direction()},
        )
    )
    meets(profile["read"], P5800X)
    reasons = {unused["jobs"][0]: unused["reason"] for unused in outcome.json()["unused"]}
    assert "stonewall" in reasons["randrw-4k-64"]
    assert "8192 bytes" in reasons["randread-4k-64"]
    assert "rate_iops" in reasons["slow"]
    assert "iodepth" in reasons["shallow"]
    assert "no I/O" in reasons["idle"]
    assert outcome.err.count("forebay: not used:") == len(reasons)


def test_random_reads_come_before_sequential_ones(calibrate):
    fast = Drive(1.0, 0.01, 512, 6.0)
    _, profile = calibrate(run_of(*sweep(P5800X), *sweep(fast, rw="read")))
    meets(profile["read"], P5800X)


def test_fios_warnings_may_stand_before_the_document(calibrate):
    _, profile = calibrate("fio: {this} job file\nnote: slow\n" + json.dumps(run_of(*sweep(P5800X)), indent=1))
    meets(profile["read"], P5800X)


def test_without_percentiles_the_mean_serves(calibrate):
    document = run_of(*sweep(P5800X))
    for entry in document["jobs"]:
        entry["read"]["clat_ns"].pop("percentile")
    _, profile = calibrate(document)
    meets(profile["read"], P5800X)
    assert profile["read"]["latency_min_us"]["source"].startswith("mean clat")


def broken(key, value):
    document = run_of(*sweep(P5800X))
    entry = document["jobs"][2]
    *path, last = key.split("/")
    for part in path:
        entry = entry[part]
    if value is None:
        del entry[last]
    else:
        entry[last] = value
    return document


def emulated(fidelity):
    """As `forebay bench` writes it: with the report of the drives that were measured."""
    return run_of(*sweep(P5800X)) | {"forebay": {"drives": [{"fidelity": "ok"}, {"fidelity": fidelity}]}}


def test_an_emulated_drive_that_kept_its_times_is_measured_like_any_other(calibrate):
    assert calibrate(emulated("ok"))[0].status == 0


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        ("", ["is not JSON", "--output-format=json"]),
        ("not json", ["is not JSON"]),
        ("[" * 100_000, ["nested more than 64 deep"]),
        ('{"jobs": [', ["is not JSON"]),
        ([1], ["has no jobs"]),
        ({}, ["has no jobs"]),
        ({"jobs": []}, ["has no jobs"]),
        ({"jobs": [1]}, ["has no jobs"]),
        ({"jobs": [{}]}, ["jobs[0].job options", "is missing", "fio 3"]),
        (broken("read", None), ["jobs[2].read.iops", "is missing"]),
        (broken("read/iops", None), ["jobs[2].read.iops", "is missing"]),
        (broken("read/iops", "many"), ["jobs[2].read.iops = many", "must be a number"]),
        (broken("read/iops", float("nan")), ["jobs[2].read.iops = nan", "must be a number"]),
        (broken("read/iops", -1), ["jobs[2].read.iops = -1", "must be a number"]),
        (broken("read/clat_ns", None), ["jobs[2].read.clat_ns.mean", "is missing"]),
        (broken("error", 5), ["jobs[2].error = 5", "randread-512-128", "failed"]),
        (broken("job options/bs", "4X"), ["jobs[2].job options.bs = 4X", "64M"]),
        (broken("job options/bs", "0"), ["jobs[2].job options.bs = 0", "at least 1"]),
        (broken("job options/bs", "9" * 5000), ["jobs[2].job options.bs", "8 EiB"]),
        (broken("job options/iodepth", "9" * 5000), ["jobs[2].job options.iodepth", "whole number"]),
        (broken("job options/iodepth", "-3"), ["jobs[2].job options.iodepth = -3", "whole number"]),
        (run_of(*sweep(P5800X, rw="randwrite")), ["no job that only reads", "rw=randread"]),
        (run_of(*sweep(P5800X)[1:]), ["one read at a time", "iodepth=1"]),
        (run_of(*sweep(P5800X, ("4k",))), ["at only one block size, 4.0 KiB", "128k"]),
        (run_of(job(P5800X, "512", 1), job(P5800X, "128k", 1)), ["at no block size"]),
        (
            run_of(job(P5800X, "512", 1), job(P5800X, "4k", 2), job(P5800X, "8k", 2)),
            ["at no block size", "raise iodepth"],
        ),
        (
            run_of(*sweep(P5800X), *sweep(BUFFERED, ("4k",), rw="randwrite")),
            ["at only one block size", "writes of two sizes"],
        ),
        (emulated("exceeded"), ["missed its times (fidelity: exceeded)", "measure again"]),
    ],
)
def test_refused_with_one_line(calibrate, document, parts):
    outcome, _ = calibrate(document)
    outcome.refused("fio: ", *parts)


@pytest.mark.parametrize(
    ("once", "twice", "parts"),
    [
        ('{"fio version"', '{"jobs": [], "fio version"', ["the key jobs twice", "--output-format=json"]),
        ('"error": 0', '"error": 0, "error": 0', ["jobs[0].error", "twice"]),
        ('"iops"', '"iops": 7, "iops"', ["jobs[0].read.iops", "twice"]),
        ('"50.000000"', '"50.000000": 7, "50.000000"', ["jobs[0].percentile.50.000000", "twice"]),
    ],
)
def test_a_key_that_is_there_twice_is_refused(forebay, tmp_path, once, twice, parts):
    text = json.dumps(run_of(*sweep(P5800X)))
    assert once in text
    (tmp_path / "fio.json").write_text(text.replace(once, twice, 1))
    forebay("drive", "calibrate", tmp_path / "fio.json", "--name", "x", "--output", tmp_path / "x.toml").refused(*parts)


def test_of_an_option_that_is_there_twice_the_last_one_counts_as_in_fio(forebay, tmp_path):
    text = json.dumps(run_of(*sweep(P5800X))).replace('"iodepth"', '"iodepth": "77", "iodepth"')
    (tmp_path / "fio.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    arguments = ("--name", "x", "--output", tmp_path / "x.toml", "--json", "-")
    fit = forebay("drive", "calibrate", tmp_path / "fio.json", *arguments).json()
    assert fit["read"]["per_command_ns"] == pytest.approx(P5800X.per_command_ns, rel=0.01)


def test_jobs_that_shared_the_drive_are_not_taken_for_one_alone(calibrate):
    document = run_of(*sweep(P5800X))
    for entry in document["jobs"]:
        entry["groupid"] = 0
    outcome, _ = calibrate(document)
    outcome.refused("no job that only reads", "stonewall")


def test_arguments_are_refused_before_anything_is_written(forebay, tmp_path):
    source = tmp_path / "fio.json"
    source.write_text(json.dumps(run_of(*sweep(P5800X))))
    out = tmp_path / "x.toml"
    forebay("drive", "calibrate", source).refused("--name")
    forebay("drive", "calibrate", "--name", "x").refused("FIO.json")
    forebay("drive", "calibrate", tmp_path / "no.json", "--name", "x", "--output", out).refused(
        "no.json", "no such file"
    )
    forebay("drive", "calibrate", tmp_path, "--name", "x", "--output", out).refused("is a directory")
    forebay("drive", "calibrate", source, "--name", "x" * 300).refused("--output", "too long")
    forebay("drive", "calibrate", source, "--name", "a/b", "--output", out).refused("--name", "'a/b'")
    forebay("drive", "calibrate", source, "--name", "x", "--output", tmp_path / "x").refused("--output", ".toml")
    forebay("drive", "calibrate", source, "--name", "x", "--output", tmp_path / "a,b.toml").refused("--output", "comma")
    forebay("drive", "calibrate", source, "--name", "x", "--output", tmp_path / "no" / "x.toml").refused("directory")
    assert not out.exists()
    out.write_text("precious")
    forebay("drive", "calibrate", source, "--name", "x", "--output", out).refused("--output", "exists")
    assert out.read_text() == "precious"


def test_names_that_toml_would_not_take(forebay, tmp_path):
    source = tmp_path / 'a"b\\c [d]\x7f\n.json'
    document = run_of(*sweep(P5800X))
    for i, entry in enumerate(document["jobs"]):
        entry["jobname"] = f'j{i} "[red]\\ \x01\x7f\ud800'
    source.write_text(json.dumps(document))
    outcome = forebay("drive", "calibrate", source, "--name", "odd", "--output", tmp_path / "odd.toml")
    assert outcome.status == 0, outcome.err
    profile = tomllib.loads((tmp_path / "odd.toml").read_text())
    assert str(source) in profile["read"]["per_byte_ns"]["source"]
    assert '"[red]\\ \x01\x7f?' in profile["read"]["per_byte_ns"]["source"]
    assert Path(tmp_path / "odd.toml").read_bytes().isascii()


@pytest.mark.parametrize("seed", range(20))
def test_the_line_is_the_best_that_has_no_negative_part(seed):
    random = np.random.default_rng(seed)
    sizes = np.sort(random.choice(np.arange(1, 257) * 512, 4, replace=False)).astype(float)
    costs = random.uniform(1, 1000, 4)  # as often falling with the size as rising
    a, b = fit_line(list(sizes), list(costs))
    assert a >= 0
    assert b >= 0

    def off(a, b):
        return float((((a + b * sizes) / costs - 1) ** 2).sum())

    best = off(a, b)
    for _ in range(200):
        near = max(0.0, a + random.normal() * (a + 1) * 0.05), max(0.0, b + random.normal() * (b + 1e-3) * 0.05)
        assert off(*near) >= best - 1e-9
