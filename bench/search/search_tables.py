# SPDX-License-Identifier: Apache-2.0
"""The tables of the study of vector search, from what `study.py` and `faiss_cpu.py` wrote. Each returns Markdown."""

import math
from collections.abc import Callable

import search_rows as rows_of
from search_rows import (
    CHUNKS,
    EXACT_BATCHES,
    EXACT_WIDTHS,
    FAISS,
    ONE_OF_THEIR_RATE,
    PROFILES,
    RATES,
    RECALLS,
    SEVERAL,
    WIDTHS,
    Row,
    Study,
    best,
)
from study_pages import table

NOT_MEASURED = "not measured"


def missing(cells: list[str], head: list[str]) -> list[str]:
    """A line of a table for what was not measured."""
    return [*cells, NOT_MEASURED, *[""] * (len(head) - len(cells) - 1)]


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.0f} %"


def us(nanoseconds: float) -> str:
    """A time in microseconds."""
    return f"{nanoseconds / 1e3:,.0f}"


def fidelity(row: Row) -> str:
    """The verdict of the emulated drives on their timing."""
    return "ok" if row["fidelity"] == "ok" else f"**{row['fidelity']}**"


def of_link(row: Row) -> str:
    """The part of the link that the bytes take."""
    carried = rows_of.link_rate(row)
    return percent(row["bytes_per_second"] / carried) if math.isfinite(carried) else ""


def machine(study: Study) -> str:
    """Data and machine."""
    steps = ["data", "memory", "exact-memory", *study.steps]
    documents = [document for document in map(study.document, steps) if document is not None]
    if not documents:
        return f"The study is {NOT_MEASURED}."
    vectors, dimension, gpus, commits = (
        sorted({line for document in documents for line in str(document[key]).splitlines()})
        for key in ("vectors", "dimension", "gpu", "commit")
    )
    text = f"{' and '.join(f'{int(count):,}' for count in vectors)} vectors of {' and '.join(dimension)} bytes"
    for row in study.rows("data"):
        text += (
            f", with {row['graph'][1]} neighbours each. Their local intrinsic dimension is "
            f"{row['local_intrinsic_dimension']:.1f}"
        )
    shares = {row["share"] for step in study.steps for row in study.rows(step)}
    text += f". Measured on {' and '.join(gpus)} (name, driver), at the commits {'; '.join(commits)}."
    shared = [f"{100 * share:.0f} %" for share in sorted(shares) if share < 1]
    if shared:
        text += (
            f" On drives, the search had {' or '.join(shared)} of the GPU's multiprocessors, and the drives the rest."
        )
    if 1 in shares:
        text += f" {'Other drives' if shared else 'The drives'} were on a GPU of their own."
    absent = [step for step in steps if study.document(step) is None]
    text += " The command is `scripts/gpu_search OUT`."
    return text + (f" Not measured are the steps {', '.join(absent)}." if absent else "")


_PLOTS = {
    "qps": "QPS over the rate of the drive",
    "latency": "the latency of a query over the rate",
    "exact": "how the QPS of the mode exact grow with the rate",
}


def plots(study: Study) -> str:
    """The plots that were drawn."""
    folder = study.folder / "plots"
    drawn = [
        f"[{words}](../bench/results/{study.folder.name}/plots/{name}.png)"
        for name, words in _PLOTS.items()
        if (folder / f"{name}.png").exists()
    ]
    return f"Plots: {', '.join(drawn)}." if drawn else f"Plots: {NOT_MEASURED}."


# The mode pq.

_RATES_HEAD = ["width", "list", "recall", "QPS", "reads of a query", "reads, M/s", "of IOPS", "P50, us", "P99, us"]
_RATES_HEAD += ["GB/s", "of the link", "mean lateness, of the target", "fidelity"]


def _rates_cells(row: Row) -> list[str]:
    return [
        *(str(row["search_width"]), str(row["itopk_size"]), f"{row['recall']:.3f}", f"{row['qps']:,.0f}"),
        *(f"{row['reads_per_query']:.1f}", f"{rows_of.reads_per_second(row) / 1e6:.2f}", f"{rows_of.of_rate(row):.3f}"),
        *(us(row["latency_ns"]["p50"]), us(row["latency_ns"]["p99"]), f"{row['bytes_per_second'] / 1e9:.2f}"),
        *(of_link(row), percent(rows_of.lateness(row)), fidelity(row)),
    ]


def _model_cells(measured: Row, predicted: rows_of.Model) -> list[str]:
    return [f"{predicted.qps:,.0f}", predicted.bound, f"{measured['qps']:,.0f}", f"{predicted.ratio(measured):.3f}"]


def _by_step(study: Study, steps: dict[str, str], name: str, head: list[str], cells: Callable[[Row], list[str]]) -> str:
    """The best row of each step, recall and length of a code."""
    head = [name, "code, B", "recall of at least", *head]
    body = []
    for step, words in steps.items():
        for chunks in study.chunks(step):
            for wanted in RECALLS:
                first = [words, str(chunks), f"{wanted:.2f}"]
                row = best(rows_of.on_drive(study, step, wanted, chunks))
                body.append([*first, *cells(row)] if row else missing(first, head))
    return table(head, body)


def _one_drive() -> dict[str, str]:
    return {f"drive-{rate}": rate for rate in RATES}


def rates(study: Study) -> str:
    """The best search on a drive of each rate."""
    return _by_step(study, _one_drive(), "IOPS", _RATES_HEAD, _rates_cells)


def model(study: Study) -> str:
    """The model beside the best search on a drive of each rate."""
    head = ["width", "model, QPS", "bound", "measured, QPS", "measured / model"]

    def cells(row: Row) -> list[str]:
        return [str(row["search_width"]), *_model_cells(row, rows_of.model(study, row))]

    return _by_step(study, _one_drive(), "IOPS", head, cells)


def widths(study: Study) -> str:
    """QPS for each width, at each rate."""
    head = ["IOPS", "code, B", "recall of at least", *(f"width {width}" for width in WIDTHS), "best width"]
    body = []
    for rate in RATES:
        step = f"drive-{rate}"
        for chunks in study.chunks(step):
            for wanted in RECALLS:
                first = [rate, str(chunks), f"{wanted:.2f}"]
                measured = rows_of.on_drive(study, step, wanted, chunks)
                rows = {width: best(row for row in measured if row["search_width"] == width) for width in WIDTHS}
                top = best(measured)
                if not top:
                    body.append(missing(first, head))
                    continue
                cells = [_qps_and_fidelity(rows[width]) for width in WIDTHS]
                body.append([*first, *cells, str(top["search_width"])])
    return table(head, body)


def _qps_and_fidelity(row: Row | None) -> str:
    if not row:
        return NOT_MEASURED
    return f"{row['qps']:,.0f}" + ("" if rows_of.in_time(row) else f" **{row['fidelity']}**")


def memory(study: Study) -> str:
    """The index in memory beside drives."""
    head = ["records in", "code, B", "recall of at least", "width", "list", "recall", "QPS", "of HBM"]
    head += ["reads of a query", "P99, us"]
    body = []
    for wanted in RECALLS:
        for chunks in study.chunks("memory"):
            hbm = best(rows_of.in_memory(study, "hbm", wanted, chunks))
            found = {
                "HBM": hbm,
                "page-locked host memory": best(rows_of.in_memory(study, "host", wanted, chunks)),
                **{
                    f"a drive of {rate}": best(rows_of.on_drive(study, f"drive-{rate}", wanted, chunks))
                    for rate in RATES
                    if chunks == CHUNKS or chunks in study.chunks(f"drive-{rate}")
                },
            }
            for place, row in found.items():
                first = [place, str(chunks), f"{wanted:.2f}"]
                if row is None:
                    body.append(missing(first, head))
                    continue
                ratio = f"{row['qps'] / hbm['qps']:.3f}" if hbm else ""
                cells = [str(row["search_width"]), str(row["itopk_size"]), f"{row['recall']:.3f}", f"{row['qps']:,.0f}"]
                body.append([*first, *cells, ratio, f"{row['reads_per_query']:.1f}", us(row["latency_ns"]["p99"])])
    vain = [f"{chunks} bytes" for chunks in study.chunks_in_vain]
    if not vain:
        return table(head, body)
    return (
        table(head, body)
        + f"\n\nCodes of {' and '.join(vain)} reach no recall of {min(RECALLS):.2f} with any list tried."
    )


def several(study: Study) -> str:
    """Several drives beside one of their whole rate."""
    head = ["QPS of one drive's", *_RATES_HEAD]

    def cells(row: Row) -> list[str]:
        one = best(rows_of.on_drive(study, ONE_OF_THEIR_RATE, row["wanted"], row["chunks"]))
        return [f"{row['qps'] / one['qps']:.3f}" if one else "", *_rates_cells(row)]

    rate = ONE_OF_THEIR_RATE.removeprefix("drive-")
    return _by_step(study, {ONE_OF_THEIR_RATE: f"1 of {rate}", **SEVERAL}, "drives", head, cells)


def profiles(study: Study) -> str:
    """Drives with a profile."""
    head = ["MIOPS of a block", *_RATES_HEAD]
    return _by_step(
        study, PROFILES, "profile", head, lambda row: [f"{rows_of.iops(row) / 1e6:.2f}", *_rates_cells(row)]
    )


# The mode exact.


_EXACT_ABSENT = f"The mode exact is {NOT_MEASURED}."


def _exact_on_drives(study: Study) -> bool:
    return any(study.rows(f"exact-{rate}") for rate in RATES)


def exact_memory(study: Study) -> str:
    """The least steps of each width, in the GPU's memory."""
    if not study.rows("exact-memory"):
        return _EXACT_ABSENT
    head = ["width", "steps", "recall", "reads of a query", "QPS in HBM, batches of 256"]
    body = []
    for width in EXACT_WIDTHS:
        rows = [r for r in study.rows("exact-memory") if r["search_width"] == width and r["recall"] >= max(RECALLS)]
        row = min(rows, key=lambda row: row["max_iterations"], default=None)
        if row is None:
            body.append(missing([str(width)], head))
            continue
        cells = [str(width), str(row["max_iterations"]), f"{row['recall']:.3f}", f"{row['reads_per_query']:,.0f}"]
        body.append([*cells, f"{row['qps']:,.0f}"])
    return table(head, body)


def exact_rates(study: Study) -> str:
    """QPS of each batch, width and rate, and how many times that at the slowest it is."""
    if not _exact_on_drives(study):
        return _EXACT_ABSENT
    head = ["batch", "width", *RATES]
    body = []
    for batch in EXACT_BATCHES:
        for width in EXACT_WIDTHS:
            cells = [str(batch), str(width)]
            for rate in RATES:
                row = best(rows_of.exact(study, rate, batch, width))
                factor = rows_of.speed_up(study, rate, batch, width)
                cells.append(_qps_and_fidelity(row) + (f" ({factor:.2f}x)" if factor else ""))
            body.append(cells)
    return table(head, body)


def exact_best(study: Study) -> str:
    """The best width of each batch and rate, and the model beside it."""
    if not _exact_on_drives(study):
        return _EXACT_ABSENT
    head = ["batch", "IOPS", "best width", "recall", "QPS", f"over {RATES[0]}", "P99, us", "model, QPS", "bound"]
    head += ["measured / model", "of IOPS", "fidelity"]
    body = []
    for batch in EXACT_BATCHES:
        for rate in RATES:
            row = best(rows_of.exact(study, rate, batch))
            if row is None:
                body.append(missing([str(batch), rate], head))
                continue
            predicted, factor = rows_of.exact_model(study, row), rows_of.speed_up(study, rate, batch)
            cells = [str(batch), rate, str(row["search_width"]), f"{row['recall']:.3f}", f"{row['qps']:,.0f}"]
            cells += [f"{factor:.2f}" if factor else "", us(row["latency_ns"]["p99"]), f"{predicted.qps:,.0f}"]
            cells += [predicted.bound, f"{predicted.ratio(row):.3f}", f"{rows_of.of_rate(row):.3f}", fidelity(row)]
            body.append(cells)
    return table(head, body)


# Beside others.

_A100 = "A100 40 GB, four PM1743; at most 10 ms at P99"
_PUBLISHED = (
    # System, hardware, data, recall, reads of a query, QPS, and MIOPS of all drives: four PM1743 are taken as 10.
    ("Quiver", _A100, "SIFT-1B", "0.90", "", 97_800, 10.0),
    ("Quiver", _A100, "SIFT-1B", "0.95", "", 42_500, 10.0),
    ("Quiver", _A100, "DEEP-1B", "0.90", "", 45_000, 10.0),
    ("Quiver", _A100, "DEEP-1B", "0.95", "", 12_700, 10.0),
    ("FlashANNS, as Quiver's authors rewrote it", _A100, "SIFT-1B", "0.90", "", 63_800, 10.0),
    ("FlashANNS, as Quiver's authors rewrote it", _A100, "SIFT-1B", "0.95", "", 28_600, 10.0),
    ("GustANN, by its README", "not stated here", "SIFT-1B", "0.90", "", 250_000, None),
    ("GustANN, in Quiver's logs", "as Quiver, but 76 ms at P99", "SIFT-1B", "0.90", "", 117_000, 10.0),
    ("PipeANN, list of 30", "one thread of a CPU", "SIFT-100M", "0.910", "41", None, None),
    ("PipeANN, list of 40", "one thread of a CPU", "SIFT-100M", "0.942", "52.5", None, None),
    ("PipeANN", "a CPU; below 1 ms", "1 billion vectors", "0.90", "", 20_000, None),
)
PUBLISHED_RECALLS = (0.90, 0.91, 0.942, 0.95)
_MEASURED_RATES = ("10M", "40M")


def published(study: Study) -> str:
    """What others published, and ours."""
    head = ["system", "hardware", "data", "recall@10", "reads of a query", "QPS", "QPS per MIOPS"]
    body = []
    for system, hardware, data, recall, reads, qps, miops in _PUBLISHED:
        each = f"{qps / miops:,.0f}" if qps and miops else ""
        body.append([system, hardware, data, recall, reads, f"{qps:,}" if qps else "", each])
    known = study.document("memory")
    data = f"synthetic, {known['vectors'] / 1e6:g} M" if known else "synthetic"
    for chunks in study.chunks("memory"):
        code = f"Forebay, codes of {chunks} B"
        narrow = [
            row
            for row in study.rows("memory")
            if (row["memory"], row["search_width"], row["chunks"]) == ("hbm", 1, chunks)
        ]
        for recall in PUBLISHED_RECALLS:
            reads = rows_of.at_recall(narrow, recall, "reads_per_query")
            first = [code, "width 1, between two lists", data, f"{recall:g}"]
            body.append([*first, f"{reads:.1f}", "", ""] if reads else missing(first, head))
        for rate in _MEASURED_RATES:
            for wanted in RECALLS:
                row = best(rows_of.on_drive(study, f"drive-{rate}", wanted, chunks))
                if row is None:
                    continue
                first = [code, f"a drive of {rate}, fidelity {row['fidelity']}", data, f"{row['recall']:.3f}"]
                each = row["qps"] / rows_of.iops(row) * 1e6
                body.append([*first, f"{row['reads_per_query']:.1f}", f"{row['qps']:,.0f}", f"{each:,.0f}"])
    return table(head, body)


def faiss(study: Study) -> str:
    """The graph of faiss on a CPU."""
    document = study.document(FAISS)
    if document is None:
        return f"faiss is {NOT_MEASURED}."
    processor = document["cpu"]
    text = (
        f"faiss {document['faiss']}, HNSW with M = {document['degree']} and efConstruction = "
        f"{document['ef_construction']}, over {document['vectors']:,} vectors of {document['dimension']} components, "
        f"with {document['threads']} threads on {processor['logical_processors']} processors of the kind "
        f"{processor['model']}; commit {document['commit']}. The graph took {document['build_seconds']:,.0f} s. "
        "The command is `python " + document["command"] + "`."
    )
    body = [[str(row["ef_search"]), f"{row['recall']:.3f}", f"{row['qps']:,.0f}"] for row in document["rows"]]
    for recall in RECALLS:
        qps = rows_of.at_recall(document["rows"], recall, "qps")
        body.append(["between two", f"{recall:.2f}", f"{qps:,.0f}"] if qps else ["between two", f"{recall:.2f}", ""])
    return text + "\n\n" + table(["efSearch", "recall@10", "QPS"], body)
