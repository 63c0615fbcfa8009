# SPDX-License-Identifier: Apache-2.0
"""The tables of the study of graphs in external memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench" / "graph"
sys.path.insert(0, str(REPORT))

import study_gates  # noqa: E402
import study_tables  # noqa: E402
from study_tables import Study  # noqa: E402

PAGES = [ROOT / "docs" / "graph-study.md", ROOT / "docs" / "internals" / "external-memory.md"]


def study_of(folder: Path, **steps: list[dict]) -> Study:
    for name, rows in steps.items():
        (folder / f"{name}.json").write_text(json.dumps({"rows": rows}))
    return Study(folder)


def test_the_pages_have_what_the_results_say():
    command = [sys.executable, REPORT / "report.py", "--check", *PAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_page_that_differs_or_asks_for_an_unknown_table_fails_the_check(tmp_path):
    page = tmp_path / "page.md"
    for text, complaint in (
        ("<!-- largest: begin -->\n<!-- largest: end -->\n", "not what h100-graph says"),
        ("<!-- smallest: begin -->\n<!-- smallest: end -->\n", "the table smallest"),
        ("no place for a table\n", "has no lines"),
    ):
        page.write_text(text)
        command = [sys.executable, REPORT / "report.py", "--check", page]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert complaint in done.stderr
        assert page.read_text() == text


def row(seconds: float, late: int = 0, **more: object) -> dict:
    place = {"place": "external:", "external": "latency_us=2,alignment=32,link=64M,outstanding=none", **more}
    return {
        "graph": "uniform4",
        "entry": "id",
        "wrong": 0,
        "median_s": seconds,
        "loads": 1000,
        "late": late,
        "reads": 1_000_000,
        "bytes_read": 64_000_000,
        "bytes_needed": 32_000_000,
        **place,
    }


def test_the_model_of_a_place_is_that_of_its_text():
    by_link, by_latency, by_rate = study_tables.predictions(
        [
            row(1.1),
            row(1.2, external="latency_us=8,alignment=32,outstanding=8"),
            row(0.5, external="latency_us=2,alignment=16,link=none,outstanding=none,iops=1M,devices=2"),
        ]
    )
    assert (by_link.bound, by_link.seconds, by_link.holds) == ("link", 1.0, True)
    assert (by_latency.bound, by_latency.seconds, by_latency.holds) == ("latency", pytest.approx(1.0), False)
    assert (by_rate.bound, by_rate.seconds, by_rate.holds) == ("iops", pytest.approx(0.5), True)


def test_a_knee_is_where_the_asymptote_meets_the_plateau(tmp_path):
    # A million requests of 64 bytes, 8 in flight, 64 MB/s: the link takes a second, and so do 8 us a request.
    def at(latency_us: float, outstanding: int | None) -> dict:
        seconds = max(1.0, 1_000_000 * latency_us / 8e6) if outstanding else 1.0
        return row(seconds, latency_us=latency_us, outstanding=outstanding, link="slow", link_bytes_per_second=64e6)

    rows = [at(latency_us, limit) for limit in (8, None) for latency_us in (1, 16, 32)]
    (knee,) = study_tables.knees(study_of(tmp_path, latency23=rows))
    assert knee.knee_s == pytest.approx(8e-6)
    assert knee.model_knee_s == pytest.approx(8e-6)
    assert knee.slope / knee.model_slope == pytest.approx(1)
    assert knee.in_flight == pytest.approx(8)


def test_no_miss_is_hidden(tmp_path):
    mode = "latency_us=2,alignment=32,mode="
    study = study_of(
        tmp_path,
        kinds25=[row(1.0), row(1.2), row(1.0, late=10), row(1.0, fidelity="exceeded")],
        paper25=[],
        latency23=[],
        alignment23=[],
        modes22=[
            row(1.0, place=name, external=mode + name) | {"median_s": s} for name, s in (("device", 1), ("pinned", 2))
        ],
        algorithms22=[row(1.0, algorithm="bfs") | {"wrong": 3}],
        plain25=[],
        **{
            "plain-published25": [row(1.0, search="plain", fidelity="exceeded")],
            "before-after": [{"graph": "uniform4", "algorithm": "bfs", "place": "hbm", "factor": 1.07}],
        },
        rates24=[row(1.0, drive="iops=6M,latency_us=50,link=gen4x16", fidelity="exceeded")],
        products22=[{"graph": "uniform4", "factor": 1.3}],
        largest27=[],
    )
    found = study_gates.misses(study)
    assert [line.partition(",")[0] for line in found] == ["kinds25"] * 3 + [
        "modes22",
        "plain-published25",
        "rates24",
        "before-after",
        "products22",
        "algorithms22: 3 wrong results",
    ]
    for figure in (
        "1.20 of the model's time",
        "1.00 % of the loads are late",
        "fidelity exceeded",
        "2.00",
        "1.30",
        "1.070",
    ):
        assert any(figure in line for line in found), figure
