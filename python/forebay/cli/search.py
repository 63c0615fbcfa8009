# SPDX-License-Identifier: Apache-2.0
"""`forebay search`: build indexes of vectors on drives, and describe them. `query` is in search_query."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from forebay.cli.application import Application
from forebay.cli.contract import (
    DeviceOption,
    JsonOption,
    SeedOption,
    check_json_target,
    terminal,
    write_json,
)
from forebay.cli.search_build import (
    RECALL_MIN,
    CapacityOption,
    ChunksOption,
    DegreeOption,
    DrivesOption,
    IndexNameOption,
    MetricOption,
    ModeOption,
    ReplaceOption,
    Wanted,
    build,
    end_of_build,
    named_as_options,
    recall_of_base,
    show_built,
    table_of,
)
from forebay.cli.vector_sources import SOURCES, VectorSource
from forebay.graph.memory import resolve_device
from forebay.search.index import Index
from forebay.search.index_file import extent_sizes, read_meta
from forebay.storage import Storage
from forebay.units import format_bytes

app = Application(
    no_args_is_help=True,
    help="Build indexes of vectors on drives, and search them for the nearest neighbours of queries.",
)

_META = "/meta"


@app.command("build")
def build_index(
    vectors: Annotated[str, typer.Argument(metavar="VECTORS", help=f"The vectors: {SOURCES}.")],
    drive: DrivesOption,
    name: IndexNameOption = "index",
    mode: ModeOption = None,
    metric: MetricOption = None,
    graph_degree: DegreeOption = None,
    chunks: ChunksOption = None,
    capacity: CapacityOption = None,
    replace: ReplaceOption = False,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoints",
            metavar="DIR",
            help="Keep what long steps make in a folder. If the build is ended, the same command goes on there.",
        ),
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Build an index of vectors on a drive, and search it for some of its own vectors to check it."""
    check_json_target(json_target)
    on = resolve_device(device, "--device")
    source = VectorSource("VECTORS", vectors)
    source.check()
    wanted = Wanted(mode, metric, graph_degree, chunks, seed, capacity, replace, checkpoints)
    with Storage(*drive, device=on) as storage:
        base = source.vectors()
        before = time.perf_counter()
        built = build(storage, base, name, wanted, on, "storage")
        storage.flush()
        seconds = time.perf_counter() - before
        with built.index as index:
            sample, recall = recall_of_base(index, base, seed)
            report = storage.report()
            document = {
                "vectors": vectors,
                "drives": drive,
                "index": index.info(),
                "seconds": seconds,
                "steps": built.seconds,
                "verified": recall >= RECALL_MIN,
                "verified_vectors": sample,
                "recall": recall,
                "device": report["device"],
                "fidelity": report["fidelity"],
                "forebay": report,
            }
    write_json(json_target, document)
    show_built(document, json_target)
    end_of_build(document, "build it again with a larger --graph-degree or --chunks")


@app.command()
def info(
    drive: DrivesOption,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The index.", show_default="list all indexes of the drive"),
    ] = None,
    json_target: JsonOption = None,
) -> None:
    """List the indexes of a drive, or describe one."""
    check_json_target(json_target)
    out = terminal(json_target)
    with Storage(*drive, device="cpu", read_only=True) as storage, named_as_options():
        if name is not None:
            with Index(storage, name) as index:
                described = index.info()
            write_json(json_target, {"drives": drive, "index": described, "forebay": storage.report()})
            out.print(table_of(described))
            return
        indexes = [_listed(storage, each) for each in sorted(extent_sizes(storage)) if each.endswith(_META)]
        write_json(json_target, {"drives": drive, "indexes": indexes, "forebay": storage.report()})
    table = Table("index", "mode", "vectors", "type", "metric", "on drives")
    table.columns[2].justify = table.columns[5].justify = "right"
    for each in indexes:
        kind = f"{each['dtype']} x {each['dimension']}"
        size = format_bytes(each["drive_bytes"])
        table.add_row(each["name"], each["mode"], str(each["count"]), kind, each["metric"], size)
    out.print(table if indexes else "no indexes")


def _listed(storage: Storage, extent: str) -> dict[str, Any]:
    """What is known of an index without its codes, which may be large."""
    name = extent.removesuffix(_META)
    meta = read_meta(storage, name)
    sizes = extent_sizes(storage)
    return {
        "name": name,
        "mode": meta.mode,
        "metric": meta.metric,
        "dtype": meta.dtype,
        "dimension": meta.dimension,
        "count": meta.count,
        "capacity": meta.slots,
        "drive_bytes": sum(size for each, size in sizes.items() if each.rpartition("/")[0] == name),
    }
