# SPDX-License-Identifier: Apache-2.0
"""Makes a trace for `library_dlrm_bench` of the real click logs of ZOZO that the Python package `obp` brings.

    pip download obp==0.4.1 --no-deps -d DIR
    python3 apps/recommender/obp.py DIR/obp-0.4.1-py3-none-any.whl zozo.trace

Any version's wheel or source archive will do. The logs are the small sample of the Open Bandit Dataset (Saito et al.
2020): 10,000 shown items for each of two policies and three campaigns, in the order of their time stamps. A sample has
26 categorical features, as many as Criteo's logs: what the log has, the time, and crosses of these; a table has a row
for each value that occurs, numbered as they come. So tables are small: use the trace for what real clicks have in
common, not for capacity. The 13 dense features are the propensity, the item's number, sine and cosine of the time of
day and of the week, sum, largest, count and the item's own of the affinities, the logarithm of the time since the
sample before, position and policy.
"""

import argparse
import csv
import io
import itertools
import math
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

POLICIES = ("random", "bts")
CAMPAIGNS = ("all", "men", "women")
DENSE = 13


def read_tables(package: Path) -> dict[str, list[dict[str, str]]]:
    """Returns every CSV file of the dataset in a wheel or a source archive, by its path below `obd/`."""
    tables: dict[str, list[dict[str, str]]] = {}

    def take(name: str, content: bytes) -> None:
        path = name.partition("/obd/")[2]
        tables[path] = list(csv.DictReader(io.StringIO(content.decode())))

    if zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                if "/obd/" in name and name.endswith(".csv"):
                    take(name, archive.read(name))
    else:
        with tarfile.open(package) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None and "/obd/" in member.name and member.name.endswith(".csv"):
                    take(member.name, file.read())
    return tables


def samples(
    tables: dict[str, list[dict[str, str]]],
) -> Iterator[tuple[datetime, dict[str, str], dict[str, str], str, str]]:
    """Yields time, impression, its item's features, campaign and policy."""
    for policy, campaign in itertools.product(POLICIES, CAMPAIGNS):
        folder = f"{policy}/{campaign}"
        items = {row["item_id"]: row for row in tables[f"{folder}/item_context.csv"]}
        for row in tables[f"{folder}/{campaign}.csv"]:
            yield datetime.fromisoformat(row["timestamp"]), row, items[row["item_id"]], campaign, policy


def categories(time: datetime, row: dict[str, str], item: dict[str, str], campaign: str) -> list[tuple[object, ...]]:
    """Returns the values of the 26 categorical features."""
    name = (campaign, row["item_id"])
    users = tuple(row[f"user_feature_{i}"] for i in range(4))
    position = row["position"]
    minute = time.hour * 60 + time.minute
    kinds = tuple(item[f"item_feature_{i}"] for i in range(1, 4))
    single = [name, (position,), *((u,) for u in users), *((k,) for k in kinds)]
    single += [(time.weekday(),), (time.hour,), (minute,)]
    crossed = [users, (users, name), (users, position), (users, time.hour), (name, position), (name, time.hour)]
    crossed += [(name, u) for u in users]
    crossed += [kinds[:2], (users, kinds[0]), (users, kinds[1]), (users, minute)]
    return single + crossed


def measures(
    time: datetime, before: datetime, row: dict[str, str], item: dict[str, str], policy: str
) -> tuple[float, ...]:
    """Returns the values of the dense features."""
    day = 2 * math.pi * (time.hour * 3600 + time.minute * 60 + time.second) / 86400
    week = (2 * math.pi * time.weekday() + day) / 7
    affinities = [float(value) for key, value in row.items() if key.startswith("user-item_affinity_")]
    own = float(row.get(f"user-item_affinity_{row['item_id']}", 0) or 0)
    gap_s = max(0.0, (time - before).total_seconds())
    return (
        float(row["propensity_score"]),
        float(item["item_feature_0"]),
        math.sin(day),
        math.cos(day),
        math.sin(week),
        math.cos(week),
        math.log1p(sum(affinities)),
        math.log1p(max(affinities, default=0.0)),
        math.log1p(sum(a != 0 for a in affinities)),
        math.log1p(own),
        math.log1p(gap_s),
        float(row["position"]) / 3,
        float(policy == "bts"),
    )


def make_trace(tables: dict[str, list[dict[str, str]]]) -> bytes:
    """Returns the trace in the format that apps/recommender/trace.hpp describes."""
    numbers: list[dict[tuple[object, ...], int]] = []
    rows: list[int] = []
    dense: list[float] = []
    count = 0
    ordered = sorted(samples(tables), key=lambda s: s[0])
    before = ordered[0][0]
    for time, row, item, campaign, policy in ordered:
        values = categories(time, row, item, campaign)
        if not numbers:
            numbers = [{} for _ in values]
        rows += [table.setdefault(value, len(table)) for table, value in zip(numbers, values, strict=True)]
        dense += measures(time, before, row, item, policy)
        before = time
        count += 1
    header = b"FBDLRM01" + struct.pack("<IIQ", DENSE, len(numbers), count)
    header += struct.pack(f"<{len(numbers)}I", *(len(table) for table in numbers))
    return header + struct.pack(f"<{len(dense)}f", *dense) + struct.pack(f"<{len(rows)}I", *rows)


def main() -> int:
    """Writes the trace and says what it holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path, help="wheel or source archive of obp")
    parser.add_argument("trace", type=Path, help="file to write")
    arguments = parser.parse_args()
    tables = read_tables(arguments.package)
    missing = [f"{p}/{c}/{c}.csv" for p in POLICIES for c in CAMPAIGNS if f"{p}/{c}/{c}.csv" not in tables]
    if missing:
        print(f"package: '{arguments.package}': has no {missing[0]}: use obp 0.4.1 or a later one", file=sys.stderr)
        return 2
    trace = make_trace(tables)
    arguments.trace.write_bytes(trace)
    _, table_count, count = struct.unpack_from("<IIQ", trace, 8)
    rows = struct.unpack_from(f"<{table_count}I", trace, 24)
    print(
        f"{arguments.trace}: {count} samples, {table_count} tables, {sum(rows)} rows in all, {max(rows)} in the largest"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
