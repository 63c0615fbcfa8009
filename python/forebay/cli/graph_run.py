# SPDX-License-Identifier: Apache-2.0
"""What the commands share that run an algorithm over a graph: the graph, its place, the trials, and what is told."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from forebay.cli.contract import NotVerifiedError, check_json_target, progress, terminal, write_json
from forebay.cli.generated_graph import SEED_DEFAULT, GraphChoice, check_reordering
from forebay.cli.timing import timing
from forebay.errors import RefusedInput
from forebay.files import check_file_to_write
from forebay.graph.checks import verified_by
from forebay.graph.csr import Graph
from forebay.graph.extents import ENTRY_BYTES
from forebay.graph.memory import parse_memory, require_device, resolve_device
from forebay.graph.modelled import modelled
from forebay.graph.placed import Placed
from forebay.graph.reorder import reorder
from forebay.graph.results import BfsResult, Run
from forebay.units import format_bandwidth, format_count, format_ns, format_rate, parse_size

TRIALS_DEFAULT = 16  # GAP's
_TRIALS_MAX = 1_000_000
_CHECKERS = {"scipy": "SciPy", "device": "rules on the device"}
_WIDE_TABLE = 9  # columns, which 80 characters hold without space around them
_OF_EVERY_RUN = {field.name for field in dataclasses.fields(Run)} | {"levels"}

TrialsOption = Annotated[int, typer.Option("-n", "--trials", metavar="COUNT", help="Number of trials.")]
VerifyOption = Annotated[
    bool,
    typer.Option(
        "-v/",
        "--verify/--no-verify",
        help="Check each result: against SciPy's up to 2^20 vertices, by rules on the device beyond.",
        show_default="--verify",
    ),
]
RootOption = Annotated[
    int | None,
    typer.Option(
        "-r",
        "--root",
        metavar="VERTEX",
        help="Where each search starts.",
        show_default="a random vertex that has an edge",
    ),
]
MemoryOption = Annotated[
    str,
    typer.Option(
        "--memory",
        metavar="KIND",
        help="Where the neighbour lists lie: hbm, host[:node=N], uvm, storage[:page_bytes=SIZE,cache_bytes=SIZE], "
        "storage_direct, external:KEY=VALUE,...",
    ),
]
DriveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drive",
        metavar="URI",
        help="The drive that has the lists, for the kinds storage and storage_direct. Repeat it to stripe several.",
        show_default="an ideal emulated drive that is large enough",
    ),
]
ExtentOption = Annotated[
    str,
    typer.Option("--extent", metavar="NAME", help="The extent with the lists. It is made if it is not there."),
]
BsOption = Annotated[
    str,
    typer.Option(
        "--bs",
        metavar="SIZE",
        help="Of storage_direct: bytes of the longest read, whole blocks of the drive.",
        show_default="one block of the drive",
    ),
]
PlaceIodepthOption = Annotated[
    int | None,
    typer.Option(
        "--iodepth",
        metavar="N",
        help="Of storage_direct: reads in flight at most. Each is of a thread of its own.",
        show_default="16384 on a GPU; on the CPU 128 for each core but one",
    ),
]
GraphSeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", "--randseed", metavar="N", help="Seed of all that is random.", show_default=str(SEED_DEFAULT)
    ),
]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the commands see it.

    Attributes:
        name: Its name in documents.
        run: Runs it over lists from a source, which only some have.
        verify: Counts what is wrong with a result, by SciPy or on a device.
        noun: What is counted.
        found: The columns of the table that are its own, each with what it shows of a result.
        has_source: Whether it starts from a vertex.
        by: What checks results; None: that depends on the size of the graph.
    """

    name: str
    run: Callable[[Placed, int], Run]
    verify: Callable[[Graph, int, Any, str], int]
    noun: str
    found: dict[str, Callable[[Any], str]]
    has_source: bool = False
    by: str | None = None


@dataclass(frozen=True)
class Place:
    """The place of the lists, as a command line names it."""

    memory: str
    drives: list[str] | None
    extent: str
    bs: str = ""
    iodepth: int | None = None
    wide_ids: bool = False
    weighted: bool = False
    incoming: bool = False


@dataclass(frozen=True)
class Trials:
    """How often to run, what to do with the vertices before, and where the result goes."""

    count: int
    verify: bool
    device: str
    reordering: str | None
    root: int | None
    json_target: str | None
    plot: Path | None = None


@dataclass(frozen=True)
class _Trial:
    source: int | None
    result: Run
    wrong: int | None


def run(
    algorithm: Callable[[Graph], Algorithm],
    choice: GraphChoice,
    place: Place,
    trials: Trials,
    load: Callable[[GraphChoice, str], tuple[str, Graph]],
    values: Callable[[Graph], npt.NDArray[np.float32] | None] | None = None,
) -> None:
    """Runs an algorithm as often as asked, and tells what it found.

    Args:
        algorithm: Makes the algorithm for a graph. It refuses a graph that does not suit.
        choice: The graph of the command line.
        place: Where its lists go.
        trials: How often to run, and the rest.
        load: Reads or generates the graph, for a device.
        values: The values of the arcs; None for none.

    Raises:
        RefusedInput: An option or the graph is refused. Nothing has run then.
        OperationFailed: A drive, a GPU or SciPy fails.
        NotVerifiedError: A result is wrong.
    """
    device, request_bytes = _check(place, trials)
    name, graph = load(choice, device)
    field = "graph" if choice.file is None else "-f"
    if not graph.vertices:
        raise RefusedInput(field, name, "has no vertex; there is nothing to search")
    if trials.root is not None and not 0 <= trials.root < graph.vertices:
        raise RefusedInput("-r", trials.root, f"must be a vertex, 0 to {graph.vertices - 1}")
    wanted = algorithm(graph)
    seed = SEED_DEFAULT if choice.seed is None else choice.seed
    if not graph.arcs and parse_memory(place.memory).on_drives:
        raise RefusedInput(field, name, "has no edge: there is nothing to read from a drive; use --memory host")
    roots = _roots(graph, trials, seed) if wanted.has_source else [0] * trials.count
    sources = roots
    if trials.reordering is not None:
        with progress(f"reordering the graph: {trials.reordering}", None):
            graph, new = reorder(graph, trials.reordering, seed)
        sources = [int(new[root]) for root in roots]
        wanted = algorithm(graph)
    with progress("placing the lists", 1.0) as tell, _named_as_options():
        placed = Placed(
            graph,
            place.memory,
            device=device,
            drives=place.drives or (),
            extent=place.extent,
            iodepth=place.iodepth,
            request_bytes=request_bytes,
            weighted=place.weighted,
            wide_ids=place.wide_ids,
            incoming=place.incoming,
            values=None if values is None else values(graph),
            tell=tell,
        )
    with placed:
        done = list(_trials(wanted, placed, roots, sources, verify=trials.verify))
        document = _document(wanted, placed, choice, place, trials, name, done)
    write_json(trials.json_target, document)
    _show(wanted, document, done, trials.json_target)
    if trials.plot is not None:
        from forebay.plots import plot_levels

        with progress("drawing", None):
            plot_levels(document, trials.plot)
    if document["verified"] is False:
        wrong = format_count(sum(trial.wrong or 0 for trial in done), wanted.noun)
        if document["verified_by"] == "scipy":
            raise NotVerifiedError(f"{wrong} not equal to SciPy's")
        raise NotVerifiedError(f"{wrong} contradict the graph, by a check on the device")


@contextlib.contextmanager
def _named_as_options() -> Iterator[None]:
    """Names options in refusals of arguments that have other names in Python."""
    try:
        yield
    except RefusedInput as refused:
        option = {"request_bytes": "--bs", "page_bytes": "--memory: page_bytes", "cache_bytes": "--memory: cache_bytes"}
        raise RefusedInput(option.get(refused.field, refused.field), refused.value, refused.remedy) from None


def _check(place: Place, trials: Trials) -> tuple[str, int]:
    """Refuses what can be refused without the graph; returns the device, and the bytes of the longest read."""
    check_json_target(trials.json_target)
    if trials.plot is not None:
        check_file_to_write("--plot", trials.plot)
        if trials.plot.suffix != ".png":
            raise RefusedInput("--plot", trials.plot, "the name must end in .png")
    memory = parse_memory(place.memory, "--memory")
    device = resolve_device(trials.device, "--device")
    require_device(memory, device, "--memory")
    if place.drives and not memory.on_drives:
        remedy = f"the lists lie in {memory.kind}; leave it out, or use --memory storage or storage_direct"
        raise RefusedInput("--drive", place.drives[0], remedy)
    for option, value in (("--iodepth", place.iodepth), ("--bs", place.bs or None)):
        if value is not None and memory.kind != "storage_direct":
            raise RefusedInput(option, value, f"is of --memory storage_direct, and not of {memory.kind}; leave it out")
    if place.iodepth is not None and place.iodepth < 1:
        raise RefusedInput("--iodepth", place.iodepth, "must be at least 1: the reads in flight")
    if not 1 <= trials.count <= _TRIALS_MAX:
        raise RefusedInput("-n", trials.count, f"must be 1 to {_TRIALS_MAX}")
    return device, parse_size("--bs", place.bs) if place.bs else 0


def _roots(graph: Graph, trials: Trials, seed: int) -> list[int]:
    if trials.root is not None:
        return [trials.root] * trials.count
    candidates = np.flatnonzero(graph.degrees)  # as GAP: a source has at least one neighbour
    if not len(candidates):
        candidates = np.arange(graph.vertices)
    return [int(v) for v in np.random.default_rng(seed).choice(candidates, trials.count)]


def _trials(algorithm: Algorithm, placed: Placed, roots: list[int], sources: list[int], *, verify: bool) -> Any:  # noqa: ANN401
    before: tuple[int, Run, int] | None = None  # what was checked last
    for root, source in zip(roots, sources, strict=True):
        placed.make_cold()
        what = f"{algorithm.name} from {root}" if algorithm.has_source else algorithm.name
        with progress(what, None):
            result = algorithm.run(placed, source)
        wrong = None
        if verify and before is not None and before[0] == source and _same(before[1], result):
            wrong = before[2]  # what is equal need not be checked again
        elif verify:
            with progress("checking", None):
                wrong = algorithm.verify(placed.graph, source, result, placed.device)
            before = source, result, wrong
        yield _Trial(root if algorithm.has_source else None, result, wrong)


def _same(a: Run, b: Run) -> bool:
    """Whether two runs found the same, whatever they took."""
    names = [field.name for field in dataclasses.fields(a) if field.name not in _OF_EVERY_RUN]
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def _document(
    algorithm: Algorithm,
    placed: Placed,
    choice: GraphChoice,
    place: Place,
    trials: Trials,
    name: str,
    done: list[_Trial],
) -> dict[str, Any]:
    graph, first, report = placed.graph, done[0].result, placed.report()
    models = [modelled(trial.result, report) for trial in done]
    checked = [trial.wrong for trial in done if trial.wrong is not None]
    return {
        "algorithm": algorithm.name,
        "memory": place.memory,
        "graph": name,
        "file": None if choice.file is None else str(choice.file),
        "drives": placed.drives,
        "verified": None if not checked else not any(checked),
        "verified_by": (algorithm.by or verified_by(graph)) if checked else None,
        "directed": graph.directed,
        "vertices": graph.vertices,
        "edges": graph.arcs,
        "entry_bytes": ENTRY_BYTES[placed.entry],
        "reorder": trials.reordering,
        "seconds": sum(trial.result.seconds for trial in done) / len(done),
        "bytes_read": first.bytes_read,
        "bytes_needed": first.bytes_needed,
        "read_amplification": first.read_amplification,
        "trials": [
            {
                **({"source": trial.source} if algorithm.has_source else {}),
                "wrong": trial.wrong,
                **trial.result.figures(),
                "model": None if model is None else model.figures(),
            }
            for trial, model in zip(done, models, strict=True)
        ],
        "device": report["device"],
        "fidelity": report["fidelity"],
        "forebay": report,
    }


def _timing(document: dict[str, Any]) -> str:
    """One line on whether modelled drives or memory kept their times."""
    report = document["forebay"]
    if "drives" in report:
        return timing(report)
    path = report["path"]
    if path != "external":
        return f"timing: not modelled; the lists lie in {path}"
    late = sum(trial["late"] or 0 for trial in document["trials"])
    loads = sum(trial["loads"] or 0 for trial in document["trials"])
    found = f"{late} of {loads} loads later than the model says"
    if report["fidelity"] == "ok":
        return f"timing: kept, {found} (1 in 100 allowed)"
    return f"timing: MISSED, {found} (1 in 100 allowed); these are this machine's numbers, not the memory's"


def _show(algorithm: Algorithm, document: dict[str, Any], done: list[_Trial], json_target: str | None) -> None:
    out = terminal(json_target)
    out.print(_timing(document), highlight=False, soft_wrap=True)
    for trial in done:
        out.print(f"Trial Time:          {trial.result.seconds:.5f}", highlight=False)
        if trial.wrong is not None:
            out.print(f"Verification:           {'FAIL' if trial.wrong else 'PASS'}", highlight=False)
    out.print(f"Average Time:        {document['seconds']:.5f}", highlight=False)
    columns = {
        **({"source": [str(trial.source) for trial in done]} if algorithm.has_source else {}),
        **{title: [show(trial.result) for trial in done] for title, show in algorithm.found.items()},
        "time": [format_ns(trial.result.seconds * 1e9) for trial in done],
        **_columns_of_reads(done, document["trials"]),
    }
    table = Table(*columns, padding=(0, 1) if len(columns) < _WIDE_TABLE else 0)
    for column in table.columns:
        column.justify = "right"
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    out.print(table)
    seconds = sum(trial.result.seconds for trial in done)
    read = [trial.result.bytes_read for trial in done]
    needed = sum(trial.result.bytes_needed for trial in done)
    moved = (
        f"{format_bandwidth(needed / seconds)} needed"
        if None in read
        else f"{format_bandwidth(sum(count or 0 for count in read) / seconds)} read"
    )
    by = document["verified_by"]
    checked = "results not checked" if by is None else f"results checked by {_CHECKERS[by]}"
    out.print(f"on {document['device']}; {document['memory']}; {moved}; {checked}", highlight=False, soft_wrap=True)


def _columns_of_reads(done: list[_Trial], told: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What the place counts or the model says, and nothing else."""
    results = [trial.result for trial in done]
    percentiles = [(result.clat_ns or {}).get("percentile", {}) for result in results]
    columns: dict[str, list[tuple[Callable[[Any], str], Any]]] = {
        "model": [(format_ns, model and model["seconds"] * 1e9) for model in (trial["model"] for trial in told)],
        "reads": [(str, result.reads) for result in results],
        "IOPS": [(format_rate, result.iops) for result in results],
        "read / needed": [("{:.2f}".format, result.read_amplification) for result in results],
        "p50": [(format_ns, percentile.get("50.000000")) for percentile in percentiles],
        "p99": [(format_ns, percentile.get("99.000000")) for percentile in percentiles],
    }
    return {
        title: ["-" if value is None else show(value) for show, value in cells]
        for title, cells in columns.items()
        if any(value is not None for _, value in cells)
    }


def shown_levels(result: BfsResult) -> str:
    """How many levels a search had."""
    return str(len(result.frontier))


def check_seed(choice: GraphChoice, reordering: str | None, *, random: bool) -> None:
    """Refuses an order that is unknown, and a seed that nothing depends on."""
    check_reordering(reordering, choice.seed, choice.generator, random=random)
