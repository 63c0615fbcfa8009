# SPDX-License-Identifier: Apache-2.0
"""The gates of the study of vector search: what each asks, what was measured, and whether it was held."""

from collections.abc import Iterator
from dataclasses import dataclass

import search_rows as rows_of
from search_rows import CHUNKS, GATED_RATES, RATES, RECALLS, Row, Study, best
from study_pages import table

OF_RATE_MIN = 0.8
SPEED_UP_MIN = 9.7  # SwarmIO's, with batches of 256 and width 4, from 2.5 to 40 MIOPS
SPEED_UP_BATCH, SPEED_UP_WIDTH = 256, 4
RECALL_LOSS_MAX = 0.005
VECTORS_MIN = 10_000_000
WIDTH_BATCH = 64  # at which SwarmIO's best width is 2 up to 5 MIOPS, and 4 from 10 on


@dataclass(frozen=True)
class Gate:
    """What is asked, the figure, and whether that holds; None where it was not measured."""

    asks: str
    figure: str
    holds: bool | None


def gates(study: Study) -> Iterator[Gate]:
    """All gates."""
    yield from _of_rate(study)
    yield _speed_up(study)
    yield from _widths(study)
    yield _exact_widths(study)
    yield _recall(study)
    yield _vectors(study)
    yield _all_rates(study)
    yield from _rows(study)


def _with_fidelity(text: str, *rows: Row) -> str:
    late = [row for row in rows if row["fidelity"] != "ok"]
    return text + (f"; fidelity {late[0]['fidelity']}" if late else "")


def _of_rate(study: Study) -> Iterator[Gate]:
    for wanted in RECALLS:
        for rate in GATED_RATES:
            asks = f"QPS is at least {OF_RATE_MIN} of IOPS / reads of a query: recall {wanted:.2f}, {rate}"
            rows = rows_of.on_drive(study, f"drive-{rate}", wanted, CHUNKS)
            row = best(rows)
            if row is None:
                yield Gate(asks, "", None)
                continue
            share = rows_of.of_rate(row)
            text = _with_fidelity(f"{share:.3f}, width {row['search_width']}", row)
            fastest = max(rows, key=lambda each: each["qps"])
            if rows_of.in_time(row) and not rows_of.in_time(fastest):
                text += f"; with fidelity {fastest['fidelity']} {rows_of.of_rate(fastest):.3f}"
            yield Gate(asks, text, share >= OF_RATE_MIN and rows_of.in_time(row))


def _speed_up(study: Study) -> Gate:
    asks = (
        f"exact, batches of {SPEED_UP_BATCH}, width {SPEED_UP_WIDTH}: from {RATES[0]} to 40M, QPS grow at least "
        f"{SPEED_UP_MIN} times"
    )
    factor = rows_of.speed_up(study, "40M", SPEED_UP_BATCH, SPEED_UP_WIDTH)
    if factor is None:
        return Gate(asks, "", None)
    of_best = rows_of.speed_up(study, "40M", SPEED_UP_BATCH)
    rows = [row for rate in (RATES[0], "40M") for row in rows_of.exact(study, rate, SPEED_UP_BATCH, SPEED_UP_WIDTH)]
    text = f"{factor:.2f}; {of_best:.2f} with the best width at either rate"
    return Gate(asks, _with_fidelity(text, *rows), factor >= SPEED_UP_MIN)


def _widths(study: Study) -> Iterator[Gate]:
    for wanted in RECALLS:
        asks = f"the best width grows with the rate, from {RATES[0]} to 40M: recall {wanted:.2f}"
        ends = [_best_number(rows_of.on_drive(study, f"drive-{rate}", wanted, CHUNKS)) for rate in (RATES[0], "40M")]
        yield _grows(asks, ends)


def _best_number(rows: list[Row]) -> int | None:
    """The best of the widths that are numbers: `auto` says nothing of how many reads it kept in flight."""
    row = best(row for row in rows if row["search_width"] != "auto")
    return row["search_width"] if row else None


def _grows(asks: str, ends: list[int | None]) -> Gate:
    low, high = ends
    if low is None or high is None:
        return Gate(asks, "", None)
    return Gate(asks, f"{low}, then {high}", low < high)


def _exact_widths(study: Study) -> Gate:
    asks = f"the best width grows with the rate, from 5M to 10M: exact, batches of {WIDTH_BATCH}"
    return _grows(asks, [_best_number(rows_of.exact(study, rate, WIDTH_BATCH)) for rate in ("5M", "10M")])


def _recall(study: Study) -> Gate:
    asks = f"with more reads in flight, recall is at most {RECALL_LOSS_MAX} below that of width 1, with the same list"
    rows = [row for row in study.rows("memory") if row["memory"] == "hbm"]
    narrow = {(row["chunks"], row["itopk_size"]): row["recall"] for row in rows if row["search_width"] == 1}
    losses = [
        narrow[key] - row["recall"]
        for row in rows
        if row["search_width"] != 1 and (key := (row["chunks"], row["itopk_size"])) in narrow
    ]
    if not losses:
        return Gate(asks, "", None)
    worst = max(losses)
    words = f"{worst:.4f} below" if worst > 0 else f"{-worst:.4f} above, or more"
    return Gate(asks, f"{words}, in {len(losses)} rows", worst <= RECALL_LOSS_MAX)


def _vectors(study: Study) -> Gate:
    asks = f"the index has at least {VECTORS_MIN / 1e6:g} M vectors"
    document = study.document("memory")
    if document is None:
        return Gate(asks, "", None)
    return Gate(asks, f"{document['vectors'] / 1e6:g} M", document["vectors"] >= VECTORS_MIN)


def _all_rates(study: Study) -> Gate:
    absent = [rate for rate in RATES if not study.rows(f"drive-{rate}")]
    text = f"{len(RATES) - len(absent)} of {len(RATES)} rates"
    return Gate(f"each rate from {RATES[0]} to {RATES[-1]} is measured", text, None if absent else True)


def _rows(study: Study) -> Iterator[Gate]:
    rows = [row for step in study.steps for row in study.rows(step)]
    keys = ("step", "chunks", "wanted", "search_width", "batch")
    searches = {tuple(row.get(key) for key in keys) for row in rows}
    kept = {tuple(row.get(key) for key in keys) for row in rows if rows_of.in_time(row)}
    yield Gate(
        "each drive keeps its times, at some number of queries at a time: fidelity ok",
        f"{len(kept)} of {len(searches)} searches" if rows else "",
        kept == searches if rows else None,
    )
    rows += [row for step in ("memory", "exact-memory") for row in study.rows(step)]
    failed = sum(row["failed_queries"] for row in rows)
    yield Gate("no query fails", f"{failed} in {len(rows)} rows" if rows else "", failed == 0 if rows else None)


def verdict(gate: Gate) -> str:
    """Whether a gate is held, in words."""
    return {True: "held", False: "**missed**", None: "not measured"}[gate.holds]


def gate_table(study: Study) -> str:
    """Each gate with its figure."""
    return table(["gate", "figure", "verdict"], ([gate.asks, gate.figure, verdict(gate)] for gate in gates(study)))
