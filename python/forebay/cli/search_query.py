# SPDX-License-Identifier: Apache-2.0
"""`forebay search query`: searches an index on drives, and measures the search."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from forebay.cli.contract import (
    DeviceOption,
    JsonOption,
    NotVerifiedError,
    SeedOption,
    check_json_target,
    missing,
    progress,
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
)
from forebay.cli.timing import timing
from forebay.cli.vector_sources import SOURCES, VectorSource, read_ids
from forebay.errors import RefusedInput
from forebay.files import check_file_to_write
from forebay.graph.memory import resolve_device
from forebay.search.exact import exact_neighbours, recall
from forebay.search.index import MEMORIES, Index
from forebay.search.searching import SearchResult
from forebay.search.vectors import write_vectors
from forebay.storage import Storage
from forebay.units import format_ns, format_rate

_LIST_MAX = 4096


@dataclass(frozen=True)
class _Checks:
    """What the found neighbours are compared with, as the command line says it."""

    base: VectorSource | None
    truth: Path | None
    least: float | None

    def check(self) -> None:
        if self.base is not None and self.truth is not None:
            raise RefusedInput("--truth", self.truth, "--base gives the true neighbours too; leave one of them out")
        if self.least is not None:
            if self.base is None and self.truth is None:
                raise missing("--base", "--recall-min needs the true neighbours; give --base, --truth or --vectors")
            if not 0 <= self.least <= 1:
                raise RefusedInput("--recall-min", self.least, "must be 0 to 1: a part of the true neighbours")
        if self.base is not None:
            self.base.check()
        if self.truth is not None:
            read_ids("--truth", self.truth)


def query(
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help=f"The queries: {SOURCES}.")],
    drive: Annotated[
        list[str] | None,
        typer.Option(
            "--drive",
            metavar="URI",
            help="The drive with the index. Repeat it for striped ones.",
            show_default="with --vectors: an ideal emulated drive in memory",
        ),
    ] = None,
    name: IndexNameOption = "index",
    vectors: Annotated[
        str | None,
        typer.Option(
            "--vectors", metavar="VECTORS", help=f"Build the index of these vectors on the drive first: {SOURCES}."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", metavar="N", help="Neighbours of each query.")] = 10,
    itopk_size: Annotated[
        int,
        typer.Option("--itopk-size", metavar="N", help="Candidates that a search keeps: more find more and read more."),
    ] = 64,
    search_width: Annotated[
        str, typer.Option("--search-width", metavar="N|auto", help="Reads of a query in flight at most, 1 to 32.")
    ] = "1",
    refill_size: Annotated[
        int,
        typer.Option("--refill-size", metavar="N", help="Reads of a query that end before it begins others."),
    ] = 1,
    navigation_size: Annotated[
        int,
        typer.Option("--navigation-size", metavar="N", help="Candidates in the graph of the sample, where it begins."),
    ] = 32,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", metavar="N", help="Of the mode exact: steps at most. 0: no limit.")
    ] = 0,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", help="Queries that end before others begin. 0: all.")
    ] = 0,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", metavar="N", help="Queries at a time. 0: as many as the device has room for."),
    ] = 0,
    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            metavar="|".join(MEMORIES),
            help="Where the records are read: copies compare drives with memory.",
        ),
    ] = "storage",
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="VECTORS",
            help="The vectors of the index: compares the neighbours with the exact ones.",
            show_default="those of --vectors",
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option("--truth", metavar="FILE.ibin", help="The ids of the true neighbours, -k or more for each query."),
    ] = None,
    recall_min: Annotated[
        float | None,
        typer.Option("--recall-min", metavar="R", help="Fail if less than this part of the neighbours is found."),
    ] = None,
    filter_file: Annotated[
        Path | None,
        typer.Option("--filter", metavar="FILE.ibin", help="The only ids that may be found.", show_default="all"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.ibin", help="Write the ids that are found; -1 for none.")
    ] = None,
    mode: ModeOption = None,
    metric: MetricOption = None,
    graph_degree: DegreeOption = None,
    chunks: ChunksOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Search an index for the nearest neighbours of queries, and say how many were found, how fast, and by which reads.

    --mode, --metric, --graph-degree, --chunks and --seed are of an index that --vectors builds.
    """
    check_json_target(json_target)
    width = _check_numbers(k, itopk_size, search_width)
    if memory not in MEMORIES:
        raise RefusedInput("--memory", memory, f"must be {', '.join(MEMORIES[:-1])} or {MEMORIES[-1]}")
    if output is not None:
        if output.suffix != ".ibin":
            raise RefusedInput("--output", output, "the name must end in .ibin")
        check_file_to_write("--output", output)
    on = resolve_device(device, "--device")
    asked = VectorSource("QUERIES", queries)
    asked.check()
    source = None if vectors is None else VectorSource("--vectors", vectors)
    wanted = Wanted(mode, metric, graph_degree, chunks, seed)
    if source is None:
        if not drive:
            raise missing("--drive", "the index is on a drive; or build one with --vectors")
        wanted.refuse_all("is of an index that --vectors builds; leave it out")
    else:
        source.check()
    compared = source if truth is None else None
    checks = _Checks(VectorSource("--base", base) if base is not None else compared, truth, recall_min)
    checks.check()
    allowed_ids = None if filter_file is None else read_ids("--filter", filter_file)
    with _opened(source, drive, name, wanted, on, memory) as (storage, index, built_of):
        rows = asked.queries(index.dimension)
        allowed = None if allowed_ids is None else _allowed(allowed_ids, index.info()["count"], filter_file)
        vectors_of = _base_of(checks, built_of, index)
        true = _true_neighbours(checks, vectors_of, rows, k, index, allowed)
        storage.reset_statistics()
        with progress("searching", None), named_as_options():
            found = index.search(
                rows,
                k,
                itopk_size=itopk_size,
                search_width=width,
                refill_size=refill_size,
                navigation_size=navigation_size,
                max_iterations=max_iterations,
                filter=allowed,
                batch=batch,
                concurrency=concurrency,
            )
        report = storage.report()
        described = index.info()
    part = None if true is None else _recall(found, true, vectors_of, rows, described["metric"])
    document = {
        "queries": queries,
        "drives": list(storage._uris),
        "memory": memory,
        "index": described,
        "k": k,
        "itopk_size": itopk_size,
        "search_width": width,
        "refill_size": refill_size,
        "navigation_size": navigation_size,
        "max_iterations": max_iterations,
        "batch": batch,
        "filter": None if allowed is None else int(allowed.sum()),
        "recall": part,
        "recall_min": recall_min,
        "verified": None if recall_min is None or part is None else part >= recall_min,
        **{key: value for key, value in found.figures().items() if key not in ("queries", "k")},
        "count": len(rows),
        "device": report["device"],
        "fidelity": report["fidelity"],
        "forebay": report,
    }
    if output is not None:
        write_vectors(found.ids.view(np.int32), output)
    write_json(json_target, document)
    _show(document, json_target)
    if document["verified"] is False:
        raise NotVerifiedError(
            f"the recall is {part:.4f}, and --recall-min is {recall_min}: a larger --itopk-size finds more"
        )


def _check_numbers(k: int, itopk_size: int, search_width: str) -> int | Literal["auto"]:
    """Refuses before a build what only the search would refuse; returns the width."""
    if not 1 <= itopk_size <= _LIST_MAX:
        raise RefusedInput("--itopk-size", itopk_size, f"must be 1 to {_LIST_MAX}")
    if not 1 <= k <= itopk_size:
        raise RefusedInput("-k", k, f"must be 1 to --itopk-size, {itopk_size}")
    if search_width == "auto":
        return "auto"
    if not search_width.isdecimal() or not 1 <= int(search_width[:4]) <= 32:
        raise RefusedInput("--search-width", search_width, "must be 1 to 32, or auto")
    return int(search_width)


@contextlib.contextmanager
def _opened(
    source: VectorSource | None, drives: list[str] | None, name: str, wanted: Wanted, device: str, memory: str
) -> Iterator[tuple[Storage, Index, npt.NDArray[Any] | None]]:
    """Opens the index of the drives, or builds one; the last value is the vectors that it was built of."""
    if source is None:
        with Storage(*(drives or ()), device=device, read_only=True) as storage:
            with named_as_options():
                index = Index(storage, name, memory=memory)
            with index:
                yield storage, index, None
        return
    vectors = source.vectors()
    with (
        Storage(*(drives or [wanted.drive_for(vectors)]), device=device) as storage,
        build(storage, vectors, name, wanted, device, memory).index as index,
    ):
        yield storage, index, vectors


def _base_of(checks: _Checks, built_of: npt.NDArray[Any] | None, index: Index) -> npt.NDArray[Any] | None:
    if checks.base is None:
        return None
    if built_of is not None and checks.base.field == "--vectors":
        return built_of
    base = checks.base.vectors()
    count = index.info()["count"]
    if base.shape != (count, index.dimension) or base.dtype != index.dtype:
        remedy = f"has {base.shape[0]} vectors of {base.dtype} x {base.shape[1]}, and the index {count} of "
        raise RefusedInput("--base", checks.base.given, f"{remedy}{index.dtype} x {index.dimension}; give its vectors")
    return base


def _allowed(ids: npt.NDArray[np.int32], count: int, path: Path | None) -> npt.NDArray[np.bool_]:
    bad = (ids < 0) | (ids >= count)
    if bad.any():
        raise RefusedInput(f"--filter: {path}", ids[bad][0], f"must be the ids of vectors, 0 to {count - 1}")
    allowed = np.zeros(count, bool)
    allowed[ids.reshape(-1)] = True
    return allowed


def _true_neighbours(
    checks: _Checks,
    base: npt.NDArray[Any] | None,
    queries: npt.NDArray[Any],
    k: int,
    index: Index,
    allowed: npt.NDArray[np.bool_] | None,
) -> npt.NDArray[Any] | None:
    """The ids of the exact neighbours among those that may be found; None if nothing gives them."""
    if checks.truth is not None:
        ids = read_ids("--truth", checks.truth)
        if len(ids) != len(queries) or ids.shape[1] < k:
            shape = f"{ids.shape[0]} x {ids.shape[1]}"
            remedy = f"has {shape} ids; it must have those of {len(queries)} queries, {k} or more of each"
            raise RefusedInput("--truth", checks.truth, remedy)
        count = index.info()["count"]
        if (bad := ids >= count).any():
            remedy = f"must be the ids of vectors of the index, 0 to {count - 1}"
            raise RefusedInput(f"--truth: {checks.truth}", ids[bad][0], remedy)
        return np.asarray(ids[:, :k])
    if base is None:
        return None
    if queries.shape[1] != index.dimension or queries.dtype != index.dtype:
        return None  # the search refuses them
    rows = np.arange(len(base)) if allowed is None else np.flatnonzero(allowed)
    if k > len(rows):
        raise RefusedInput("-k", k, f"only {len(rows)} vectors may be found; ask for fewer")
    with progress("finding the exact neighbours", None), named_as_options():
        nearest = exact_neighbours(base if allowed is None else base[rows], queries, k, index.metric)
    return rows[nearest.ids].astype(np.uint32)


def _recall(
    found: SearchResult,
    true: npt.NDArray[Any],
    base: npt.NDArray[Any] | None,
    queries: npt.NDArray[Any],
    metric: str,
) -> float:
    if base is not None:
        return recall(base, queries, found.ids, true, metric)
    # Without the vectors nothing tells which others are as near: ids are compared.
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(found.ids.view(np.int32), true, strict=True))
    return hits / true.size


def _show(document: dict[str, Any], json_target: str | None) -> None:
    out = terminal(json_target)
    out.print(timing(document["forebay"]), highlight=False, soft_wrap=True)
    latency = document["latency_ns"]
    found = "-" if document["recall"] is None else f"{document['recall']:.4f}"
    columns = {
        "k": str(document["k"]),
        "itopk": str(document["itopk_size"]),
        "recall": found,
        "QPS": format_rate(document["qps"]),
        "reads / query": f"{document['reads_per_query']:.1f}",
        "in vain": f"{document['unused_reads_per_query']:.1f}",
        **{name: format_ns(latency[name]) for name in ("p50", "p99", "max")},
    }
    table = Table(*columns, padding=0)
    for column in table.columns:
        column.justify = "right"
    table.add_row(*columns.values())
    out.print(table)
    index = document["index"]
    what = f"{document['count']} queries, {index['live']} vectors of {index['dtype']} x {index['dimension']}"
    verdict = {None: "not verified", True: "verification: PASS", False: "verification: FAIL"}[document["verified"]]
    place = ", ".join(document["drives"]) if document["memory"] == "storage" else document["memory"]
    out.print(f"{what}; on {document['device']}; {place}; {verdict}", highlight=False, soft_wrap=True)
