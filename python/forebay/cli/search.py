# SPDX-License-Identifier: Apache-2.0
"""`forebay search`: build indexes of vectors on drives, and describe them. `query` is in search_query."""

import time
from typing import Annotated, Any

import typer
from rich.table import Table

from forebay.cli.application import Application
from forebay.cli.contract import (
    DeviceOption,
    JsonOption,
    NotVerifiedError,
    SeedOption,
    check_json_target,
    notice,
    terminal,
    write_json,
)
from forebay.cli.search_build import (
    ChunksOption,
    DegreeOption,
    IndexNameOption,
    MetricOption,
    ModeOption,
    Wanted,
    build,
    named_as_options,
    recall_of_base,
)
from forebay.cli.timing import timing
from forebay.cli.vector_sources import SOURCES, VectorSource
from forebay.graph.memory import resolve_device
from forebay.search.index import Index
from forebay.search.index_file import extent_sizes, read_meta
from forebay.storage import Storage
from forebay.units import format_bytes, format_ns

app = Application(
    no_args_is_help=True,
    help="Build indexes of vectors on drives, and search them for the nearest neighbours of queries.",
)

_SAMPLE = 100
_RECALL_MIN = 0.9
_META = "/meta"

DrivesOption = Annotated[
    list[str],
    typer.Option("--drive", metavar="URI", help="The drive with the index. Repeat it to stripe several."),
]


@app.command("build")
def build_index(
    vectors: Annotated[str, typer.Argument(metavar="VECTORS", help=f"The vectors: {SOURCES}.")],
    drive: DrivesOption,
    name: IndexNameOption = "index",
    mode: ModeOption = None,
    metric: MetricOption = None,
    graph_degree: DegreeOption = None,
    chunks: ChunksOption = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            metavar="N",
            help="How many vectors there is to be room for.",
            show_default="for those of VECTORS",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of an index of that name.")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Build an index of vectors on a drive, and search it for some of its own vectors to check it."""
    check_json_target(json_target)
    on = resolve_device(device, "--device")
    source = VectorSource("VECTORS", vectors)
    source.check()
    wanted = Wanted(mode, metric, graph_degree, chunks, seed, capacity, replace)
    with Storage(*drive, device=on) as storage:
        base = source.vectors()
        before = time.perf_counter()
        built = build(storage, base, name, wanted, on, "storage")
        storage.flush()
        seconds = time.perf_counter() - before
        with built.index as index:
            sample, recall = recall_of_base(index, base, seed, _SAMPLE)
            report = storage.report()
            document = {
                "vectors": vectors,
                "drives": drive,
                "index": index.info(),
                "seconds": seconds,
                "steps": built.seconds,
                "verified": recall >= _RECALL_MIN,
                "verified_vectors": sample,
                "recall": recall,
                "device": report["device"],
                "fidelity": report["fidelity"],
                "forebay": report,
            }
    write_json(json_target, document)
    _show_build(document, json_target)
    if all(each.get("backing") == "memory" and each.get("residency") != "served" for each in report["drives"]):
        notice("the drive is in the memory of this command, and so the index is gone now; name a drive in a file")
    if not document["verified"]:
        raise NotVerifiedError(
            f"a search found {recall:.2f} of {sample} vectors of the index; at least {_RECALL_MIN} must be found: "
            "build it again with a larger --graph-degree or --chunks"
        )


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
            out.print(_table(described))
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


# `import` comes here, or as `app.command("import")(...)` in forebay.cli: forebay.search.diskann does its work.


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


def _table(described: dict[str, Any]) -> Table:
    table = Table(title=described["name"], show_header=False)
    per_vector = described["device_bytes"] / described["slots"]
    rows = {
        "mode": described["mode"],
        "vectors": f"{described['live']} of {described['dtype']} x {described['dimension']}",
        "metric": described["metric"],
        "room for": f"{described['slots']} vectors",
        "neighbours": f"{described['graph_degree']} in a record at most",
        "code": f"{described['chunks']} bytes" if described["chunks"] else "none",
        "record": f"{described['record_bytes']} bytes",
        "on drives": format_bytes(described["drive_bytes"]),
        "device memory": f"{format_bytes(described['device_bytes'])}, {per_vector:.1f} bytes a vector",
    }
    for key, value in rows.items():
        table.add_row(key, value)
    return table


def _show_build(document: dict[str, Any], json_target: str | None) -> None:
    out = terminal(json_target)
    out.print(timing(document["forebay"]), highlight=False, soft_wrap=True)
    out.print(_table(document["index"]))
    steps = Table("step", "time")
    steps.columns[1].justify = "right"
    for step, seconds in document["steps"].items():
        steps.add_row(step, format_ns(seconds * 1e9))
    steps.add_row("all", format_ns(document["seconds"] * 1e9))
    out.print(steps)
    found = f"{document['recall']:.2f} of {document['verified_vectors']} of its own vectors found"
    verdict = "PASS" if document["verified"] else "FAIL"
    out.print(f"on {document['device']}; verification: {verdict}, {found}", highlight=False, soft_wrap=True)
