# SPDX-License-Identifier: Apache-2.0
"""The report of the transfer suite as one HTML page."""

from collections.abc import Iterator, Mapping, Sequence

from forebay import html_page as h
from forebay.transfer import words
from forebay.transfer.claims import NOT_MEASURED, REFUTED, VERDICTS, Found, Verdict
from forebay.transfer.drawing import in_order, series_of
from forebay.transfer.measured import Arm, Results, Row, Spread
from forebay.units import format_ns

Chart = tuple[str, bytes]  # what it shows, and its PNG file
COVERED_LEAST = 0.95
CHANGE_LEAST = 0.05
_ROW_HEADS = (
    "workload",
    "launch",
    "mode",
    "total, warm",
    "against standard",
    "kernels, warm",
    "total, cold",
    "kernels, cold",
    "page-locking",
    "traced: explained",
    "runs",
)


def page(results: Results, verdicts: Sequence[Verdict], charts: Mapping[str, Chart]) -> str:
    """The text of the page. `charts` has the name of each chart's file."""
    return h.document(
        "forebay transfer",
        h.element("h1", "Which way of moving data suits a program?"),
        h.element("p", words.INTRODUCTION),
        h.element("p", words.about_gpu(results.gpu)),
        h.element("h2", "What was measured"),
        _sources(results),
        h.element("h2", "How to read it"),
        h.terms(words.TERMS),
        *_runs(results, charts),
        *_not_timed(results),
        *_sweeps(results, charts),
        *_pipelines(results, charts),
        *_claims(verdicts),
    )


def _sources(results: Results) -> str:
    heads = ("file", "is of", "command", "GPU", "driver", "host", "build", "rows", "replace earlier ones")
    rows = [
        (
            [
                (source.file, ""),
                (source.kind, "text"),
                (source.command, ""),
                (source.gpu or "not stated", "text"),
                (source.driver or "not stated", "text"),
                (source.host, "text"),
                (source.commit, ""),
                (str(source.rows), "number"),
                (str(source.replaced), "number"),
            ],
            True,
        )
        for source in results.sources
    ]
    return h.table(heads, rows)


def _runs(results: Results, charts: Mapping[str, Chart]) -> Iterator[str]:
    for size in reversed(results.sizes):
        rows = [row for row in results.rows.values() if row.size == size and row.timed]
        if not rows:
            continue
        yield h.element("h2", f"Workloads at size {size}")
        yield from _pictures(charts, f"bars-{size}-")
        yield h.folded(f"All figures at size {size}", h.table(_ROW_HEADS, _rows_of(results, rows)))
        yield h.bullets(_traces(rows))
        if reasons := sorted({row.traced_reason for row in rows if row.traced_reason}):
            yield h.element("p", f"Rows were not traced: {'; '.join(reasons)}")


def _traces(rows: Sequence[Row]) -> Iterator[str]:
    """What is to be said about the traces of some rows."""
    traced = [row for row in rows if row.covered is not None and row.traced_change is not None]
    if not traced:
        return
    little = [row for row in traced if (row.covered or 0) < COVERED_LEAST]
    changed = [row for row in traced if abs(row.traced_change or 0) >= CHANGE_LEAST]
    names = ", ".join(f"{row.workload} {row.mode} ({100 * (row.covered or 0):.1f} %)" for row in little)
    yield f"Traces that explain less than {100 * COVERED_LEAST:g} % of their run: {names or 'none'}."
    names = ", ".join(f"{row.workload} {row.mode} ({100 * (row.traced_change or 0):+.1f} %)" for row in changed)
    yield f"Totals that tracing changed by {100 * CHANGE_LEAST:g} % or more: {names or 'none'}."


def _rows_of(results: Results, rows: Sequence[Row]) -> Iterator[tuple[list[h.Cell], bool]]:
    for workload in results.groups:
        mine = [row for row in rows if row.workload == workload]
        standard = {row.key[3]: row for row in mine if row.mode == "standard"}
        for row in in_order(mine):
            yield _cells(row, standard.get(row.key[3])), True


def _cells(row: Row, standard: Row | None) -> list[h.Cell]:
    cold = row.cold
    covered = "-" if row.covered is None else f"{100 * row.covered:.1f} %"
    against = "-" if standard is None else f"{100 * (row.spread().median / standard.spread().median - 1):+.1f} %"
    return [
        (row.workload, ""),
        (_launch(row), ""),
        (row.mode, ""),
        (_spread(row.spread()), "number"),
        (against, "number"),
        (_spread(row.spread("kernels")), "number"),
        ("-" if cold is None else _time(cold.total), "number"),
        ("-" if cold is None else _time(cold.kernels), "number"),
        (_time(row.page_locking) if row.page_locking else "-", "number"),
        (covered, "number"),
        (str(len(row.warm)), "number"),
    ]


def _launch(row: Row) -> str:
    shape = row.shape
    return f"{shape['blocks']} x {shape['threads']}, tile {shape['tile']}, {shape['stages']} stages"


def _not_timed(results: Results) -> Iterator[str]:
    rows = [row for row in (*results.rows.values(), *results.sweeps.values()) if not row.timed]
    arms = [arm for arm in results.arms.values() if not arm.seconds]
    if not rows and not arms:
        return
    yield h.element("h2", "What has no times")
    cells = [
        (f"{row.workload} in mode {row.mode} at {row.size}{_swept(row)}", row.refused, row.mismatch) for row in rows
    ]
    cells += [
        (
            f"{arm.jobs} jobs of {arm.workload} at {arm.size}, arm {arm.arm}",
            arm.refused,
            arm.mismatch,
        )
        for arm in arms
    ]
    yield h.table(
        ("what", "why"),
        (
            ([(what, "text"), (f"refused: {refused}" if refused else f"wrong result: {wrong}", "text")], not wrong)
            for what, refused, wrong in cells
        ),
    )


def _swept(row: Row) -> str:
    return f", {row.parameter} {row.value}" if row.parameter else ""


def _sweeps(results: Results, charts: Mapping[str, Chart]) -> Iterator[str]:
    pairs = dict.fromkeys((row.workload, row.parameter) for row in results.sweeps.values() if row.timed)
    if not pairs:
        return
    yield h.element("h2", "Sweeps: one part of the launch varies, all else stays")
    heads = ("workload", "size", "varied", "value", "mode", "launch", "total, warm", "kernels, warm", "runs")
    for workload, parameter in pairs:
        for size, by_mode in results.swept(workload, parameter):
            yield from _pictures(charts, f"sweep-{workload}-{parameter}-{size}.")
            rows = sorted((row for of in by_mode.values() for row in of.values()), key=lambda row: row.value)
            cells = [
                (
                    [
                        (workload, ""),
                        (size, ""),
                        (parameter, ""),
                        (str(row.value), "number"),
                        (row.mode, ""),
                        (_launch(row), ""),
                        (_spread(row.spread()), "number"),
                        (_spread(row.spread("kernels")), "number"),
                        (str(len(row.warm)), "number"),
                    ],
                    True,
                )
                for row in rows
            ]
            yield h.folded(f"All figures of {parameter}, {workload} at {size}", h.table(heads, cells))


def _pipelines(results: Results, charts: Mapping[str, Chart]) -> Iterator[str]:
    series = series_of(results)
    if not series:
        return
    yield h.element("h2", "Series of jobs")
    yield h.element("p", words.PIPELINE)
    used = dict.fromkeys(arm.arm for arms in series.values() for arm in arms)
    yield h.terms((name, words.ARMS[name]) for name in used if name in words.ARMS)
    yield from _pictures(charts, "jobs-")
    heads = ("workload", "size", "jobs", "allocation", "arm", "whole series", "as fast as malloc", "allocating", "runs")
    rows = [(cells, True) for arms in series.values() for cells in _arm_rows(arms)]
    yield h.table(heads, rows)


def _arm_rows(arms: Sequence[Arm]) -> Iterator[list[h.Cell]]:
    base = next((Spread.of(arm.seconds).median for arm in arms if arm.arm == "malloc"), None)
    for arm in arms:
        spread = Spread.of(arm.seconds)
        allocating = _spread(Spread.of(arm.allocation_seconds)) if arm.allocation_seconds else "-"
        yield [
            (arm.workload, ""),
            (arm.size, ""),
            (str(arm.jobs), "number"),
            (arm.allocation or "-", ""),
            (arm.arm, ""),
            (_spread(spread), "number"),
            (f"{base / spread.median:.2f} x" if base else "-", "number"),
            (allocating, "number"),
            (str(len(arm.seconds)), "number"),
        ]


def _pictures(charts: Mapping[str, Chart], prefix: str) -> Iterator[str]:
    return (h.image(shows, png) for name, (shows, png) in charts.items() if name.startswith(prefix))


def _claims(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield h.element("h2", "Claims of the published study")
    yield h.element("p", words.CLAIMS)
    counts = {name: sum(verdict.verdict == name for verdict in verdicts) for name in VERDICTS}
    yield h.bullets(f"{name}: {count} ({words.VERDICTS[name]})" for name, count in counts.items())
    heads = ("claim", "the study says", "published", "verdict", "ours", "to be said")
    yield h.table(heads, ((_claim_cells(one), one.verdict != REFUTED) for one in verdicts))
    yield h.folded(
        "How each claim is tested",
        *(part for one in verdicts for part in _test_of(one)),
    )


def _claim_cells(one: Verdict) -> list[h.Cell]:
    claim = one.claim
    return [
        (claim.id, ""),
        (claim.says, "text"),
        (claim.published, "text"),
        (one.shown, "text"),
        (ours(one), "text"),
        ("; ".join([*one.remarks, *([claim.note] if claim.note else [])]), "text"),
    ]


def ours(one: Verdict) -> str:
    """Our figures of a claim in a line; those that lack by their names only."""
    there = [found.text for found in one.found if found.measurement is not None]
    lacking = [found for found in one.found if found.measurement is None]
    if one.verdict == NOT_MEASURED and not there:
        return lacking[0].lacks
    return "; ".join([*there, *(f"{found.figure.name}: not measured" for found in lacking)])


def _test_of(one: Verdict) -> Iterator[str]:
    yield h.element("h3", f"{one.claim.id}: {one.claim.says}")
    yield h.table(
        ("figure", "is", "published", "ours", "agrees if", "why this limit", "agrees"),
        ((_figure_cells(found), found.agrees is not False) for found in one.found),
    )
    needed = one.lacking if one.verdict == NOT_MEASURED else one.document()["commands"]
    yield h.element("p", "What lacks is measured by:" if one.verdict == NOT_MEASURED else "Measured by:")
    yield "".join(f"<p>{h.element('code', command)}</p>" for command in needed)


def _figure_cells(found: Found) -> list[h.Cell]:
    figure, rule = found.figure, found.figure.rule
    published = "" if figure.published != figure.published else figure.shown(figure.published)
    return [
        (figure.name, "text"),
        (figure.measure.words, "text"),
        (published, "number"),
        (found.lacks if found.measurement is None else figure.shown(found.measurement.ratio), "text"),
        (rule.words if rule else "shown, not judged", "text"),
        (rule.why if rule else "", "text"),
        ({True: "yes", False: "no", None: "-"}[found.agrees], "text"),
    ]


def _spread(spread: Spread) -> str:
    if spread.count == 1:
        return _time(spread.median)
    return f"{_time(spread.median)} ({_time(spread.low)} to {_time(spread.high)})"


def _time(seconds: float) -> str:
    return format_ns(seconds * 1e9)
