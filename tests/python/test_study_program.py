# SPDX-License-Identifier: Apache-2.0
"""The program of a study: its command, the figures in its documents, and its TOML file."""

import json
import sys

import pytest
from forebay import RefusedInput
from forebay.study import Grid, Program, load_plan
from forebay.study.program import NoFigureError

PERCENTILES = {"50.000000": 100, "99.000000": 200, "99.900000": 300}


def side(ios, percentiles=PERCENTILES):
    return {"total_ios": ios, "io_bytes": ios * 512, "clat_ns": {"percentile": percentiles}}


BENCH = {
    "jobs": [{"read": side(100), "write": side(0)}],
    "forebay": {"seconds": 2.0, "fidelity": "ok", "verified": None, "device": "cuda:1"},
}
SLOWER = {name: 10 * value for name, value in PERCENTILES.items()}
REPLAY = {
    "jobs": [{"read": side(30), "write": side(10, SLOWER)}],
    "forebay": {"seconds": 2.0, "fidelity": "exceeded", "verified": True, "open_loop": "late"},
}
GRAPH = {
    "seconds": 3.0,
    "bytes_read": 1024,
    "fidelity": "ok",
    "verified": True,
    "trials": [{"seconds": 4.0, "reads": 2, "clat_ns": {"percentile": PERCENTILES}}],
}
DEMO = {"seconds": 3.0, "reads": 2, "bytes_read": 1024, "fidelity": "ok", "verified": False, "clat_ns": None}
OTHER = {"seconds": 5, "forebay": {"fidelity": "ok"}}


def test_a_run_of_bench_is_the_time_of_an_operation():
    found = Program(["x"]).figures(BENCH)
    assert (found.value, found.seconds, found.reads, found.bytes) == (0.02, 0.02, 1, 512)
    assert found.latency_ns == {"p50": 100, "p99": 200, "p99.9": 300}
    assert (found.fidelity, found.verified, found.on_time, found.device) == ("ok", None, None, "cuda:1")


def test_a_replay_has_the_latency_of_its_slower_side():
    found = Program(["x"]).figures(REPLAY)
    assert (found.seconds, found.latency_ns["p99"], found.fidelity) == (0.05, 2000, "exceeded")
    assert (found.verified, found.on_time) == (True, False)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (GRAPH, (3.0, 2, 1024, "ok", True)),
        (DEMO, (3.0, 2, 1024, "ok", False)),
        (OTHER, (5, None, None, "ok", None)),
        ({"seconds": 5, "fidelity": "perfect"}, (5, None, None, "unknown", None)),
    ],
)
def test_other_documents_are_read_as_they_are(document, expected):
    found = Program(["x"]).figures(document)
    assert (found.value, found.reads, found.bytes, found.fidelity, found.verified) == expected


def test_places_say_where_figures_are():
    program = Program(["x"], value="a.1.rate", value_is="rate", reads="n", bytes="b", fidelity="f")
    found = program.figures({"a": [0, {"rate": 4.0}], "n": 8, "b": 16, "f": "ok"})
    assert (found.value, found.seconds, found.reads, found.bytes, found.fidelity) == (4.0, 0.25, 8, 16, "ok")


@pytest.mark.parametrize(
    ("program", "document", "said"),
    [
        (Program(["x"]), [], "no object"),
        (Program(["x"]), {}, r"no key seconds; say where the value is \(--value\)"),
        (Program(["x"]), {"seconds": 0}, "not above 0"),
        (Program(["x"]), {"seconds": "3"}, "no number"),
        (Program(["x"]), {"seconds": True}, "no number"),
        (Program(["x"], value="a.b"), {"a": {}}, "no a.b: there is no 'b'"),
        (Program(["x"], value="a.1"), {"a": [1]}, "no a.1"),
        (Program(["x"]), {"jobs": [{"read": side(0)}], "forebay": {"seconds": 1.0}}, "nothing completed in its time"),
    ],
)
def test_documents_without_a_figure_are_found(program, document, said):
    with pytest.raises(NoFigureError, match=said):
        program.figures(document)


def test_the_command_gets_the_drive_and_the_settings():
    program = Program([sys.executable, "--drive={drive}", "{n}", "{}", "{other"])
    program.check(Grid(settings={"n": ["1"]}))
    assert program.words("a:b", {"n": "1"}) == [sys.executable, "--drive=a:b", "1", "{}", "{other"]


@pytest.mark.parametrize(
    ("program", "grid", "parts"),
    [
        (Program([]), Grid(), ["command", "empty"]),
        (Program([sys.executable]), Grid(), ["command", "{drive}"]),
        (Program([sys.executable, "{drive}", "{n}"]), Grid(), ["{n}", "nothing sets"]),
        (Program([sys.executable, "{drive}"]), Grid(settings={"n": ["1"]}), ["{n}", "does not use"]),
        (Program(["/no/program", "{drive}"]), Grid(), ["command", "'/no/program'"]),
        (Program([sys.executable, "{drive}"], value_is="speed"), Grid(), ["value_is", "seconds or rate"]),
        (Program([sys.executable, "{drive}"], value="a..b"), Grid(), ["value", "'a..b'"]),
    ],
)
def test_commands_that_cannot_be_right_are_refused(program, grid, parts):
    with pytest.raises(RefusedInput) as refused:
        program.check(grid)
    for part in parts:
        assert part in str(refused.value)


def test_a_file_has_the_program_and_the_grid(tmp_path):
    file = tmp_path / "program.toml"
    file.write_text("""
command = ["./search", "{drive}", "{n}"]
drive = "emulated:size=1M"
value = "result.time"
value_is = "rate"
timeout = "2m"
[grid]
iops = ["1k", 2000]
latency_us = [6.5]
[vary]
n = [1, 2]
""")
    plan = load_plan(file)
    assert plan.program == Program(
        ["./search", "{drive}", "{n}"], value="result.time", value_is="rate", timeout_s=120.0
    )
    assert plan.grid == Grid(["emulated:size=1M"], {"iops": ["1k", "2000"], "latency_us": ["6.5"]}, {"n": ["1", "2"]})


COMMAND = 'command = ["x", "{drive}"]\n'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["command"]),
        ("command = 'x'", ["command", "list of words"]),
        ("command = [", ["is not TOML"]),
        ("\udcff", ["is not TOML"]),
        (COMMAND + "iops = 1", ["the key iops", "grid"]),
        (COMMAND + "value = 3", ["value", "must be a string"]),
        (COMMAND + "drive = 3", ["drive", "URI"]),
        (COMMAND + "timeout = 'soon'", ["timeout", "'soon'"]),
        (COMMAND + "grid = 3", ["grid", "must be a table"]),
        (COMMAND + "[grid]\niops = '1k'", ["grid.iops", "must be a list"]),
        (COMMAND + "[grid]\niops = []", ["grid.iops", "must be a list"]),
        (COMMAND + "[grid]\niops = [true]", ["grid.iops", "must be a list"]),
        (COMMAND + "[grid]\nspeed = [1]", ["grid", "'speed'", "latency_us"]),
    ],
)
def test_files_that_are_not_right_are_refused(tmp_path, text, parts):
    file = tmp_path / "program.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RefusedInput) as refused:
        load_plan(file)
    for part in parts:
        assert part in str(refused.value)


def test_figures_are_json():
    assert json.dumps(vars(Program(["x"]).figures(BENCH)))
