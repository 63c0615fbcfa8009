# SPDX-License-Identifier: Apache-2.0
"""`forebay graph`: graph files. The commands that run algorithms are in graph_commands."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from forebay.cli.application import Application
from forebay.cli.contract import JsonOption, check_json_target, progress, terminal, write_json
from forebay.cli.generated_graph import (
    SEED_DEFAULT,
    RandomSeedOption,
    ReorderOption,
    SymmetrizeOption,
    check_reordering,
)
from forebay.errors import RefusedInput
from forebay.files import check_file_to_write
from forebay.graph.csr import Graph
from forebay.graph.formats import ENDINGS, format_of, load, require_weights, save
from forebay.graph.reorder import reorder
from forebay.units import format_bytes

app = Application(
    no_args_is_help=True,
    help=f"Convert and check graph files ({ENDINGS}), and run algorithms over graphs in memory or on a drive.",
)


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
    symmetrize: SymmetrizeOption = False,
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
