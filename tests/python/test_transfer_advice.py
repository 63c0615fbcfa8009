# SPDX-License-Identifier: Apache-2.0
"""`forebay transfer advise` and its check: constants that are found again, advice, and what is refused."""

import dataclasses
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from forebay import transfer
from forebay.cli import main
from forebay.errors import RefusedInput
from forebay.transfer import fitting
from forebay.transfer.advice import advise
from forebay.transfer.cost_model import Constants, StageChange, stage_terms
from forebay.transfer.fitting import _nonnegative, fit, read_measured, typical_error
from forebay.transfer.profile import Profile, profile_of_workload, read_profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "transfer"))

import advice_check

MACHINE = Constants(
    allocation={"malloc": (9e-5, 1.5e-12, 0.0), "managed": (1.3e-4, 1e-12, 1.3e-11)},
    movement={
        "pageable": (1e-4, 8e-11, 7e-11, 6e-11, 0.0, 0.0, 0.0),
        "managed_prefetch": (6e-4, 2.5e-11, 7e-11, 0.0, 0.0, 3e-4, 1e-10),
        "pinned": (3e-5, 2e-11, 1.9e-11, 0.0, 0.0, 0.0, 0.0),
    },
    cache_bytes=8e6,
    kernels=(1.2e-5, 1.6e-14, 3.6e-13, 6e-13, 1e-13),
    stages={"async4": StageChange((-0.3, 0.05, 0.03), -0.5, 0.5)},
    link_stages={},
    locking=(3e-4, 5e-10, 0.0),
)


def seconds_on(machine, workload, size, mode):
    """What a mode takes on a machine of which the model is true."""
    profile = profile_of_workload(workload, size)
    moves, allocation, stage = transfer.mode_parts(mode)
    return {
        "total": machine.seconds(profile, mode, 1) - machine.locking_seconds(profile, moves),
        "allocation": machine.allocation_seconds(profile, moves, allocation),
        "release": 0.0,
        "kernels": machine.kernel_seconds(profile, stage),
    }, machine.locking_seconds(profile, moves)


def document_of(machine=MACHINE, sizes=("small", "large"), modes=tuple(transfer.STUDY_MODES), noise=0.0, change=None):
    """The document of a run; `change(workload, mode)` is what all times are multiplied with."""
    chance, results = random.Random(3), []
    for size in sizes:
        for workload in transfer.names():
            shape = transfer.Plan(size=size).workload(workload).shape()
            for mode in modes:
                times, locking = seconds_on(machine, workload, size, mode)
                factor = change(workload, mode) if change else 1.0
                warm = [
                    {part: value * factor * chance.uniform(1 - noise, 1 + noise) for part, value in times.items()}
                    for _ in range(3)
                ]
                about = {"workload": workload, "mode": mode, "size": size, "shape": shape, "verified": True}
                results.append({**about, "cold": times, "warm": warm, "page_locking_seconds": locking * factor})
    return {"options": {}, "results": results}


def write(path, document):
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A document of a machine of which the model is true, but for a little noise."""
    return write(tmp_path_factory.mktemp("advice") / "good.json", document_of(noise=0.01))


def call(capsys, *arguments, status=0):
    assert main(["transfer", "advise", *map(str, arguments)]) == status
    return capsys.readouterr()


# ---- the model


def test_constants_are_found_again(tmp_path):
    found = fit(read_measured("--results", write(tmp_path / "exact.json", document_of())))
    assert found.allocation["malloc"][:2] == pytest.approx(MACHINE.allocation["malloc"][:2], rel=1e-3)
    assert found.allocation["managed"] == pytest.approx(MACHINE.allocation["managed"], rel=0.02)
    assert found.kernels == pytest.approx(MACHINE.kernels, rel=1e-3)
    assert found.stages["async4"].of_terms == pytest.approx((-0.3, 0.05, 0.03), rel=1e-3)
    assert found.locking == pytest.approx(MACHINE.locking, rel=1e-3)
    assert found.cache_bytes == 8e6
    for name in ("pageable", "managed_prefetch", "pinned"):
        for workload in transfer.names():
            profile = profile_of_workload(workload, "medium")  # of a size that it has not seen
            expected = MACHINE.movement_seconds(profile, name)
            assert found.movement_seconds(profile, name) == pytest.approx(expected, rel=0.05), (name, workload)


def test_the_typical_error_is_the_median_for_workloads_that_the_model_is_not_fitted_to(tmp_path, monkeypatch):
    rows = read_measured("--results", write(tmp_path / "exact.json", document_of(sizes=("large",))))
    assert typical_error(rows, 1) < 0.01  # the model is true, so it knows the workload that is left out
    beyond = dataclasses.replace(rows[0], mode="mapped/malloc/bulk", total=1e9)  # which the constants do not cover
    assert typical_error([beyond, *rows], 1) < 0.01
    fitted_to = []
    monkeypatch.setattr(fitting, "fit", lambda others: fitted_to.append(others) or MACHINE)
    twice = [dataclasses.replace(row, total=2 * row.total, locking=2 * row.locking) for row in rows]
    assert typical_error(twice, 1) == pytest.approx(0.5)
    assert [{row.workload for row in others} for others in fitted_to] == [
        set(transfer.names()) - {name} for name in transfer.names()
    ]


def test_the_typical_error_has_the_share_of_page_locking(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "fit", lambda _: MACHINE)
    modes = ("standard", "pm", "pm_async")
    rows = read_measured("--results", write(tmp_path / "exact.json", document_of(sizes=("large",), modes=modes)))
    dear = [dataclasses.replace(row, locking=9 * row.locking) for row in rows]
    for runs in (1, 7):
        off = [8 * row.locking / runs / (row.total + 9 * row.locking / runs) for row in rows]
        assert typical_error(dear, runs) == pytest.approx(np.median(off))
        assert np.median(off) > 0.1


def test_one_workload_has_no_typical_error(tmp_path, capsys):
    document = document_of()
    document["results"] = [one for one in document["results"] if one["workload"] == "saxpy"]
    file = write(tmp_path / "one.json", document)
    assert typical_error(read_measured("--results", file), 1) is None
    shown = call(capsys, "--workload", "gemm", "--results", file).out
    assert "median error" not in shown
    assert "The results do not say how far the model is off: measure more workloads." in " ".join(shown.split())
    assert json.loads(call(capsys, "--workload", "gemm", "--results", file, "--json", "-").out)["typical_error"] is None
    refusal = call(capsys, "--workload", "saxpy", "--results", file, status=2).err
    assert "have results of saxpy only, which advice for it must not know" in refusal


@pytest.mark.parametrize("modes", [("standard", "pm_async"), ("standard", "uvm_async")])
def test_results_of_modes_that_the_model_cannot_cover_do_no_harm(tmp_path, capsys, modes):
    file = write(tmp_path / "part.json", document_of(modes=modes))
    shown = " ".join(call(capsys, "--workload", "gemm", "--results", file).out.split())
    assert f"Modes that were measured without those that they are compared with are left out: {modes[1]}." in shown


def test_a_few_results_that_are_far_off_change_little(tmp_path):
    wild = document_of(change=lambda workload, mode: 9.0 if (workload, mode) == ("saxpy", "standard") else 1.0)
    found = fit(read_measured("--results", write(tmp_path / "wild.json", wild)))
    profile = profile_of_workload("saxpy", "large")
    assert found.seconds(profile, "standard", 1) == pytest.approx(MACHINE.seconds(profile, "standard", 1), rel=0.05)


def test_constants_are_never_negative_and_come_nearest():
    chance = np.random.default_rng(5)
    for _ in range(50):
        features, targets = chance.normal(size=(12, 4)), chance.normal(size=12)
        features[:, 1] *= chance.integers(0, 2)  # a feature that nothing has
        features[:, 3] = features[:, 2]  # one that is another
        found = _nonnegative(features, targets)
        error = np.sum((features @ found - targets) ** 2)
        assert (found >= 0).all()
        for at in range(4):  # a step in no direction that is allowed lessens the error
            for step in (1e-3, -1e-3):
                moved = found.copy()
                moved[at] += step
                assert moved[at] < 0 or np.sum((features @ moved - targets) ** 2) >= error - 1e-12


def test_kernels_that_compute_for_long_hide_faults():
    short = Profile(0, 1e9, 0, 0, 1e6, 1e9, 1e6, 2, 1)
    long = dataclasses.replace(short, operations=1e15)
    assert MACHINE.movement_seconds(short, "managed_prefetch") > 0.16
    assert MACHINE.movement_seconds(long, "managed_prefetch") < 0.08
    in_place = dataclasses.replace(short, bytes_in=1e9, bytes_in_place=1e9)
    assert MACHINE.movement_seconds(in_place, "managed_prefetch") < 0.1  # prefetched: no faults


def test_the_model_does_not_go_beyond_what_was_measured():
    change = StageChange((0.0, 1.0, 0.0), -0.2, 0.1)
    profile = profile_of_workload("gemm", "small")
    assert change.share(stage_terms(profile)) == 0.1
    assert change.share(stage_terms(dataclasses.replace(profile, operations=0))) == 0.0


# ---- advice

BIG = Profile(
    bytes_in=1e9,
    bytes_out=1e9,
    bytes_in_place=1e9,
    scratch_bytes=0,
    operations=1e9,
    staged_bytes=1e9,
    shared_accesses=1e8,
    allocations=1,
    launches=1,
)


def test_page_locking_pays_for_many_runs_only():
    once = advise(BIG, MACHINE)
    assert once.mode == "uvm_async"
    assert advise(BIG, MACHINE, 1000).mode == "pm_async"
    assert min(once.expected, key=once.expected.__getitem__) == once.mode
    assert list(once.expected) == list(transfer.STUDY_MODES)
    # 0.5 s, against (2.5 + 7 - 2 - 1.9) * 0.01 s of movement and 0.0115 s of managed allocation
    (line,) = [line for line in once.why if "Page-locking" in line]
    runs = int(line.partition("from ")[2].split()[0])
    assert advise(BIG, MACHINE, runs).mode == "pm_async"
    assert advise(BIG, MACHINE, runs - 1).mode == "uvm_async"


def test_the_stage_policy_follows_what_it_does_to_the_kernels():
    busy = dataclasses.replace(BIG, operations=1e14, shared_accesses=6e9, staged_bytes=1e9)
    assert MACHINE.stage_change(busy, "async4") > 0
    assert not advise(busy, MACHINE).mode.endswith("async")
    assert "slower" in " ".join(advise(busy, MACHINE).why)
    assert "faster" in " ".join(advise(BIG, MACHINE).why)


def test_where_nothing_is_staged_a_stage_policy_changes_nothing():
    link = {**MACHINE.movement, "mapped": (0.0, 2e-11, 2e-11, 0.0, 3e-11, 0.0, 0.0)}
    wide = dataclasses.replace(MACHINE, movement=link, link_stages={"async4": StageChange((-0.5, 0.0), -0.5, -0.1)})
    bare = dataclasses.replace(BIG, staged_bytes=0)
    assert wide.stage_change(bare, "async4") == wide.link_stage_change(bare, "async4") == 0
    assert wide.stage_change(BIG, "async4") != 0 != wide.link_stage_change(BIG, "async4")
    advice = advise(bare, wide)
    assert not advice.mode.endswith("async")
    assert advice.expected["standard"] == advice.expected["async"]
    assert "staged" not in " ".join(advice.why)


def test_kernels_that_a_policy_does_not_change_are_not_said_to_be_faster():
    same = dataclasses.replace(MACHINE, stages={"async4": StageChange((0.0, 0.0, 0.0), 0.0, 0.0)})
    assert "async4 should not change kernels." in " ".join(advise(BIG, same).why)


def test_small_programs_get_ordinary_memory():
    small = dataclasses.replace(BIG, **dict.fromkeys(("bytes_in", "bytes_out", "bytes_in_place"), 100000.0))
    assert advise(small, MACHINE).mode in ("standard", "async")


def test_overlapped_allocation_pays_where_no_pool_helps_and_bytes_are_many():
    expensive = dataclasses.replace(MACHINE, allocation={"managed": (1e-5, 0.0, 1e-10), "malloc": (1e-5, 1e-9, 0.0)})
    advice = advise(BIG, expensive, among=("uvm",))
    assert advice.overlap_allocation
    assert advice.why[-1].endswith("at most, so it may pay.")
    assert "Here one run pays for it." in " ".join(advise(BIG, MACHINE).why)
    assert "Here 7 runs share it." in " ".join(advise(BIG, MACHINE, 7).why)
    calls = dataclasses.replace(
        expensive, allocation={**expensive.allocation, "managed": (1.0, 0.0, 0.0)}
    )  # calls are never hidden
    assert not advise(BIG, calls, among=("uvm",)).overlap_allocation
    cheap = dataclasses.replace(expensive, allocation={**expensive.allocation, "managed": (1e-5, 0.0, 1e-13)})
    assert not advise(BIG, cheap, among=("uvm",)).overlap_allocation
    assert "less than 5 % does not matter" in advise(BIG, cheap, among=("uvm",)).why[-1]
    short = dataclasses.replace(
        expensive, movement=dict.fromkeys(MACHINE.movement, (0.0,) * 7), kernels=(0.01, 0, 0, 0, 0)
    )
    assert 0 < advise(BIG, short, among=("uvm",)).expected["uvm"] < 0.2
    assert "saves 9.09 % at most" in advise(BIG, short, among=("uvm",)).why[-1]  # no more than the 10 ms beside it
    pool = dataclasses.replace(expensive, allocation={"pool": (1e-5, 1e-9, 0.0)})
    in_pool = advise(BIG, pool, among=("pageable/pool/plain",))
    assert not in_pool.overlap_allocation
    assert "The pool keeps its memory" in in_pool.why[-1]
    pooled = advise(BIG, expensive, among=("standard",))
    assert not pooled.overlap_allocation
    assert "A pool that keeps its memory saves most of that" in pooled.why[-1]


def test_a_mode_beyond_the_study_is_named_only_if_it_is_clearly_better():
    chunked = {**MACHINE.movement, "pinned_chunked": (1e-4, 3e-11, 3e-11, 0.0, 0.0, 0.0, 0.0)}
    wide = dataclasses.replace(MACHINE, movement=chunked)
    advice = advise(BIG, wide)
    assert advice.mode == "pinned_chunked/malloc/async4"
    assert list(advice.expected) == [*transfer.STUDY_MODES, advice.mode]
    near = dataclasses.replace(
        MACHINE, movement={**chunked, "pinned_chunked": (1e-4, 5.2e-11, 5.2e-11, 0.0, 0.0, 0.0, 0.0)}
    )
    assert advise(BIG, near).mode == "uvm_async"


def test_what_is_staged_again_comes_over_the_link_again():
    link = {**MACHINE.movement, "mapped": (0.0, 2e-11, 2e-11, 0.0, 3e-11, 0.0, 0.0)}
    wide = dataclasses.replace(MACHINE, movement=link, link_stages={"async4": StageChange((0.5, 0.0), 0.0, 1.0)})
    once, thrice = BIG, dataclasses.replace(BIG, staged_bytes=3e9)
    for transfer_kind, seconds in (("mapped", 2e9 * 3e-11), ("pinned", 0.0)):
        moved = wide.movement_seconds(thrice, transfer_kind) - wide.movement_seconds(once, transfer_kind)
        assert moved == pytest.approx(seconds)
    # Over the link a policy changes movement and kernels together; elsewhere the kernels only.
    before = wide.allocation_seconds(once, "mapped", "malloc") + wide.locking_seconds(once, "mapped")
    plain, copied = (wide.seconds(once, f"mapped/malloc/{stage}", 1) for stage in ("plain", "async4"))
    assert copied - before == pytest.approx(1.5 * (plain - before))


def test_nothing_divides_by_zero():
    empty = Profile(0, 0, 0, 1, 0, 0, 0, 1, 1)
    assert advise(empty, MACHINE).why


# ---- the command


def test_advice_for_a_workload_uses_the_results_of_others_only(tmp_path, capsys, good):
    asked = ("--workload", "gemm", "--size", "large", "--json", "-")
    first = json.loads(call(capsys, *asked, "--results", good).out)
    document = json.loads(good.read_text())
    for result in document["results"]:
        if result["workload"] == "gemm":
            result["warm"] = [dict.fromkeys(times, 1000.0) for times in result["warm"]]
    second = json.loads(call(capsys, *asked, "--results", write(tmp_path / "other.json", document)).out)
    assert first["constants"] == second["constants"]
    truth = {mode: MACHINE.seconds(profile_of_workload("gemm", "large"), mode, 1) for mode in transfer.STUDY_MODES}
    assert first["mode"] == min(truth, key=truth.__getitem__)
    assert first["expected"] == pytest.approx(truth, rel=0.05)
    assert isinstance(first["overlap_allocation"], bool)


def test_advice_shows_a_mode_and_reasons(capsys, good):
    shown = call(capsys, "--workload", "saxpy", "--results", good, "--runs", 100000).out
    assert shown.startswith("mode: pm_async\noverlapped allocation: ")
    assert "1.0 GiB go in and 512 MiB come out." in shown
    assert "For workloads that it is not fitted to, the model's median error is 0.4 %." in " ".join(shown.split())


@pytest.mark.parametrize(("staged_bytes", "apart"), [(1e9, False), (1e11, True)])
def test_advice_says_if_the_model_does_not_tell_two_modes_apart(staged_bytes, apart):
    advice = advise(dataclasses.replace(BIG, staged_bytes=staged_bytes), MACHINE)
    best, nearest = sorted(advice.expected.values())[:2]
    assert (nearest > 1.05 * best) == apart
    assert advice.why[0].endswith("The model does not tell these two apart.") != apart


PROFILE = """\
bytes_in = 1_000_000_000
bytes_out = 1e9
bytes_in_place = 1e9
scratch_bytes = 0
operations = 1e9
shared_accesses = 1e8
staged_bytes = 1e9
allocations = 1
"""


def test_advice_for_a_profile(tmp_path, capsys, good):
    file = tmp_path / "own.toml"
    file.write_text(PROFILE)
    assert read_profile(file) == BIG
    found = json.loads(call(capsys, "--profile", file, "--results", good, "--json", "-").out)
    assert found["profile"] == str(file)
    assert found["mode"] == "uvm_async"
    file.write_text(PROFILE.replace("staged_bytes = 1e9", "reuse = 1"))
    assert read_profile(file) == BIG


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("operations = 1e9\n", "", "lacks the key operations"),
        ("staged_bytes = 1e9\n", "", "must have one of the keys staged_bytes and reuse"),
        ("staged_bytes", "reuse = 1\nstaged_bytes", "must have one of the keys staged_bytes and reuse"),
        ("operations", "operatoins", "operatoins: '1000000000.0': is no key of a profile; did you mean operations?"),
        ("1e8", "-1", "shared_accesses: '-1': must be from 0"),
        ("1e8", "nan", "shared_accesses: 'nan': must be from 0"),
        ("1e8", "inf", "shared_accesses: 'inf': must be from 0"),
        ("1e8", "1" + "0" * 400, "must be from 0"),
        ("1e8", "1" + "0" * 5000, "has a whole number of thousands of digits"),
        ("1e8", "0x" + "f" * 5000, "has a whole number of thousands of digits"),
        ("operations", "a = [0x" + "f" * 5000 + "]\noperations", "has a whole number of thousands of digits"),
        ("1e8", "'many'", "shared_accesses: 'many': must be a number"),
        ("1e8", "true", "shared_accesses: 'True': must be a number"),
        ("1e8", "[1]", "shared_accesses: '[1]': must be a number"),
        ("1e8", "2024-01-01", "must be a number"),
        ("allocations = 1", "allocations = 0", "allocations: '0': must be a whole number"),
        ("allocations = 1", "allocations = 1.5", "allocations: '1.5': must be a whole number"),
        ("allocations = 1", "allocations = 1\nlaunches = 0", "launches: '0': must be a whole number"),
        ("bytes_in_place = 1e9", "bytes_in_place = 2e9", "bytes_in_place: '2000000000.0': are bytes that go in and"),
        ("bytes_in", "bytes_in = 1\nbytes_in", "is not TOML"),
        ("bytes_in", "\x00", "is not TOML"),
        ("bytes_in", "a = " + "[" * 100000, "is not TOML"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(tmp_path, capsys, good, old, new, error):
    file = tmp_path / "own.toml"
    file.write_text(PROFILE.replace(old, new, 1))
    assert error in call(capsys, "--profile", file, "--results", good, status=2).err


def test_a_program_far_larger_than_what_was_measured_is_told_so(tmp_path, capsys, good):
    file = tmp_path / "own.toml"
    file.write_text(PROFILE)
    assert "what was measured" not in call(capsys, "--profile", file, "--results", good).out
    for times, told in ((3.5, False), (4.5, True)):  # 1 GiB is the most that was measured
        size = f"{times * 2**30}"
        file.write_text(PROFILE.replace("1_000_000_000", size).replace("1e9", size))
        assert ("what was measured" in call(capsys, "--profile", file, "--results", good).out) == told
    file.write_text(PROFILE.replace("1_000_000_000", "500_000_000_000"))
    shown = " ".join(call(capsys, "--profile", file, "--results", good).out.split())
    assert "The program has 466 GiB, and what was measured 1.0 GiB at most: the model may be wrong" in shown


def test_a_profile_without_bytes_is_refused(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(PROFILE.replace("1_000_000_000", "0").replace("1e9", "0"))
    with pytest.raises(RefusedInput, match="must not be 0"):
        read_profile(file)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--workload", "gemm"), "--results: is missing, and this build has no constants of a machine"),
        ((), "--workload: is missing, and so is --profile: give one of them"),
        (("--workload", "gemm", "--profile", "x"), "--profile: 'x': give either --workload or --profile"),
        (("--workload", "gemms"), "--workload: 'gemms': did you mean gemm?"),
        (("--workload", "gemm", "--size", "big"), "--size: 'big': did you mean"),
        (("--profile", "x", "--size", "large"), "--size: 'large': is of a workload of the suite"),
        (("--workload", "gemm", "--runs", 0), "--runs: '0': must be a whole number"),
        (("--profile", "nowhere.toml"), "--profile: 'nowhere.toml': no such file"),
        (("--workload", "gemm", "--results", "nowhere.json"), "--results: 'nowhere.json': no such file"),
    ],
)
def test_bad_input_is_refused(capsys, arguments, error):
    assert error in call(capsys, *arguments, status=2).err


def changed(**more):
    document = document_of(sizes=("small",), modes=("standard",))
    document["results"][3] |= more
    return document


def zero(part):
    return {"total": 1.0, "allocation": 0.0, "release": 0.0, "kernels": 0.5, part: 0.0}


def test_results_of_two_gpus_are_refused(tmp_path, capsys):
    files = []
    for name in ("a GPU", None, "a GPU", "another"):  # a document need not say
        options = {"gpu": {"name": name, "driver": str(len(files))}} if name else {}
        files.append(write(tmp_path / f"{len(files)}.json", {**changed(), "options": options}))
    assert len(read_measured("--results", *files[:3])) == 3 * 25
    asked = [word for file in files for word in ("--results", file)]
    error = call(capsys, "--workload", "saxpy", *asked, status=2).err
    assert "3.json': was measured on another, and the documents before it on a GPU" in error


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ([], "is no document of `forebay transfer run`"),
        ({"results": 3}, "is no document of `forebay transfer run`"),
        ({"results": [{}]}, "is no document of `forebay transfer run`"),
        ({"results": []}, "has no times of a GPU"),
        (changed(mode="plainest"), "has a result without a known mode"),
        (changed(shape=[1]), "has a result without a known mode"),
        (changed(shape={"tile": -1}), "has a result without a known mode"),
        (changed(shape={"tile": 3}), "has a result that this build does not"),
        (changed(workload="gem"), "has a result that this build does not"),
        (changed(size="big"), "has a result that this build does not"),
        (changed(page_locking_seconds=None), "has a result without a known mode"),
        (changed(mode="pageable/malloc/plain/extra"), "has a result without a known mode"),
        (changed(workload="sax\ud800py"), "has a result that this build does not"),
        (changed(size="lar\ud800ge"), "has a result that this build does not"),
        (changed(warm=[{**zero("total"), "total": 1.0, "kernels": 1e-320}]), "time of kernels of less than 100 ns for"),
        (changed(warm=[zero("total")]), "has a total or a time of kernels of less than 100 ns for"),
        (changed(warm=[zero("kernels")]), "has a total or a time of kernels of less than 100 ns for"),
        ({**changed(), "options": {"parameter": "tile"}}, "is a sweep"),
        (changed(warm=[{}]), "is no document of `forebay transfer run`"),
        (document_of(sizes=("small",), modes=("uvm",)), "have no results of a mode that copies"),
        (document_of(sizes=("small",), modes=("async",)), "have no results of a mode that copies"),
    ],
)
def test_results_that_say_nothing_are_refused(tmp_path, capsys, document, error):
    file = write(tmp_path / "results.json", document)
    assert error in call(capsys, "--workload", "saxpy", "--results", file, status=2).err


def test_results_of_the_cpu_executor_say_nothing(tmp_path, capsys):
    file = tmp_path / "cpu.json"
    assert main(["transfer", "run", "--workload", "saxpy", "--device", "cpu", "--json", str(file)]) == 0
    assert "has no times of a GPU" in call(capsys, "--workload", "gemm", "--results", file, status=2).err


# ---- the check


def test_advice_is_right_where_the_model_is_true(tmp_path, capsys):
    # No machine has the same best mode everywhere: two runs share what is page-locked.
    file = write(tmp_path / "good.json", document_of(sizes=("small",), noise=0.01))
    assert advice_check.main([str(file), "--runs", "8"]) == 0
    out = capsys.readouterr().out
    assert "small: advice is right for 25 of 25 workloads" in out
    assert out.rstrip().endswith("PASS")


def test_advice_is_wrong_where_the_best_mode_follows_from_nothing(tmp_path, capsys):
    chance = random.Random(1)
    file = write(tmp_path / "bad.json", document_of(sizes=("small",), change=lambda *_: chance.uniform(0.2, 5)))
    assert advice_check.main([str(file), "--runs", "8"]) == 1
    out = capsys.readouterr().out
    assert out.rstrip().endswith("FAIL")
    assert "**no**" in out


def verdict(right, constant_right):
    return advice_check.Verdict("small", 25, right, "pm", constant_right)


def test_the_check_needs_twenty_and_three_more_than_the_constant_answer():
    assert verdict(20, 17).passes
    assert not verdict(19, 10).passes
    assert not verdict(24, 22).passes


def test_a_mode_within_five_percent_of_the_fastest_is_right():
    case = advice_check.Case("a", "small", {"standard": 1.0, "pm": 1.049, "uvm": 1.051}, "pm")
    assert [case.is_right(mode) for mode in case.seconds] == [True, True, False]
    (found,) = advice_check.verdicts(
        [dataclasses.replace(case, seconds={**dict.fromkeys(transfer.STUDY_MODES, 2.0), **case.seconds})]
    )
    assert (found.right, found.constant_right) == (1, 1)


def test_workloads_of_which_a_mode_is_missing_are_left_out(tmp_path, capsys):
    document = document_of(sizes=("small",))
    few = ("saxpy", "gemm", "nw", "srad")
    document["results"] = [
        r for r in document["results"] if r["workload"] in few and (r["workload"], r["mode"]) != ("saxpy", "pm")
    ]
    assert advice_check.main([str(write(tmp_path / "cut.json", document))]) == 1  # fewer than 20
    assert "of 3 workloads" in capsys.readouterr().out


def test_all_modes_are_those_that_every_workload_was_measured_in(tmp_path, capsys):
    document = document_of(sizes=("small",))
    lone = next(result for result in document["results"] if result["workload"] == "saxpy" and result["mode"] == "pm")
    document["results"].remove(lone)
    file = write(tmp_path / "lone.json", document)
    rows = read_measured("DOCUMENT", file)
    assert advice_check.common_modes(rows) == set(transfer.STUDY_MODES) - {"pm"}
    advice_check.main([str(file), "--modes", "all", "--runs", "8"])
    all_modes = capsys.readouterr().out
    assert "| saxpy |" in all_modes
    assert " pm " not in all_modes
    advice_check.main([str(file), "--runs", "8"])
    assert "| saxpy |" not in capsys.readouterr().out  # which lacks a mode of the study


def test_launches_are_counted():
    assert profile_of_workload("saxpy", "small").launches == 1
    tiles = 2048 // 64  # nw takes a diagonal of tiles at a time
    assert profile_of_workload("nw", "small").launches == 2 * tiles - 1
    assert profile_of_workload("nw", "small", {"tile": 128}).launches == tiles - 1


def test_what_two_documents_have_counts_as_in_the_later_one(tmp_path):
    early = write(tmp_path / "early.json", document_of(sizes=("small",)))
    late = write(tmp_path / "late.json", document_of(sizes=("small",), change=lambda *_: 2.0))
    rows = read_measured("DOCUMENT", late)
    assert advice_check.latest(read_measured("DOCUMENT", early, late)) == rows
