# SPDX-License-Identifier: Apache-2.0
"""The rows of `bench/results/*.json`: each figure with what vouches for it.

A row knows on which device and at which commit it was measured, where the drive's engine ran, behind which link, and
what the drive said of its own timing. Nothing is guessed: what a file does not say is "not stated".
"""

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"

# What a link carries each way, in GB/s, as the emulator has it (src/memory/link_speed.cpp).
_GB_PER_S_AND_LANE = {3: 8 / 8 * 128 / 130, 4: 16 / 8 * 128 / 130, 5: 32 / 8 * 128 / 130, 6: 64 / 8 * 242 / 256}
LINK_GB_PER_S = {f"gen{g}x{lanes}": rate * lanes for g, rate in _GB_PER_S_AND_LANE.items() for lanes in (4, 8, 16)}
# A link on a GPU makes up for 2 us in which it was idle, as bench/harness/row_drives.cpp says.
LINK_TOLERANCE = 1e-3
# A drive without a link is held against the widest one that GPUs have today.
WIDEST_LINK = "gen5x16"
NOT_STATED = "not stated"
NO_DRIVE = "no drive"


class HeadlineError(Exception):
    """A headline rests on a row that does not vouch for it."""


@dataclass(frozen=True)
class Row:
    """One measurement. `data` is what the file has of it."""

    what: str
    data: dict[str, Any]
    device: str
    commit: str
    file: str
    fidelity: str = NOT_STATED
    of_target: float | None = None  # mean lateness over mean target latency, of the drive that was latest
    link: str = NOT_STATED
    residency: str = NOT_STATED
    # Of data that the drives moved; None where there is no drive, or the file has no figure.
    gb_per_s: float | None = None
    said_beyond: bool | None = None  # what the file says of that; None: it says nothing

    @property
    def beyond_link(self) -> bool:
        """Whether it moved more than its link carries; without a link, more than the widest carries."""
        if self.said_beyond is not None or self.gb_per_s is None:
            return bool(self.said_beyond)
        link = WIDEST_LINK if self.link in ("none", NOT_STATED, NO_DRIVE) else self.link
        return self.gb_per_s > LINK_GB_PER_S[link] * (1 + LINK_TOLERANCE)

    @property
    def run(self) -> dict[str, Any]:
        """The run whose figures count."""
        return self.data["runs"][self.data["median"]]

    @property
    def miops(self) -> float:
        """Millions of commands a second."""
        return self.run["iops"] / 1e6

    @property
    def report(self) -> dict[str, Any]:
        """What its drive said."""
        return self.data["report"]

    def headline(self) -> "Row":
        """Itself, if it may stand in a summary.

        Raises:
            HeadlineError: its fidelity is not `ok`, or it moved more than its link carries.
        """
        if self.fidelity not in ("ok", NO_DRIVE):
            raise HeadlineError(f"{self.file}: {self.what}: fidelity: {self.fidelity}; a headline rests on 'ok' only")
        if self.beyond_link:
            raise HeadlineError(f"{self.file}: {self.what}: {self.gb_per_s:.0f} GB/s is beyond its link ({self.link})")
        return self


def plural(count: int, noun: str) -> str:
    """The count and the noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


@cache
def load(name: str) -> dict[str, Any]:
    """The document of that name, without `.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def vouches_of(drives: list[dict[str, Any]]) -> dict[str, Any]:
    """What drives say together: the worst verdict, the latest one's lateness, their link and residency."""
    modelled = [d for d in drives if d.get("latency", {}).get("target", {}).get("count")]
    shares = [d["lateness"]["mean_ns"] / d["latency"]["target"]["mean_ns"] for d in modelled]
    if not drives:
        return {}
    if any(d["fidelity"] != "ok" for d in drives):
        fidelity = "exceeded"
    elif all(_has_no_model(d["timing"]) for d in drives):
        fidelity = "ok, no timing model"
    else:
        fidelity = "ok"
    return {
        "fidelity": fidelity,
        "of_target": max(shares, default=None),
        "link": _one(d.get("link", NOT_STATED) for d in drives),
        "residency": _one(d.get("residency", NOT_STATED) for d in drives),
    }


def _has_no_model(timing: dict[str, Any]) -> bool:
    costs = [timing[way] for way in ("read", "write")]
    return not any(c["latency_min_us"] or c["per_byte_ns"] or c["per_command_ns"] for c in costs)


def _one(values: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def short_commit(commit: str) -> str:
    """Seven digits of a hash; a file may say it in words."""
    return commit[:7] if re.fullmatch("[0-9a-f]+", commit) else commit


def row_of(name: str, document: dict[str, Any], what: str, data: dict[str, Any], **vouches: str | float | None) -> Row:
    """A row of the document. What it says of itself counts before what its drives' report says, which is of one run."""
    own = {key: data[key] for key in ("fidelity", "link", "residency") if isinstance(data.get(key), str)}
    if own.get("fidelity") == "none":
        own["fidelity"] = NO_DRIVE
    if "beyond_link" in data:
        own["said_beyond"] = data["beyond_link"]
    vouches |= own
    machine = document["machine"]
    device = machine.get("device") or f"{machine['processor']}, {machine['cores']} cores"
    return Row(what, data, device, short_commit(machine["commit"]), name, **vouches)


@cache
def drive_rows(name: str) -> dict[str, Row]:
    """The cases of `emulated_drive_bench`, by name."""
    document = load(name)
    rows = {}
    for case in document["results"]:
        run = case["runs"][case["median"]]
        vouches = vouches_of([case["report"]]) | {"gb_per_s": run["bw_bytes"] / 1e9}
        rows[case["name"]] = row_of(name, document, case["name"], case, **vouches)
    return rows


@cache
def read_rows(name: str) -> dict[tuple[str, str], Row]:
    """The cases of `random_reads_bench`, by group and name."""
    document = load(name)
    rows = {}
    for case in document["results"]:
        report = case["report"]
        run = case["runs"][case["median"]]
        vouches = vouches_of(report.get("drives", [report])) | {"gb_per_s": run["bw_bytes"] / 1e9}
        rows[case["group"], case["name"]] = row_of(name, document, case["name"], case, **vouches)
    return rows


PAGE_BYTES = 4096


def cache_rows(document: dict[str, Any], name: str) -> dict[str, Row]:
    """The cases of `library_cache_bench`, by name. A hit reaches no drive, and a miss reads a page."""
    rows = {}
    for case in document["results"]:
        if case["group"] == "hits":
            vouches = {"fidelity": NO_DRIVE, "link": NO_DRIVE, "residency": NO_DRIVE}
        elif case["group"] == "misses":
            vouches = {"gb_per_s": case["accesses_per_s"] * PAGE_BYTES / 1e9}
        else:
            vouches = {}
        rows[case["name"]] = row_of(name, document, case["name"], case, **vouches)
    return rows


@dataclass(frozen=True)
class Graph:
    """One graph of `library_graph_bench`: `data` as in the file, and a row for each way through the storage."""

    data: dict[str, Any]
    spmv: list[Row]
    bfs: list[Row]

    def hits(self, algorithm: str) -> Row:
        """The way that is fastest when all accesses hit. It reaches no drive."""
        return min(getattr(self, algorithm), key=lambda row: row.data["all_hits_over_native"])

    def cold(self, algorithm: str) -> Row:
        """The way that is nearest to the drive's time from an empty cache. One that vouches for itself is preferred."""
        rows = getattr(self, algorithm)
        vouching = [row for row in rows if row.fidelity == "ok" and not row.beyond_link]
        return min(vouching or rows, key=lambda row: row.data["cold_over_bound"])


@cache
def graphs(name: str) -> dict[str, Graph]:
    """The graphs of a document of `library_graph_bench`, by name."""
    document = load(name)
    result = {}
    for of_graph in document["results"]:
        rows: dict[str, list[Row]] = {"spmv": [], "bfs": []}
        for algorithm, into in rows.items():
            for run in of_graph["storage"][algorithm]["runs"]:
                cold = run["cold"]
                vouches = vouches_of(cold["report"]["drives"])
                vouches["gb_per_s"] = cold["reads"] * PAGE_BYTES / cold["median_s"] / 1e9
                into.append(row_of(name, document, graph_way(algorithm, run), run, **vouches))
        result[of_graph["graph"]] = Graph(of_graph, **rows)
    return result


def graph_way(algorithm: str, run: dict[str, Any]) -> str:
    """In words, how a run went through the storage."""
    words = [f"{run['threads']} threads a multiprocessor"]
    if algorithm == "spmv":
        words += [f"a window of {run['window']} pages", f"{run['entries_per_warp']} entries a warp"]
        words += [f"{run['row_lanes']} lanes a row"] if run["row_lanes"] > 1 else []
        words += ["prefetches"] if run["prefetch_shares"] else []
    else:
        words += [f"shares of {run['share_pages']} pages"]
        words += ["a sweep beside"] if run["sweep"] else []
    return ", ".join(words)


@cache
def overlap_rows(name: str) -> dict[float, Row]:
    """The points of `library_ctc_bench`, by the ratio of computation to communication."""
    document = load(name)
    (case,) = document["results"]
    vouches = vouches_of(case["storage"]["drives"])
    bytes_read = case["rounds"] * case["threads"] * case["blocks"] * case["block_bytes"]
    rows = {}
    for point in case["points"]:
        rate = bytes_read / point["async_median_s"] / 1e9
        ratio = point["ratio_of_computation"]
        rows[ratio] = row_of(name, document, f"c = {ratio:g}", point, **vouches, gb_per_s=rate)
    return rows


@cache
def recommender_rows(name: str) -> list[Row]:
    """The runs of `library_dlrm_bench`. The verdict is the worse of in turn and ahead."""
    document = load(name)
    rows = []
    for run in document["storage"]["runs"]:
        drives = [d for way in ("async", "sync") for d in run["reports"][way]["drives"]]
        seconds = statistics.median(run["async_s_per_batch"])
        rate = run["async_reads_per_batch"] * PAGE_BYTES / seconds / 1e9
        what = f"config {run['config']}, {run['drives']} drives, batch {run['batch']}, cache {run['cache_mb']} MB"
        rows.append(row_of(name, document, what, run, **vouches_of(drives), gb_per_s=rate))
    return rows


def recommender_verdicts(row: Row) -> str:
    """How many of the drives said `exceeded`, in turn and ahead."""
    said = []
    for way, word in (("sync", "in turn"), ("async", "ahead")):
        drives = row.data["reports"][way]["drives"]
        late = sum(d["fidelity"] != "ok" for d in drives)
        said.append(f"{word} {late} of {len(drives)}")
    return ", ".join(said)


@cache
def scaling_rows(name: str) -> list[Row]:
    """The cases of `library_drives_bench`. They have a verdict and no report."""
    document = load(name)
    rows = []
    for case in document["results"]:
        verdicts = {run["fidelity"] for run in case["runs"]}
        fidelity = "ok" if verdicts == {"ok"} else "exceeded"
        way = "through the" if case["cache"] else "past any"
        what = f"{case['operation']}s {way} cache, {plural(case['drives'], 'drive')}"
        rate = case["iops"] * document["block_bytes"] / 1e9
        rows.append(row_of(name, document, what, case, fidelity=fidelity, gb_per_s=rate))
    return rows


@cache
def placement_rows(name: str) -> dict[str, Row]:
    """The cases of `placements_bench`, by name; the worst verdict of all runs."""
    document = load(name)
    rows = {}
    for case in document["results"]:
        vouches = vouches_of([d for run in case["runs"] for d in run["storage"]["drives"]])
        run = case["runs"][case["median"]]
        vouches["gb_per_s"] = run["bw_bytes"] / 1e9
        rows[case["name"]] = row_of(name, document, case["name"], case, **vouches)
    return rows


def tensor_rows(name: str) -> list[Row]:
    """What `tensor_reads.py` wrote, a row for each file of the folder, in the order of the drives."""
    order = ("staged", "served", "hbm", "peer")
    rows = []
    for path in sorted((RESULTS / name).glob("*.json"), key=lambda p: (order.index(p.stem.split("-")[0]), p.stem)):
        document = load(f"{name}/{path.stem}")
        storage = document["forebay"]
        machine = {"device": document["gpu"]["name"], "commit": storage["commit"]}
        gb_per_s = statistics.median(document["rates"]["tensor_bytes_per_second"]) / 1e9
        vouches = vouches_of(storage["drives"]) | {"gb_per_s": gb_per_s}
        rows.append(
            row_of(f"{name}/{path.stem}", {"machine": machine}, storage["drives"][0]["uri"], document, **vouches)
        )
    return rows


@cache
def processor_rows(name: str) -> list[Row]:
    """The runs of `forebay bench` on the CPU executor."""
    document = load(name)
    rows = []
    for run in document["runs"]:
        in_flight = run["jobs"][0]["job options"]["iodepth"]
        read = run["jobs"][0]["read"]
        vouches = vouches_of(run["forebay"]["drives"]) | {"gb_per_s": read["bw_bytes"] / 1e9}
        rows.append(row_of(name, document, in_flight, run, **vouches))
    return rows


@cache
def mode_rows(name: str) -> dict[str, Row]:
    """The rates of `random_reads_bench` at a document's later commit, by case. The document has no report of them."""
    document = load(name)
    machine = {"machine": {"device": document["device"], "commit": "see file"}}
    rows = {}
    for case in document["random_reads_bench"]:
        rate = case["after_iops"] * 512 / 1e9
        rows[case["case"]] = row_of(
            name, machine, case["case"], case, fidelity=document["fidelity"], link=document["link"], gb_per_s=rate
        )
    return rows


def sweep_errors(rows: list[Row], target: str, past_the_knee: bool, latency_us: float = 50.0) -> tuple[float, float]:
    """Mean relative errors of rate and mean latency of a closed loop, on one side of the knee."""
    mine = [
        row.data
        for row in rows
        if row.data["name"].split()[0] == target and (row.data["expected_latency_us"] > latency_us) == past_the_knee
    ]
    runs = [(case, case["runs"][case["median"]]) for case in mine]
    rate = statistics.mean(abs(run["iops"] / case["expected_iops"] - 1) for case, run in runs)
    latency = statistics.mean(abs(run["latency_us"]["mean"] / case["expected_latency_us"] - 1) for case, run in runs)
    return rate, latency
