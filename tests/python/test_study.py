# SPDX-License-Identifier: Apache-2.0
"""`forebay study`: the knee of a program whose time is known, of real commands, and what is refused."""

import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from forebay.study import Grid, Plan, Program, study
from forebay.units import format_rate
from processes import started

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = [sys.executable, str(Path(__file__).with_name("study_program.py")), "{drive}"]
# 30,000 reads, and 1.5 s of computation: they meet at 20,000 reads a second.
KNOWN = [*PROGRAM, "--compute", "1.5", "--reads", "30000"]
GRID = ["--iops", "5k,10k,40k,80k"]


def test_four_points_end_with_a_verdict_and_the_knee_of_the_program(forebay, tmp_path):
    outcome = forebay("study", *GRID, "--json", tmp_path / "s.json", "--", *KNOWN)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines()[-1] == "study: PASS"
    assert "knee: IOPS 20k;" in outcome.out
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["schema_version"] == 1
    assert document["knee"]["iops"]["value"] == pytest.approx(20_000, rel=0.1)
    assert document["knee"]["iops"]["next_bound"] == "compute"
    assert document["model"]["terms"]["iops"]["coefficient"] == pytest.approx(30_000)
    assert [point["fidelity"] for point in document["points"]] == ["ok"] * 4
    assert [point["value"] for point in document["points"]] == [6.0, 3.0, 1.5, 1.5]
    assert document["points"][0]["drive"] == "emulated:size=64M,iops=5k"
    assert document["advice"]["suffices"]["drive"] == "emulated:size=64M,iops=40k"
    assert document["advice"]["next"]["gain"] == 1.0
    assert (document["verified"], document["fidelity"]) == (True, "ok")


def test_a_real_drive_of_the_emulator_has_the_knee_of_littles_law(forebay):
    # 64 reads in flight, each of 50 ms: 1,280 a second. Such slow drives keep their times on a busy machine too.
    command = shlex.split("forebay bench randread --drive {drive} --iodepth 64 --size 256k --device cpu --json -")
    drive = "emulated:size=1M,latency_us=50000"
    outcome = forebay("study", "--drive", drive, "--iops", "500,1000,2000,4000", "--attempts", 5, "--", *command)
    assert outcome.status == 0, outcome.out + outcome.err
    assert outcome.out.splitlines()[-1] == "study: PASS"
    knee = re.search(r"knee: IOPS ([0-9.]+)k;", outcome.out)
    assert float(knee[1]) * 1000 == pytest.approx(1280, rel=0.1)


def test_bounds_of_latency_and_link_have_knees_too():
    command = [*KNOWN, "--bytes", "3e9", "--chain", "1000"]
    axes = {"iops": ["5k", "10k", "80k"], "latency_us": ["100", "6000"], "link": ["gen3x4", "gen6x16"]}
    axes["link"].insert(0, "gen3x8")
    found = study(Plan(Program([*command, "--chain", "1000"]), Grid(axes=axes)))
    knee = found.document()["knee"]
    assert found.verified
    assert knee["latency_us"]["value"] == pytest.approx(1500)
    assert knee["iops"]["value"] == pytest.approx(20_000)
    assert knee["link_bytes_per_second"]["value"] is None  # 3 GB take 0.8 s at most
    assert knee["link_bytes_per_second"]["at_most"] == pytest.approx(3.938e9, rel=1e-3)


def test_a_drive_that_does_not_keep_its_times_fails_the_study(forebay, tmp_path):
    log = tmp_path / "log"
    outcome = forebay(
        "study", *GRID, "--attempts", 2, "--json", tmp_path / "s.json", "--", *KNOWN, "--log", log, "--exceeded", 2
    )
    assert outcome.status == 1
    assert outcome.out.splitlines()[-1] == "study: FAIL"
    assert "4 of 4 points say nothing of their drive: emulated:size=64M,iops=5k: the drive did not keep" in outcome.err
    document = json.loads((tmp_path / "s.json").read_text())
    assert (document["fidelity"], document["model"], document["knee"]) == ("exceeded", None, None)
    assert [point["attempts"] for point in document["points"]] == [2] * 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["fidelity=null"], "does not say its fidelity"),
        (["verified=false"], "its result is wrong"),
        (["seconds=0"], "the value 0, which is not above 0"),
        (["--no-option"], "exit status 2: "),
    ],
)
def test_a_point_that_says_nothing_fails_the_study(forebay, more, said):
    outcome = forebay("study", "--iops", "5k", "--", *KNOWN, *more)
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


def test_a_study_goes_on_where_it_ended(forebay, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "out"
    command = ["--out", folder, "--", *KNOWN, "--log", log]
    assert forebay("study", "--iops", "5k,10k", *command).status == 0
    outcome = forebay("study", "--iops", "5k,10k,40k,80k", *command)
    assert outcome.status == 0
    runs = [uri.partition("iops=")[2] for uri in log.read_text().splitlines()]
    assert runs == ["5k", "10k", "40k", "80k"]
    assert "kept: 2 of 4 points" in outcome.out
    assert json.loads((folder / "study.json").read_text())["knee"]["iops"]["value"] == pytest.approx(20_000)


def test_an_interrupted_study_keeps_what_it_has(tmp_path):
    log = tmp_path / "log"
    script = (
        f"""echo $0 >>{log}; case $0 in *iops=1k) tail -f /dev/null;; esac; echo '{{"seconds": 2, "fidelity": "ok"}}'"""
    )
    command = [sys.executable, "-m", "forebay", "study", "--out", tmp_path / "out", "--iops", "5k,1k"]
    with started([*command, "--", "bash", "-c", script, "{drive}"]) as run:
        while not log.exists() or log.read_text().count("\n") < 2:
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out, err) == (130, "", "forebay: interrupted\n")
    assert len(list((tmp_path / "out" / "points").iterdir())) == 1


def test_the_page_holds_all_that_it_shows(forebay, tmp_path):
    folder = tmp_path / "out"
    assert forebay("study", *GRID, "--out", folder, "--", *KNOWN, 'note="<b>"').status == 0
    page = (folder / "study.html").read_text()
    assert "study: PASS" in page
    assert "data:image/png;base64," in page
    assert "<b>" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:)|<script|@import|url\(", page)
    assert page.count("<tr>") == 5
    assert (folder / "study.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_names_the_program_and_options_change_it(forebay, tmp_path):
    file = tmp_path / "program.toml"
    file.write_text(f"command = {json.dumps(KNOWN)}\n[grid]\niops = ['5k', '10k']\n")
    document = forebay("study", file, "--json", "-").json()
    assert [point["iops"] for point in document["points"]] == [5000, 10_000]
    document = forebay("study", file, "--iops", "40k", "--latency-us", "5", "--json", "-").json()
    assert [(point["iops"], point["latency_us"]) for point in document["points"]] == [(40_000, 5)]


def test_settings_of_the_program_are_varied(forebay):
    command = [*PROGRAM, "--compute", "1", "--reads", "{reads}"]
    outcome = forebay("study", *GRID, "--vary", "reads=10000,40000", "--json", "-", "--", *command)
    curves = outcome.json()["curves"]
    assert [curve["settings"] for curve in curves] == [{"reads": "10000"}, {"reads": "40000"}]
    assert [curve["knee"]["iops"]["value"] for curve in curves] == [pytest.approx(10_000), pytest.approx(40_000)]
    assert outcome.json()["knee"] is None


def test_bench_is_studied_over_its_depth(forebay, tmp_path):
    drive = "emulated:size=1M,latency_us=50000,iops=640"
    outcome = forebay(
        "study", "--bench", "randread", "--drive", drive, "--iodepth", "8,64,128", "--runtime", "300ms",
        "--device", "cpu", "--attempts", 5, "--out", tmp_path / "out", "--json", tmp_path / "s.json",
    )  # fmt: skip
    assert outcome.status == 0, outcome.out + outcome.err
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["knee"]["iodepth"]["value"] == pytest.approx(32, rel=0.1)  # 640 a second, each of 50 ms
    assert [point["settings"]["iodepth"] for point in document["points"]] == ["8", "64", "128"]
    assert document["points"][0]["latency_ns"]["p50"] == pytest.approx(50e6, rel=0.1)


TRACE = "".join(f"{10_000 * at},host,0,Read,{4096 * (at * 7 % 50)},4096,1\n" for at in range(64))


def test_a_trace_names_the_least_drive_that_meets_a_p99(forebay, tmp_path):
    trace, drive = tmp_path / "trace.csv", "emulated:size=1M,latency_us=50000"
    trace.write_text(TRACE)
    options = ["--iodepth", "32", "--device", "cpu", "--attempts", 5, "--out", tmp_path / "out", "--json", "-"]
    command = ["study", "--trace", trace, "--drive", drive, "--iops", "320,1200", *options]
    outcome = forebay(*command, "--p99-us", "80000")
    document = outcome.json()
    assert outcome.status == 0
    assert [point["fidelity"] for point in document["points"]] == ["ok"] * 2
    assert document["trace"] == str(trace)
    assert document["meets_p99"] == f"{drive},iops=1200"
    outcome = forebay(*command, "--p99-us", "1")
    assert (outcome.status, outcome.json()["meets_p99"]) == (1, None)
    assert outcome.err == "forebay: no drive of the grid has a p99 of at most 1 us\n"


def test_the_tax_is_measured_or_said_why_not(forebay, monkeypatch):
    monkeypatch.setattr("forebay.study.tax.RUNS", 1)
    command = shlex.split("forebay bench randread --drive {drive} --iodepth 8 --size 16k --device cpu --json -")
    drive = "emulated:size=1M,latency_us=20000,iops=1000"
    document = forebay("study", "--drive", drive, "--attempts", 5, "--tax", "--json", "-", "--", *command).json()
    variants = {variant["name"]: variant for variant in document["tax"]["variants"]}
    assert list(variants) == ["as_studied", "served", "beside_idle", "peer"]
    for name in ("as_studied", "served", "beside_idle"):
        assert variants[name]["error"] is None
        assert variants[name]["seconds"] > 0
    assert variants["as_studied"]["tax"] is None
    for name in ("served", "beside_idle"):
        kept = variants["as_studied"]["fidelity"] == variants[name]["fidelity"] == "ok"
        assert (variants[name]["tax"] is not None) == kept
    assert variants["served"]["drive"].endswith(",residency=served")


def test_the_pages_quote_the_study_of_the_demo():
    document = json.loads((ROOT / "bench/results/cpu-study-bfs/study.json").read_text())
    assert (document["verified"], document["fidelity"]) == (True, "ok")
    knee = f"{format_rate(document['knee']['iops']['value'])} IOPS"
    suffices = next(point for point in document["points"] if point["drive"] == document["advice"]["suffices"]["drive"])
    faster = [point["seconds"] for point in document["points"] if point["iops"] > suffices["iops"]]
    assert all(abs(seconds / suffices["seconds"] - 1) < 0.02 for seconds in faster)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"knee is at {knee}. The drive of {suffices['iops']:,.0f} IOPS suffices: faster ones" in readme
    page = (ROOT / "docs/how-to/which-drive.md").read_text()
    assert f"knee: IOPS {knee.split()[0]};" in page
    assert f"suffices: {suffices['drive']}," in page


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["COMMAND", "--bench"]),
        (["--iops", "1k", "--", "true"], ["command", "{drive}"]),
        (["--iops", "fast", "--", "true", "{drive}"], ["--iops", "'fast'"]),
        (["--iops", "1k,,2k", "--", "true", "{drive}"], ["--iops", "empty"]),
        (["--link", "gen9x4", "--", "true", "{drive}"], ["--link", "gen6x4"]),
        (["--latency-us", "soon", "--", "true", "{drive}"], ["--latency-us", "'soon'"]),
        (["--profile", "none-such", "--", "true", "{drive}"], ["profile", "none-such"]),
        (["--drive", "emulated:size=1M,iosp=3", "--", "true", "{drive}"], ["iosp", "iops"]),
        (["--vary", "n", "--", "true", "{drive}"], ["--vary", "'n'", "NAME="]),
        (["--vary", "n=1", "--", "true", "{drive}"], ["{n}", "does not use"]),
        (["--", "true", "{drive}", "{n}"], ["{n}", "nothing sets"]),
        (["--", "/no/such/program", "{drive}"], ["command", "'/no/such/program'"]),
        (["--value-is", "speed", "--", "true", "{drive}"], ["--value-is", "'speed'"]),
        (["--timeout", "0", "--", "true", "{drive}"], ["--timeout", "'0'", "more than 0"]),
        (["--repeat", "0", "--", "true", "{drive}"], ["--repeat", "'0'"]),
        (["--attempts", "x", "--", "true", "{drive}"], ["--attempts", "'x'", "whole number"]),
        (["--tolerance", "1", "--", "true", "{drive}"], ["--tolerance", "'1.0'"]),
        (["--p99-us", "0", "--", "true", "{drive}"], ["--p99-us", "'0.0'"]),
        (["--iodepth", "2", "--", "true", "{drive}"], ["--iodepth", "--bench"]),
        (["--mode", "open", "--", "true", "{drive}"], ["--mode", "--trace"]),
        (["--device", "cpu", "--", "true", "{drive}"], ["--device", "COMMAND"]),
        (["--bench", "randread", "--", "true", "{drive}"], ["--bench", "COMMAND"]),
        (["--bench", "seek"], ["--bench", "'seek'", "randread"]),
        (["--bench", "randread", "--iodepth", "1,many"], ["--iodepth", "'many'"]),
        (["--bench", "randread", "--bs", "none"], ["--bs", "'none'"]),
        (["--bench", "randread", "--runtime", "0"], ["--runtime", "'0'"]),
        (["--trace", "/no/trace"], ["/no/trace", "no such file"]),
        (["/no/program.toml"], ["program", "no such file"]),
    ],
)
def test_bad_input_is_refused_before_anything_runs(forebay, arguments, parts):
    forebay("study", *arguments).refused(*parts)
