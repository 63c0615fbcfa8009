# SPDX-License-Identifier: Apache-2.0
"""The tables beside the claims: what was verified, and how good kernels, traces and advice are."""

import json
import sys
from pathlib import Path

import pytest
from forebay.transfer import STUDY_MODES
from forebay.transfer.loading import load
from transfer_world import World, run_document

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

import transfer_tables


@pytest.fixture
def folder(tmp_path):
    """A folder of results that is named as those of a GPU are."""
    path = tmp_path / "h1-transfer"
    path.mkdir()
    return path


def put(folder, name, document):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document))


def rows():
    return [World().row("saxpy", mode, "large") for mode in STUDY_MODES]


def results_of(folder):
    return load(sorted(folder.glob("*.json")))


def lines(table):
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]


def test_a_wrong_result_is_not_counted_and_a_refused_one_is_named(folder):
    wrong, *others = rows()
    wrong = {**wrong, "verified": False, "mismatch": "out[3] is 1 instead of 2", "warm": [], "cold": None}
    put(folder, "run-large", run_document("large", [wrong, *others]))
    refused = {**others[0], "mode": "system", "verified": None, "refused": "no such memory"}
    put(folder.parent / "h1-transfer-modes", "modes", run_document("large", [{**others[1], "mode": "mapped"}, refused]))
    of_study, of_others = lines(transfer_tables.verified(results_of(folder), folder))
    assert of_study[2:4] == ["1", "5 of 6"]
    assert of_others[2:] == ["1", "1 of 1", "2", "`system/malloc/plain`"]


def test_a_pair_that_was_measured_in_two_launches_counts_once(folder):
    put(folder, "run-a", run_document("large", rows()))
    other = [{**row, "shape": {**row["shape"], "stages": 7}, "warm": row["warm"][:1]} for row in rows()]
    put(folder, "run-b", run_document("large", other))
    (line,) = lines(transfer_tables.verified(results_of(folder), folder))
    assert line[3:5] == ["6 of 6", "1"]


def test_the_best_policy_of_a_kernel_is_that_of_the_right_results(folder):
    def row(stage, part, verified=True):
        rates = {"device_bytes_per_second": 3e12, "operations_per_second": 2e12, "part_of_bound": part}
        return {
            "workload": "saxpy",
            "stage": stage,
            "verified": verified,
            "kernel_seconds": [3e-3, 1e-3, 2e-3],
            **rates,
        }

    document = {
        "benchmark": "transfer_kernels",
        "command": "transfer_kernels_bench",
        "machine": {"device": "H1", "driver": "1.2", "commit": "abc"},
        "copy_bytes_per_second": 4e12,
        "cublas_operations_per_second": 5e13,
        "fma_operations_per_second": 6e13,
        "results": [row("plain", 0.5), row("async16", 0.754), row("bulk", 0.9, verified=False)],
    }
    put(folder.parent / "h1-transfer-kernels", "kernels", document)
    put(folder.parent / "h1-transfer-kernels", "instructions", {"verified": True, "results": []})
    table = transfer_tables.kernels(folder)
    assert lines(table) == [["saxpy", "`async16`", "2", "3,000", "2.0", "75 %"]]
    assert "The copy moves 4,000 GB/s" in table


def test_traces_that_cover_too_little_and_change_too_much_are_counted(folder):
    few, slow, *others = all_rows = rows()
    for row in all_rows:
        row["traced"]["unattributed"] = 0.0
    few["traced"]["unattributed"] = 0.051 * few["traced"]["total"]
    slow["traced"]["total"] *= 1.051
    put(folder, "run-large", run_document("large", [few, slow, *others]))
    (line,) = lines(transfer_tables.traces(results_of(folder)))
    assert line == ["large", "6", "94.9 %", "1", "1"]


def test_without_results_tables_are_empty(folder):
    for table in (
        transfer_tables.verified(load([]), folder),
        transfer_tables.kernels(folder),
        transfer_tables.advice(folder),
    ):
        assert lines(table) == []
