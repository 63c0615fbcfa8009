# SPDX-License-Identifier: Apache-2.0
"""Builds the graph that a search walks along: each vector has edges to near ones, so that there is a way to any."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import whole
from forebay.errors import RefusedInput
from forebay.search._arrays import arrays_on
from forebay.search._checkpoints import Checkpoints
from forebay.search._lists import Lists, lists_of
from forebay.search._neighbourhoods import Neighbourhoods
from forebay.search._reachable import connect
from forebay.search._reverse import with_reverse_edges
from forebay.search._rows import Rows
from forebay.search.build_options import Progress
from forebay.search.exact import checked_vectors
from forebay.search.vectors import VECTORS_MAX

_VERSION = 1  # of the steps: another one makes other graphs of the same parameters
_DEGREE_MAX = 1024
_SAMPLE = 1024  # vectors by which those of an earlier build are recognised
_NOTES = 32  # how often a long step notes how far it is


def build_graph(
    vectors: npt.NDArray[Any],
    *,
    metric: str = "l2",
    graph_degree: int = 64,
    intermediate_degree: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> npt.NDArray[np.uint32]:
    """Builds a graph of vectors.

    K-means sorts the vectors into short lists. Each vector is compared with the members of the lists around its own and
    with samples of farther ones. Of the nearest of all these, those in different directions become its edges. At last
    up to half of its edges make room for the reverse of others' edges.

    The same arguments make the same graph, on one kind of device with one version of NumPy or PyTorch. The memory holds
    up to three arrays as large as the graph; on a GPU also the vectors, if they take up to a third of its memory.

    Args:
        vectors: Of shape ``(vectors, dimension)``: ``uint8``, ``int8``, ``float16`` or ``float32``. It may be a
            ``numpy.memmap``.
        metric: One of ``METRICS``.
        graph_degree: How many edges each vector has at most, 1 to 1,024.
        intermediate_degree: From how many near vectors they are chosen, 1 to 2,048. None: one and a half times as many
            as there are edges.
        seed: 0 to 2^63 - 1. What is drawn at random depends on it.
        device: ``cpu``, where NumPy computes, or ``cuda:N``, where PyTorch does.
        checkpoints: A folder for what the steps make. If a build ends early, the next one with the same arguments goes
            on from there. The folder stays when the build is done. None: nothing is kept.
        progress: Called with the name of a step, and how much of how much of it is done.

    Returns:
        The edges of each vector: numbers of vectors, ``uint32`` of shape ``(vectors, graph_degree)``, with
        ``NO_NEIGHBOUR`` after the last. A vector has no edge to itself and no two to the same. There is a way along
        edges from each vector to each.

    Raises:
        RefusedInput: An argument is wrong, PyTorch is not installed, or the folder keeps the steps of another build.
        OperationFailed: The folder cannot be written to.
    """
    rows_given = checked_vectors("vectors", vectors, metric)
    count = len(rows_given)
    if count > VECTORS_MAX:
        raise RefusedInput("vectors", f"{count} vectors", f"must be at most {VECTORS_MAX}")
    degree = whole("graph_degree", graph_degree, _DEGREE_MAX)
    if not degree:
        raise RefusedInput("graph_degree", degree, f"must be 1 to {_DEGREE_MAX}")
    candidates = whole(
        "intermediate_degree", degree + (degree + 1) // 2 if intermediate_degree is None else intermediate_degree
    )
    if not 1 <= candidates <= 2 * _DEGREE_MAX:
        raise RefusedInput("intermediate_degree", candidates, f"must be 1 to {2 * _DEGREE_MAX}")
    seed = whole("seed", seed)
    arrays = arrays_on(device)
    kept = Checkpoints(
        checkpoints,
        {
            "version": _VERSION,
            "vectors": count,
            "dimension": rows_given.shape[1],
            "dtype": rows_given.dtype.name,
            "checksum": zlib.crc32(np.ascontiguousarray(rows_given[:: max(1, count // _SAMPLE)]).tobytes()),
            "metric": metric,
            "graph_degree": degree,
            "intermediate_degree": candidates,
            "seed": seed,
            "device": device.partition(":")[0],
        },
    )

    def tell(step: str) -> Callable[[int, int], None]:
        return lambda done, total: progress(step, done, total) if progress else None

    if count <= 1:
        return np.full((count, degree), -1, np.int32).view(np.uint32)
    rows = Rows(arrays, rows_given, metric)

    made: list[Lists] = []

    def lists() -> Lists:
        if not made:
            made.append(lists_of(arrays, rows, seed, tell("lists")))
        return made[0]

    in_lists = Lists(
        members=kept.array("members", lambda: lists().members),
        begin=kept.array("begin", lambda: lists().begin),
        near=kept.array("near", lambda: lists().near),
    )
    forward, done = kept.growing("forward", (count, degree))
    neighbourhoods = Neighbourhoods(arrays, rows, in_lists, candidates, degree, seed)
    total = len(neighbourhoods.batches)
    for batch in range(done, total):
        members, edges = neighbourhoods.edges(batch)
        forward[members] = edges
        if (batch + 1) % max(1, total // _NOTES) == 0 or batch + 1 == total:
            kept.grown("forward", forward, batch + 1)
        tell("neighbours")(batch + 1, total)
    graph = kept.array("graph", lambda: with_reverse_edges(arrays, forward, tell("reverse edges")))
    connect(arrays, rows, graph, seed, tell("connections"))
    return np.asarray(graph).view(np.uint32)
