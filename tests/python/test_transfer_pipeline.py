# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer pipeline`: what it runs, refuses and continues. The jobs of a GPU are made up here."""

import json

import pytest
from forebay import memory, transfer
from forebay._native import transfer_core
from forebay.cli import main
from forebay.errors import RefusedInput
from forebay.transfer import pipeline

ALL = ["malloc", "pool_threshold_0", "pool_threshold_max", "pool_side_stream", "host_thread", "triple_buffering"]
WITHOUT_POOL = ["malloc", "host_thread", "triple_buffering"]
VECTOR = 2 << 20  # bytes of each vector of saxpy at tiny
SAXPY = ("--workload", "saxpy")


def call(capsys, *arguments, status=0):
    """Runs the command and returns what it printed, on standard output and error."""
    assert main(["transfer", "pipeline", *map(str, arguments)]) == status
    return capsys.readouterr()


class Core:
    """The extension module with jobs of a GPU that take no time; `made` has what they were made of."""

    def __init__(self):
        self.real = transfer_core()
        self.made = []
        self.ran = []
        self.outcomes = {}

    def __getattr__(self, name):
        return getattr(self.real, name)

    def Pipeline(self, workload, **options):  # noqa: N802 (a class of the module)
        self.made.append((workload, options))
        return self

    def run(self, *, arm, repetitions):
        self.ran.append((arm, repetitions))
        outcome = self.outcomes.get(arm, {"mismatch": ""})
        if isinstance(outcome, Exception):
            raise outcome
        seconds = [1.0 + len(self.ran)] * repetitions
        counts = {"verified_jobs": 16, "compared_jobs": 1, "page_locking_seconds": 0.5}
        return {**counts, "seconds": seconds, "allocation_seconds": [0.25] * repetitions, **outcome}


@pytest.fixture
def core(monkeypatch):
    made_up = Core()
    monkeypatch.setattr(pipeline, "transfer_core", lambda: made_up)
    monkeypatch.setattr(pipeline, "gpu_identity", lambda ordinal: {"name": f"GPU {ordinal}", "driver": "13.0"})
    monkeypatch.setattr("forebay.cli.transfer_pipeline.chosen_device", lambda _: ("cuda:1", 1))
    return made_up


def test_every_arm_runs_with_the_same_jobs(capsys, core):
    document = json.loads(call(capsys, *SAXPY, "--json", "-").out)
    assert core.made == [("saxpy", {"size": "tiny", "jobs": 16, "allocation": "malloc", "seed": 1, "ordinal": 1})]
    assert core.ran == [(arm, 30) for arm in ALL]
    assert document["verified"] is True
    assert document["fidelity"] == "ok"
    wanted = {"workload": "saxpy", "size": "tiny", "jobs": 16, "allocation": "malloc", "seed": 1, "repetitions": 30}
    assert (
        document["options"].items()
        >= {**wanted, "device": "cuda:1", "gpu": {"name": "GPU 1", "driver": "13.0"}}.items()
    )
    assert "commit" in document["options"]
    assert [result["arm"] for result in document["results"]] == ALL
    for result in document["results"]:
        assert result["allocation"] == ("pool" if result["arm"].startswith("pool") else "malloc")
        assert (result["workload"], result["size"], result["jobs"]) == ("saxpy", "tiny", 16)
        assert (result["verified"], result["verified_jobs"], result["compared_jobs"]) == (True, 16, 1)
        assert len(result["seconds"]) == len(result["allocation_seconds"]) == 30


def test_chunks_are_of_the_arms_without_a_pool(capsys, core):
    call(capsys, *SAXPY, "--allocation", "chunked", "--jobs", 3, "--seed", 5, "--size", "small", "--repetitions", 2)
    assert core.made == [("saxpy", {"size": "small", "jobs": 3, "allocation": "chunked", "seed": 5, "ordinal": 1})]
    assert core.ran == [(arm, 2) for arm in WITHOUT_POOL]


def test_the_table_compares_with_malloc(capsys, core):
    shown = call(capsys, *SAXPY, "--arm", "malloc", "--arm", "host_thread").out.splitlines()
    assert core.ran == [("malloc", 30), ("host_thread", 30)]
    assert " 2 s " in shown[1]
    assert shown[1].split()[-1] == "1.00x"
    assert " 3 s " in shown[2]
    assert shown[2].split()[-1] == "0.67x"


def test_large_sizes_are_timed_less_often():
    assert [transfer.Pipeline("saxpy", size).chosen_repetitions for size in ("large", "super", "mega")] == [30, 5, 1]


def test_an_arm_that_the_gpu_refuses_does_not_stop_the_others(capsys, core):
    core.outcomes["triple_buffering"] = RefusedInput("--size", "3 sets of buffers", "the GPU has 1 byte free")
    chosen = ("--arm", "triple_buffering", "--arm", "malloc")
    document = json.loads(call(capsys, *SAXPY, *chosen, "--json", "-").out)
    assert document["verified"] is True
    first, second = document["results"]
    assert (first["verified"], second["verified"]) == (None, True)
    assert first["refused"] == "--size: '3 sets of buffers': the GPU has 1 byte free"
    assert "seconds" not in first


def test_a_wrong_result_is_tried_again(tmp_path, capsys, core):
    file = tmp_path / "results.json"
    core.outcomes["host_thread"] = {"mismatch": "job 3: b[7] is 1 instead of 2", "verified_jobs": 3}
    call(capsys, *SAXPY, "--json", file, status=1)
    core.ran.clear()
    core.outcomes.clear()
    call(capsys, *SAXPY, "--json", file)
    assert [arm for arm, _ in core.ran] == ["host_thread"]
    again = json.loads(file.read_text())
    assert again["verified"] is True
    assert sorted(result["arm"] for result in again["results"]) == sorted(ALL)


def test_a_wrong_result_stays_while_other_arms_run(tmp_path, capsys, core):
    file = tmp_path / "results.json"
    core.outcomes["host_thread"] = {"mismatch": "job 3: b[7] is 1 instead of 2"}
    call(capsys, *SAXPY, "--arm", "host_thread", "--json", file, status=1)
    failed = call(capsys, *SAXPY, "--arm", "malloc", "--json", file, status=1)
    assert "saxpy in arm host_thread gave a wrong result" in failed.err
    again = json.loads(file.read_text())
    assert again["verified"] is False
    assert [result["arm"] for result in again["results"]] == ["host_thread", "malloc"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"arm": "host_thread"}, "has two results of host_thread"),
        ({"jobs": 3}, "has a result with jobs 3, where its options have 16"),
        ({"workload": "gemv"}, "has a result with workload 'gemv'"),
        ({"size": "large"}, "has a result with size 'large'"),
        ({"refused": "no"}, "is no document"),
    ],
)
def test_results_that_contradict_themselves_are_refused(tmp_path, capsys, core, change, why):
    file = tmp_path / "results.json"
    call(capsys, *SAXPY, "--arm", "malloc", "--arm", "host_thread", "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][0] |= change
    file.write_text(json.dumps(whole))
    core.ran.clear()
    assert why in call(capsys, *SAXPY, "--json", file, status=2).err
    assert core.ran == []


def test_a_wrong_result_is_a_failure_and_is_not_timed(capsys, core):
    core.outcomes["host_thread"] = {"mismatch": "job 3: b[7] is 1 instead of 2", "verified_jobs": 3, "seconds": []}
    failed = call(capsys, *SAXPY, "--json", "-", status=1)
    assert "saxpy in arm host_thread gave a wrong result: job 3: b[7] is 1 instead of 2" in failed.err
    document = json.loads(failed.out)
    assert document["verified"] is False
    (wrong,) = (result for result in document["results"] if result["verified"] is False)
    assert wrong["verified_jobs"] == 3
    assert "seconds" not in wrong


def test_it_goes_on_where_its_file_stopped(tmp_path, capsys, core):
    file = tmp_path / "results.json"
    call(capsys, *SAXPY, "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][0]["seconds"] = [12345.0]  # to see that it is kept
    file.write_text(json.dumps({**whole, "results": whole["results"][:2]}))
    core.ran.clear()
    call(capsys, *SAXPY, "--json", file)
    assert [arm for arm, _ in core.ran] == ALL[2:]
    again = json.loads(file.read_text())
    assert [result["arm"] for result in again["results"]] == ALL
    assert again["results"][0]["seconds"] == [12345.0]
    core.made.clear()
    call(capsys, *SAXPY, "--json", file)
    assert core.made == []  # nor is memory taken


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--jobs", 4), "has results with jobs 16, not 4"),
        (("--allocation", "chunked"), "has results with allocation 'malloc', not 'chunked'"),
        (("--seed", 2), "has results with seed 1, not 2"),
        (("--repetitions", 4), "has results with repetitions 30, not 4"),
        (("--workload", "gemv"), "has results with workload 'saxpy', not 'gemv'"),
    ],
)
def test_results_of_other_options_are_refused_and_kept(tmp_path, capsys, core, options, why):
    file = tmp_path / "results.json"
    call(capsys, *SAXPY, "--arm", "malloc", "--json", file)
    text = file.read_text()
    core.ran.clear()
    assert why in call(capsys, *SAXPY, *options, "--json", file, status=2).err
    assert core.ran == []
    assert file.read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        {"arm": None},
        {"workload": 3},
        {"allocation": None},
        {"seconds": 1.0},
        {"seconds": []},
        {"seconds": ["soon"]},
        {"seconds": [-1.0]},
        {"allocation_seconds": None},
        {"verified": None},
        {"verified": False},
        {"verified": 1},
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, capsys, core, change):
    file = tmp_path / "results.json"
    call(capsys, *SAXPY, "--arm", "malloc", "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][0] |= change
    file.write_text(json.dumps(whole))
    core.ran.clear()
    assert "is no document" in call(capsys, *SAXPY, "--json", file, status=2).err
    assert core.ran == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--workload", "saxpi"), "--workload: 'saxpi': did you mean saxpy?"),
        ((*SAXPY, "--arm", "malok"), "--arm: 'malok': did you mean malloc?"),
        ((*SAXPY, "--arm", "tripple_buffering"), "--arm: 'tripple_buffering': did you mean triple_buffering?"),
        ((*SAXPY, "--arm", "malloc", "--arm", "malloc"), "--arm: 'malloc': is there twice"),
        ((*SAXPY, "--size", "tinny"), "--size: 'tinny': did you mean tiny?"),
        ((*SAXPY, "--allocation", "pool"), "--allocation: 'pool': did you mean malloc?"),
        (
            (*SAXPY, "--allocation", "chunked", "--arm", "pool_threshold_0"),
            "--arm: 'pool_threshold_0': has a pool; with --allocation chunked give malloc, host_thread, triple_buf",
        ),
        ((*SAXPY, "--jobs", 0), "--jobs: '0': must be a whole number from 1 to 1000"),
        ((*SAXPY, "--jobs", 1001), "--jobs: '1001': must be"),
        ((*SAXPY, "--repetitions", 0), "--repetitions: '0': must be"),
        ((), "--workload"),
    ],
)
def test_bad_input_is_refused_before_anything_is_allocated(capsys, core, arguments, error):
    assert error in call(capsys, *arguments, status=2).err
    assert core.made == []


def test_memory_of_the_host_is_counted_by_arm(capsys, core, monkeypatch):
    plan = transfer.Pipeline("saxpy")
    assert plan.host_bytes("malloc") == 3 * VECTOR  # a, b, and the result in place of b
    assert plan.host_bytes("triple_buffering") == 4 * VECTOR
    assert transfer.Pipeline("saxpy", jobs=1).host_bytes("triple_buffering") == 3 * VECTOR

    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * VECTOR - 1)
    document = json.loads(call(capsys, *SAXPY, "--json", "-").out)
    refused = [result["arm"] for result in document["results"] if result["verified"] is None]
    assert refused == ["triple_buffering"]
    assert "8.0 MiB of memory" in document["results"][-1]["refused"]
    assert [arm for arm, _ in core.ran] == ALL[:-1]

    core.made.clear()
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * VECTOR - 1)
    assert "--size: 'tiny': the host's buffers of saxpy in arm" in call(capsys, *SAXPY, status=2).err
    assert core.made == []


def test_jobs_need_a_gpu(capsys):
    assert "--device: 'cpu': jobs overlap only on a GPU" in call(capsys, *SAXPY, "--device", "cpu", status=2).err
    assert "device: 'cuda:99': " in call(capsys, *SAXPY, "--device", "cuda:99", status=2).err


def test_arms_are_those_of_the_help():
    known = pipeline.arms()
    assert list(known) == ALL
    assert [name for name, facts in known.items() if not facts["is_pool"]] == WITHOUT_POOL
    assert [facts["sets"] for facts in known.values()] == [1, 1, 1, 2, 2, 3]
