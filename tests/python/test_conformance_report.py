# SPDX-License-Identifier: Apache-2.0
"""The table that says where the conformance list passes."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "report"))

import conformance  # noqa: E402


def check(name: str, result: str = "COMPLETED", **more: list) -> dict:
    return {"name": f"conforms/{name}", "result": result, **more}


def document(*rows: dict) -> dict:
    return {"machine": {"kernel": "6.1.0-1-amd64", "commit": "abc"}, "rows": list(rows)}


def on_gpu(*rows: dict) -> dict:
    return {"machine": {"gpu": "NVIDIA X1", "driver": "9.1", "kernel": "6.2", "commit": "def"}, "rows": list(rows)}


def row(target: str, **more: object) -> dict:
    return {"target": target, "checks": 9, "failed": [], "skipped": 0, **more}


def test_what_googletest_writes_is_counted():
    suite = {
        "name": "conformance/file_on_disk_uring",
        "testsuite": [check("one"), check("two", failures=[{"failure": "no"}]), check("three", "SKIPPED")],
    }
    assert conformance.outcomes({"testsuites": [suite]}) == {
        "file_on_disk_uring": {"checks": 3, "failed": ["two"], "skipped": 1}
    }


def test_the_table_has_a_row_for_each_place_and_hides_no_failure():
    text = conformance.table(
        document(
            row("qemu"),
            row("file_on_disk_uring", file_system="ext4"),
            row("file_on_disk_mmap", file_system="ext4", failed=["flush_completes"]),
            row("file_on_block_device_uring", file_system="xfs", skipped=9),
        ),
        on_gpu(row("resident", failed=["two"])),
    )
    assert "on Linux 6.1, at commit abc" in text
    assert "on an NVIDIA X1, driver 9.1, at\ncommit def" in text
    assert text.splitlines()[6:] == [
        "| a file on ext4 | 9 of 9 | 8 of 9, failed: flush_completes |  |",
        "| a loop device over a file on xfs | 0 of 9, 9 skipped |  |  |",
        f"| {conformance.ELSEWHERE['qemu']} |  |  | 9 of 9 |",
        f"| {conformance.ELSEWHERE['resident']} |  |  | 8 of 9, failed: two |",
    ]


def test_a_page_that_differs_fails_the_check(monkeypatch, tmp_path):
    page, results, gpu_results = tmp_path / "page.md", tmp_path / "results.json", tmp_path / "gpu.json"
    page.write_text(f"before\n{conformance.BEGIN}{conformance.END}after\n")
    results.write_text(json.dumps(document(row("emulated"))))
    monkeypatch.setattr(conformance, "PAGE", page)
    gpu_results.write_text(json.dumps(on_gpu(row("visiting"))))
    monkeypatch.setattr(conformance, "RESULTS", results)
    monkeypatch.setattr(conformance, "ON_GPU", gpu_results)
    monkeypatch.setattr(sys, "argv", ["conformance.py", "--check"])
    with pytest.raises(SystemExit, match=r"run python bench/report/conformance\.py"):
        conformance.main()
    monkeypatch.setattr(sys, "argv", ["conformance.py"])
    conformance.main()
    assert "9 of 9" in page.read_text()
    monkeypatch.setattr(sys, "argv", ["conformance.py", "--check"])
    conformance.main()
    results.write_text(json.dumps(document(row("emulated", failed=["one"]))))
    with pytest.raises(SystemExit):
        conformance.main()


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(SystemExit, match="the table stands between them"):
        conformance.with_table("nothing", "table")
