# SPDX-License-Identifier: Apache-2.0
"""The rows of the study of vector search, and what a model says of them. A step that was not measured has no rows."""

import itertools
import json
import math
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.links import LINK_BYTES_PER_SECOND
from forebay.units import parse_rate

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "h100-search-two-gpus"
FAISS = "cpu-search-faiss.json"  # beside the folder of results
sys.path.insert(0, str(ROOT / "bench" / "report"))

Row = dict[str, Any]

RATES = ("2.5M", "5M", "10M", "20M", "40M", "70M", "100M", "200M")
GATED_RATES = ("2.5M", "5M", "10M", "20M", "40M")
RECALLS = (0.90, 0.95)
WIDTHS = (1, 2, 4, 8, 16, "auto")
EXACT_WIDTHS = (1, 2, 4, 8)
EXACT_BATCHES = (4, 16, 64, 256)
SEVERAL = {"drives-2-20M": "2 of 20M", "drives-4-10M": "4 of 10M"}
ONE_OF_THEIR_RATE = "drive-40M"
PROFILES = {"profile-d7-ps1010": "d7-ps1010", "profile-990-pro": "990-pro"}
CHUNKS = 32  # bytes of a code where neither a row nor its document says it
BLOCK_BYTES = 512  # of a read


@dataclass
class Study:
    """The results of a folder."""

    folder: Path
    _documents: dict[str, Row | None] = field(default_factory=dict)

    def document(self, name: str) -> Row | None:
        """What a step wrote; None if it was not measured."""
        if name not in self._documents:
            path = self.folder / f"{name}.json" if name != FAISS else self.folder.parent / FAISS
            self._documents[name] = json.loads(path.read_text()) if path.exists() else None
        return self._documents[name]

    def rows(self, name: str) -> list[Row]:
        """The rows of a step, each with the step's name, the bytes of a code and the client's share of the GPU."""
        document = self.document(name)
        if document is None:
            return []
        of_all = {
            "step": name,
            "chunks": document.get("chunks", CHUNKS),
            "share": float(document.get("client_percent_of_multiprocessors") or 100) / 100,
        }
        return [{**of_all, **row} for row in document["rows"]]

    def chunks(self, name: str) -> list[int]:
        """The bytes of a code in the rows of a step that reach a recall: of most steps it is one number."""
        return sorted({row["chunks"] for row in self.rows(name) if row["recall"] >= min(RECALLS)}) or [CHUNKS]

    @property
    def chunks_in_vain(self) -> list[int]:
        """The bytes of a code with which no search in memory reaches a recall."""
        return sorted({row["chunks"] for row in self.rows("memory")} - set(self.chunks("memory")))

    @property
    def steps(self) -> list[str]:
        """All steps whose searches used a drive."""
        names = [f"drive-{rate}" for rate in RATES] + list(SEVERAL) + list(PROFILES)
        return [*names, *(f"exact-{rate}" for rate in RATES)]


def best(rows: Iterable[Row]) -> Row | None:
    """The row with the most queries a second, if its drives were in time or all were late; None if there is none."""
    return max(rows, key=lambda row: (in_time(row), row["qps"]), default=None)


def in_time(row: Row) -> bool:
    """Whether no drive was late. A row in memory has no drives."""
    return row.get("fidelity", "ok") == "ok"


def in_memory(study: Study, memory: str, wanted: float, chunks: int) -> list[Row]:
    """For each width the row of the shortest list in memory that reaches a recall."""
    found: dict[Any, Row] = {}
    for row in study.rows("memory"):
        if (row["memory"], row["chunks"]) == (memory, chunks) and row["recall"] >= wanted:
            known = found.get(row["search_width"])
            if known is None or row["itopk_size"] < known["itopk_size"]:
                found[row["search_width"]] = row
    return list(found.values())


def on_drive(study: Study, step: str, wanted: float, chunks: int) -> list[Row]:
    """The rows of a step on drives for a recall."""
    return [row for row in study.rows(step) if (row["wanted"], row["chunks"]) == (wanted, chunks)]


def exact(study: Study, rate: str, batch: int, width: int | None = None) -> list[Row]:
    """The rows of the mode exact on a drive of a rate."""
    rows = study.rows(f"exact-{rate}")
    return [row for row in rows if row["batch"] == batch and width in (None, row["search_width"])]


# What drives can do.


@dataclass(frozen=True)
class Drive:
    """What a drive is set to do."""

    iops: float
    latency_s: float
    bytes_per_second: float  # of its link; infinite without one


def drive_of(uri: str, link: str) -> Drive:
    """What the URI of a drive asks of it, for reads of a block."""
    options = dict(pair.split("=", 1) for pair in uri.partition(":")[2].split(",") if "=" in pair)
    bandwidth = LINK_BYTES_PER_SECOND.get(link, math.inf)
    if "profile" not in options:
        return Drive(parse_rate("iops", options["iops"]), float(options["latency_us"]) / 1e6, bandwidth)
    read = tomllib.loads((ROOT / "profiles" / f"{options['profile']}.toml").read_text())["read"]
    granule = read.get("granule_bytes", {"value": 1})["value"]
    charged = math.ceil(BLOCK_BYTES / granule) * granule
    cost_ns = read["per_command_ns"]["value"] + read["per_byte_ns"]["value"] * charged
    return Drive(1e9 / cost_ns, read["latency_min_us"]["value"] / 1e6, bandwidth)


def drives_of(row: Row) -> list[Drive]:
    """What the drives of a row are set to do."""
    return [drive_of(drive["uri"], drive["link"]) for drive in row["drives"]]


def iops(row: Row) -> float:
    """The rate of all drives of a row."""
    return sum(drive.iops for drive in drives_of(row))


def link_rate(row: Row) -> float:
    """What the links of a row carry, in bytes a second."""
    return sum(drive.bytes_per_second for drive in drives_of(row))


def reads_per_second(row: Row) -> float:
    """The reads of all queries in a second."""
    return row["qps"] * row["reads_per_query"]


def of_rate(row: Row) -> float:
    """QPS as a part of IOPS / reads of a query, which is the part of the drives' rate that is used."""
    return reads_per_second(row) / iops(row)


def lateness(row: Row) -> float:
    """The mean lateness of completions as a part of the mean target; of several drives the greatest."""
    return max(drive["lateness"]["of_target"] for drive in row["drives"])


# The model.


@dataclass(frozen=True)
class Model:
    """The queries a second that a row can have at most."""

    qps: float
    bound: str

    def ratio(self, row: Row) -> float:
        """Measured over predicted."""
        return row["qps"] / self.qps


def _least(bounds: dict[str, float]) -> Model:
    bound = min(bounds, key=lambda name: bounds[name])
    return Model(bounds[bound], bound)


def model(study: Study, row: Row) -> Model:
    """The least of what each part allows: the drives' rate, the link, the latency and the computation.

    The computation is that of the same search in the GPU's memory, with the client's share of the multiprocessors. The
    latency bounds a search only where the width says how many reads of a query are in flight.
    """
    bounds = {"IOPS": iops(row) / row["reads_per_query"], "link": link_rate(row) * row["qps"] / row["bytes_per_second"]}
    if row["search_width"] != "auto":
        waits = row["reads_per_query"] / row["search_width"]
        bounds["latency"] = row["concurrency"] / (waits * drives_of(row)[0].latency_s)
    keys = ("search_width", "itopk_size", "chunks")
    for same in study.rows("memory"):
        if same["memory"] == "hbm" and all(same[key] == row[key] for key in keys):
            bounds["computation"] = same["qps"] * row["share"]
    return _least(bounds)


def exact_model(study: Study, row: Row) -> Model:
    """The same for the mode exact, as if all queries of a batch went through their steps together.

    A step waits for lists, and then for vectors: `2 L + reads / IOPS`. Before the first step a search reads vectors of
    the sample, which takes another `L`. If not all of a batch run at a time, each part of it takes these latencies.
    """
    batch, reads = row["batch"], row["reads_per_query"]
    parts = math.ceil(batch / row["concurrency"])
    waits = parts * (2 * row["max_iterations"] + 1) * drives_of(row)[0].latency_s
    rate = batch * reads / iops(row)
    bounds = {
        "IOPS" if rate >= waits else "latency": batch / (waits + rate),
        "link": link_rate(row) * row["qps"] / row["bytes_per_second"],
    }
    keys = ("search_width", "max_iterations", "batch")
    for same in study.rows("exact-memory"):
        if all(same[key] == row[key] for key in keys):
            bounds["computation"] = same["qps"] * row["share"]
    return _least(bounds)


def speed_up(study: Study, rate: str, batch: int, width: int | None = None) -> float | None:
    """How many times the QPS is that on the slowest drive: of a width, or of the best at either rate."""
    fast, slow = (best(exact(study, each, batch, width)) for each in (rate, RATES[0]))
    return fast["qps"] / slow["qps"] if fast and slow else None


def at_recall(rows: Iterable[Row], recall: float, key: str) -> float | None:
    """A figure at a recall, on the line between the two rows around it; None beyond all rows."""
    ordered = sorted(rows, key=lambda row: row["recall"])
    for low, high in itertools.pairwise(ordered):
        if low["recall"] <= recall <= high["recall"] and low["recall"] < high["recall"]:
            part = (recall - low["recall"]) / (high["recall"] - low["recall"])
            return float(low[key] + part * (high[key] - low[key]))
    return None
