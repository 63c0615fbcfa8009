# SPDX-License-Identifier: Apache-2.0
"""`bench/transfer/traced.py` and `instructions.py`: what they count and judge, and what they refuse."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/transfer"))

import instructions  # noqa: E402 (a program)
import traced  # noqa: E402


def row(covered=0.97, total=1.0, untraced=(1.0, 1.0, 9.0), **parts):
    """A result of `forebay transfer run` on a GPU."""
    return {
        "workload": "saxpy",
        "mode": "pm",
        "size": "large",
        "verified": True,
        "warm": [{"total": seconds} for seconds in untraced],
        "traced": {"covered": covered, "calls": total / 4, "total": total},
        **parts,
    }


def judge(tmp_path, capsys, *rows):
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"results": rows}))
    status = traced.main([str(file)])
    return status, capsys.readouterr().out


def test_a_trace_is_held_against_the_median_of_the_untraced_runs(tmp_path, capsys):
    status, shown = judge(tmp_path, capsys, row(total=1.02))
    assert status == 0
    assert "covered  97.00%  calls  25.00%  traced/untraced  1.020" in shown
    assert "1 results at large, 0 of them covered below 95%" in shown
    assert "0 totals that tracing changed" in shown


@pytest.mark.parametrize(
    ("covered", "size", "status"), [(0.95, "large", 0), (0.9499, "large", 1), (0.1, "small", 0), (0.1, "super", 0)]
)
def test_at_large_a_trace_must_cover_its_run(tmp_path, capsys, covered, size, status):
    found, shown = judge(tmp_path, capsys, row(covered, size=size), row(mode="uvm"))
    assert found == status
    assert ("TOO LITTLE" in shown) == bool(status)
    assert f"{1 + (size == 'large')} results at large, {status} of them" in shown


def test_a_result_without_a_trace_is_no_success(tmp_path, capsys):
    absent = {"traced": None, "traced_reason": "libcupti.so.13: cannot open"}
    status, shown = judge(tmp_path, capsys, row(**absent), row(**absent, size="small"))
    assert status == 1
    assert shown.count("no trace: libcupti.so.13: cannot open") == 2
    assert shown.count("TOO LITTLE") == 1


@pytest.mark.parametrize(
    ("total", "listed"), [(1.049, False), (1.05, True), (1.5, True), (0.951, False), (0.95, True), (0.5, True)]
)
def test_a_total_that_tracing_changed_is_listed(tmp_path, capsys, total, listed):
    status, shown = judge(tmp_path, capsys, row(total=total * 100, untraced=[100, 100, 900]))
    assert status == 0  # it is said, and is no failure
    assert (f"saxpy pm large: {total - 1:+.1%}" in shown) == listed
    assert f"{int(listed)} totals that tracing changed" in shown


def test_what_was_not_timed_has_nothing_to_judge(tmp_path, capsys):
    refused = {"workload": "saxpy", "mode": "system", "size": "large", "verified": None, "refused": "no"}
    wrong = {"workload": "saxpy", "mode": "uvm", "size": "large", "verified": False, "mismatch": "b[3]"}
    status, shown = judge(tmp_path, capsys, refused, wrong)
    assert status == 0
    assert shown.startswith("\n0 results at large")


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        '{"results": 3}',
        # Of the CPU executor, which has no trace.
        '{"results": [{"workload": "a", "mode": "b", "size": "tiny", "verified": true, "seconds": 1}]}',
    ],
)
def test_other_documents_are_refused(tmp_path, capsys, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    for path in (file, tmp_path / "missing.json"):
        with pytest.raises(SystemExit, match="2"):
            traced.main([str(path)])
        assert "no results of `forebay transfer run` on a GPU" in capsys.readouterr().err


# ---- machine code


def function(kernel, policy, *found, entry="cuda_entry"):
    """A kernel as `cuobjdump -sass` prints it; its symbol is already what c++filt makes of it."""
    arguments = "forebay::simt::cuda" + (f", forebay::simt::stage_policy::{policy}" if policy else "")
    name = f"forebay::transfer::{kernel}<{arguments} >"
    lines = [f"\t\tFunction : void forebay::simt::detail::{entry}<{name} >({name})", "\t.headerflags\t@hm"]
    for at, instruction in enumerate(found):
        lines.append(f"        /*{16 * at:04x}*/                   {instruction} ;  /* 0x00000a00ff017b82 */")
        lines.append("                                                       /* 0x000fe20000000800 */")
    return lines


LOADS = ("LDC R1, c[0x0][0x28]", "@P0 LDG.E R5, desc[UR6][R2.64]", "STS [R7], R5")
ASYNC4 = ("LDGSTS.E [R4], desc[UR8][R2.64]", "@!P1 LDGSTS.E [R4+0x4], desc[UR8][R2.64]")
ASYNC8 = ("LDGSTS.E.64 [R4], desc[UR8][R2.64]",)
ASYNC16 = ("@P2 LDGSTS.E.BYPASS.128 [R4], desc[UR8][R2.64]",)
BULK = ("@UP0 UBLKCP.S.G [UR4], [UR6], UR8",)
RIGHT = [
    *("Fatbin elf code:", "arch = sm_90", "\tcode for sm_90"),
    *function("k", "plain", *LOADS),
    *function("k", "async4", *LOADS, *ASYNC4),
    *function("k", "async16", *ASYNC16, *LOADS),
    *function("k", "bulk", *BULK, *LOADS),
    *function("sum_kernel", None, *LOADS),
]


def counted(listing):
    """The document of a listing, with symbols as names."""
    kernels = instructions.kernels_of([re.sub(r"(Function :) .*", r"\1 symbol", line) for line in listing])
    names = [line.split(" : ", 1)[1] for line in listing if "Function" in line]
    instructions.name_all(kernels, names)
    return instructions.document(kernels)


def test_each_policy_is_seen_in_its_kernels_and_nowhere_else():
    found = counted(RIGHT)
    assert found["verified"] is True
    assert found["seen"] == {"plain": 1, "async4": 1, "async16": 1, "bulk": 1}
    rows = {(row["kernel"], row["policy"]): row for row in found["results"]}
    assert set(rows) == {("k", policy) for policy in instructions.POLICIES} | {("sum_kernel", None)}
    assert rows["k", "async4"]["copies"] == {"async4": 2, "async8": 0, "async16": 0, "bulk": 0, "tensor": 0}
    assert rows["k", "async4"]["instructions"] == {"LDGSTS.E": 2}
    assert rows["k", "async16"]["instructions"] == {"LDGSTS.E.BYPASS.128": 1}
    assert rows["k", "bulk"]["instructions"] == {"UBLKCP.S.G": 1}
    assert rows["sum_kernel", None]["instructions"] == {}
    assert {row["target"] for row in found["results"]} == {"sm_90"}


@pytest.mark.parametrize(
    ("wrong", "defects"),
    [
        (function("other", "async4", *LOADS), ["has no async4"]),
        (function("other", "bulk", *ASYNC16), ["has no bulk", "has 1 async16"]),
        (function("other", "plain", *ASYNC4), ["has 2 async4"]),
        (function("other", "async16", *ASYNC16, *ASYNC4), ["has 2 async4"]),
        (function("other", "async4", *ASYNC4, *ASYNC8), ["has 1 async8"]),
        (function("other", None, *BULK), ["has 1 bulk"]),
        (function("other", None, "UTMALDG.2D [UR4], [UR6]"), ["has 1 tensor"]),
        (function("other", "plain", *ASYNC4, entry="cuda_bounded_entry"), ["has 2 async4"]),
    ],
)
def test_what_is_missing_or_out_of_place_is_a_defect(wrong, defects):
    found = counted([*RIGHT, *wrong])
    assert found["verified"] is False
    assert [row["defects"] for row in found["results"] if row["defects"]] == [defects]


def test_code_without_one_of_the_policies_shows_nothing_of_it():
    found = counted([line for name in ("a", "b") for line in function(name, "bulk", *BULK)])
    assert found["verified"] is False
    assert found["seen"] == {"plain": 0, "async4": 0, "async16": 0, "bulk": 2}


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("forebay::transfer::k<forebay::simt::cuda, forebay::simt::stage_policy::bulk>", "k"),
        ("forebay::transfer::k<forebay::simt::cuda, forebay::simt::stage_policy::bulk, 3u>", "k<3u>"),
        ("forebay::transfer::k<3u, forebay::simt::cuda, forebay::simt::stage_policy::bulk >", "k<3u>"),
        ("forebay::transfer::k<forebay::simt::stage_policy::bulk, forebay::transfer::sum<int> >", "k<sum<int> >"),
    ],
)
def test_a_kernel_keeps_the_arguments_that_tell_it_from_others(kernel, name):
    assert instructions.kernel_in(f"void forebay::simt::detail::cuda_entry<{kernel} >({kernel})") == kernel
    assert instructions.without_own_arguments(kernel) == name


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="binutils is not installed")
def test_the_program_reads_what_cuobjdump_says(tmp_path, capsys):
    symbols = {
        policy: f"_ZN7forebay4simt6detail10cuda_entryINS_8transfer11gemv_kernelINS0_4cudaENS0_12stage_policy"
        f"{len(policy)}{policy}EEEEEvT_"
        for policy in instructions.POLICIES
    }
    listing = [
        re.sub(r"(Function :) .*", rf"\1 {symbols[policy]}", line)
        for policy, code in zip(instructions.POLICIES, (LOADS, ASYNC4, ASYNC16, BULK), strict=True)
        for line in function("gemv_kernel", policy, *code)
    ]
    (tmp_path / "listing").write_text("\n".join(listing))
    fake = tmp_path / "cuobjdump"
    fake.write_text(f'#!/bin/sh\n[ "$1 $2" = "-sass object.o" ] && cat {tmp_path}/listing\n')
    fake.chmod(0o755)
    counts = tmp_path / "counts.json"
    assert instructions.main(["object.o", "--cuobjdump", str(fake), "--json", str(counts)]) == 0
    found = json.loads(counts.read_text())
    assert [(row["kernel"], row["policy"]) for row in found["results"]] == [
        ("gemv_kernel", policy) for policy in sorted(instructions.POLICIES)
    ]
    assert "gemv_kernel async4" in capsys.readouterr().out

    (tmp_path / "listing").write_text("\n".join(listing).replace("UBLKCP", "UBLKRED"))
    assert instructions.main(["object.o", "--cuobjdump", str(fake)]) == 1
    assert "WRONG: has no bulk" in capsys.readouterr().out


def test_the_program_refuses_what_has_no_code(tmp_path, capsys):
    fake = tmp_path / "cuobjdump"
    for script, error in (("true", "has no machine code"), ("echo no device code >&2; false", "no device code")):
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        assert instructions.main(["object.o", "--cuobjdump", str(fake)]) == 2
        assert error in capsys.readouterr().err
    assert instructions.main(["object.o", "--cuobjdump", str(tmp_path / "missing")]) == 2
    assert "install the CUDA toolkit's" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["traced.py", "instructions.py"])
def test_the_programs_start(program):
    ran = subprocess.run([sys.executable, ROOT / "bench/transfer" / program, "--help"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert "Status 1" in ran.stdout
