# SPDX-License-Identifier: Apache-2.0
"""What the commands share that build an index: the options, the steps and their times, the room on a drive."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from forebay.cli.contract import step_progress
from forebay.errors import RefusedInput
from forebay.search.build import DEGREE_DEFAULT, default_chunks, slot_layout
from forebay.search.build_options import Progress
from forebay.search.index import Index
from forebay.storage import Storage

_MEBIBYTE = 1 << 20
_BLOCK_BYTES = 512  # of an emulated drive
_OPTIONS = {
    "vectors": "VECTORS",
    "queries": "QUERIES",
    "index": "--name",
    "name": "--name",
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
            _, slot = slot_layout(self.mode or "pq", vectors.dtype, dimension, degree, _BLOCK_BYTES, code)
        # Each of 8 extents begins at a whole MiB. The rest is the codebook, the graph of the sample, and the catalogue.
        needed = count * (slot + 4) + (256 * dimension + 40 * (count // 100 + 64)) * 4
        return f"emulated:profile=ideal,size={needed // _MEBIBYTE + 24}M"


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
    with _timed_steps() as (seconds, tell), named_as_options():
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
            progress=tell,
            memory=memory,
        )
    return Built(index, seconds)


@contextlib.contextmanager
def _timed_steps() -> Iterator[tuple[dict[str, float], Progress]]:
    seconds: dict[str, float] = {}
    before = time.perf_counter()

    def took(step: str) -> None:
        nonlocal before
        now = time.perf_counter()
        seconds[step] = seconds.get(step, 0.0) + now - before
        before = now

    with step_progress("building the index") as show:

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
    "graph_degree",
    "chunks",
    "capacity",
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


def recall_of_base(index: Index, vectors: npt.NDArray[Any], seed: int, sample: int) -> tuple[int, float]:
    """Searches an index for some of its own vectors.

    Args:
        index: The index.
        vectors: The vectors that it was built of.
        seed: Which of them are taken depends on it.
        sample: How many at most.

    Returns:
        How many were taken, and for which part of them the nearest vector was found.

    Raises:
        OperationFailed: A read fails.
    """
    from forebay.search.exact import exact_neighbours, recall

    rows = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:sample])
    asked = np.asarray(vectors[rows])
    found = index.search(asked, 1).ids
    # A vector is nearest to itself; of inner products the largest may be that with another one.
    itself = index.metric != "inner_product"
    nearest = rows[:, None] if itself else exact_neighbours(vectors, asked, 1, index.metric).ids
    return len(rows), recall(vectors, asked, found, nearest, index.metric)
