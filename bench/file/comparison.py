# SPDX-License-Identifier: Apache-2.0
"""Tables of what `compare.py` measured, as Markdown. A cell is the median of the repeats."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Row = dict[str, Any]
Figure = Callable[[Row], float]

NOTHING = "-"
WARMED = "~"  # beside a figure from a cold cache that did not stay cold


def tables(document: dict[str, Any]) -> Iterator[str]:
    """All tables of a document, with their headings."""
    rows = [row for row in document["results"] if row["ios"]]
    timed = [row for row in rows if row["seconds"]]
    for workload in dict.fromkeys(row["workload"] for row in timed):
        chosen = [row for row in timed if row["workload"] == workload]
        yield from _by_size_and_depth(workload, chosen)
    yield from _by_bytes([row for row in rows if not row["seconds"]])
    if any(_warmed(row) for row in rows):
        yield f"{WARMED} The run read more than half of the file, so later reads found a cache that was not cold."
    refused = [f"- {name}: {why}" for name, why in document.get("cannot", {}).items()]
    if refused:
        yield "\n".join(["### Not measured", "", *refused])


def _by_size_and_depth(workload: str, rows: list[Row]) -> Iterator[str]:
    sizes, depths = _values(rows, "bs"), _values(rows, "depth")
    columns = {f"{_size(bs)}, QD{depth}": {"bs": bs, "depth": depth} for bs in sizes for depth in depths}
    figures: dict[str, Figure] = {
        "MB/s": lambda row: row["bytes_per_s"] / 1e6,
        "thousand IOPS": lambda row: row["iops"] / 1e3,
        "mean latency in us": lambda row: row["mean_ns"] / 1e3,
        "99th percentile of latency in us": lambda row: row["p99_ns"] / 1e3,
        "CPU cores in use": _cores,
        "CPU time for a command in us": lambda row: _cores(row) / row["iops"] * 1e6,
    }
    for title, figure in figures.items():
        yield _table(f"{workload}: {title}", list(columns), rows, lambda of, f=figure: _cells(of, f, columns.values()))
    if len(depths) > 1:
        low, high = depths[0], depths[-1]
        title = f"{workload}: rate at QD{high} over that at QD{low}"
        yield _table(title, [_size(bs) for bs in sizes], rows, lambda of: _scaling(of, sizes, high, low))


def _by_bytes(rows: list[Row]) -> Iterator[str]:
    if not rows:
        return
    columns = {_size(size): {"size": size} for size in _values(rows, "size")}
    shape = f"blocks of {_size(rows[0]['bs'])}, QD{rows[0]['depth']}"
    title = f"{rows[0]['workload']} of so many bytes once, {shape}: MB/s"
    yield _table(
        title, list(columns), rows, lambda of: _cells(of, lambda row: row["bytes_per_s"] / 1e6, columns.values())
    )


def _cores(row: Row) -> float:
    return (row["user_percent"] + row["system_percent"]) / 100


def _warmed(row: Row) -> bool:
    return row["cache"] == "cold" and bool(row["seconds"]) and row["ios"] * row["bs"] > row["size"] / 2


def _values(rows: list[Row], name: str) -> list[int]:
    return sorted({row[name] for row in rows})


def _where(rows: list[Row], **where: int) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def _cells(rows: list[Row], figure: Figure, columns: Iterable[dict[str, int]]) -> list[str]:
    """A cell for each column: the median of the figure."""
    found = [_where(rows, **column) for column in columns]
    return [
        _number(statistics.median(map(figure, cell))) + (WARMED if any(map(_warmed, cell)) else "") if cell else NOTHING
        for cell in found
    ]


def _scaling(rows: list[Row], sizes: list[int], high: int, low: int) -> list[str]:
    """For each block size the rate at the depth `high` over that at `low`."""
    pairs = [(_where(rows, bs=bs, depth=high), _where(rows, bs=bs, depth=low)) for bs in sizes]
    return [
        _number(_rate(many) / _rate(few)) + (WARMED if any(map(_warmed, many + few)) else "")
        if many and few
        else NOTHING
        for many, few in pairs
    ]


def _rate(rows: list[Row]) -> float:
    return statistics.median(row["iops"] for row in rows)


def _size(count: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale and count % scale == 0:
            return f"{count // scale} {unit}"
    return f"{count} B"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _table(title: str, columns: list[str], rows: list[Row], cells: Callable[[list[Row]], list[str]]) -> str:
    """A line for each engine and state of the cache; `cells` makes it of their rows."""
    lines = [f"### {title}", "", f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for engine, cache in dict.fromkeys((row["engine"], row["cache"]) for row in rows):
        name = engine if cache == "any" else f"{engine}, {cache}"
        mine = [row for row in rows if (row["engine"], row["cache"]) == (engine, cache)]
        lines.append(f"| {name} | {' | '.join(cells(mine))} |")
    return "\n".join(lines)
