# SPDX-License-Identifier: Apache-2.0
"""`forebay graph`: graph files, and searches over a drive, with GAP's flags."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from forebay.cli.application import Application
from forebay.cli.contract import (
    DeviceOption,
    JsonOption,
    NotVerifiedError,
    SeedOption,
    check_json_target,
    progress,
    terminal,
    write_json,
)
from forebay.cli.generated_graph import SEED_DEFAULT, RandomSeedOption, ReorderOption, check_reordering
from forebay.cli.search_options import IodepthOption
from forebay.cli.timing import timing
from forebay.errors import RefusedInput
from forebay.files import check_file_to_write
from forebay.graph.bfs import BfsResult, bfs, default_iodepth, require_edges, verify_distances, write_edges
from forebay.graph.csr import Graph
from forebay.graph.formats import ENDINGS, format_of, load, require_weights, save
from forebay.graph.reorder import reorder
from forebay.provenance import provenance
from forebay.storage import Storage
from forebay.units import format_bandwidth, format_bytes, format_count, format_ns, format_rate, parse_size

app = Application(
    no_args_is_help=True,
    help=f"Convert and check graph files ({ENDINGS}), and search graphs that lie on a drive.",
)

_TRIALS_MAX = 1_000_000

Input = Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help=f"The graph file: {ENDINGS}.")]
Symmetrize = Annotated[
    bool, typer.Option("-s", "--symmetrize", help="Make the graph undirected: add the reverse of each edge.")
]


class Weights(StrEnum):
    """Which weights a graph gets that is read from a file."""

    FILE = "file"
    NONE = "none"
    UNIT = "unit"


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="FROM", help=f"The graph file to read: {ENDINGS}.")],
    target: Annotated[
        Path, typer.Argument(metavar="TO", help="The graph file to write, over one that is there: the same endings.")
    ],
    symmetrize: Symmetrize = False,
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            metavar="file|none|unit",
            help="The weights of TO: those of FROM, none, or 1 on each edge.",
            show_default="file; none if TO has no place for them",
        ),
    ] = "",
    reordering: ReorderOption = None,
    seed: RandomSeedOption = None,
    json_target: JsonOption = None,
) -> None:
    """Convert a graph file from one format to another.

    Duplicate edges and loops of a text file are dropped, as GAP does; of duplicates the smallest weight stays.
    """
    check_json_target(json_target)
    check_reordering(reordering, seed)
    to = format_of(target, "TO")
    choice = _weights(weights, tuple(Weights)) if weights else Weights.FILE
    if weights and to.weights == "never" and choice is not Weights.NONE:
        raise RefusedInput("--weights", weights, f"a {target.suffix} file has no weights; leave --weights out")
    if to.weights == "always" and choice is Weights.NONE:
        raise RefusedInput("--weights", weights, f"a {target.suffix} file has weights; use file or unit")
    check_file_to_write("TO", target)
    graph = load(source, symmetrize=symmetrize, weights=choice is Weights.FILE and to.weights != "never")
    if choice is Weights.UNIT:
        graph = graph.with_unit_weights()
    require_weights(graph, to, target, "TO")
    if reordering is not None:
        with progress(f"reordering the graph: {reordering}", None):
            graph, _ = reorder(graph, reordering, SEED_DEFAULT if seed is None else seed)
    save(graph, target)
    write_json(json_target, {"from": str(source), "to": str(target), "reorder": reordering, **_describe(graph)})
    _show_graph(str(target), graph, json_target)


@app.command()
def info(
    source: Annotated[Path, typer.Argument(metavar="FILE", help=f"The graph file: {ENDINGS}.")],
    weights: Annotated[
        str, typer.Option("--weights", metavar="file|none", help="Whether to check the weights, or leave them out.")
    ] = "file",
    json_target: JsonOption = None,
) -> None:
    """Check a graph file and print its numbers of vertices and edges."""
    check_json_target(json_target)
    keep = _weights(weights, (Weights.FILE, Weights.NONE)) is Weights.FILE
    graph = load(source, weights=keep)
    write_json(json_target, {"file": str(source), **_describe(graph)})
    _show_graph(str(source), graph, json_target)


@app.command("bfs")
def search(
    file: Input,
    symmetrize: Symmetrize = False,
    root: Annotated[
        int | None,
        typer.Option(
            "-r",
            "--root",
            metavar="VERTEX",
            help="Where each search starts.",
            show_default="a random vertex that has an edge",
        ),
    ] = None,
    trials: Annotated[int, typer.Option("-n", "--trials", metavar="COUNT", help="Number of searches.")] = 16,
    verify: Annotated[
        bool,
        typer.Option(
            "-v/", "--verify/--no-verify", help="Check each distance against SciPy's.", show_default="--verify"
        ),
    ] = True,
    memory: Annotated[
        str,
        typer.Option(
            "--memory", metavar="MODE", help="Where the edges lie. storage_direct, on a drive, is the only mode yet."
        ),
    ] = "storage_direct",
    drive: Annotated[
        list[str] | None,
        typer.Option(
            "--drive",
            metavar="URI",
            help="The drive that has the edge list. Repeat it to stripe several.",
            show_default="an ideal emulated drive that is large enough",
        ),
    ] = None,
    extent: Annotated[
        str,
        typer.Option("--extent", metavar="NAME", help="The extent with the edge list. It is made if it is not there."),
    ] = "edges",
    bs: Annotated[
        str,
        typer.Option(
            "--bs",
            metavar="SIZE",
            help="Bytes of the longest read: whole blocks of the drive.",
            show_default="one block of the drive",
        ),
    ] = "",
    iodepth: IodepthOption = None,
    seed: SeedOption = 1,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Search a graph breadth-first; the threads read neighbour lists from a drive.

    The edge list is written to the drive first, unless it is there. SciPy checks every distance.
    """
    check_json_target(json_target)
    if memory != "storage_direct":
        raise RefusedInput("--memory", memory, "must be storage_direct, the only mode of this version")
    if not 1 <= trials <= _TRIALS_MAX:
        raise RefusedInput("-n", trials, f"must be 1 to {_TRIALS_MAX}")
    if iodepth is not None and iodepth < 1:
        raise RefusedInput("--iodepth", iodepth, "must be at least 1: the reads in flight")
    request_bytes = parse_size("--bs", bs) if bs else 0
    graph = load(file, symmetrize=symmetrize, weights=False)
    if not graph.arcs:
        raise RefusedInput("-f", file, "has no edge: there is nothing to search")
    if root is not None and not 0 <= root < graph.vertices:
        raise RefusedInput("-r", root, f"must be a vertex, 0 to {graph.vertices - 1}")
    roots = _roots(graph, root, trials, seed)
    uris = drive or [default_drive(graph)]

    with Storage(*uris, device=device) as storage:
        if all(known["name"] != extent for known in storage.extents()):
            with progress("writing the edge list", 1.0) as tell:
                write_edges(storage, graph, extent, tell)
        else:
            with progress("comparing the edge list with the drive's", None):
                require_edges(storage, graph, extent)
        storage.reset_statistics()
        reads = default_iodepth(storage, iodepth)
        runs = []
        for source in roots:
            with progress(f"searching from {source}", None):
                result = bfs(
                    storage,
                    graph,
                    source,
                    extent=extent,
                    iodepth=reads,
                    request_bytes=request_bytes,
                )
            wrong = verify_distances(graph, source, result) if verify else None
            runs.append((source, result, wrong))
        report = provenance(storage)
    document = _document(graph, runs, report, str(file), uris)
    write_json(json_target, document)
    _show_runs(document, runs, json_target)
    if document["verified"] is False:
        wrong = sum(wrong or 0 for _, _, wrong in runs)
        raise NotVerifiedError(f"{format_count(wrong, 'distance')} not equal to SciPy's")


def default_drive(graph: Graph) -> str:
    """The URI of an ideal drive with room for the edge list and its catalogue."""
    mebibytes = -(-graph.arcs * 4 // (1 << 20)) + 2
    return f"emulated:profile=ideal,size={mebibytes}M"


def _roots(graph: Graph, root: int | None, trials: int, seed: int) -> list[int]:
    if root is not None:
        return [root] * trials
    candidates = np.flatnonzero(graph.degrees)  # as GAP: a source has at least one neighbour
    return [int(v) for v in np.random.default_rng(seed).choice(candidates, trials)]


def _weights(value: str, known: tuple[Weights, ...]) -> Weights:
    if value not in known:
        raise RefusedInput("--weights", value, f"must be {', '.join(known[:-1])} or {known[-1]}")
    return Weights(value)


def _describe(graph: Graph) -> dict[str, Any]:
    return {
        "directed": graph.directed,
        "vertices": graph.vertices,
        "edges": graph.arcs if graph.directed else graph.arcs // 2,
        "arcs": graph.arcs,
        "degree_max": int(graph.degrees.max(initial=0)),
        "degree_mean": graph.arcs / graph.vertices if graph.vertices else 0.0,
        "edge_list_bytes": graph.arcs * 4,
        "weighted": graph.weights is not None,
        "weight_min": int(graph.weights.min()) if graph.weights is not None and graph.arcs else None,
        "weight_max": int(graph.weights.max()) if graph.weights is not None and graph.arcs else None,
    }


def _show_graph(title: str, graph: Graph, json_target: str | None) -> None:
    facts = _describe(graph)
    table = Table(title=title, show_header=False)
    for key in ("directed", "vertices", "edges", "degree_max"):
        table.add_row(key, str(facts[key]))
    table.add_row("degree_mean", f"{facts['degree_mean']:.2f}")
    table.add_row("edge list", format_bytes(facts["edge_list_bytes"]))
    spread = f"{facts['weight_min']} to {facts['weight_max']}" if facts["weight_max"] is not None else "none"
    table.add_row("weights", spread)
    terminal(json_target).print(table)


def _document(
    graph: Graph, runs: list[tuple[int, BfsResult, int | None]], report: dict[str, Any], file: str, uris: list[str]
) -> dict[str, Any]:
    first = runs[0][1]
    checked = [wrong for _, _, wrong in runs if wrong is not None]
    return {
        "algorithm": "bfs",
        "memory": "storage_direct",
        "file": file,
        "drives": uris,
        "verified": None if not checked else not any(checked),
        "vertices": graph.vertices,
        "edges": graph.arcs,
        "seconds": sum(result.seconds for _, result, _ in runs) / len(runs),
        "bytes_read": first.bytes_read,
        "read_amplification": first.read_amplification,
        "trials": [{"source": source, "wrong_distances": wrong, **result.figures()} for source, result, wrong in runs],
        "fidelity": report["fidelity"],
        "forebay": report,
    }


def _show_runs(
    document: dict[str, Any], runs: list[tuple[int, BfsResult, int | None]], json_target: str | None
) -> None:
    out = terminal(json_target)
    out.print(timing(document["forebay"]), highlight=False, soft_wrap=True)
    for _, result, wrong in runs:
        out.print(f"Trial Time:          {result.seconds:.5f}", highlight=False)
        if wrong is not None:
            out.print(f"Verification:           {'FAIL' if wrong else 'PASS'}", highlight=False)
    out.print(f"Average Time:        {document['seconds']:.5f}", highlight=False)
    table = Table("source", "reached", "levels", "reads", "IOPS", "bytes read / needed", "p50", "p99")
    for column in table.columns:
        column.justify = "right"
    for source, result, _ in runs:
        table.add_row(
            str(source),
            str(result.reached),
            str(len(result.frontier)),
            str(result.reads),
            format_rate(result.iops),
            f"{result.read_amplification:.2f}",
            format_ns(result.clat_ns["percentile"]["50.000000"]),
            format_ns(result.clat_ns["percentile"]["99.000000"]),
        )
    out.print(table)
    checked = "distances not checked" if document["verified"] is None else "distances checked against SciPy's"
    bandwidth = format_bandwidth(
        sum(result.bytes_read for _, result, _ in runs) / sum(result.seconds for _, result, _ in runs)
    )
    out.print(f"on {document['forebay']['device']}; {bandwidth} read; {checked}", highlight=False)
