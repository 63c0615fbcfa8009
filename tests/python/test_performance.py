# SPDX-License-Identifier: Apache-2.0
"""What vouches for the figures of the performance page, and what its writer refuses."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench" / "report"
sys.path.insert(0, str(REPORT))

import performance  # noqa: E402
import results  # noqa: E402
import tables  # noqa: E402

ROW = results.Row(
    "40 MIOPS", {}, "NVIDIA H100 80GB HBM3", "3fb9449", "h100/target", fidelity="ok", of_target=0.002, gb_per_s=20.0
)


def timing(latency_us: float) -> dict:
    cost = {"latency_min_us": latency_us, "per_byte_ns": 0, "per_command_ns": 0}
    return {"read": cost, "write": cost}


def drive(
    fidelity: str, *, late_ns: float = 0, target_ns: float = 50_000, count: int = 10, latency_us: float = 50
) -> dict:
    return {
        "fidelity": fidelity,
        "timing": timing(latency_us),
        "latency": {"target": {"count": count, "mean_ns": target_ns}},
        "lateness": {"mean_ns": late_ns},
        "link": "none",
        "residency": "served",
    }


@pytest.mark.parametrize(
    "text",
    ["It reaches 40 MIOPS.", "lateness of 0.13 us", "| 99.92 % |", "1,234 GB/s", "took 52 ms.", "1.97 times as fast"],
)
def test_a_result_in_the_template_itself_is_refused(text):
    with pytest.raises(performance.StatedResultError, match=r"take a result from bench/results"):
        performance.render("page", f"Before. {text} After.")


@pytest.mark.parametrize(
    "text",
    [
        '{{ given("40 MIOPS") }}',
        "with 32 SMs and 512 B reads over 8 GB",
        "p99.9 {{ 3 }} us",
        "`--runtime 3 s`",
        "[files](../results/50 us)",
        "4 KiB pages",
    ],
)
def test_conditions_expressions_and_code_are_no_results(text):
    performance.render("page", text)


def test_an_expression_that_finds_nothing_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="nothing"):
        performance.render("page", "{{ results.nothing.at_all }}")


def test_a_headline_rests_on_a_row_that_kept_its_times_within_its_link():
    assert ROW.headline() is ROW
    assert replace(ROW, fidelity=results.NO_DRIVE, gb_per_s=None).headline()
    for fidelity in ("exceeded", results.NOT_STATED, "ok, no timing model"):
        with pytest.raises(results.HeadlineError, match=f"fidelity: {fidelity}"):
            replace(ROW, fidelity=fidelity).headline()
    with pytest.raises(results.HeadlineError, match=r"64 GB/s is beyond its link \(none\)"):
        replace(ROW, link="none", gb_per_s=64.0).headline()
    with pytest.raises(results.HeadlineError, match=r"beyond its link \(gen3x4\)"):
        replace(ROW, link="gen3x4", gb_per_s=4.0).headline()


@pytest.mark.parametrize(
    ("link", "carries"), [("gen3x4", 3.9), ("gen4x8", 15.7), ("gen5x16", 63.0), ("gen6x16", 120.9)]
)
def test_a_link_carries_what_the_emulator_says(link, carries):
    assert not replace(ROW, link=link, gb_per_s=carries).beyond_link
    assert replace(ROW, link=link, gb_per_s=carries + 0.5).beyond_link


def test_what_a_row_says_of_itself_counts_before_its_drives_report():
    document = {"machine": {"device": "NVIDIA H200", "commit": "abcdef0123"}}
    own = {"fidelity": "exceeded", "link": "gen5x16", "residency": "peer", "beyond_link": True}
    report = {"fidelity": "ok", "link": "none", "residency": "served", "gb_per_s": 1.0}
    row = results.row_of("h200/graph", document, "cold", own, **report)
    assert (row.fidelity, row.link, row.residency, row.beyond_link) == ("exceeded", "gen5x16", "peer", True)
    with pytest.raises(results.HeadlineError):
        row.headline()
    idle = results.row_of("h200/cache", document, "hits", {"fidelity": "none", "beyond_link": False})
    assert (idle.fidelity, idle.beyond_link) == (results.NO_DRIVE, False)


def test_a_link_that_no_drive_has_is_an_error_and_not_taken_for_the_widest():
    with pytest.raises(KeyError):
        _ = replace(ROW, link="gen9x16").beyond_link


def test_every_row_ends_with_what_vouches_for_it():
    text = tables.vouched(
        ("case",), [(ROW, ("40 MIOPS",)), (replace(ROW, fidelity="exceeded", link="none", gb_per_s=99.0), ("fast",))]
    )
    head, _, kept, late = text.splitlines()
    assert head == "| case | fidelity | link | residency | device, commit |"
    assert kept == "| 40 MIOPS | ok, 0.20 % | not stated | not stated | H100, 3fb9449 |"
    assert late == "| fast | **exceeded**, 0.20 % | none; **beyond gen5x16** | not stated | H100, 3fb9449 |"


def test_drives_vouch_together():
    assert results.vouches_of([drive("ok", late_ns=50), drive("exceeded", late_ns=5000)]) == {
        "fidelity": "exceeded",
        "of_target": 0.1,
        "link": "none",
        "residency": "served",
    }
    assert results.vouches_of([]) == {}, "no report says nothing"
    no_model = results.vouches_of([drive("ok", count=0, latency_us=0)])
    assert (no_model["fidelity"], no_model["of_target"]) == ("ok, no timing model", None)
    assert results.vouches_of([drive("ok", count=0)])["fidelity"] == "ok", "it has a model, but served no command"


def test_the_page_its_charts_and_the_figures_of_the_readme_are_those_of_the_results():
    done = subprocess.run(
        [sys.executable, REPORT / "performance.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_check_fails_where_a_file_is_not_what_the_results_say(monkeypatch):
    monkeypatch.setattr(performance, "outputs", lambda: {"README.md": "another figure"})
    monkeypatch.setattr(sys, "argv", ["performance.py", "--check"])
    before = (ROOT / "README.md").read_text()
    with pytest.raises(
        SystemExit, match=r"README.md: not what bench/results says: run python bench/report/performance.py"
    ):
        performance.main()
    assert (ROOT / "README.md").read_text() == before


def test_another_result_makes_the_page_stale(monkeypatch):
    document = json.loads(json.dumps(results.load("cpu-20k-iops")))
    document["runs"][0]["jobs"][0]["read"]["iops"] = 1234
    results.processor_rows.cache_clear()
    monkeypatch.setattr(results, "load", lambda _: document)
    try:
        changed = tables.processor()
    finally:
        results.processor_rows.cache_clear()
    page = (ROOT / performance.PAGE).read_text()
    assert "| 1 | 1,234 | 2,000 |" in changed
    assert "| 1 | 1,991 | 2,000 |" in page
    assert changed not in page


def test_no_table_of_the_page_lacks_a_row_s_vouchers():
    """Tables of results end with the four columns; others hold commands, conditions or sums of rows with them."""
    page = (ROOT / performance.PAGE).read_text()
    without = {"| command | does |", "| what | figure | conditions |"}
    heads = re.findall(r"^(\|.*\|)\n\|(?:-+\|)+$", page, flags=re.MULTILINE)
    lacking = [
        h for h in heads if h not in without and not h.endswith("| fidelity | link | residency | device, commit |")
    ]
    assert [h.split("|")[1].strip() for h in lacking] == ["drive"], "only the sums over closed loops"
