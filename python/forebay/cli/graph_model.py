# SPDX-License-Identifier: Apache-2.0
"""`forebay graph model`: how long a search should take whose edge list lies in external memory."""

import math
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from forebay.cli.contract import JsonOption, check_json_target, missing, progress, terminal, write_json
from forebay.cli.generated_graph import (
    SEED_DEFAULT,
    DegreeOption,
    FileOption,
    GeneratorOption,
    GraphChoice,
    KroneckerOption,
    RandomSeedOption,
    ReorderOption,
    SymmetrizeOption,
    UniformOption,
    check_reordering,
)
from forebay.errors import RefusedInput
from forebay.graph.csr import Graph
from forebay.graph.external_model import UNBOUNDED, ExternalMemory, amplification_at_random
from forebay.graph.list_reads import (
    ORDERS,
    ListReads,
    cached_list_reads,
    list_reads,
    reading_order,
    require_power_of_two,
)
from forebay.graph.reorder import reorder
from forebay.links import link_bytes_per_second
from forebay.provenance import build_and_host
from forebay.units import format_bandwidth, format_bytes, format_ns, format_rate, parse_rate, parse_size

_ALIGNMENT_LEAST, _ALIGNMENT_MOST = 16, 4096  # of the rows where none is asked for
_ENTRY_BYTES = (4, 8, 12, 16)
_DEVICES_MAX = 1024
_LATENCY_MAX_US = 3.6e9
_NONE = "none"


def model(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    reordering: ReorderOption = None,
    seed: RandomSeedOption = None,
    alignment: Annotated[
        list[str] | None,
        typer.Option(
            "--alignment",
            metavar="SIZE",
            help="Bytes of the blocks that are read, a power of two. Repeat it for several rows.",
            show_default=f"each from {_ALIGNMENT_LEAST} to {_ALIGNMENT_MOST}, at most --request-max",
        ),
    ] = None,
    entry_bytes: Annotated[
        int,
        typer.Option("--entry-bytes", metavar="N", help="Bytes of a neighbour in the edge list: 4, 8, 12 or 16."),
    ] = 4,
    request_max: Annotated[
        str,
        typer.Option(
            "--request-max",
            metavar="SIZE",
            help="Bytes of the longest request, a power of two.",
            show_default="one block: the alignment",
        ),
    ] = "",
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Cut requests at multiples of --request-max, as a GPU's cache lines do, and not from where a list "
            "begins.",
        ),
    ] = False,
    cache_bytes: Annotated[
        str,
        typer.Option(
            "--cache-bytes",
            metavar="SIZE",
            help="Bytes of a cache that keeps the blocks used last. Each block that it lacks is a request.",
            show_default="no cache",
        ),
    ] = "",
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="|".join(ORDERS),
            help="With a cache: the order in which the lists are read.",
            show_default=ORDERS[0],
        ),
    ] = None,
    root: Annotated[
        int | None,
        typer.Option(
            "-r",
            "--root",
            metavar="VERTEX",
            help="With a cache: where the search starts.",
            show_default="the vertex with the most neighbours",
        ),
    ] = None,
    link: Annotated[
        str, typer.Option("--link", metavar="NAME", help="The link, such as gen4x16; none with --bandwidth.")
    ] = "gen4x16",
    bandwidth: Annotated[
        str,
        typer.Option(
            "--bandwidth",
            metavar="RATE",
            help="Bytes a second that arrive over the link, such as 24G.",
            show_default="all that the link carries",
        ),
    ] = "",
    iops: Annotated[
        str,
        typer.Option(
            "--iops", metavar="RATE", help="Requests a second that one device completes, such as 11M, or none."
        ),
    ] = _NONE,
    devices: Annotated[
        int, typer.Option("--devices", metavar="N", help="Number of devices behind the link, each with --iops.")
    ] = 1,
    outstanding: Annotated[
        str,
        typer.Option(
            "--outstanding", metavar="N", help="Requests in flight at most, to all devices, or none: no limit."
        ),
    ] = "768",
    latency_us: Annotated[
        float, typer.Option("--latency-us", metavar="US", help="Microseconds that a request takes when it is alone.")
    ] = 1.2,
    json_target: JsonOption = None,
) -> None:
    """Predict how long a graph search takes whose edge list lies in external memory.

    For each alignment: read amplification, the rate and the latency that fill the link, and the time. Nothing is
    measured. The reference has the equations: docs/reference/graph-model.md.
    """
    check_json_target(json_target)
    behind = _memory(link, bandwidth, iops, devices, outstanding, latency_us)
    if entry_bytes not in _ENTRY_BYTES:
        raise RefusedInput("--entry-bytes", entry_bytes, "must be 4, 8, 12 or 16: an id of 4 or 8 and its weight")
    longest = _power_of_two("--request-max", request_max) if request_max else None
    if lines and longest is None:
        raise missing("--request-max", "--lines cuts requests at its multiples")
    alignments = _alignments(alignment, longest)
    cache = _cache(cache_bytes, longest, alignments, order, root)
    check_reordering(reordering, seed, generator)
    name, graph = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize).graph()
    if not graph.arcs:
        raise RefusedInput("graph", name, "has no edge: there is nothing to read; give a graph that has one")
    if root is not None and not 0 <= root < graph.vertices:
        raise RefusedInput("-r", root, f"must be a vertex, 0 to {graph.vertices - 1}")
    if cache is not None:
        order = order or ORDERS[0]
        root = int(graph.degrees.argmax()) if root is None else root

    def rows_of(graph: Graph, root: int | None, what: str) -> list[dict[str, Any]]:
        """The rows of a graph, and the start of the search by the numbers that its vertices have there."""
        rows = []
        with progress(f"counting the reads{what}", len(alignments)) as tell:
            visits = None if cache is None else reading_order(graph, order or ORDERS[0], root or 0)
            for size in alignments:
                if visits is None or cache is None:
                    reads = list_reads(graph.row_begin, size, entry_bytes=entry_bytes, request_max=longest, lines=lines)
                else:
                    reads = cached_list_reads(graph.row_begin, size, cache, visits, entry_bytes=entry_bytes)
                rows.append(_row(size, reads, behind, entry_bytes, lists))
                tell(len(rows))
        return rows

    lists = int((graph.degrees > 0).sum())
    before = None
    if reordering is None:
        rows = rows_of(graph, root, "")
    else:
        rows = rows_of(graph, root, " of the old order")
        before = {"best_alignment": _best(rows), "alignments": rows}
        with progress(f"reordering the graph: {reordering}", None):
            graph, new = reorder(graph, reordering, SEED_DEFAULT if seed is None else seed)
        rows = rows_of(graph, None if root is None else int(new[root]), " of the new order")
    document = {
        "graph": name,
        "directed": graph.directed,
        "vertices": graph.vertices,
        "arcs": graph.arcs,
        "lists": lists,
        "entry_bytes": entry_bytes,
        "bytes_needed": graph.arcs * entry_bytes,
        "list_bytes_mean": graph.arcs * entry_bytes / lists,
        "request_max_bytes": longest,
        "lines": lines,
        "cache_bytes": cache,
        "order": order,
        "root": root,
        "reorder": reordering,
        "before": before,
        "link": link,
        "bytes_per_second": behind.bytes_per_second,
        "devices": devices,
        "iops": _finite(behind.iops),
        "outstanding": _finite(behind.outstanding),
        "latency_ns": latency_us * 1e3,
        "requests_per_second": _finite(behind.requests_per_second),
        "best_request_bytes": behind.best_request_bytes or None,
        "best_alignment": _best(rows),
        "alignments": rows,
        "forebay": build_and_host(),
    }
    write_json(json_target, document)
    _show(document, json_target)


def _memory(link: str, bandwidth: str, iops: str, devices: int, outstanding: str, latency_us: float) -> ExternalMemory:
    carries = UNBOUNDED if link == _NONE else link_bytes_per_second("--link", link)
    arrives = parse_rate("--bandwidth", bandwidth) if bandwidth else carries
    if math.isinf(arrives):
        raise RefusedInput("--link", link, "says no bandwidth; give --bandwidth, or the name of a link")
    if arrives > carries:
        carried = format_bandwidth(carries)
        raise RefusedInput("--bandwidth", bandwidth, f"is more than {link} carries, {carried}; name a faster --link")
    if not 1 <= devices <= _DEVICES_MAX:
        raise RefusedInput("--devices", devices, f"must be 1 to {_DEVICES_MAX}")
    if not 0 <= latency_us <= _LATENCY_MAX_US:
        raise RefusedInput("--latency-us", latency_us, "give microseconds from 0 to 3600000000, such as 50 or 6.5")
    rate = UNBOUNDED if iops == _NONE else parse_rate("--iops", iops)
    in_flight = UNBOUNDED if outstanding == _NONE else _outstanding(outstanding)
    return ExternalMemory(arrives, rate * devices, in_flight, latency_us / 1e6)


def _outstanding(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise RefusedInput("--outstanding", text, "must be a whole number from 1 to 999999999, or none")
    return int(text)


def _alignments(given: list[str] | None, longest: int | None) -> list[int]:
    if not given:
        most = _ALIGNMENT_MOST if longest is None else min(longest, _ALIGNMENT_MOST)
        least = min(_ALIGNMENT_LEAST, most)
        return [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
    sizes = [_power_of_two("--alignment", text) for text in given]
    for text, size in zip(given, sizes, strict=True):
        if longest is not None and size > longest:
            raise RefusedInput("--alignment", text, f"must be at most --request-max, {longest}")
    return sorted(set(sizes))


def _power_of_two(option: str, text: str) -> int:
    size = parse_size(option, text)
    try:
        require_power_of_two(option, size)
    except RefusedInput as refused:
        raise RefusedInput(option, text, refused.remedy) from None
    return size


def _cache(text: str, longest: int | None, alignments: list[int], order: str | None, root: int | None) -> int | None:
    if order is not None and order not in ORDERS:
        raise RefusedInput("--order", order, f"must be one of {', '.join(ORDERS)}")
    if not text:
        for option, value in (("--order", order), ("-r", root)):
            if value is not None:
                raise RefusedInput(option, value, "matters to a cache only; give --cache-bytes, or leave it out")
        return None
    if longest is not None:
        raise RefusedInput("--cache-bytes", text, "a cache reads one block a request; leave --request-max out")
    if order == "scan" and root is not None:
        raise RefusedInput("-r", root, "a scan starts at vertex 0; leave it out, or choose another --order")
    size = parse_size("--cache-bytes", text)
    if size < alignments[-1]:
        remedy = f"must hold a block of {alignments[-1]} bytes; give more, or a smaller --alignment"
        raise RefusedInput("--cache-bytes", text, remedy)
    return size


def _best(rows: list[dict[str, Any]]) -> int:
    return int(min(rows, key=lambda row: (row["seconds"], row["alignment"]))["alignment"])


def _row(alignment: int, reads: ListReads, behind: ExternalMemory, entry_bytes: int, lists: int) -> dict[str, Any]:
    size = reads.request_bytes
    return {
        "alignment": alignment,
        "bytes_read": reads.bytes_read,
        "requests": reads.requests,
        "read_amplification": reads.read_amplification,
        "read_amplification_at_random": amplification_at_random(alignment, entry_bytes, reads.bytes_needed / lists),
        "request_bytes": size,
        "required_iops": behind.required_iops(size),
        "allowed_latency_ns": _finite(behind.allowed_latency_s(size) * 1e9),
        "knee_latency_ns": _finite(behind.knee_latency_s(size) * 1e9),
        "bytes_per_second": behind.throughput(size),
        "seconds": behind.seconds(reads.bytes_read, size),
        "bound": behind.bound(size),
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _show(document: dict[str, Any], json_target: str | None) -> None:
    out = terminal(json_target)
    title, before = document["graph"], document["before"]
    if before is not None:
        title += f", reordered: {document['reorder']}"
    headings = ("block", "RAF", "request", "IOPS", "latency", "rate", "time", "bound")
    table = Table(*headings, title=title)
    for column in table.columns:
        column.justify = "right"
        column.no_wrap = True
    for row in document["alignments"]:
        latency = row["allowed_latency_ns"]
        table.add_row(
            str(row["alignment"]),
            f"{row['read_amplification']:.3f}",
            f"{row['request_bytes']:.0f}",
            format_rate(row["required_iops"]),
            "any" if latency is None else format_ns(latency),
            format_bandwidth(row["bytes_per_second"]),
            format_ns(row["seconds"] * 1e9),
            row["bound"],
        )
    out.print(table)
    if before is not None:
        _show_change(out, before["alignments"], document["alignments"])
    limits = [
        f"{document['link']}, {format_bandwidth(document['bytes_per_second'])}",
        "no limit of IOPS" if document["iops"] is None else f"{format_rate(document['iops'])} IOPS",
        "any number in flight" if document["outstanding"] is None else f"{document['outstanding']} in flight",
        f"latency {format_ns(document['latency_ns'])}",
        f"{format_bytes(document['bytes_needed'])} of lists",
        "no cache" if document["cache_bytes"] is None else f"cache of {format_bytes(document['cache_bytes'])}",
    ]
    out.print("; ".join(limits), highlight=False, soft_wrap=True)
    size = document["best_request_bytes"]
    fills = "requests of any size fill the link" if size is None else f"requests of {size:.0f} B fill the link"
    out.print(f"best alignment: {document['best_alignment']} B; {fills}", highlight=False)
    for explained in (
        "RAF: read amplification, the bytes read for each byte of the lists",
        "IOPS, latency: the lowest rate and the highest latency at which such requests fill the link",
    ):
        out.print(explained, highlight=False, soft_wrap=True)


def _show_change(out: Console, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    headings = ("block", "RAF before", "RAF after", "time before", "time after")
    table = Table(*headings, title="before and after the reordering")
    for column in table.columns:
        column.justify = "right"
    for old, new in zip(before, after, strict=True):
        table.add_row(
            str(old["alignment"]),
            *(f"{row['read_amplification']:.3f}" for row in (old, new)),
            *(format_ns(row["seconds"] * 1e9) for row in (old, new)),
        )
    out.print(table)
