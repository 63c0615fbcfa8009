# SPDX-License-Identifier: Apache-2.0
"""The tables of the study of graphs in external memory, from what `study.py` and `external_gates_bench` wrote."""

import json
import math
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.graph.external_model import UNBOUNDED, ExternalMemory, amplification_at_random
from forebay.links import LINK_BYTES_PER_SECOND

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "report"))

from study_pages import table  # noqa: E402 (found by the line above)

RESULTS = ROOT / "bench" / "results" / "h100-graph"
Row = dict[str, Any]

# The gates.
MODEL_WITHIN = 0.15  # measured time beside the model's
LATE_SHARE_MAX = 0.01
MODES_WITHIN = 0.10  # mode=pinned beside mode=device
CUSPARSE_FACTOR_MAX = 1.2

PUBLISHED_FACTORS = {"flash": 1.13, "drive, a quarter in the cache": 2.76}
SEARCHES = {"id": "BFS, ids of 4 B", "wide_id": "BFS, ids of 8 B", "weighted": "SSSP, entries of 8 B"}
PUBLISHED_DRIVE = "iops=6M,latency_us=50,link=gen4x16"  # of the step `paper25`, whose rows do not say it
MODELLED_HOST = "latency_us=1.2,alignment=32,request_max=128,lines=on,link=24G,outstanding=768"


@dataclass
class Study:
    """The results of a folder."""

    folder: Path
    _documents: dict[str, Row] = field(default_factory=dict)

    def document(self, name: str) -> Row:
        """What a step wrote."""
        if name not in self._documents:
            self._documents[name] = json.loads((self.folder / f"{name}.json").read_text())
        return self._documents[name]

    def rows(self, name: str) -> list[Row]:
        """The rows of a step."""
        document = self.document(name)
        return document["results" if name == "external-gates" else "rows"]

    def gates(self, group: str) -> list[Row]:
        """The rows of a group of `external_gates_bench`."""
        return [row for row in self.rows("external-gates") if row["group"] == group]


# What rows say.


def options_of(text: str) -> dict[str, str]:
    """The pairs of the text that describes external memory or a drive."""
    return dict(pair.split("=", 1) for pair in text.split(","))


def number(text: str) -> float:
    """A number with a decimal suffix, as rates have; `none` stands for no bound."""
    if text == "none":
        return UNBOUNDED
    factor = {"K": 1e3, "M": 1e6, "G": 1e9}.get(text[-1])
    return float(text[:-1]) * factor if factor else float(text)


def memory_of(row: Row) -> ExternalMemory | None:
    """What the place of a row can do; None where no model says it."""
    if "external" in row:
        given = options_of(row["external"])
        return ExternalMemory(
            bytes_per_second=number(given.get("link", "none")),
            iops=number(given.get("iops", "none")) * int(given.get("devices", 1)),
            outstanding=number(given.get("outstanding", "768")),
            latency_s=float(given["latency_us"]) / 1e6,
        )
    drive = row.get("drive") or (PUBLISHED_DRIVE if row["place"].startswith("drive") else None)
    if drive is not None:
        # The search keeps tens of thousands of reads in flight, so a drive's latency bounds nothing.
        given = options_of(drive)
        link = LINK_BYTES_PER_SECOND.get(given.get("link", "none"), UNBOUNDED)
        return ExternalMemory(bytes_per_second=link, iops=number(given["iops"]))
    return None


def late_share(row: Row) -> float | None:
    """The share of loads that came late; None where nothing counts them."""
    return row["late"] / row["loads"] if row.get("loads") else None


def request_bytes(row: Row) -> float:
    """The mean bytes of a request."""
    return row["bytes_read"] / row["reads"]


def amplification(row: Row) -> float:
    """Bytes read for each byte that was needed."""
    return row["bytes_read"] / row["bytes_needed"]


def place_of(row: Row) -> str:
    """The place of a row in words."""
    if "external" in row:
        if row["external"].startswith(MODELLED_HOST):
            return "modelled host"
        given = options_of(row["external"])
        return f"external, {given['latency_us']} us, blocks of {given['alignment']} B"
    place = row["place"]
    if place.startswith("external:"):
        return place_of({"external": place.removeprefix("external:")})
    place = "drive" + place.removeprefix("storage_direct") if place.startswith("storage_direct") else place
    return re.sub(r"^storage(?=,|$)", "drive", place).partition(", iops=")[0]


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def median(values: Iterable[float]) -> float:
    """The middle value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


# How numbers are written.


def percent(share: float | None) -> str:
    """A share in percent; empty where there is none."""
    return "" if share is None else f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.0f} %"


def late_cell(share: float | None) -> str:
    """A share of late loads; bold where it is beyond its gate."""
    return f"**{percent(share)}**" if share is not None and share >= LATE_SHARE_MAX else percent(share)


def ms(seconds: float) -> str:
    """A time in milliseconds, to four digits."""
    value = 1e3 * seconds
    digits = max(0, 3 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def fidelity_cell(row: Row) -> str:
    """The verdict of the emulated drive on its timing."""
    verdict = row.get("fidelity")
    return f"**{verdict}**" if verdict == "exceeded" else verdict or ""


# The tables. Each returns Markdown.


def machine(study: Study) -> str:
    """On what everything ran."""
    names = ("algorithms22", "modes22", "products22", "latency23", "alignment23", "kinds25", "paper25", "plain25")
    documents = [study.document(name) for name in (*names, "plain-published25", "rates24", "largest27")]
    gpus, commits = ({document[key] for document in documents} for key in ("gpu", "commit"))
    gates = study.document("external-gates")["machine"]
    return (
        f"The searches ran on {' and '.join(sorted(gpus))} (name, driver), at commit {' and '.join(sorted(commits))}; "
        f"the gates of the modelled memory on {gates['device']}, {gates['driver']}, at commit {gates['commit']}."
    )


@dataclass(frozen=True)
class Prediction:
    """A time of the model beside the one that was measured."""

    row: Row
    seconds: float
    bound: str

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.row["median_s"] / self.seconds

    @property
    def holds(self) -> bool:
        """Whether it is within the gate."""
        return abs(self.ratio - 1) <= MODEL_WITHIN


def predictions(rows: Iterable[Row]) -> list[Prediction]:
    """What the model says of the rows that it knows."""
    found = []
    for row in rows:
        memory = memory_of(row)
        if memory is not None and row["reads"]:
            size = request_bytes(row)
            found.append(Prediction(row, memory.seconds(row["bytes_read"], size), memory.bound(size)))
    return found


def model(study: Study) -> str:
    """The model beside the measurement, for each place."""
    predicted = {id(p.row): p for p in predictions(study.rows("kinds25"))}
    body = []
    for row in study.rows("kinds25"):
        p = predicted.get(id(row))
        cells = [row["graph"], SEARCHES[row["entry"]], place_of(row)]
        if p:
            verdict = "yes" if p.holds else "**no**"
            cells += [f"{row['reads'] / 1e6:.1f}", f"{request_bytes(row):,.0f}", p.bound, ms(p.seconds)]
            cells += [ms(row["median_s"]), f"{p.ratio:.3f}", verdict, late_cell(late_share(row)), fidelity_cell(row)]
        else:
            cells += ["", "", "", "", ms(row["median_s"]), "", "", "", ""]
        body.append(cells)
    held = sum(p.holds for p in predicted.values())
    head = ["graph", "search", "place", "requests, M", "mean request, B", "bound", "model, ms", "measured, ms"]
    head += ["measured / model", "within 15 %", "late", "fidelity"]
    wrong = sum(row["wrong"] for row in study.rows("kinds25"))
    return (
        table(head, body) + f"\n\n{held} of {len(predicted)} rows are within 15 %. Wrong results in all rows: {wrong}."
    )


def random_host_reads(study: Study, region_gib: int) -> float:
    """How many reads of 128 bytes at random places of host memory there are in a second."""
    wanted = {"kind": "plain_reads", "data": "pinned", "bytes": 128, "region_bytes": region_gib << 30}
    return next(row["measured"] for row in study.gates("machine") if wanted.items() <= row.items())


@dataclass(frozen=True)
class HostSearch:
    """A search of lists in host memory, in terms of random reads."""

    row: Row
    lists: int | None  # None where the rows do not say it
    pieces: int
    region_gib: int
    random_per_second: float

    @property
    def ratio(self) -> float:
        """The measured time over that of so many random reads as there are pieces."""
        return self.row["median_s"] * self.random_per_second / self.pieces


def host_searches(study: Study) -> list[HostSearch]:
    """The searches of host memory of the step `kinds25`."""
    rows = study.rows("kinds25")
    found = []
    for row in rows:
        if row["place"] != "host":
            continue
        same = [r for r in rows if (r["graph"], r["entry"]) == (row["graph"], row["entry"])]
        pieces = next(r["loads"] for r in same if r.get("external") == MODELLED_HOST)
        levels = row.get("levels")
        lists = sum(level["vertices"] for level in levels) if levels else None
        region = 8 if row["entry"] == "weighted" else 4  # the bytes of the whole edge list, roughly
        found.append(HostSearch(row, lists, pieces, region, random_host_reads(study, region)))
    return found


def host(study: Study) -> str:
    """Lists in real host memory beside random reads of it."""
    body = []
    for s in host_searches(study):
        seconds = s.row["median_s"]
        lists = [f"{s.lists / 1e6:.1f}", f"{s.lists / seconds / 1e6:.1f}"] if s.lists else ["", ""]
        pieces = [f"{s.pieces / 1e6:.1f}", f"{s.pieces / seconds / 1e6:.1f}"]
        random = [f"{s.random_per_second / 1e6:.1f} ({s.region_gib} GiB)", f"{s.ratio:.2f}"]
        gb = f"{s.row['bytes_needed'] / seconds / 1e9:.1f}"
        body.append([s.row["graph"], SEARCHES[s.row["entry"]], ms(seconds), gb, *lists, *pieces, *random])
    head = ["graph", "search", "measured, ms", "GB/s needed", "lists, M", "lists, M/s", "pieces, M", "pieces, M/s"]
    return table([*head, "random reads, M/s", "measured / time of random reads"], body)


@dataclass(frozen=True)
class Knee:
    """Where the latency begins to show, for a search and a link."""

    entry: str
    link: str
    plateau_s: float
    slope: float  # seconds for each second of latency
    knee_s: float
    model_slope: float
    model_knee_s: float
    unlimited_spread: float  # of the times without the limit, from the shortest latency to the longest
    in_flight: float  # N by Little's law at the longest latency
    outstanding: int
    request_bytes: float


def knees(study: Study) -> list[Knee]:
    """The knees of the step `latency23`."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in study.rows("latency23"):
        groups.setdefault((row["entry"], row["link"]), []).append(row)
    found = []
    for (entry, link), rows in groups.items():
        free = sorted((r for r in rows if r["outstanding"] is None), key=lambda r: r["latency_us"])
        bounded = sorted((r for r in rows if r["outstanding"] is not None), key=lambda r: r["latency_us"])
        # Where the latency is shortest, the times without the limit hold none of it.
        plateau = free[0]["median_s"]
        near, far = bounded[-2:]
        near_s, far_s = near["latency_us"] / 1e6, far["latency_us"] / 1e6
        slope = (far["median_s"] - near["median_s"]) / (far_s - near_s)
        size = request_bytes(far)
        found.append(
            Knee(
                entry=entry,
                link=link,
                plateau_s=plateau,
                slope=slope,
                knee_s=far_s - (far["median_s"] - plateau) / slope,
                model_slope=far["reads"] / far["outstanding"],
                model_knee_s=ExternalMemory(
                    far["link_bytes_per_second"], outstanding=far["outstanding"], latency_s=far_s
                ).knee_latency_s(size),
                unlimited_spread=free[-1]["median_s"] / plateau,
                in_flight=far["bytes_read"] / far["median_s"] * far_s / size,
                outstanding=far["outstanding"],
                request_bytes=size,
            )
        )
    return found


def latency(study: Study) -> str:
    """The knee and the slope for each search and link."""
    body = [
        [
            *(SEARCHES[k.entry], k.link, str(k.outstanding), f"{k.request_bytes:.1f}", ms(k.plateau_s)),
            *(f"{1e6 * k.model_knee_s:.3f}", f"{1e6 * k.knee_s:.3f}", f"{k.knee_s / k.model_knee_s:.3f}"),
            *(f"{k.slope / k.model_slope:.4f}", f"{k.unlimited_spread:.3f}"),
        ]
        for k in knees(study)
    ]
    late = max(late_share(row) or 0 for row in study.rows("latency23"))
    head = ["search", "link", "N", "d, B", "plateau, ms", "knee by the model, us", "knee measured, us"]
    head += ["measured / model", "slope, measured / model", "without the limit, 33.2 us over 1.2 us"]
    return table(head, body) + f"\n\nThe greatest share of late loads in a row is {percent(late)}."


def alignment(study: Study) -> str:
    """Time and read amplification against the alignment."""
    rows = study.rows("alignment23")
    mean_list = next(r["bytes_needed"] / sum(v["vertices"] for v in r["levels"]) for r in rows if r["levels"])
    body = []
    for p in predictions(rows):
        row = p.row
        formula = amplification_at_random(row["alignment"], 8, mean_list)
        cells = [SEARCHES[row["entry"]], str(row["alignment"]), f"{amplification(row):.3f}", f"{formula:.3f}"]
        body.append([*cells, ms(p.seconds), ms(row["median_s"]), f"{p.ratio:.3f}", late_cell(late_share(row))])
    head = ["search", "alignment, B", "RAF", "1 + (a - e) / l", "bytes read / W, ms", "measured, ms"]
    return table([*head, "measured / that", "late"], body)


def factors(study: Study) -> dict[str, list[tuple[Row, float]]]:
    """For each place the rows, each with its factor over the modelled host. All from the same first source."""
    first: dict[tuple[str, str], float] = {}
    found: dict[str, list[tuple[Row, float]]] = {}
    for row in study.rows("paper25"):
        pair = (row["graph"], "sssp" if row["entry"] == "weighted" else "bfs")
        if row["place"] == "host":
            first[pair] = row["seconds"][0]
        found.setdefault(row["place"], []).append((row, row["seconds"][0] / first[pair]))
    return found


def paper(study: Study) -> str:
    """Sixteen fast drives and a set of 6 MIOPS, over the modelled host."""
    found = factors(study)
    predicted = {id(p.row): p for p in predictions(study.rows("paper25"))}
    body = []
    for place, rows in found.items():
        for row, factor in rows:
            cells = [place, row["graph"], SEARCHES[row["entry"]], ms(row["seconds"][0]), f"{factor:.2f}"]
            cells += [f"{predicted[id(row)].ratio:.3f}", f"{request_bytes(row):,.0f}", f"{amplification(row):.2f}"]
            body.append([*cells, late_cell(late_share(row)), fidelity_cell(row)])
    head = [
        "place",
        "graph",
        "search",
        "ms",
        "factor",
        "measured / model",
        "mean request, B",
        "RAF",
        "late",
        "fidelity",
    ]
    means = [
        [
            place,
            f"{geometric_mean(factor for _, factor in rows):.2f}",
            f"{PUBLISHED_FACTORS[place]:.2f}" if place in PUBLISHED_FACTORS else "",
        ]
        for place, rows in found.items()
        if place != "host"
    ]
    return table(head, body) + "\n\n" + table(["place", "geometric mean of the factors", "published"], means)


def plain(study: Study) -> str:
    """The tuned search beside a plain one, with a drive of 40 MIOPS."""
    return _plain(study, "plain25")


def plain_published(study: Study) -> str:
    """The tuned search beside a plain one, with a drive of 6 MIOPS."""
    return _plain(study, "plain-published25")


def _plain(study: Study, step: str) -> str:
    body = []
    for tuned, simple in plain_pairs(study, step):
        times = [row["seconds"][-1] for row in (tuned, simple)]
        cells = [place_of(tuned), *map(ms, times), f"{times[1] / times[0]:.1f}"]
        cells += [late_cell(late_share(tuned)), late_cell(late_share(simple))]
        body.append([*cells, fidelity_cell(tuned), fidelity_cell(simple)])
    head = ["place", "tuned, ms", "plain, ms", "plain / tuned", "late, tuned", "late, plain"]
    return table([*head, "fidelity, tuned", "fidelity, plain"], body)


def plain_pairs(study: Study, step: str) -> list[tuple[Row, Row]]:
    """The tuned and the plain search of each place, of a step."""
    rows = study.rows(step)
    simple = {row["place"]: row for row in rows if row["search"] == "plain"}
    return [(row, simple[row["place"]]) for row in rows if row["search"] == "tuned"]


def rates(study: Study) -> str:
    """The same search over drives of four rates."""
    body = []
    for p in predictions(study.rows("rates24")):
        row = p.row
        per_second = [f"{row['reads'] / row['median_s'] / 1e6:.2f}", f"{row['bytes_read'] / row['median_s'] / 1e9:.1f}"]
        drive = options_of(row["drive"])["iops"]
        cells = [drive, f"{row['reads'] / 1e6:.1f}", p.bound, ms(p.seconds), ms(row["median_s"]), f"{p.ratio:.3f}"]
        body.append([*cells, "yes" if p.holds else "**no**", *per_second, fidelity_cell(row)])
    head = ["IOPS of the drive", "reads, M", "bound", "model, ms", "measured, ms", "measured / model", "within 15 %"]
    return table([*head, "reads, M/s", "GB/s", "fidelity"], body)


def mode_pairs(study: Study) -> list[tuple[float, Row, Row]]:
    """The latency in us, and the rows of both modes."""
    by_mode: dict[str, dict[float, Row]] = {}
    for row in study.rows("modes22"):
        if "external" in row:
            latency_us = float(options_of(row["external"])["latency_us"])
            by_mode.setdefault(row["place"], {})[latency_us] = row
    return [(at, row, by_mode["pinned"][at]) for at, row in by_mode["device"].items()]


def modes(study: Study) -> str:
    """The same memory with the lists in the GPU's memory and in the host's."""
    body = []
    for at, device, pinned in mode_pairs(study):
        ratio = pinned["median_s"] / device["median_s"]
        holds = abs(ratio - 1) <= MODES_WITHIN
        cells = [
            f"{at:g}",
            ms(device["median_s"]),
            ms(pinned["median_s"]),
            f"{ratio:.3f}",
            "yes" if holds else "**no**",
        ]
        requests = pinned["reads"] / pinned["median_s"] / 1e6
        body.append([*cells, f"{requests:.0f}", late_cell(late_share(device)), late_cell(late_share(pinned))])
    head = ["latency, us", "device, ms", "pinned, ms", "pinned / device", "within 10 %", "requests, pinned, M/s"]
    alone = ", ".join(f"{r['place']} {ms(r['median_s'])} ms" for r in study.rows("modes22") if "external" not in r)
    return table([*head, "late, device", "late, pinned"], body) + f"\n\nWithout a model: {alone}."


def products(study: Study) -> str:
    """An iteration of PageRank beside cuSPARSE."""
    body = []
    for row in study.rows("products22"):
        times = [f"{1e6 * median(row[key]):,.0f}" for key in ("pagerank_iteration_s", "cusparse_product_s")]
        holds = row["factor"] <= CUSPARSE_FACTOR_MAX
        body.append([row["graph"], *times, f"{row['factor']:.3f}", "yes" if holds else "**no**"])
    return table(["graph", "iteration, us", "product of cuSPARSE, us", "factor", "at most 1.2"], body)


BEFORE_AFTER_MAX = 1.05


def before_after(study: Study) -> str:
    """Searches and products before and after they moved to the common view."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in study.rows("before-after"):
        groups.setdefault((ALGORITHMS[row["algorithm"]], row["place"].replace("_", " ")), []).append(row)
    body = []
    for (algorithm, place), rows in groups.items():
        factors_found = sorted(row["factor"] for row in rows)
        missing = sum(factor > BEFORE_AFTER_MAX for factor in factors_found)
        verdict = f"**{missing} of {len(rows)} miss**" if missing else "yes"
        spread = f"{factors_found[0]:.3f} to {factors_found[-1]:.3f}"
        body.append([algorithm, place, str(len(rows)), spread, f"{geometric_mean(factors_found):.3f}", verdict])
    return table(["algorithm", "place", "rows", "after / before", "geometric mean", "at most 1.05"], body)


ALGORITHMS = {"bfs": "BFS", "sssp": "SSSP", "pr": "PageRank", "cc": "components", "tc": "triangles", "spmv": "SpMV"}


def algorithms(study: Study) -> str:
    """The times of six algorithms in every place."""
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in study.rows("algorithms22"):
        groups.setdefault((row["graph"], row["place"]), {})[row["algorithm"]] = row
    body = []
    for (graph, _), by_name in groups.items():
        shares = [share for share in map(late_share, by_name.values()) if share is not None]
        cells = [graph, place_of(by_name["bfs"]), *(ms(by_name[name]["seconds"]) for name in ALGORITHMS)]
        wrong = sum(row["wrong"] for row in by_name.values())
        body.append([*cells, str(wrong), late_cell(max(shares, default=None))])
    return table(["graph", "place", *(f"{name}, ms" for name in ALGORITHMS.values()), "wrong", "late, at most"], body)


def largest(study: Study) -> str:
    """The search of the largest graph."""
    body = []
    for row in study.rows("largest27"):
        seconds = row["median_s"]
        reached = sum(level["vertices"] for level in row["levels"])
        cells = [row["graph"], row["place"], f"{row['arcs']:,}", f"{reached:,}", ms(seconds)]
        body.append([*cells, f"{row['arcs'] / seconds / 1e9:.2f}", str(row["wrong"])])
    head = ["graph", "place", "entries", "vertices reached", "ms", "entries of the graph, G/s", "wrong"]
    return table(head, body)
