# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer`: what it lists, runs, refuses and continues, on the CPU executor."""

import json
from types import SimpleNamespace

import pytest
from forebay import memory, transfer
from forebay._native import transfer_core
from forebay.cli import main
from forebay.errors import RefusedInput
from forebay.files import replacing
from forebay.transfer import runs, tracing

CPU = ("--device", "cpu")


def call(capsys, *arguments, status=0):
    """Runs the command and returns what it printed, on standard output and error."""
    assert main(["transfer", *map(str, arguments)]) == status
    return capsys.readouterr()


def results_of(capsys, *arguments, status=0):
    return json.loads(call(capsys, "run", *CPU, *arguments, "--json", "-", status=status).out)


def test_list_names_each_workload_with_its_sizes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = json.loads(call(capsys, "list", "--json", "-").out)
    assert [work["name"] for work in listed["workloads"]] == transfer.names()
    for work in listed["workloads"]:
        assert list(work["sizes"]) == ["tiny", "small", "medium", "large", "super", "mega"]
        sizes = [size["bytes"] for size in work["sizes"].values()]
        assert sizes == sorted(sizes)
        assert all(sum(b["bytes"] for b in size["buffers"]) == size["bytes"] for size in work["sizes"].values())
    shown = call(capsys, "list").out
    assert all(name in shown for name in transfer.names())
    assert "…" not in shown  # nothing is cut off
    assert "mode pm_async: pinned/malloc/async4" in shown


def test_run_verifies_every_workload_under_every_policy(capsys):
    document = results_of(capsys, "--size", "tiny")
    assert document["verified"] is True
    assert document["fidelity"] == "untimed"  # times of the CPU executor say nothing
    found = [(result["workload"], result["mode"]) for result in document["results"]]
    assert found == [(name, mode) for name in transfer.names() for mode in ("plain", "async4", "async16", "bulk")]
    for result in document["results"]:
        assert result["verified"] is True, result
        assert result["seconds"] > 0


def test_run_takes_shapes_and_repeats_for_a_seed(capsys):
    chosen = ("--workload", "saxpy", "--mode", "async4", "--blocks", 5, "--threads", 64, "--tile", 1024, "--stages", 4)
    document = results_of(capsys, *chosen, "--seed", 9)
    assert document["results"][0]["shape"] == {"blocks": 5, "threads": 64, "tile": 1024, "stages": 4}
    assert document["options"]["seed"] == 9


def test_run_goes_on_where_its_file_stopped(tmp_path, capsys):
    file = tmp_path / "results.json"
    chosen = ("--workload", "saxpy", "--workload", "gemv", *CPU)
    call(capsys, "run", *chosen, "--json", file)
    whole = json.loads(file.read_text())
    first = whole["results"][0]
    first["seconds"] = 12345.0  # to see that it is kept
    file.write_text(json.dumps({**whole, "results": whole["results"][:3]}))
    call(capsys, "run", *chosen, "--json", file)
    again = json.loads(file.read_text())
    same = [(result["workload"], result["mode"]) for result in whole["results"]]
    assert [(result["workload"], result["mode"]) for result in again["results"]] == same
    assert again["results"][0]["seconds"] == 12345.0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--workload", "saxpi"), "--workload: 'saxpi': did you mean saxpy?"),
        (("--mode", "asynk4"), "--mode: 'asynk4': did you mean async4?"),
        (("--mode", "pm"), "--mode: 'pm': "),
        (("--workload", "saxpy", "--workload", "saxpy"), "--workload: 'saxpy': is there twice"),
        (("--mode", "bulk", "--mode", "bulk"), "--mode: 'bulk': is there twice"),
        (("--size", "tinny"), "--size: 'tinny': did you mean tiny?"),
        (("--workload", "saxpy", "--tile", 3), "--tile: '3': must be a multiple of 4"),
        (("--workload", "saxpy", "--tile", 1 << 17), "--tile: "),
        (("--workload", "saxpy", "--tile", 8192, "--stages", 8), "--tile: "),
        (("--threads", 2000), "--threads: '2000': a block has at most 1024 threads"),
        (("--stages", 9), "--stages: '9': use 1 to 8"),
        (("--stages", -1), "--stages: '-1': must be a whole number"),
        (("--tile", 0), "--tile: '0': must be a whole number"),
        (("--repetitions", 3), "--repetitions: '3': is for a GPU"),
        (("--trace",), "--trace: 'True': is for a GPU"),
        (("--no-trace",), "--no-trace: 'False': is for a GPU"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(capsys, monkeypatch, arguments, error):
    monkeypatch.setattr(transfer, "run", lambda *_: pytest.fail("it ran"))
    assert error in call(capsys, "run", *CPU, *arguments, status=2).err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "is no document of `forebay transfer`"),
        ("no JSON", "is not JSON"),
        pytest.param("[" * 200_000, "is nested more than 64 deep", id="deep"),
        pytest.param(" " * (16 << 20) + "{}", "is larger than 16.0 MiB, the limit", id="large"),
        ("[]", "is no document of `forebay transfer`"),
        ('{"options": [], "results": 3}', "is no document of `forebay transfer`"),
        ('{"options": {}, "results": [3]}', "is no document of `forebay transfer`"),
        (
            '{"options": {}, "results": [{"workload": "a", "mode": "b", "size": "c", "verified": []}]}',
            "is no document of `forebay transfer`",
        ),
        ('{"options": {"size": "small"}, "results": []}', "has results with size 'small', not 'tiny'"),
    ],
)
def test_a_file_of_other_options_is_refused_and_kept(tmp_path, capsys, text, why):
    file = tmp_path / "results.json"
    file.write_text(text)
    assert why in call(capsys, "run", "--workload", "saxpy", *CPU, "--json", file, status=2).err
    assert file.read_text() == text


def test_results_stay_whole_while_new_ones_are_written(tmp_path):
    file = tmp_path / "results.json"
    file.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(file)

    def interrupted():
        with replacing("--json", link) as part:
            part.write(b"ne")
            part.flush()
            assert file.read_text() == "old"  # what a killed process leaves
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    with replacing("--json", link) as part:
        part.write(b"new")
    assert file.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_file_that_is_no_text_is_refused(tmp_path, capsys):
    file = tmp_path / "results.json"
    file.write_bytes(bytes(range(256)))
    assert "is not JSON" in call(capsys, "run", "--workload", "saxpy", *CPU, "--json", file, status=2).err


def test_an_empty_file_has_no_results(tmp_path, capsys):
    file = tmp_path / "results.json"
    file.touch()
    call(capsys, "run", "--workload", "saxpy", "--mode", "plain", *CPU, "--json", file)
    assert len(json.loads(file.read_text())["results"]) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"refused": "no"}, "is no document of"),
        ({"verified": False, "mismatch": "x", "refused": "no"}, "is no document of"),
        ({"warm": []}, "is no document of"),
        ({"cold": {}}, "is no document of"),
        ({"size": "small"}, "has a result with size 'small', where its options have 'tiny'"),
        ({"mode": "bulk"}, "has two results of saxpy bulk"),
    ],
)
def test_results_that_contradict_themselves_are_refused(tmp_path, capsys, change, why):
    file = tmp_path / "results.json"
    chosen = ("--workload", "saxpy", "--mode", "plain", "--mode", "bulk", *CPU, "--json", file)
    call(capsys, "run", *chosen)
    whole = json.loads(file.read_text())
    whole["results"][0] |= change
    file.write_text(json.dumps(whole))
    assert why in call(capsys, "run", *chosen, status=2).err
    assert json.loads(file.read_text()) == whole


def test_results_go_to_a_device_which_has_none(capsys):
    failed = call(capsys, "run", "--workload", "saxpy", "--mode", "plain", *CPU, "--json", "/dev/full", status=1)
    assert "No space left on device" in failed.err


def test_what_needs_more_memory_than_there_is_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 << 20)
    monkeypatch.setattr(transfer, "run", lambda *_: pytest.fail("it ran"))
    error = call(capsys, "run", "--workload", "saxpy", *CPU, status=2).err  # 4 MiB
    assert "--size: 'tiny': the buffers of saxpy need 4.0 MiB of memory, and 3.0 MiB are available" in error


def test_results_of_another_build_are_not_continued(tmp_path, capsys):
    file = tmp_path / "results.json"
    chosen = ("--workload", "saxpy", "--mode", "plain", *CPU, "--json", file)
    call(capsys, "run", *chosen)
    whole = json.loads(file.read_text())
    whole["options"]["commit"] = "another"
    file.write_text(json.dumps(whole))
    assert "has results with commit 'another'" in call(capsys, "run", *chosen, status=2).err


def test_a_wrong_result_in_a_file_is_tried_again(tmp_path, capsys):
    file = tmp_path / "results.json"
    chosen = ("--workload", "saxpy", "--mode", "plain", "--mode", "bulk", *CPU, "--json", file)
    call(capsys, "run", *chosen)
    whole = json.loads(file.read_text())
    whole["results"][0] |= {"verified": False, "mismatch": "b[3] is 2 instead of 1", "seconds": 12345.0}
    whole["results"][1]["seconds"] = 54321.0  # to see that it is kept
    file.write_text(json.dumps({**whole, "verified": False}))
    call(capsys, "run", *chosen)
    again = json.loads(file.read_text())
    assert again["verified"] is True
    found = {result["mode"]: result for result in again["results"]}
    assert len(again["results"]) == len(found) == 2
    assert found["plain"]["verified"] is True
    assert found["plain"]["seconds"] != 12345.0
    assert found["bulk"]["seconds"] == 54321.0


def test_a_wrong_result_stays_while_other_things_run(tmp_path, capsys):
    file = tmp_path / "results.json"
    call(capsys, "run", "--workload", "saxpy", "--mode", "plain", *CPU, "--json", file)
    whole = json.loads(file.read_text())
    whole["results"][0] |= {"verified": False, "mismatch": "b[3] is 2 instead of 1"}
    file.write_text(json.dumps({**whole, "verified": False}))
    for other in (("--workload", "gemv", "--mode", "plain"), ("--workload", "saxpy", "--mode", "bulk")):
        failed = call(capsys, "run", *other, *CPU, "--json", file, status=1)
        assert "saxpy in mode plain gave a wrong result: b[3] is 2 instead of 1" in failed.err
    again = json.loads(file.read_text())
    assert again["verified"] is False
    assert [result["verified"] for result in again["results"]] == [False, True, True]


class FakeGpuCore:
    """The extension module's workloads, and a GPU that gives each what it was asked for as its result."""

    def __init__(self, traced, reason=""):
        self._core = transfer_core()
        self._traced, self._reason = traced, reason
        self.identity = {"name": "NVIDIA H100 PCIe", "driver": "580.1"}
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._core, name)

    def gpu(self, *, ordinal):
        return {**self.identity, "ordinal": str(ordinal)}

    def Workload(self, name, **shape):  # noqa: N802 (a class of the module)
        work = self._core.Workload(name, **shape)
        return SimpleNamespace(shape=work.shape, buffers=work.buffers, run_on_gpu=self._run)

    def _run(self, **asked):
        self.asked.append(asked)
        times = {"total": 1.0, "allocation": 0.1, "release": 0.1, "kernels": 0.5}
        return {
            "mismatch": "",
            "cold": times,
            "warm": [times] * asked["repetitions"],
            "page_locking_seconds": 0.0,
            "traced": self._traced,
            "traced_reason": self._reason,
        }


@pytest.fixture
def gpu_core(monkeypatch):
    def use(traced, reason=""):
        core = FakeGpuCore(traced, reason)
        monkeypatch.setattr(runs, "transfer_core", lambda: core)
        runs.gpu_identity.cache_clear()
        return core

    yield use
    runs.gpu_identity.cache_clear()


def plan_of(**parts):
    return transfer.Plan(workloads=("saxpy",), modes=("pm",), gpu=0, **parts)


@pytest.mark.parametrize(
    ("parts", "traced"),
    [({}, 5), ({"repetitions": 3}, 3), ({"repetitions": 1}, 1), ({"repetitions": 9}, 5), ({"trace": False}, 0)],
)
def test_runs_are_traced_beside_those_that_are_timed(gpu_core, parts, traced):
    core = gpu_core(None, "why not")
    list(transfer.run(plan_of(**parts), []))
    assert [asked["traced"] for asked in core.asked] == [traced]
    assert core.asked[0]["repetitions"] == parts.get("repetitions", 30)


def test_a_result_has_its_trace_or_the_reason_why_there_is_none(gpu_core):
    gpu_core({"total": 1.5, "covered": 0.97}, "")
    (traced,) = transfer.run(plan_of(), [])
    assert traced["traced"] == {"total": 1.5, "covered": 0.97}
    assert "traced_reason" not in traced
    gpu_core(None, "libcupti.so.13: cannot open")
    (untraced,) = transfer.run(plan_of(), [])
    assert untraced["traced"] is None
    assert untraced["traced_reason"] == "libcupti.so.13: cannot open"
    assert untraced["verified"] is True  # a trace that fails takes nothing from the rest


@pytest.mark.parametrize(
    ("name", "value"), [("name", "NVIDIA H200"), ("driver", "590.2")], ids=["another GPU", "another driver"]
)
def test_results_of_another_gpu_are_not_continued(tmp_path, gpu_core, name, value):
    file = tmp_path / "results.json"
    core = gpu_core(None, "why not")
    results = list(transfer.run(plan_of(), []))
    file.write_text(json.dumps(transfer.document(plan_of(), results)))
    assert transfer.read_results(file, plan_of().options()) == results
    core.identity[name] = value
    runs.gpu_identity.cache_clear()
    with pytest.raises(RefusedInput, match=f"has results with gpu .*, not .*'{value}'"):
        transfer.read_results(file, plan_of().options())


def test_results_without_traces_are_not_continued_with_traces(tmp_path, gpu_core):
    file = tmp_path / "results.json"
    gpu_core(None, "why not")
    file.write_text(json.dumps(transfer.document(plan_of(trace=False), [])))
    with pytest.raises(RefusedInput, match="has results with trace False, not True"):
        transfer.read_results(file, plan_of().options())


@pytest.mark.parametrize(
    ("size", "repetitions", "trace", "expected"),
    [
        ("large", 30, True, 5),
        ("large", 3, True, 3),
        ("super", 5, True, 1),
        ("mega", 1, True, 1),
        ("tiny", 30, False, 0),
    ],
)
def test_large_sizes_are_traced_once(size, repetitions, trace, expected):
    assert tracing.traced_runs(size, repetitions, trace=trace) == expected


def test_cupti_is_found_among_the_packages_of_python(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path), str(tmp_path / "other")])
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path / "user"))
    assert tracing.cupti_folders() == []
    expected = []
    for folder in ("nvidia/cu13/lib", "other/nvidia/cuda_cupti/lib"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "libcupti.so.13").touch()
        expected.append(str(tmp_path / folder))
    (tmp_path / "user/nvidia/cu13/lib").mkdir(parents=True)  # other libraries of CUDA's
    assert tracing.cupti_folders() == expected


def test_a_wrong_result_is_a_failure(capsys, monkeypatch):
    wrong = {
        "workload": "saxpy",
        "mode": "plain",
        "size": "tiny",
        "verified": False,
        "mismatch": "b[3] is 2 instead of 1",
    }
    monkeypatch.setattr(transfer, "run", lambda *_: iter([{**wrong, "seconds": 1.0}]))
    failed = call(capsys, "run", "--workload", "saxpy", *CPU, "--json", "-", status=1)
    assert "saxpy in mode plain gave a wrong result: b[3] is 2 instead of 1" in failed.err
    assert json.loads(failed.out)["verified"] is False


def test_modes_of_a_gpu_are_read():
    assert transfer.mode_parts("pm_async") == ("pinned", "malloc", "async4")
    assert transfer.mode_parts("mapped") == ("mapped", "malloc", "plain")
    assert transfer.mode_parts("pinned/pool/bulk") == ("pinned", "pool", "bulk")
    transfer.Plan(modes=("uvm", "batch/chunked/async16"), gpu=0).validate()
    for mode in ("pined", "pinned/heap", "pinned/pool/async", "pinned/pool/bulk/more"):
        with pytest.raises(RefusedInput, match="--mode"):
            transfer.Plan(modes=(mode,), gpu=0).validate()
