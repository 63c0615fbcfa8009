# SPDX-License-Identifier: Apache-2.0
"""The tables of the performance page. Each row ends with what vouches for it."""

import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace

from results import (
    NO_DRIVE,
    PAGE_BYTES,
    WIDEST_LINK,
    Row,
    cache_rows,
    drive_rows,
    graphs,
    load,
    mode_rows,
    overlap_rows,
    placement_rows,
    plural,
    processor_rows,
    read_rows,
    recommender_rows,
    recommender_verdicts,
    row_of,
    scaling_rows,
    sweep_errors,
    tensor_rows,
    vouches_of,
)

H100 = "h100-emulated-drive/"
WITHOUT_DRIVE = {"fidelity": NO_DRIVE, "link": NO_DRIVE, "residency": NO_DRIVE, "of_target": None, "gb_per_s": None}
VOUCHES = ("fidelity", "link", "residency", "device, commit")


def sig(value: float, digits: int = 3) -> str:
    """With so many significant digits, no exponent, and commas between thousands."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - int(f"{value:e}".split("e")[1]))
    return f"{value:,.{places}f}"


def percent(part: float, places: int = 1) -> str:
    """A part of one, in percent."""
    return f"{100 * part:.{places}f} %"


def fidelity(row: Row) -> str:
    """The verdict, and how late the mean command was."""
    said = f"**{row.fidelity}**" if row.fidelity == "exceeded" else row.fidelity
    return said if row.of_target is None else f"{said}, {percent(row.of_target, 2)}"


def link(row: Row) -> str:
    """The link, and whether the row is beyond it."""
    if not row.beyond_link:
        return row.link
    return f"{row.link}; **beyond {row.link if row.link.startswith('gen') else WIDEST_LINK}**"


def vouches(row: Row) -> tuple[str, ...]:
    """The last columns."""
    return fidelity(row), link(row), row.residency, f"{short(row.device)}, {row.commit}"


def short(device: str) -> str:
    """NVIDIA's name for the device, without what all have."""
    return device.removeprefix("NVIDIA ").removesuffix(" 80GB HBM3")


def markdown(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table."""
    head = tuple(head)
    out = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    out += [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join(out)


def vouched(head: Iterable[str], lines: Iterable[tuple[Row, tuple[str, ...]]]) -> str:
    """A table whose rows end with what vouches for them."""
    return markdown((*head, *VOUCHES), ((*cells, *vouches(row)) for row, cells in lines))


def late(row: Row, key: str) -> str:
    """Lateness in microseconds."""
    return sig(row.report["lateness"][f"{key}_ns"] / 1e3, 2)


def rates(name: str, of: Callable[[Row], tuple[str, ...]], head: tuple[str, ...]) -> Callable[[], str]:
    """A table over all cases of one group of `emulated_drive_bench`, in each residency that was measured."""

    def table() -> str:
        files = [f"{folder}{way}-{name}" for folder, way in ((H100, "in_process"), (H100, "served"))]
        lines = [(row, (row.what, *of(row))) for file in files for row in drive_rows(file).values()]
        return vouched(("case", *head), lines)

    return table


def _rate(row: Row) -> tuple[str, ...]:
    return sig(row.miops), sig(row.gb_per_s or 0)


def _host(row: Row) -> tuple[str, ...]:
    reads, copies = row.data["raw_reads"]["median"], row.data["raw_copies"]["median"]
    mib = row.data["client_threads"] * 2 * row.data["block_bytes"] / 2**20
    return (
        sig(row.miops),
        f"{percent(row.run['iops'] / reads, 0)} of {sig(reads / 1e6)}",
        f"{percent(row.run['iops'] / copies, 1)} of {sig(copies / 1e6)}",
        f"{mib:.0f} MiB",
    )


def _target(row: Row) -> tuple[str, ...]:
    return percent(row.data["of_expected"], 2), late(row, "p50"), late(row, "p99.9"), late(row, "max")


def _off(row: Row) -> tuple[str, ...]:
    return sig(row.miops), sig(row.gb_per_s or 0), f"{100 * (row.data['of_expected'] - 1):+.1f} %"


def _sweep(row: Row) -> tuple[str, ...]:
    case, run = row.data, row.run
    return (
        sig(row.miops),
        f"{100 * (run['iops'] / case['expected_iops'] - 1):+.2f} %",
        sig(run["latency_us"]["mean"]),
        f"{100 * (run['latency_us']['mean'] / case['expected_latency_us'] - 1):+.2f} %",
    )


RATE = ("MIOPS", "GB/s")
LATENESS = ("lateness p50, us", "p99.9, us", "max, us")
unthrottled = rates("unthrottled", _rate, RATE)
host = rates("host", _host, ("MIOPS", "of the GPU's own reads, M/s", "of its own copies, M/s", "read into"))
targets = rates("target", _target, ("of the target", *LATENESS))
many_queues = rates("queues", _target, ("of the target", *LATENESS))
skew = rates("skew", _target, ("of 40 MIOPS or of 1,023 commands in 50 us", *LATENESS))
p5800x = rates("p5800x", _off, ("MIOPS", "GB/s", "off the data sheet"))
sweep = rates("sweep", _sweep, ("MIOPS", "off", "mean latency, us", "off"))
overload = rates("overload", _rate, RATE)


def light() -> str:
    """64 threads."""
    lines = [
        (row, (row.what, sig(row.miops), sig(row.run["latency_us"]["p50"]), sig(row.run["latency_us"]["p99"])))
        for file in (f"{H100}in_process-light", f"{H100}served-light", "h200-peer/peer-light")
        for row in drive_rows(file).values()
    ]
    return vouched(("case", "MIOPS", "p50, us", "p99, us"), lines)


def peer(group: str) -> str:
    """A group of cases with the drive on the peer."""
    of, head = {
        "unthrottled": (_rate, RATE),
        "target": (_target, ("of the target", *LATENESS)),
        "sweep": (_sweep, ("MIOPS", "off", "mean latency, us", "off")),
    }[group]
    rows = drive_rows(f"h200-peer/peer-{group}").values()
    return vouched(("case", *head), [(row, (row.what, *of(row))) for row in rows])


def closed_loop() -> str:
    """Mean errors of the closed loops, on both sides of the knee."""
    lines = []
    for file in (f"{H100}in_process-sweep", f"{H100}served-sweep", "h200-peer/peer-sweep"):
        rows = list(drive_rows(file).values())
        where = f"{rows[0].residency}, {short(rows[0].device)}"
        for target in ("2.47", "40", "100"):
            cells = [f"{target} MIOPS", where]
            for past in (False, True):
                cells += [percent(error, 2) for error in sweep_errors(rows, target, past)]
            lines.append(cells)
    head = ("drive", "where", "before the knee: rate", "latency", "past it: rate", "latency")
    return markdown(head, lines)


def frontend() -> str:
    """The techniques of the frontend, one taken away at a time."""
    why = {
        "all three": "",
        "not coalesced": "entries are fetched one at a time, not 32 together: a fetch is a chain of dependent accesses",
        "not aggregated": "each command advances the shared clock, not each batch: 32 atomic operations in turn",
        "not distributed": "one unit, not 32: its warps wait for memory most of the time",
        "none of them": "",
        "no timing model": "",
    }
    rows = drive_rows(f"{H100}in_process-frontend").values()
    return vouched(("frontend", "MIOPS", "what it does then"), [(r, (r.what, sig(r.miops), why[r.what])) for r in rows])


def beside() -> str:
    """A program beside a drive."""
    document = load(f"{H100}beside")
    lines = []
    for case in document["results"]:
        cells = [case["beside"]]
        for name, unit in (("gemm", 1e12), ("add", 1e12)):
            share = case[name].get("of_alone")
            cells.append(sig(case[name]["median"] / unit) + (f", {percent(share, 0)}" if share else ""))
        row = Row(case["beside"], case, document["machine"]["device"], document["machine"]["commit"][:7], "beside")
        drive = case.get("drive")
        if drive:
            row = replace(row, **vouches_of([drive["report"]]), gb_per_s=drive["iops"] * 512 / 1e9)
        lines.append((row, tuple(cells)))
    return vouched(("beside", "matrix product, TFLOP/s", "addition, TB/s"), lines)


def random_reads() -> str:
    """The library past its cache, and the clients that only submit and wait."""
    together = read_rows("h100-library/library-random-reads-together")
    masks = read_rows("h100-library/library-random-reads-group-masks")
    queues = read_rows("h100-library/library-random-reads-queues")
    first = read_rows("h100-library/library-random-reads")
    lines = []

    def line(label: str, rows: dict, group: str, name: str) -> None:
        row, raw = rows[group, name], rows[group, "raw, a queue a warp"]
        lines.append(
            (
                row,
                (
                    label,
                    name.removeprefix("library, "),
                    sig(row.miops),
                    f"{percent(row.miops / raw.miops, 0)} of {sig(raw.miops)}",
                ),
            )
        )

    for rows in (together, masks):
        line("512 B", rows, "512", "library, 511 queues, 256 threads an SM, 2 open")
    for name in ("1 open", "2 open", "service"):
        line("512 B", together, "512", f"library, 511 queues, 512 threads an SM, {name}")
    for count in (32, 64, 128, 256, 511):
        line("512 B", queues, "512", f"library, {count} queues, 512 threads an SM, 1 open")
    for count in (64, 256, 511):
        line("4 KiB", queues, "4k", f"library, {count} queues, 512 threads an SM, 1 open")
    for count, threads, mode in (
        (256, 256, "1 open"),
        (256, 512, "1 open"),
        (511, 256, "1 open"),
        (511, 512, "1 open"),
        (511, 1024, "service"),
    ):
        line("512 B, 100 MIOPS", first, "target", f"library, {count} queues, {threads} threads an SM, {mode}")
    return vouched(("reads", "case", "MIOPS", "of the raw client"), lines)


def modes() -> str:
    """Which completion mode is faster, by the number of queues."""
    rows = mode_rows("h100-library/library-one-house-again")
    lines = []
    for queues in (32, 64, 128, 256, 511):
        of = [rows[f"library, {queues} queues, 512 threads an SM, {mode}"] for mode in ("1 open", "service")]
        millions = [row.data["after_iops"] / 1e6 for row in of]
        faster = "helping" if millions[0] > millions[1] else "a service"
        lines.append((max(of, key=lambda row: row.gb_per_s or 0), (str(queues), *map(sig, millions), faster)))
    return vouched(("queues", "helping, MIOPS", "a service, MIOPS", "take"), lines)


def staged() -> str:
    """What frames in the GPU's memory are worth over a file."""
    name = "h100-library/library-staged"
    rows = cache_rows(load(name), name)
    lines = []
    for row in rows.values():
        best = row
        if row.data["group"] == "hits":
            best = rows[
                "random 8 bytes, all hits, frames over a drive in GPU memory, "
                f"{row.data['threads_per_sm']} threads an SM"
            ]
        rate, of = row.data["accesses_per_s"], row.data["accesses_per_s"] / best.data["accesses_per_s"]
        said = f"{sig(rate / 1e6)} M/s" if rate < 1e9 else f"{sig(rate / 1e9)} G/s"
        lines.append((row, (row.what, said, "" if best is row else percent(of))))
    return vouched(("case", "rate", "of the frames over a drive in GPU memory"), lines)


CACHES = {
    "cold": "cold page cache",
    "warm": "warm page cache",
    "limited": "less memory than the file has",
}


def files(base_engine: str, *names: str) -> str:
    """Reads of a file by the engines of `forebay bench` and of fio, beside `base_engine`."""
    lines = []
    for name in names:
        document = load(name)
        machine = document["machine"]
        device = machine["gpu"].split(",")[0] or f"{machine['processor']}, {machine['cores']} cores"
        document = document | {"machine": machine | {"device": device}}
        cells: dict[tuple[str, str, int, int], list[dict]] = {}
        for data in document["results"]:
            cells.setdefault((data["engine"], data["cache"], data["bs"], data["depth"]), []).append(data)
        medians = {key: statistics.median(data["bytes_per_s"] for data in runs) for key, runs in cells.items()}
        for (engine, cache, bs, depth), rate in medians.items():
            base = medians[base_engine, "any", bs, depth]
            shape = f"{'1 MiB in order' if bs > PAGE_BYTES else '4 KiB at random'}, {depth} in flight"
            said = engine if cache == "any" else f"{engine}, {CACHES[cache]}"
            vouches = {} if engine == "gpu" else {"fidelity": NO_DRIVE, "link": NO_DRIVE, "residency": NO_DRIVE}
            row = row_of(name, document, said, cells[engine, cache, bs, depth][0], **vouches)
            of = percent(rate / base, 0)
            lines.append((row, (said, shape, f"{sig(rate / bs)}/s", f"{sig(rate / 1e9)} GB/s", of)))
    return vouched(("engine", "reads", "rate", "bytes", f"of the engine `{base_engine}`"), lines)


def cached() -> str:
    """The cache of the library."""
    hits = cache_rows(load("h100-library/library-cache-hits"), "h100-library/library-cache-hits")
    misses = cache_rows(load("h100-library/library-cache-misses"), "h100-library/library-cache-misses")
    mixed = cache_rows(load("h100-library/library-cache-mixed"), "h100-library/library-cache-mixed")
    memory = {
        key: hits[name]
        for key, name in (
            ("random", "random 8 bytes, memory, 2048 threads an SM"),
            ("stream", "stream, memory, 512 threads an SM, 1 pages a warp"),
        )
    }
    lines = []
    for threads in (512, 1024, 2048):
        row = hits[f"random 8 bytes, view, all hits, {threads} threads an SM"]
        share = row.data["accesses_per_s"] / memory["random"].data["accesses_per_s"]
        of = f"{percent(share, 0)} of memory's {sig(memory['random'].data['accesses_per_s'] / 1e9)} G/s"
        lines.append((row, (row.what, f"{sig(row.data['accesses_per_s'] / 1e9)} G/s", of)))
    for pages in (1, 4, 8, 16, 32):
        row = hits[f"stream, view, all hits, 2048 threads an SM, {pages} pages a warp"]
        share = row.data["bw_bytes"] / memory["stream"].data["bw_bytes"]
        of = f"{percent(share, 0)} of memory's {sig(memory['stream'].data['bw_bytes'] / 1e9, 4)} GB/s"
        lines.append((row, (row.what, f"{sig(row.data['bw_bytes'] / 1e9, 4)} GB/s", of)))
    past = read_rows("h100-library/library-random-reads-queues")["4k", "library, 511 queues, 512 threads an SM, 1 open"]
    for row in misses.values():
        rate = row.data["accesses_per_s"] / 1e6
        lines.append(
            (
                row,
                (
                    row.what,
                    f"{sig(rate)} M/s",
                    f"{percent(rate / past.miops, 0)} of {sig(past.miops)} M/s past the cache",
                ),
            )
        )
    (row,) = mixed.values()
    counts = [f"{row.data[key]:,}" for key in ("added", "found_through_cache", "found_on_drive")]
    found = "{} added; {} found through the cache, {} on the drive".format(*counts)
    lines.append((row, (row.what, f"{sig(row.data['accesses_per_s'] / 1e6)} M/s", found)))
    return vouched(("case", "rate", "beside"), lines)


def cache_before_and_after() -> str:
    """The cache on an H200 at two commits each: medians of the runs."""
    document = load("h200-library/library-cache-deadlines")
    cases = (
        ("hits", "random 8 bytes, view, all hits, 2048 threads an SM", 1e9, "G/s"),
        ("misses", "4 KiB pages, all misses, 1024 threads an SM", 1e6, "M/s"),
        ("mixed", "70 % read, 30 % added, 4 times the cache", 1e6, "M/s"),
    )
    lines = []
    for group, name, unit, word in cases:
        cells = [name]
        for when in ("before", "after"):
            runs = [cache_rows(run, "h200-library/library-cache-deadlines")[name] for run in document[when][group]]
            rate = statistics.median(row.data["accesses_per_s"] for row in runs)
            cells += [f"{sig(rate / unit)} {word} ({runs[0].commit}, {plural(len(runs), 'run')})"]
        lines.append((runs[0], tuple(cells)))
    return vouched(("case", "before", "after"), lines)


def graph_times(file: str) -> str:
    """The best ways of each graph and algorithm."""
    lines = []
    for name, graph in graphs(file).items():
        for algorithm in ("spmv", "bfs"):
            hits, cold = graph.hits(algorithm), graph.cold(algorithm)
            label = f"{name}, {algorithm.upper() if algorithm == 'bfs' else 'SpMV'}"
            native = graph.data["storage"][algorithm]["native_beside_drive"]["median_s"]
            no_drive = replace(hits, **WITHOUT_DRIVE)
            lines.append((no_drive, (label, "in memory, beside the idle drive", f"{sig(1e3 * native)} ms", "")))
            lines.append(
                (
                    no_drive,
                    (
                        label,
                        f"all hits; {hits.what}",
                        f"{sig(1e3 * hits.data['all_hits']['median_s'])} ms",
                        f"{sig(hits.data['all_hits_over_native'])} of memory",
                    ),
                )
            )
            lines.append(
                (
                    cold,
                    (
                        label,
                        f"cold; {cold.what}",
                        f"{sig(1e3 * cold.data['cold']['median_s'])} ms",
                        f"{sig(cold.data['cold_over_bound'])} of the bound",
                    ),
                )
            )
    return vouched(("graph", "way", "time", "of"), lines)


def graph_ways(file: str) -> str:
    """Each way through the storage, from an empty cache."""
    lines = []
    for name, graph in graphs(file).items():
        for algorithm, word in (("spmv", "SpMV"), ("bfs", "BFS")):
            for row in getattr(graph, algorithm):
                cells = (
                    f"{name}, {word}",
                    row.what,
                    sig(1e3 * row.data["cold"]["median_s"]),
                    sig(row.data["cold_over_bound"]),
                    sig(row.data["all_hits_over_native"]),
                    f"{row.data['cold']['reads']:,}",
                    sig(row.gb_per_s or 0),
                )
                lines.append((row, cells))
    return vouched(("graph", "way", "cold, ms", "of the bound", "all hits, of memory", "pages read", "GB/s"), lines)


def overlap() -> str:
    """Computation against communication."""
    lines = []
    for row in overlap_rows("h100-library/library-ctc").values():
        point = row.data
        ahead, block, warps = (point[f"{key}_median_s"] for key in ("async", "sync", "sync_each_warp_by_itself"))
        lines.append(
            (
                row,
                (
                    row.what,
                    *(sig(1e3 * t) for t in (block, warps, ahead)),
                    f"{block / ahead:.2f}",
                    f"{warps / ahead:.2f}",
                ),
            )
        )
    return vouched(
        (
            "computation over communication",
            "the block waits, ms",
            "each warp waits, ms",
            "two rounds ahead, ms",
            "block / ahead",
            "warps / ahead",
        ),
        lines,
    )


def recommender(sweep_of: str) -> str:
    """The recommender, in turn and ahead."""
    name = "h200-library/library-dlrm-cache" if sweep_of == "cache" else "h200-library/library-dlrm"
    lines = []
    for row in recommender_rows(name):
        run = row.data
        if run["sweep"] != sweep_of:
            continue
        turn, ahead = (1e6 * statistics.median(run[f"{way}_s_per_batch"]) for way in ("sync", "async"))
        lines.append(
            (
                row,
                (
                    str(run["config"]),
                    str(run["drives"]),
                    f"{run['batch']:,}",
                    f"{run['cache_mb']:,}",
                    sig(turn),
                    sig(ahead),
                    f"{run['sync_over_async']:.3f}",
                    recommender_verdicts(row),
                ),
            )
        )
    return vouched(
        (
            "config",
            "drives",
            "batch",
            "cache, MB",
            "in turn, us",
            "ahead, us",
            "in turn / ahead",
            "drives that say exceeded",
        ),
        lines,
    )


def scaling(file: str) -> str:
    """One to four drives."""
    rows = scaling_rows(file)
    return vouched(
        ("case", "MIOPS", "of so many drives"),
        [(r, (r.what, sig(r.data["iops"] / 1e6), percent(r.data["of_linear"]))) for r in rows],
    )


def residency() -> str:
    """What `gpu_residency` found."""
    lines = []
    for name in ("h200-residency", "h100-residency"):
        document = load(name)
        for case, found in document["results"].items():
            claims = found.get("claims", {"verified": found["verified"]})
            counts = found.get("details", {}).get("client and drive count the same", {}).get("client", {})
            commands = counts.get("read_commands", 0) + counts.get("write_commands", 0)
            report = found.get("report")
            cells = (
                case,
                f"{found['waves']:,}" if "waves" in found else "",
                f"{sig(commands / 1e6)} M" if commands else "",
                str(found.get("details", {}).get("the drive holds what was written", {}).get("wrong_blocks", "")),
                f"{sum(claims.values())} of {len(claims)}",
                f"{found['back_after_s']:.2f} s" if "back_after_s" in found else "",
            )
            lines.append(
                (row_of(name, document, case, found, **(vouches_of(report["drives"]) if report else {})), cells)
            )
    head = ("case", "waves", "commands", "wrong blocks", "claims that hold", "flushed data back after")
    return vouched(head, lines)


def movers() -> str:
    """Ways to copy blocks."""
    document = load("h100-data-mover")
    lines = [
        (
            row_of("h100-data-mover", document, c["mover"], c, **WITHOUT_DRIVE),
            (c["mover"], str(c["block_bytes"]), str(c["sms"] or "none"), sig(c["median"] / 1e6)),
        )
        for c in document["results"]
    ]
    return vouched(("mover", "bytes", "SMs", "M blocks/s"), lines)


def tensors() -> str:
    """Reads into tensors, beside the library's own client and beside a training loop."""
    lines = []
    for row in tensor_rows("h100-tensors"):
        rates, loop, moved = row.data["rates"], row.data["training"], row.data["transfers"]
        way = next(key.removeprefix("gpu_").removesuffix("_bytes") for key in moved if moved[key] and "bytes" in key)
        without, beside = (statistics.median(loop[f"step_seconds_{how}_reads"]) for how in ("without", "with"))
        cells = (
            f"`{row.what.removeprefix('emulated:size=4G,')}`",
            way,
            sig(statistics.median(rates["client_bytes_per_second"]) / 1e9),
            str(row.data.get("client_depth", row.data["depth"])),
            sig(row.gb_per_s or 0),
            sig(rates["ratio_of_medians"]),
            f"{loop['calls_that_waited']} of {loop['calls']}",
            sig(beside / without),
        )
        lines.append((row, cells))
    head = (
        "drive",
        "way",
        "client, GB/s",
        "client, in flight",
        "tensors, GB/s",
        "tensors / client",
        "calls that waited",
        "step beside reads / without",
    )
    return vouched(head, lines)


def waiting_streams() -> str:
    """Kernels that do not start because other streams wait, by the number of channels to the GPU."""
    shown = ("1", "2", "4", "6", "8", "16", "30", "32")
    lines = []
    for name in ("h100-waiting-streams/alone", "h100-waiting-streams/mps"):
        document = load(name)
        machine = {"device": document["gpu"]["name"], "commit": document["forebay"]["commit"]}
        for case in document["rows"]:
            channels = f"{case['channels'] or 'not set'}{', MPS' if case['mps'] else ''}"
            cells = (channels, *(str(case["stuck"].get(count, "")) for count in shown))
            lines.append((row_of(name, {"machine": machine}, channels, case, **WITHOUT_DRIVE), cells))
    return vouched(("channels", *(f"{count} wait" for count in shown)), lines)


def placements() -> str:
    """The placements of queues and data, with the drive on CPU threads and on the GPU."""
    lines = []
    for row in placement_rows("h100-placements").values():
        run = row.run
        worst = 1 - min(r["bw_bytes"] for r in row.data["runs"]) / run["bw_bytes"]
        cells = (
            str(run["storage"]["placement"]),
            "GPU" if "backing=hbm" in row.data["drive"] else "CPU",
            re.sub(r"^placement \d, ", "", row.what),
            f"{row.data['iodepth']:,}",
            sig(row.miops),
            sig(row.gb_per_s or 0),
            sig(run["clat_ns"]["percentile"]["50.000000"] / 1e3),
            sig(run["clat_ns"]["percentile"]["99.000000"] / 1e3),
            sig(run["slat_ns"]["mean"] / 1e3),
            sig(run["lat_ns"]["mean"] / 1e3),
            percent(worst, 2),
        )
        lines.append((row, cells))
    return vouched(
        (
            "placement",
            "engine",
            "drive",
            "in flight",
            "MIOPS",
            "GB/s",
            "clat p50, us",
            "clat p99, us",
            "slat mean, us",
            "lat mean, us",
            "slowest run below the median",
        ),
        lines,
    )


def processor() -> str:
    """A drive and its client on two CPU cores."""
    lines = []
    for row in processor_rows("cpu-20k-iops"):
        n, read = int(row.what), row.data["jobs"][0]["read"]
        expected = min(20000, n / 500e-6)
        lines.append(
            (
                row,
                (
                    str(n),
                    f"{read['iops']:,.0f}",
                    f"{expected:,.0f}",
                    f"{read['iops'] / expected:.4f}",
                    f"{read['iops'] * read['lat_ns']['mean'] / 1e9 / n:.4f}",
                ),
            )
        )
    return vouched(("N", "IOPS", "expected", "ratio", "IOPS x mean lat / N"), lines)


def controllers(when: str) -> float:
    """MIOPS of 512 B reads with 32 SMs, before and after tables of memory for each controller; median of the runs."""
    of = []
    for document in load("h200-emulated-drive/tables-of-controllers")[when]:
        (case,) = (c for c in document["results"] if c["name"] == "reads 512 B, 32 SMs")
        of.append(case["runs"][case["median"]]["iops"] / 1e6)
    return statistics.median(of)


def earliest_us() -> float:
    """How far the earliest completion that a client saw was above the least latency less the poll gap, on one GPU."""
    above = []
    for way in ("in_process", "served"):
        for group in ("sweep", "light"):
            for row in drive_rows(f"{H100}{way}-{group}").values():
                earliest = min(run["latency_us"]["min"] for run in row.data["runs"])
                gap_us = row.report["poll_gap"]["max_ns"] / 1e3
                above.append(earliest - (row.report["timing"]["read"]["latency_min_us"] - gap_us))
    return min(above)


def peer_before_the_knee() -> float:
    """The largest mean error of the rate before the knee, with the drive on the peer."""
    rows = list(drive_rows("h200-peer/peer-sweep").values())
    return max(sweep_errors(rows, target, past_the_knee=False)[0] for target in ("2.47", "40", "100"))


def registers() -> str:
    """Least and most registers of kernels that read through the view."""
    counts = [kernel["registers"] for kernel in load("h100-library/library-cache-hits")["kernels"].values()]
    storage = graphs("h100-library/library-graph")["kronecker"].data["storage"]
    counts += [storage[key] for key in ("bfs_from_above_registers", "bfs_from_below_registers", "spmv_registers")]
    counts += [
        recommender_rows("h200-library/library-dlrm")[0].data[key] for key in ("gather_registers", "prefetch_registers")
    ]
    return f"{min(counts)} to {max(counts)}"


def _of_drives(config: int, drives: int) -> dict:
    rows = recommender_rows("h200-library/library-dlrm")
    (run,) = (
        r.data for r in rows if (r.data["sweep"], r.data["config"], r.data["drives"]) == ("drives", config, drives)
    )
    return run


def infer_us(config: int) -> float:
    """How long the networks of a configuration take for a batch of 2,048."""
    return 1e6 * statistics.median(_of_drives(config, 1)["infer_s_per_batch"])


def ideal(config: int, drives: int) -> str:
    """The networks and the drives in turn, over the longer of the two."""
    drive_us = _of_drives(config, drives)["sync_reads_per_batch"] / 2.47 / drives
    both = infer_us(config), drive_us
    return f"{sum(both) / max(both):.2f}"
