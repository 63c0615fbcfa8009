# SPDX-License-Identifier: Apache-2.0
"""What the gates of the modelled memory found, and every row of the study that misses a gate."""

from collections.abc import Callable, Iterable

from study_tables import (
    BEFORE_AFTER_MAX,
    CUSPARSE_FACTOR_MAX,
    LATE_SHARE_MAX,
    MODES_WITHIN,
    SEARCHES,
    Row,
    Study,
    late_share,
    mode_pairs,
    options_of,
    percent,
    place_of,
    predictions,
    table,
)


def span(values: Iterable[float], write: Callable[[float], str]) -> str:
    """The least and the greatest of some values."""
    ordered = sorted(values)
    low, high = write(ordered[0]), write(ordered[-1])
    return low if low == high else f"{low} to {high}"


def chases(study: Study) -> str:
    """Chains of loads."""
    by_latency: dict[float, dict[float, Row]] = {}
    for row in study.gates("chase"):
        if row["memory"]["mode"] == "device":
            by_latency.setdefault(row["expected"], {})[row["memory"]["lead_us"]] = row
    leads = sorted({lead for rows in by_latency.values() for lead in rows})
    body = []
    for expected, rows in by_latency.items():
        pinned = [r for r in study.gates("chase") if r["memory"]["mode"] == "pinned" and r["expected"] == expected]
        cells = [f"{rows[lead]['measured'] / 1e3:.3f}" for lead in leads]
        cells += [f"{rows[leads[-1]]['ratio']:.3f}", "yes" if rows[leads[-1]]["within"] else "**no**"]
        body.append([f"{expected / 1e3:g}", *cells, "".join(f"{r['measured'] / 1e3:.3f}" for r in pinned)])
    default = f"lead {leads[-1]:g} us"
    heads = [f"lead {lead:g} us" for lead in leads]
    return table(["set, us", *heads, f"found / set, {default}", "within 3 %", f"`mode=pinned`, {default}"], body)


def random_reads(study: Study) -> str:
    """Random reads, by set, size and reader."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in (*study.gates("reads"), *study.gates("shards"), *study.gates("modes")):
        what = row["name"].rsplit(", ", 2)[0]
        if row["group"] == "modes":
            what = f"`mode={what.partition(',')[0]}`, 8 to 32 us"
        if row["group"] == "shards":
            what = f"one shard, {row['bytes']} B" if row["memory"]["shards"] == 1 else "4 to 132 shards"
        groups.setdefault((what, row["reader"]), []).append(row)
    body = []
    for (what, reader), rows in groups.items():
        sizes = span((row["bytes"] for row in rows), str)
        of_model = span((row["ratio"] for row in rows), lambda ratio: f"{100 * ratio:.1f} %")
        late = span((row["late_share"] for row in rows), percent)
        body.append(
            [what if what.startswith("one") else f"{what}, {sizes} B", f"{reader}s", of_model, late, within(rows)]
        )
    return table(["set", "reads by", "of the model's rate", "late", "within 5 %, late below 1 %"], body)


def within(rows: list[Row]) -> str:
    """How many rows keep their gate."""
    held = sum(row["within"] for row in rows)
    return "yes" if held == len(rows) else "**no**" if held == 0 else f"**{held} of {len(rows)}**"


def machine_gates(study: Study) -> str:
    """What the machine itself does, without a model."""
    body = []
    for size in sorted({row["region_bytes"] for row in study.gates("machine")}):
        rows = [row for row in study.gates("machine") if row["region_bytes"] == size]
        steps = {row["data"]: f"{row['measured']:,.0f}" for row in rows if row["kind"] == "plain_chase"}
        reads = {row["bytes"]: row for row in rows if row["kind"] == "plain_reads"}
        name = f"{size >> 30} GiB" if size >> 30 else f"{size >> 20} MiB"
        rates = [f"{reads[b]['measured'] / 1e6:,.0f}" if b in reads else "" for b in (32, 128)]
        flight = f"{reads[128]['outstanding']:.0f}" if 128 in reads else ""
        body.append([name, steps.get("device", ""), steps.get("pinned", ""), *rates, flight])
    head = ["region", "a step in GPU memory, ns", "a step in host memory, ns", "random reads of host memory, 32 B, M/s"]
    return table([*head, "128 B, M/s", "of those in flight"], body)


def misses(study: Study) -> list[str]:
    """Every row that misses a gate, with its figure."""
    found = []

    def late_rows(step: str, name: Callable[[Row], str]) -> None:
        for row in study.rows(step):
            share = late_share(row)
            if share is not None and share >= LATE_SHARE_MAX:
                found.append(f"{step}, {name(row)}: {percent(share)} of the loads are late")

    def of_kind(row: Row) -> str:
        return f"{row['graph']}, {SEARCHES[row['entry']]}, {place_of(row)}"

    for step in ("kinds25", "paper25"):
        for p in predictions(study.rows(step)):
            if not p.holds:
                found.append(f"{step}, {of_kind(p.row)}: {p.ratio:.2f} of the model's time")
    for step in ("kinds25", "paper25"):
        late_rows(step, of_kind)
        for row in study.rows(step):
            if row.get("fidelity") == "exceeded":
                found.append(f"{step}, {of_kind(row)}: fidelity exceeded")
    late_rows("latency23", lambda row: f"{SEARCHES[row['entry']]}, {row['link']}, {row['latency_us']:g} us")
    late_rows("alignment23", lambda row: f"{SEARCHES[row['entry']]}, {row['alignment']} B")
    for at, device, pinned in mode_pairs(study):
        ratio = pinned["median_s"] / device["median_s"]
        if abs(ratio - 1) > MODES_WITHIN:
            found.append(f"modes22, {at:g} us: `mode=pinned` takes {ratio:.2f} of the time of `mode=device`")
    late_rows("modes22", lambda row: f"mode={row['place']}, {options_of(row['external'])['latency_us']} us")
    late_rows("algorithms22", lambda row: f"{row['graph']}, {row['algorithm']}, {place_of(row)}")
    for step in ("plain25", "plain-published25"):
        late_rows(step, lambda row: f"{row['search']}, {place_of(row)}")
        for row in study.rows(step):
            if row["fidelity"] == "exceeded":
                found.append(f"{step}, {row['search']}, {place_of(row)}: fidelity exceeded")
    for p in predictions(study.rows("rates24")):
        name = f"rates24, {options_of(p.row['drive'])['iops']}"
        if not p.holds:
            found.append(f"{name}: {p.ratio:.2f} of the model's time")
        if p.row["fidelity"] == "exceeded":
            found.append(f"{name}: fidelity exceeded")
    for row in study.rows("before-after"):
        if row["factor"] > BEFORE_AFTER_MAX:
            where = f"{row['graph']}, {row['algorithm']}, {row['place']}"
            found.append(f"before-after, {where}: {row['factor']:.3f} of the time before")
    for row in study.rows("products22"):
        if row["factor"] > CUSPARSE_FACTOR_MAX:
            found.append(f"products22, {row['graph']}: {row['factor']:.2f} of the time of cuSPARSE")
    for step in ("algorithms22", "kinds25", "paper25", "largest27", "alignment23", "latency23", "modes22", "rates24"):
        wrong = sum(row["wrong"] for row in study.rows(step))
        if wrong:
            found.append(f"{step}: {wrong} wrong results")
    return found


def missed(study: Study) -> str:
    """The rows that miss a gate, as a list."""
    return "\n".join(f"- {line}" for line in misses(study)) or "None."
