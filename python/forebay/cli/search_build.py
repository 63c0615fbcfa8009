# SPDX-License-Identifier: Apache-2.0
"""What the commands share that build an index: the options, the steps and their times, the room on a drive."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from forebay.cli.contract import NotVerifiedError, notice, step_progress, terminal
from forebay.cli.timing import timing
from forebay.errors import RefusedInput
from forebay.search.build import DEGREE_DEFAULT, default_chunks, drive_bytes, part_sizes, slot_layout
from forebay.search.build_options import Progress
from forebay.search.index import Index
from forebay.storage import Storage
from forebay.units import format_bytes, format_ns

RECALL_MIN = 0.9
"""Which part of a sample of an index's own vectors a search must find."""
_SAMPLE = 100
_BLOCK_BYTES = 512  # of an emulated drive
_OPTIONS = {
    "vectors": "VECTORS",
    "queries": "QUERIES",
    "index": "--name",
    "name": "--name",
    "prefix": "PREFIX",
    "storage": "--drive",
    "k": "-k",
}

ModeOption = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="pq|exact",
        help="pq: codes in the device's memory lead a search. exact: no codes, and many more reads.",
        show_default="pq",
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric", metavar="l2|inner_product|cosine", help="How far two vectors are apart.", show_default="l2"
    ),
]
DegreeOption = Annotated[
    int | None,
    typer.Option("--graph-degree", metavar="N", help="Neighbours in a record at most.", show_default="64"),
]
ChunksOption = Annotated[
    int | None,
    typer.Option(
        "--chunks",
        metavar="N",
        help="Of the mode pq: bytes of the code of a vector, a multiple of 4.",
        show_default="one for 4 components, at most 64",
    ),
]
DrivesOption = Annotated[
    list[str],
    typer.Option("--drive", metavar="URI", help="The drive with the index. Repeat it to stripe several."),
]
CapacityOption = Annotated[
    int | None,
    typer.Option(
        "--capacity",
        metavar="N",
        help="How many vectors there is to be room for.",
        show_default="for those that there are",
    ),
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Take the place of an index of that name.")]
IndexNameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the index on the drive.")]


@dataclass(frozen=True)
class Wanted:
    """How an index is to be built, as a command line says it."""

    mode: str | None
    metric: str | None
    graph_degree: int | None
    chunks: int | None
    seed: int
    capacity: int | None = None
    replace: bool = False
    checkpoints: Path | None = None

    def refuse_all(self, why: str) -> None:
        """Refuses those options that only a build has.

        Raises:
            RefusedInput: One is given.
        """
        given = {
            "--mode": self.mode,
            "--metric": self.metric,
            "--graph-degree": self.graph_degree,
            "--chunks": self.chunks,
        }
        for option, value in given.items():
            if value is not None:
                raise RefusedInput(option, value, why)

    def drive_for(self, vectors: npt.NDArray[Any]) -> str:
        """Returns the URI of an ideal drive in memory with room for an index of vectors.

        Raises:
            RefusedInput: The degree is out of range.
        """
        with named_as_options():
            count, dimension = vectors.shape
            degree = DEGREE_DEFAULT if self.graph_degree is None else self.graph_degree
            code = default_chunks(dimension) if self.chunks is None else max(0, self.chunks)
            mode = self.mode or "pq"
            _, slot = slot_layout(mode, vectors.dtype, dimension, degree, _BLOCK_BYTES, code)
        mebibytes = drive_bytes(part_sizes(mode, count, count, slot, dimension, code)) >> 20  # whole ones
        return f"emulated:profile=ideal,size={mebibytes}M"


@dataclass
class Built:
    """An index that was built, open, and how long each step took, in seconds."""

    index: Index
    seconds: dict[str, float] = field(default_factory=dict)


def build(storage: Storage, vectors: npt.NDArray[Any], name: str, wanted: Wanted, device: str, memory: str) -> Built:
    """Builds an index and shows the progress on standard error.

    Args:
        storage: Where it goes.
        vectors: The vectors.
        name: The name of the index.
        wanted: How it is built.
        device: Where it is computed, ``cpu`` or ``cuda:N``.
        memory: Where its searches read records.

    Raises:
        RefusedInput: As ``Index.build``, with the names of options.
        OperationFailed: As ``Index.build``.
    """
    with timed_steps("building the index") as (seconds, tell), named_as_options():
        index = Index.build(
            storage,
            vectors,
            name,
            mode=wanted.mode or "pq",
            metric=wanted.metric or "l2",
            graph_degree=wanted.graph_degree,
            chunks=wanted.chunks,
            capacity=wanted.capacity,
            seed=wanted.seed,
            device=device,
            replace=wanted.replace,
            checkpoints=wanted.checkpoints,
            progress=tell,
            memory=memory,
        )
    return Built(index, seconds)


@contextlib.contextmanager
def timed_steps(description: str) -> Iterator[tuple[dict[str, float], Progress]]:
    """Shows the progress of a build on standard error; yields the seconds of each step, and what is told of them."""
    seconds: dict[str, float] = {}
    before = time.perf_counter()

    def took(step: str) -> None:
        nonlocal before
        now = time.perf_counter()
        seconds[step] = seconds.get(step, 0.0) + now - before
        before = now

    with step_progress(description) as show:

        def tell(step: str, done: int, total: int) -> None:
            took(step)
            show(step, done, total)

        yield seconds, tell
    took("open")


@contextlib.contextmanager
def named_as_options() -> Iterator[None]:
    """Names options in refusals of arguments that have other names in Python."""
    try:
        yield
    except RefusedInput as refused:
        name, bracket, rest = refused.field.partition("[")
        if name == "size_bytes":  # of an extent
            remedy = "bytes in one piece are not free there; use larger drives, or free names with `forebay drive rm`"
            raise RefusedInput("--drive", refused.value, remedy) from None
        option = _OPTIONS.get(name) or (f"--{name.replace('_', '-')}" if name in _SAME_NAME else name)
        raise RefusedInput(f"{option}{bracket}{rest}", refused.value, refused.remedy) from None


_SAME_NAME = (
    "mode",
    "metric",
    "dtype",
    "graph_degree",
    "chunks",
    "capacity",
    "checkpoints",
    "seed",
    "memory",
    "itopk_size",
    "search_width",
    "refill_size",
    "navigation_size",
    "max_iterations",
    "filter",
    "batch",
    "concurrency",
    "base",
    "truth",
    "device",
)


def sample_of(count: int, seed: int) -> npt.NDArray[np.int64]:
    """Returns the ids of up to 100 vectors, in their order, for which a search is to check an index."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:_SAMPLE])


def recall_of_base(index: Index, vectors: npt.NDArray[Any], seed: int) -> tuple[int, float]:
    """Searches an index for some of its own vectors.

    Args:
        index: The index.
        vectors: The vectors that it was built of.
        seed: Which of them are taken depends on it.

    Returns:
        How many were taken, and for which part of them the nearest vector was found.

    Raises:
        OperationFailed: A read fails.
    """
    from forebay.search.exact import exact_neighbours, recall

    rows = sample_of(len(vectors), seed)
    asked = np.asarray(vectors[rows])
    found = index.search(asked, 1).ids
    # A vector is nearest to itself; of inner products the largest may be that with another one.
    itself = index.metric != "inner_product"
    nearest = rows[:, None] if itself else exact_neighbours(vectors, asked, 1, index.metric).ids
    return len(rows), recall(vectors, asked, found, nearest, index.metric)


def table_of(described: dict[str, Any]) -> Table:
    """Returns a table of what `Index.info()` says."""
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


def show_built(document: dict[str, Any], json_target: str | None) -> None:
    """Prints what a build or an import made, how long its steps took, and whether its vectors are found."""
    out = terminal(json_target)
    out.print(timing(document["forebay"]), highlight=False, soft_wrap=True)
    out.print(table_of(document["index"]))
    steps = Table("step", "time")
    steps.columns[1].justify = "right"
    for step, seconds in document["steps"].items():
        steps.add_row(step, format_ns(seconds * 1e9))
    steps.add_row("all", format_ns(document["seconds"] * 1e9))
    out.print(steps)
    found = f"{document['recall']:.0%} of {document['verified_vectors']} of its own vectors found"
    verdict = "PASS" if document["verified"] else "FAIL"
    out.print(f"on {document['device']}; verification: {verdict}, {found}", highlight=False, soft_wrap=True)


def end_of_build(document: dict[str, Any], remedy: str) -> None:
    """Says what the user must know of an index that was written.

    Args:
        document: Of the command.
        remedy: What to do if a search does not find enough of its vectors.

    Raises:
        NotVerifiedError: It does not.
    """
    drives = document["forebay"]["drives"]
    if all(each.get("backing") == "memory" and each.get("residency") != "served" for each in drives):
        notice("the drive is in the memory of this command, and so the index is gone now; name a drive in a file")
    if not document["verified"]:
        raise NotVerifiedError(
            f"a search found {document['recall']:.2f} of {document['verified_vectors']} vectors of the index; at least "
            f"{RECALL_MIN} must be found: {remedy}"
        )
