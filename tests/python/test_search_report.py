# SPDX-License-Identifier: Apache-2.0
"""The tables, gates and plots of the study of vector search."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench" / "search"
sys.path.insert(0, str(REPORT))

import search_gates  # noqa: E402
import search_plots  # noqa: E402
import search_rows  # noqa: E402
import search_tables  # noqa: E402
from search_rows import EXACT_BATCHES, RATES, Study  # noqa: E402

PAGE = ROOT / "docs" / "search-study.md"
LATENCY = {"p50": 1e6, "p99": 2e6}
MIOPS = {rate: float(rate[:-1]) for rate in RATES}


def drive(rate: str, fidelity: str = "ok", link: str = "gen5x16", late: float = 0.001) -> dict:
    timing = f"profile={rate[8:]}" if rate.startswith("profile:") else f"iops={rate},latency_us=50"
    uri = f"emulated:size=6072M,{timing},link={link},backing=hbm,residency=served,sms=32"
    return {"uri": uri, "fidelity": fidelity, "link": link, "lateness": {"of_target": late}}


def row(qps: float, width: int | str = 1, **more: object) -> dict:
    return {
        "itopk_size": 64,
        "search_width": width,
        "recall": 0.92,
        "qps": qps,
        "latency_ns": LATENCY,
        "reads_per_query": 50.0,
        "failed_queries": 0,
        "concurrency": 1000,
        **more,
    }


def on(qps: float, *drives: dict, **more: object) -> dict:
    found = row(qps, **{"wanted": 0.9, **more})
    late = any(each["fidelity"] != "ok" for each in drives)
    return {
        **found,
        "drives": list(drives),
        "fidelity": "exceeded" if late else "ok",
        "bytes_per_second": 512 * qps * found["reads_per_query"],
    }


def in_batches(qps: float, rate: str, width: int = 4, batch: int = 256, **more: object) -> dict:
    return on(qps, drive(rate), width=width, batch=batch, max_iterations=10, **{"reads_per_query": 1000.0, **more})


def study_of(folder: Path, **steps: list[dict]) -> Study:
    results = folder / "results"
    results.mkdir(exist_ok=True)
    for name, rows in steps.items():
        document = {
            "command": f"bench/search/study.py OUT {name}",
            "commit": "0123abc",
            "gpu": "some GPU, 1.2",
            "client_percent_of_multiprocessors": "75" if "drive" in name or "exact-" in name else None,
            "vectors": 10_000_000,
            "dimension": 128,
            "rows": rows,
        }
        (results / f"{name}.json").write_text(json.dumps(document))
    return Study(results)


def whole(folder: Path) -> Study:
    """A study of all steps, in which QPS follow the rate up to 40 MIOPS."""
    share = {rate: min(1.0, 40 / MIOPS[rate]) * 0.9 for rate in RATES}
    steps = {
        f"drive-{rate}": [
            on(MIOPS[rate] * 1e6 / 50 * share[rate] * part, drive(rate), width=width, wanted=wanted)
            for wanted in (0.9, 0.95)
            for width, part in ((1, 1.0 if MIOPS[rate] < 10 else 0.5), (8, 0.99))
        ]
        for rate in RATES
    }
    steps |= {
        f"exact-{rate}": [
            in_batches(MIOPS[rate] * share[rate] * 1000 * (1 - abs(width - best) / 100), rate, width, batch)
            for batch in EXACT_BATCHES
            for best in [2 if MIOPS[rate] < 10 else 4]
            for width in (1, 2, 4, 8)
        ]
        for rate in RATES
    }
    steps["memory"] = [
        {"memory": memory, **row(qps, width, itopk_size=size, recall=recall + (0.001 if width != 1 else 0))}
        for memory, qps in (("hbm", 2e6), ("host", 4e5))
        for width in (1, 8)
        for size, recall in ((48, 0.88), (64, 0.92), (80, 0.96))
    ]
    steps["exact-memory"] = [
        row(1e5, width, max_iterations=steps_, batch=256, recall=recall)
        for width in (1, 2, 4, 8)
        for steps_, recall in ((9, 0.94), (10, 0.955))
    ]
    steps["drives-2-20M"] = [on(6e5, *[drive("20M")] * 2)]
    steps["drives-4-10M"] = [on(6e5, *[drive("10M")] * 4)]
    steps["profile-d7-ps1010"] = [on(4e4, drive("profile:d7-ps1010", link="gen5x4"))]
    steps["profile-990-pro"] = [on(2e4, drive("profile:990-pro", link="gen5x4"))]
    steps["data"] = [{"vectors": 10_000_000, "graph": [10_000_000, 64], "local_intrinsic_dimension": 13.5}]
    return study_of(folder, **steps)


def gate(study: Study, words: str) -> search_gates.Gate:
    (found,) = [each for each in search_gates.gates(study) if words in each.asks]
    return found


def lines(text: str, begin: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(begin)]


def test_the_page_has_what_the_results_say():
    command = [sys.executable, REPORT / "report.py", "--check", PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_page_that_differs_or_asks_for_an_unknown_table_fails_the_check(tmp_path):
    page = tmp_path / "page.md"
    for text, complaint in (
        ("<!-- gates: begin -->\n<!-- gates: end -->\n", "run python bench/search/report.py --write"),
        ("<!-- doors: begin -->\n<!-- doors: end -->\n", "the table doors"),
        ("no place for a table\n", "has no lines"),
    ):
        page.write_text(text)
        command = [sys.executable, REPORT / "report.py", "--check", page]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert complaint in done.stderr
        assert page.read_text() == text


def test_without_results_each_table_says_so_and_no_plot_is_drawn(tmp_path):
    command = [sys.executable, REPORT / "report.py", tmp_path / "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parts = done.stdout.split("## ")[1:]
    assert len(parts) == 14
    assert [part.splitlines()[0] for part in parts if "not measured" not in part] == []
    assert "| held |" not in done.stdout
    assert "**missed**" not in done.stdout
    search_plots.write(Study(tmp_path / "none"), tmp_path / "plots")
    assert list((tmp_path / "plots").iterdir()) == []


def test_the_plots_of_all_steps_are_drawn(tmp_path):
    study = whole(tmp_path)
    folder = study.folder / "plots"
    search_plots.write(study, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["exact.png", "latency.png", "qps.png"]
    assert search_tables.plots(study).count("/plots/") == 3


def test_with_all_steps_nothing_but_faiss_is_missing(tmp_path):
    study = whole(tmp_path)
    whole_tables = (search_tables.rates, search_tables.model, search_tables.exact_rates, search_tables.exact_best)
    for part in (search_tables.machine, search_tables.exact_memory, *whole_tables):
        assert "not measured" not in part(study).lower(), part
    assert all(each.holds for each in search_gates.gates(study)), search_gates.gate_table(study)


def test_a_step_that_was_not_measured_is_a_row(tmp_path):
    study = study_of(tmp_path, **{"drive-10M": [on(1e5, drive("10M"))]})
    text = search_tables.rates(study)
    assert lines(text, "| 5M | 32 | 0.90 |")[0].startswith("| 5M | 32 | 0.90 | not measured |")
    assert "| 100,000 |" in lines(text, "| 10M | 32 | 0.90 |")[0]
    assert "drive-5M" in search_tables.machine(study)
    widths = [len(line.split("|")) for line in text.splitlines()]
    assert len(set(widths)) == 1, "each line has as many cells as the head"


@pytest.mark.parametrize(
    ("more", "bound", "qps"),
    [
        ({}, "IOPS", 10e6 / 50),
        ({"concurrency": 100}, "latency", 100 / (50 * 50e-6)),
        ({"itopk_size": 80}, "computation", 1.5e5),
        ({"link": "gen3x4"}, "link", 8e9 / 8 * 128 / 130 * 4 / (512 * 50)),
    ],
)
def test_the_model_is_the_least_bound(tmp_path, more, bound, qps):
    link = more.pop("link", "gen5x16")
    memory = [{"memory": "hbm", **row(value, itopk_size=size)} for size, value in ((64, 1e9), (80, 2e5))]
    study = study_of(tmp_path, memory=memory, **{"drive-10M": [on(1e5, drive("10M", link=link), **more)]})
    (measured,) = study.rows("drive-10M")
    found = search_rows.model(study, measured)
    assert found.bound == bound
    assert found.qps == pytest.approx(qps)
    assert found.ratio(measured) == pytest.approx(1e5 / qps)


def test_auto_has_no_bound_by_latency(tmp_path):
    study = study_of(tmp_path, **{"drive-10M": [on(1e5, drive("10M"), width="auto", concurrency=1)]})
    assert search_rows.model(study, study.rows("drive-10M")[0]).bound == "IOPS"


def test_exact_waits_twice_a_step(tmp_path):
    study = study_of(tmp_path, **{"exact-10M": [in_batches(1000, "10M"), in_batches(1000, "10M", concurrency=100)]})
    together, in_parts = study.rows("exact-10M")
    reads_s = 256 * 1000 / 10e6
    waits_s = 21 * 50e-6
    assert search_rows.exact_model(study, together).qps == pytest.approx(256 / (reads_s + waits_s))
    assert search_rows.exact_model(study, in_parts).qps == pytest.approx(256 / (reads_s + 3 * waits_s))
    few = study_of(tmp_path, **{"exact-40M": [in_batches(1000, "40M", batch=4)]})
    assert search_rows.exact_model(few, few.rows("exact-40M")[0]).bound == "latency"


def test_drives_add_up_and_profiles_have_the_rate_of_a_block():
    four = on(1e5, *[drive("10M")] * 3, drive("10M", late=0.5))
    assert search_rows.iops(four) == 40e6
    assert search_rows.link_rate(four) == pytest.approx(4 * 63.0e9, rel=0.01)
    assert search_rows.lateness(four) == 0.5
    for name, miops, latency_us in (("d7-ps1010", 2.47, 50), ("990-pro", 1.4, 45)):
        found = search_rows.drive_of(f"emulated:size=1G,profile={name},link=gen5x4", "gen5x4")
        assert found.iops / 1e6 == pytest.approx(miops, rel=0.001)
        assert found.latency_s == pytest.approx(latency_us * 1e-6)


def test_codes_of_another_length_have_rows_of_their_own(tmp_path):
    rows = [on(1e5, drive("10M")), on(1.2e5, drive("10M"), chunks=64)]
    study = study_of(tmp_path, **{"drive-10M": rows})
    text = search_tables.rates(study)
    assert "| 100,000 |" in lines(text, "| 10M | 32 | 0.90 |")[0]
    assert "| 120,000 |" in lines(text, "| 10M | 64 | 0.90 |")[0]
    assert lines(text, "| 5M | 64 |") == []


def test_codes_that_reach_no_recall_have_a_sentence_and_no_rows(tmp_path):
    found = [
        {"memory": "hbm", "chunks": chunks, **row(1e6, recall=recall)} for chunks, recall in ((16, 0.89), (32, 0.92))
    ]
    study = study_of(tmp_path, memory=found)
    assert search_tables.memory(study).endswith("Codes of 16 bytes reach no recall of 0.90 with any list tried.")
    assert not any(
        "| 16 |" in text or "16 B" in text for text in (search_tables.memory(study), search_tables.published(study))
    )


def test_a_late_drive_of_the_mode_exact_is_said_in_each_table(tmp_path):
    rows = [
        in_batches(1000.0, "2.5M"),
        on(5000.0, drive("40M", "exceeded"), batch=256, search_width=4, max_iterations=10),
    ]
    study = study_of(tmp_path, **{"exact-2.5M": rows[:1], "exact-40M": rows[1:]})
    assert "| 256 | 4 | 1,000 (1.00x) |" in search_tables.exact_rates(study)
    assert "5,000 **exceeded** (5.00x)" in search_tables.exact_rates(study)


def test_a_figure_between_two_rows_lies_on_their_line():
    rows = [row(1.0, recall=0.96, reads_per_query=90.0), row(1.0, recall=0.88, reads_per_query=50.0)]
    assert search_rows.at_recall(rows, 0.90, "reads_per_query") == pytest.approx(60)
    assert search_rows.at_recall(rows, 0.97, "reads_per_query") is None


def test_no_miss_is_hidden(tmp_path):
    memory = [
        {"memory": "hbm", **row(1e6, 1, recall=0.92)},
        {"memory": "hbm", **row(1e6, 8, recall=0.914, failed_queries=3)},
    ]
    study = study_of(
        tmp_path,
        memory=memory,
        **{
            "drive-2.5M": [on(39_000, drive("2.5M", "exceeded"), width=8), on(38_000, drive("2.5M"))],
            "drive-40M": [on(630_000, drive("40M"))],
            "exact-2.5M": [in_batches(1000, "2.5M"), in_batches(900, "2.5M", 1)],
            "exact-40M": [in_batches(9600, "40M"), in_batches(9700, "40M", 8)],
            "exact-5M": [in_batches(1000, "5M", 4, 64)],
            "exact-10M": [in_batches(1000, "10M", 4, 64)],
        },
    )
    for words, figure, holds in (
        ("recall 0.90, 2.5M", "0.760, width 1; with fidelity exceeded 0.780", False),
        ("recall 0.90, 40M", "0.787, width 1", False),
        ("recall 0.95, 40M", "", None),
        ("batches of 256, width 4", "9.60; 9.70 with the best width at either rate", False),
        ("from 2.5M to 40M: recall 0.90", "1, then 1", False),
        ("exact, batches of 64", "4, then 4", False),
        ("below that of width 1", "0.0060 below, in 1 rows", False),
        ("keeps its times", "8 of 9 searches", False),
        ("no query fails", "3 in 11 rows", False),
        ("each rate", "2 of 8 rates", None),
    ):
        found = gate(study, words)
        assert (found.figure, found.holds) == (figure, holds), words
    text = search_gates.gate_table(study)
    assert text.count("**missed**") == 8
    assert "39,000 **exceeded**" in search_tables.widths(study)


def test_a_late_drive_holds_no_gate_until_the_search_is_measured_with_fewer_queries(tmp_path):
    late = on(40_000, drive("2.5M", "exceeded"))
    for rows, figure, holds in (
        ([late], "0.800, width 1; fidelity exceeded", False),
        ([late, on(41_000, drive("2.5M"), concurrency=500)], "0.820, width 1", True),
    ):
        study = study_of(tmp_path, **{"drive-2.5M": rows})
        found = gate(study, "recall 0.90, 2.5M")
        assert (found.figure, found.holds) == (figure, holds)
        assert gate(study, "keeps its times").holds == holds


def test_drives_on_a_gpu_of_their_own_are_told_apart_from_those_that_share_one(tmp_path):
    study = study_of(tmp_path, **{"drive-10M": [on(9e4, drive("10M"))], "drive-40M": [on(9e4, drive("40M"))]})
    assert "had 75 % of the GPU's multiprocessors, and the drives the rest." in search_tables.machine(study)
    assert "of their own" not in search_tables.machine(study)
    path = study.folder / "drive-40M.json"
    document = json.loads(path.read_text())
    document |= {"client_percent_of_multiprocessors": None, "gpu": "some GPU, 1.2\nsome GPU, 1.2"}
    path.write_text(json.dumps(document))
    text = search_tables.machine(Study(study.folder))
    assert "Measured on some GPU, 1.2 (name" in text
    assert "the drives the rest. Other drives were on a GPU of their own." in text
    (study.folder / "drive-10M.json").unlink()
    text = search_tables.machine(Study(study.folder))
    assert "The drives were on a GPU of their own." in text
    assert "the rest" not in text


def test_faiss_is_told_with_its_processors(tmp_path):
    study = study_of(tmp_path)
    assert "not measured" in search_tables.faiss(study)
    document = {
        "command": "bench/search/faiss_cpu.py 1000 OUT",
        "commit": "0123abc",
        "cpu": {"model": "Some Processor", "logical_processors": 2},
        "faiss": "1.2",
        "threads": 2,
        "build_seconds": 9.0,
        "vectors": 1000,
        "dimension": 128,
        "degree": 32,
        "ef_construction": 100,
        "rows": [{"ef_search": 16, "recall": 0.89, "qps": 3000.0}, {"ef_search": 32, "recall": 0.91, "qps": 1000.0}],
    }
    (tmp_path / search_rows.FAISS).write_text(json.dumps(document))
    text = search_tables.faiss(Study(study.folder))
    assert "with 2 threads on 2 processors of the kind Some Processor" in text
    assert lines(text, "| between two | 0.90 |") == ["| between two | 0.90 | 2,000 |"]
    assert lines(text, "| between two | 0.95 |") == ["| between two | 0.95 |  |"]
