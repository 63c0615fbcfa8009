# SPDX-License-Identifier: Apache-2.0
"""What reads the results of the benchmarks of emulated drives: the table of what is asked, and plots."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "emulator"


def module(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(specification)
    sys.modules[name] = loaded
    specification.loader.exec_module(loaded)
    return loaded


done_when = module("done_when")
beside = module("beside")
plot = module("plot")


def case(
    group: str, name: str, miops: float, *, residency: str = "served", mean_us: float = 50, **more: object
) -> dict:
    """A case as the benchmark writes it."""
    latency = {"min": 49.5, "mean": mean_us, "p50": mean_us, "p99": 60.0, "p99.9": 61.0, "max": 62.0}
    run = {"iops": miops * 1e6, "latency_us": latency}
    found = {
        "group": group,
        "name": name,
        "residency": residency,
        "client_threads": 100,
        "runs": [run] * 5,
        "median": 2,
        "right": True,
        "report": {
            "timing": {"read": {"latency_min_us": 50.0}},
            "lateness": {"p50_ns": 200, "p99.9_ns": 900, "max_ns": 4000},
            "poll_gap": {"max_ns": 700},
            "fidelity": "ok",
        },
    }
    found.update(more)
    if "expected_iops" in found:
        found["of_expected"] = miops * 1e6 / found["expected_iops"]
    return found


def write(path: Path, cases: list[dict]) -> Path:
    path.write_text(json.dumps({"benchmark": "emulated_drive", "machine": {"device": "a GPU"}, "results": cases}))
    return path


def lines_of(tmp_path: Path, *cases: dict) -> dict[str, "done_when.Line"]:
    results = done_when.load([write(tmp_path / "results.json", list(cases))])
    return {line.what: line for line in done_when.lines(results)}


@pytest.mark.parametrize(("miops", "ok"), [(480.0, True), (479.9, False)])
def test_a_rate_is_at_least_what_is_asked(tmp_path, miops, ok):
    line = lines_of(tmp_path, case("unthrottled", "reads 512 B, 32 SMs", miops))[
        "unthrottled: reads 512 B, 32 SMs, served"
    ]
    assert line.ok is ok


def test_what_was_not_measured_is_said(tmp_path):
    lines = lines_of(tmp_path, case("unthrottled", "reads 512 B, 32 SMs", 500.0))
    assert lines["unthrottled: reads 512 B, 64 SMs, served"].ok is None
    assert "not measured" in done_when.table(list(lines.values()))


@pytest.mark.parametrize(("rate", "ok"), [(39.6, True), (39.59, False)])
def test_targets_and_their_lateness(tmp_path, rate, ok):
    lines = lines_of(tmp_path, case("target", "40 MIOPS, 50 us", rate, expected_iops=40e6))
    assert lines["target: 40 MIOPS, 50 us, served"].ok is ok
    assert lines["lateness at 40 MIOPS, 50 us, served"].ok is True


def test_what_each_technique_of_the_frontend_is_worth(tmp_path):
    lines = lines_of(tmp_path, case("frontend", "all three", 900.0), case("frontend", "not coalesced", 30.0))
    line = lines["frontend: not coalesced, served"]
    assert line.ok is True
    assert "1/30.0" in line.measured


def test_late_completions_are_found(tmp_path):
    late = case("target", "100 MIOPS, 50 us", 100.0, expected_iops=100e6)
    late["report"]["lateness"]["p99.9_ns"] = 5001
    assert lines_of(tmp_path, late)["lateness at 100 MIOPS, 50 us, served"].ok is False


@pytest.mark.parametrize(
    ("before", "past", "ok"), [(1.009, 1.009, [True, True]), (0.98, 1.0, [False, True]), (1.0, 1.02, [True, False])]
)
def test_the_sweep_has_two_sides(tmp_path, before, past, ok):
    def point(threads: int, expected_us: float, off: float) -> dict:
        expected = min(40.0, threads / 50)
        return case(
            "sweep",
            f"40 MIOPS, {threads} threads",
            expected,
            mean_us=expected_us * off,
            expected_iops=expected * 1e6,
            expected_latency_us=expected_us,
        )

    lines = lines_of(tmp_path, point(500, 50, before), point(4000, 100, past))
    sides = ("before the knee", "past the knee")
    assert [lines[f"sweep: 40 MIOPS, {side}, served"].ok for side in sides] == ok


@pytest.mark.parametrize(("least", "ok"), [(49.31, True), (49.29, False)])
def test_no_completion_is_earlier_than_the_poll_gap_allows(tmp_path, least, ok):
    early = case("light", "64 threads, 64 warps", 1.2)
    early["runs"][0]["latency_us"]["min"] = least
    lines = lines_of(tmp_path, early)
    assert lines["earliest completion (light: 64 threads, 64 warps, served)"].ok is ok


def test_wrong_data_and_silent_overload_are_found(tmp_path):
    lines = lines_of(tmp_path, case("overload", "2 GIOPS asked of 4 SMs", 90.0, right=False))
    assert lines["overload: 2 GIOPS asked of 4 SMs, served"].ok is False
    assert lines["data of all cases"].ok is False


def test_a_broken_file_takes_no_other_along(tmp_path, capsys):
    (tmp_path / "broken.json").write_text('{"benchmark": ')
    good = write(tmp_path / "good.json", [case("light", "64 threads, 64 warps", 1.2)])
    assert done_when.load([tmp_path / "broken.json", good]).cases
    assert "broken.json" in capsys.readouterr().err


def test_programs_beside_a_drive_in_proportion_to_those_alone():
    rates = {"gemm": [4e14, 5e14, 6e14, 5e14, 5e14], "add": [2e12] * 5}
    alone = beside.result("nothing", rates, None, None)
    assert "of_alone" not in alone["gemm"]
    half = {name: [value / 2 for value in values] for name, values in rates.items()}
    row = beside.result("a drive", half, alone, {"iops": 40e6})
    assert row["gemm"]["of_alone"] == row["add"]["of_alone"] == 0.5
    cells = beside.table([alone, row]).splitlines()[2].split()
    assert cells[-7:] == ["250.0", "50.0", "%", "1000.0", "50.0", "%", "40.00"]


FAKE_TORCH = """
bfloat16 = "bfloat16"
__version__ = "0"
class Tensor:
    def element_size(self): return 4
def randn(*shape, device=None, dtype=None): return Tensor()
def empty_like(other): return Tensor()
def matmul(a, b, out=None): return out
def add(a, b, out=None): return out
class Event:
    def __init__(self, enable_timing): pass
    def record(self): pass
    def elapsed_time(self, other): return 100.0
class cuda:
    Event = Event
    @staticmethod
    def synchronize(): pass
    @staticmethod
    def get_device_name(ordinal): return "a GPU"
"""

FAKE_BENCH = """
import json, os, sys
if "--list" in sys.argv:
    for name in ("40 MIOPS, 50 us", "100 MIOPS, 50 us"):
        print("target", name, "emulated:size=1G,sms=32,queues=512", sep="\\t")
elif "--multiprocessors" in sys.argv:
    print(132)
elif "--serve" in sys.argv:
    print("ready", flush=True)
    sys.stdin.read()
elif "--load" in sys.argv:
    assert os.environ["FOREBAY_DAEMON"] and os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "75"
    print("running", flush=True)
    sys.stdin.read()
    print(json.dumps({"iops": 40e6}))
"""


def test_programs_are_measured_beside_processes_that_come_and_go(tmp_path, monkeypatch, capsys):
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    (tmp_path / "bench.py").write_text(FAKE_BENCH)
    bench = tmp_path / "bench"
    bench.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/bench.py "$@"\n')
    bench.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["beside.py", str(bench), "--json", str(tmp_path / "beside.json")])
    beside.main()
    document = json.loads((tmp_path / "beside.json").read_text())
    assert document["machine"]["multiprocessors"] == 132
    assert [("drive" in row, row["beside"]) for row in document["results"]] == [
        (False, "nothing, all of the GPU"),
        (False, "nothing, 75 % of the GPU"),
        (False, "an idle drive of 32 SMs"),
        (True, "a drive at 40 MIOPS, 50 us"),
        (True, "a drive at 100 MIOPS, 50 us"),
    ]
    assert all(row["gemm"]["of_alone"] == row["add"]["of_alone"] == 1 for row in document["results"][2:])
    assert "40.00" in capsys.readouterr().out


def test_the_multiprocessors_of_a_drive():
    assert beside.sms_of("emulated:size=1G,backing=hbm,sms=32,queues=512") == 32


def test_plots(tmp_path, monkeypatch):
    results = write(
        tmp_path / "results.json",
        [
            case("unthrottled", "reads 512 B, 32 SMs", 480.0),
            case("target", "40 MIOPS, 50 us", 40.0, expected_iops=40e6),
            case("sweep", "40 MIOPS, 500 threads", 10.0, expected_iops=10e6, expected_latency_us=50.0),
        ],
    )
    programs = tmp_path / "beside.json"
    rates = {"gemm": [1.0] * 5, "add": [1.0] * 5}
    alone = beside.result("nothing", rates, None, None)
    programs.write_text(
        json.dumps(
            {
                "benchmark": "beside",
                "machine": {"device": "a GPU"},
                "results": [alone, beside.result("a drive", rates, alone, {"iops": 1.0})],
            }
        )
    )
    monkeypatch.setattr(sys, "argv", ["plot.py", str(results), str(programs), "--out", str(tmp_path / "plots")])
    plot.main()
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "beside.png",
        "sweep-served.png",
        "targets-served.png",
        "unthrottled-served.png",
    }
