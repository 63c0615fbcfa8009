# SPDX-License-Identifier: Apache-2.0
"""`forebay demo`: the main job on real input, checked."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from forebay.cli.contract import (
    FAILED,
    DeviceOption,
    JsonOption,
    check_json_target,
    plain_console,
    progress,
    terminal,
    write_json,
)
from forebay.cli.search_options import IodepthOption
from forebay.cli.timing import timing
from forebay.demo import START, Demo
from forebay.errors import RefusedInput
from forebay.files import check_file_to_write, make_folder_of
from forebay.graph.extents import default_iodepth
from forebay.storage import Storage
from forebay.units import format_bandwidth, format_bytes, format_ns, format_rate


def _default_drive() -> str:
    """A drive with as many service threads as leave half of the processors to everything else, 8 at most."""
    threads = max(1, min(8, (os.cpu_count() or 1) // 2))
    return f"emulated:profile=d7-ps1010,size=64M,threads={threads}"


def demo(
    drive: Annotated[
        list[str] | None,
        typer.Option(
            "--drive",
            metavar="URI",
            help="The drive to write the edge list to. Repeat it to stripe several.",
            show_default="an emulated D7-PS1010 of 64 MiB",
        ),
    ] = None,
    wordnet: Annotated[
        Path | None,
        typer.Option(
            "--wordnet",
            metavar="DIR",
            help="The folder with WordNet's data files.",
            show_default="FOREBAY_WORDNET, else /usr/share/wordnet",
        ),
    ] = None,
    iodepth: IodepthOption = None,
    device: DeviceOption = "auto",
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw the result as a PNG image.")
    ] = None,
    json_target: JsonOption = None,
) -> None:
    """Search a graph that lies on an emulated NVMe drive, and check the answer.

    The graph is WordNet 3.0. The threads that search read its edges from the drive themselves.
    SciPy then checks every distance. The last line is "demo: PASS" or "demo: FAIL".
    """
    for option, path in (("--json", json_target), ("--plot", plot)):
        if path not in (None, "-"):
            make_folder_of(option, path)
    check_json_target(json_target)
    if plot:
        check_file_to_write("--plot", plot)
        if plot.suffix != ".png":
            raise RefusedInput("--plot", plot, "the name must end in .png")
    if iodepth is not None and iodepth < 1:
        raise RefusedInput("--iodepth", iodepth, "must be at least 1")
    uris = drive or [_default_drive()]
    with progress("reading WordNet", None):
        work = Demo.prepare(wordnet)
    # The document has standard output to itself; a person still sees the result.
    out = plain_console(stderr=True) if json_target == "-" else terminal(json_target)
    with Storage(*uris, device=device) as storage:
        out.print(
            Panel(
                "Breadth-first search over WordNet. Its edge list lies on an NVMe drive.\n"
                "Each thread that searches reads neighbour lists straight from that drive,\n"
                "with many small reads in flight. SciPy then checks every distance.",
                title=Text("forebay demo", style="bold"),
                expand=False,
            )
        )
        graph = work.wordnet.graph
        out.print(
            f"graph   {graph.vertices:,} synsets, {work.wordnet.pointers:,} pointers, {graph.arcs:,} edges, "
            f"{format_bytes(graph.arcs * 4)} of edge list",
            highlight=False,
        )
        reads = default_iodepth(storage, iodepth)
        on = storage.report()["device"]
        out.print(f"drive   {', '.join(uris)}", highlight=False)
        out.print(f"threads {reads} on {on}, each with a read in flight", highlight=False)
        with progress("writing the edge list", 1.0) as tell:
            work.write(storage, tell)
        with progress("searching", float(graph.vertices)) as set_done:
            done = 0

            def follow(_level: int, frontier: int) -> None:
                nonlocal done
                done += frontier
                set_done(float(done))

            document = work.search(storage, uris, reads, follow)
    write_json(json_target, document)
    _show(out, document)
    if plot:
        from forebay.plots import plot_search

        with progress("drawing", None):
            plot_search(document, plot)
    for name, path in (("results", json_target), ("plot", plot)):
        if path and path != "-":
            out.print(f"{name}: {path}", highlight=False)
    out.print(f"demo: {'PASS' if document['verified'] else 'FAIL'}", highlight=False)
    if not document["verified"]:
        raise typer.Exit(FAILED)


def _show(out: Console, document: dict[str, Any]) -> None:
    percentile = document["clat_ns"]["percentile"]
    result = Table(show_header=False, title="search", title_style="bold", title_justify="left")
    rows = {
        "time": format_ns(document["seconds"] * 1e9),
        "reached": f"{document['reached']:,} of {document['vertices']:,} synsets from {START.word!r}",
        "reads": f"{document['reads']:,} at {format_rate(document['iops'])} IOPS, "
        f"{format_bandwidth(document['bytes_read'] / document['seconds'])}",
        "bytes read": f"{format_bytes(document['bytes_read'])} for {format_bytes(document['bytes_needed'])} needed: "
        f"read amplification {document['read_amplification']:.2f}",
        "latency": ", ".join(
            f"p{name} {format_ns(percentile[key])}"
            for name, key in (("50", "50.000000"), ("90", "90.000000"), ("99", "99.000000"), ("99.9", "99.900000"))
        ),
        "verified": (
            f"all {document['vertices']:,} distances equal SciPy's"
            if document["verified"]
            else Text(f"{document['wrong_distances']:,} distances differ from SciPy's", style="bold red")
        ),
    }
    for key, value in rows.items():
        result.add_row(Text(key, style="bold"), value)
    levels = Table("distance", "synsets", "", title="frontier of each level", title_style="bold", title_justify="left")
    levels.columns[0].justify = levels.columns[1].justify = "right"
    widest = max(document["frontier"])
    for distance, size in enumerate(document["frontier"]):
        levels.add_row(str(distance), f"{size:,}", Text("█" * max(1, round(40 * size / widest)), style="cyan"))
    out.print(timing(document["forebay"]), highlight=False, soft_wrap=True)
    out.print(levels)
    out.print(result)
