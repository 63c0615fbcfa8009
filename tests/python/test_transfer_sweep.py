# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer sweep`: what it varies, refuses, continues and shows."""

import importlib
import json

import pytest
from forebay import transfer
from forebay.cli import main

CPU = ("--device", "cpu")
ONE = ("--mode", "plain", *CPU)
swept = importlib.import_module("forebay.transfer.sweep")


def call(capsys, *arguments, status=0):
    """Runs the command and returns what it printed, on standard output and error."""
    assert main(["transfer", "sweep", *map(str, arguments)]) == status
    return capsys.readouterr()


def document_of(capsys, *arguments, status=0):
    return json.loads(call(capsys, *arguments, "--json", "-", status=status).out)


def never(*_):
    pytest.fail("it ran")


def times(total, kernels=0.25):
    return {"total": total, "allocation": 0.0, "release": 0.0, "kernels": kernels}


@pytest.fixture
def on_gpu(monkeypatch):
    """A GPU whose results are made up: a total of 100 s over the value, and 1 s more in mode standard."""
    monkeypatch.setattr("forebay.cli.transfer.chosen_device", lambda _: ("cuda", 0))
    monkeypatch.setattr("forebay.transfer.runs.gpu_identity", lambda _: {"name": "a GPU", "driver": "1.0"})

    def result(plan, name, work, mode):
        (value,) = set(plan.shape.values())
        found = {"workload": name, "mode": mode, "size": plan.size, "shape": work.shape()}
        if value == 7:
            return {**found, "verified": None, "refused": "not this one"}
        total = 100 / value + (mode == "standard")
        warm = [times(total), times(total * 3), times(total / 2)]
        return {**found, "verified": True, "cold": times(total * 9), "warm": warm, "page_locking_seconds": 0.0}

    monkeypatch.setattr(swept, "run_one", result)


def test_each_value_is_run_in_each_mode_and_verified(capsys):
    modes = ("--mode", "plain", "--mode", "bulk")
    document = document_of(capsys, "--values", "2,8", "--threads", 64, *modes, *CPU)
    assert document["verified"] is True
    assert document["fidelity"] == "untimed"
    assert document["options"]["parameter"] == "blocks"
    assert document["options"]["values"] == [2, 8]
    assert document["options"]["shape"] == {"threads": 64}
    found = [(r["workload"], r["parameter"], r["value"], r["mode"], r["verified"]) for r in document["results"]]
    assert found == [("vector_seq", "blocks", value, mode, True) for value in (2, 8) for mode in ("plain", "bulk")]
    assert [r["shape"]["blocks"] for r in document["results"]] == [2, 2, 8, 8]
    assert all(r["shape"]["threads"] == 64 for r in document["results"])


@pytest.mark.parametrize(
    ("parameter", "values", "shape"),
    [
        ("blocks", (4096, 2048, 1024, 512, 256, 128, 64, 32, 16), {"threads": 256}),
        ("threads", (32, 64, 128, 256, 512, 1024), {"blocks": 256}),
        ("stages", (1, 2, 3, 4, 5, 6, 7, 8), {}),
        # 2 to 128 KiB of shared memory: two tiles of floats
        ("tile", (256, 512, 1024, 2048, 4096, 8192, 16384), {"blocks": 4096, "threads": 256}),
    ],
)
def test_values_and_shape_are_those_of_the_study(parameter, values, shape):
    sweep = transfer.Sweep(transfer.Plan(workloads=("vector_seq",)), parameter)
    sweep.validate()
    assert sweep.values == values
    assert sweep.fixed.shape == shape
    for value in values:
        found = sweep.at(value).workload("vector_seq").shape()
        assert {name: found[name] for name in (*shape, parameter)} == {**shape, parameter: value}


def test_tiles_of_the_study_fill_the_shared_memory_with_any_number_of_stages():
    sweep = transfer.Sweep(transfer.Plan(workloads=("vector_rand",), shape={"stages": 4, "blocks": 9}), "tile")
    sweep.validate()
    assert sweep.values == (128, 256, 512, 1024, 2048, 4096, 8192)
    assert sweep.fixed.shape == {"blocks": 9, "threads": 256, "stages": 4}


def test_the_whole_shape_has_to_fit_not_the_part_without_the_value(capsys):
    # Eight stages of saxpy's own tile do not fit; of this tile they do.
    chosen = ("--workload", "saxpy", "--parameter", "tile", "--stages", 8)
    assert document_of(capsys, *chosen, "--values", "512", *ONE)["verified"] is True


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--values", "16,x"), "--values: 'x': must be whole numbers"),
        (("--values", ""), "--values: '': must be whole numbers"),
        (("--values", "16,,32"), "--values: '': must be whole numbers"),
        (("--values", "-4"), "--values: '-4': must be whole numbers"),
        (("--values", "1e3"), "--values: '1e3': must be whole numbers"),
        (("--values", "0"), "--values: '0': must be a whole number from 1"),
        (("--values", 2**32), "--values: '4294967296': must be a whole number from 1"),
        (("--values", "9" * 5000), "must be whole numbers"),
        (("--values", "16,32,16"), "--values: '16': is there twice"),
        (("--parameter", "block"), "--parameter: 'block': did you mean blocks?"),
        (("--parameter", "threads", "--values", "32,2000"), "--values: '2000': a block has at most 1024 threads"),
        (("--parameter", "stages", "--values", "1,9"), "--values: '9': use 1 to 8"),
        (("--parameter", "tile", "--values", "512,1000"), "--values: '1000': must divide 1048576"),
        (("--parameter", "tile", "--values", "512,32768"), "--values: '32768': 262160 bytes of shared memory with"),
        (("--parameter", "tile", "--tile", 512), "--tile: '512': is what --parameter varies"),
        (("--parameter", "tile", "--workload", "gemm"), "--parameter: 'tile': the tile of gemm counts rows and"),
        (("--parameter", "tile", "--workload", "gemms"), "--workload: 'gemms': did you mean gemm?"),
        (("--parameter", "blocks", "--tile", 3), "--tile: '3': must be a multiple of 4"),
        (("--workload", "vector_sek"), "--workload: 'vector_sek': did you mean vector_seq?"),
        (("--mode", "uvm"), "--mode: 'uvm': did you mean"),
        (("--size", "huge"), "--size: 'huge': did you mean"),
        (("--repetitions", 3), "--repetitions: '3': is for a GPU"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(capsys, monkeypatch, arguments, error):
    monkeypatch.setattr(swept, "run_one", never)
    assert error in call(capsys, *CPU, *arguments, status=2).err


def test_a_sweep_goes_on_where_its_file_stopped(tmp_path, capsys, monkeypatch):
    file = tmp_path / "sweep.json"
    chosen = ("--values", "2,4,8", *ONE, "--json", file)
    call(capsys, *chosen)
    whole = json.loads(file.read_text())
    whole["results"][1]["seconds"] = 12345.0  # to see that it is kept
    file.write_text(json.dumps({**whole, "results": whole["results"][1:]}))  # any part, not the first ones only
    call(capsys, *chosen)
    again = json.loads(file.read_text())
    assert [result["value"] for result in again["results"]] == [4, 8, 2]
    assert again["results"][0]["seconds"] == 12345.0
    monkeypatch.setattr(swept, "run_one", never)
    call(capsys, *chosen)  # all is there


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--values", "2,8"), "has results with values [2, 4], not [2, 8]"),
        (("--values", "2,4", "--parameter", "threads"), "has results with shape {'threads': 256}, not {'blocks': 256}"),
        (("--values", "2,4", "--seed", 3), "has results with seed 1, not 3"),
    ],
)
def test_a_file_of_other_options_is_refused_and_kept(tmp_path, capsys, monkeypatch, arguments, why):
    file = tmp_path / "sweep.json"
    call(capsys, "--values", "2,4", *ONE, "--json", file)
    text = file.read_text()
    monkeypatch.setattr(swept, "run_one", never)
    assert why in call(capsys, *arguments, *ONE, "--json", file, status=2).err
    assert file.read_text() == text


def test_files_of_run_and_sweep_are_not_taken_for_each_other(tmp_path, capsys):
    file = tmp_path / "results.json"
    call(capsys, "--values", "2", *ONE, "--json", file)
    same = ["--workload", "vector_seq", "--threads", "256", *ONE, "--json", str(file)]
    assert main(["transfer", "run", *same]) == 2
    assert "has results with parameter 'blocks', not None" in capsys.readouterr().err
    file.unlink()
    assert main(["transfer", "run", *same]) == 0
    assert (
        "has results with parameter None, not 'blocks'"
        in call(capsys, "--values", "2", *ONE, "--json", file, status=2).err
    )


@pytest.mark.parametrize("value", [None, "2", 2.0, True])
def test_a_file_whose_results_have_no_value_is_refused(tmp_path, capsys, value):
    file = tmp_path / "sweep.json"
    call(capsys, "--values", "2,4", *ONE, "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][0]["value"] = value
    file.write_text(json.dumps(whole))
    assert "has results without value" in call(capsys, "--values", "2,4", *ONE, "--json", file, status=2).err


@pytest.mark.parametrize(
    "broken",
    [
        {"seconds": "1"},
        {"seconds": float("nan")},
        {"seconds": None},
        {"seconds": 10**400},
        {"warm": [{}]},
        {"warm": [3]},
        {"cold": {}},
        {"warm": [{**times(1.0), "total": -1}]},
    ],
)
def test_a_file_whose_times_are_none_is_refused(tmp_path, capsys, broken):
    file = tmp_path / "sweep.json"
    call(capsys, "--values", "2,4", *ONE, "--json", file)
    whole = json.loads(file.read_text())
    first = whole["results"][0]
    if "seconds" not in broken:
        del first["seconds"]
        first |= {"cold": times(1.0), "warm": []}
    first |= broken
    file.write_text(json.dumps(whole))
    assert "is no document of" in call(capsys, "--values", "2,4", *ONE, "--json", file, status=2).err


@pytest.mark.usefixtures("on_gpu")
def test_the_table_compares_totals_with_the_best_of_all_modes(capsys):
    modes = ("--mode", "standard", "--mode", "pm")
    shown = call(capsys, "--parameter", "stages", "--values", "1,2,7,8", *modes).out.splitlines()
    assert shown[0].split()[:4] == ["workload", "mode", "stages", "verified"]
    rows = [line.split() for line in shown[1:]]
    relative = {(row[1], row[2]): row[-1] for row in rows}
    assert relative["pm", "8"] == "1.000"  # 12.5 s, the median of its warm runs
    assert relative["pm", "2"] == "4.000"
    assert relative["standard", "8"] == "1.080"
    assert relative["standard", "1"] == "8.080"
    assert next(row for row in rows if row[2] == "7")[3:] == ["refused", "not", "this", "one"]


@pytest.mark.usefixtures("on_gpu")
def test_on_a_gpu_the_modes_are_those_of_the_study_and_times_count(capsys):
    document = document_of(capsys, "--parameter", "stages", "--values", "2,7")
    assert document["fidelity"] == "ok"
    assert [result["mode"] for result in document["results"]] == 2 * list(transfer.STUDY_MODES)
    assert [result["verified"] for result in document["results"]] == 6 * [True] + 6 * [None]


def test_a_wrong_result_is_a_failure(capsys, monkeypatch):
    def wrong(_plan, name, _work, mode):
        found = {"workload": name, "mode": mode, "size": "tiny", "shape": {}}
        return {**found, "verified": False, "mismatch": "x[3] is 2 instead of 1", "seconds": 1.0}

    monkeypatch.setattr(swept, "run_one", wrong)
    failed = call(capsys, "--values", "2", *ONE, "--json", "-", status=1)
    assert "vector_seq in mode plain gave a wrong result: x[3] is 2 instead of 1" in failed.err
    assert json.loads(failed.out)["verified"] is False


def test_a_wrong_result_stays_while_other_workloads_are_swept(tmp_path, capsys):
    file = tmp_path / "sweep.json"
    call(capsys, "--values", "2,4", *ONE, "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][1] |= {"verified": False, "mismatch": "x[3] is 2 instead of 1"}
    file.write_text(json.dumps(whole))
    other = ("--workload", "saxpy", "--values", "2,4", *ONE)
    assert "vector_seq in mode plain gave a wrong" in call(capsys, *other, "--json", file, status=1).err
    again = json.loads(file.read_text())
    assert again["verified"] is False
    assert [result["verified"] for result in again["results"]] == [True, False, True, True]
    call(capsys, "--values", "2,4", *ONE, "--json", file)
    again = json.loads(file.read_text())
    assert [result["verified"] for result in again["results"]] == [True] * 4


def test_two_results_of_one_value_are_refused(tmp_path, capsys):
    file = tmp_path / "sweep.json"
    call(capsys, "--values", "2,4", *ONE, "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][1]["value"] = 2
    file.write_text(json.dumps(whole))
    assert (
        "has two results of vector_seq plain 2" in call(capsys, "--values", "2,4", *ONE, "--json", file, status=2).err
    )
