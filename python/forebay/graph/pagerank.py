# SPDX-License-Identifier: Apache-2.0
"""PageRank of a graph whose neighbour lists lie in memory or on a drive."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay._native import interruptible
from forebay.graph.checks import resolve_check, rounding_of_sums, scipy_sparse
from forebay.graph.csr import Graph
from forebay.graph.memory import resolve_device
from forebay.graph.placed import Placed, in_plain_memory, outgoing
from forebay.graph.results import PagerankResult
from forebay.storage import Storage


def pagerank(
    graph: Graph,
    memory: str | Storage = "host",
    *,
    device: str = "auto",
    drives: Sequence[str] = (),
    extent: str = "edges",
    iodepth: int | None = None,
    request_bytes: int = 0,
    damping: float = 0.85,
    tolerance: float = 1e-4,
    iterations: int = 20,
    share_dangling: bool = False,
) -> PagerankResult:
    """Computes the score of each vertex, as the GAP Benchmark Suite does. It reads all lists in each iteration.

    Of a directed graph the incoming lists are read: its ``incoming``, or what ``inverse`` computes.

    Args:
        graph: The graph.
        memory: Where the lists lie, as ``Placed`` takes it.
        device: As for ``Placed``.
        drives: As for ``Placed``.
        extent: As for ``Placed``: the lists of a directed graph are in the extent of this name with ``_incoming``
            behind it.
        iodepth: As for ``Placed``.
        request_bytes: As for ``Placed``.
        damping: As for ``Placed.pagerank``.
        tolerance: As for ``Placed.pagerank``.
        iterations: As for ``Placed.pagerank``.
        share_dangling: As for ``Placed.pagerank``.

    Returns:
        The scores, and what they took.

    Raises:
        RefusedInput: A number is out of range, or as ``Placed``.
        OperationFailed: A read fails, or a list names a vertex that the graph does not have.
    """
    with Placed(
        graph,
        memory,
        device=device,
        drives=drives,
        extent=extent,
        iodepth=iodepth,
        request_bytes=request_bytes,
        incoming=True,
    ) as placed:
        return placed.pagerank(
            damping=damping, tolerance=tolerance, iterations=iterations, share_dangling=share_dangling
        )


def reference_scores(
    graph: Graph, iterations: int, *, damping: float = 0.85, share_dangling: bool = False
) -> tuple[npt.NDArray[np.float64], float]:
    """Computes scores in memory, with NumPy and SciPy's product of a sparse matrix and a vector, in double precision.

    Args:
        graph: The graph.
        iterations: How many iterations to make.
        damping: As for ``Placed.pagerank``.
        share_dangling: As for ``Placed.pagerank``.

    Returns:
        The scores, ``float64`` of shape ``(vertices,)``, and by how much they changed in the last iteration, all
        together.

    Raises:
        OperationFailed: SciPy is not installed.
    """
    sparse = scipy_sparse()
    vertices, degrees = graph.vertices, graph.degrees
    matrix = sparse.csr_array((np.ones(graph.arcs), graph.neighbours, graph.row_begin), shape=(vertices, vertices)).T
    score = np.full(vertices, 1 / vertices)
    change = 0.0
    for _ in range(iterations):
        given = np.divide(score, degrees, out=np.zeros(vertices), where=degrees > 0)
        shared = score[degrees == 0].sum() if share_dangling else 0.0
        after = (1 - damping + damping * shared) / vertices + damping * (matrix @ given)
        change = float(np.abs(after - score).sum())
        score = after
    return score, change


def verify_scores(graph: Graph, result: PagerankResult, *, by: str | None = None, device: str = "auto") -> int:
    """Checks scores, which are computed with 4 bytes, against ones of double precision.

    **What may differ.** No term of a score is negative, so relative errors do not grow in a sum. An iteration adds to
    the relative error of a score at most n / 256 + 72 roundings of ``2^-24``, where n is the number of its incoming
    arcs. After k iterations a score may so be off by k times what the largest n allows. ``scipy`` makes as many
    iterations as the result had, with no rounding that matters, and compares each score.

    ``device`` makes one more iteration, in double precision, on a device. It may change the scores by no more than
    ``damping`` times what the last iteration changed, and the rounding of one iteration.

    Args:
        graph: The graph.
        result: What ``pagerank`` returned.
        by: ``scipy`` or ``device``. None: ``scipy`` for graphs of at most 2^20 vertices.
        device: The device of that check, as for ``Placed``.

    Returns:
        The number of scores that are further off. 1 more if the last change is further off than all scores together may
        be. On a device the check is one for all scores: if it fails, all count. 0 says that all is right.

    Raises:
        RefusedInput: The check is unknown, or the device's memory has no room.
        OperationFailed: SciPy is not installed, or the extension module does not load.
    """
    arriving = np.bincount(graph.neighbours, minlength=graph.vertices) if graph.directed else graph.degrees
    once = float(rounding_of_sums(arriving).max())
    if resolve_check(graph, by) == "device":
        lists = in_plain_memory(graph, resolve_device(device), incoming=True)
        residual = interruptible(
            lists.check_pagerank,
            outgoing(graph),
            result.score,
            damping=result.damping,
            share_dangling=result.share_dangling,
        )
        # The scores, of which the sum is 1, and the rounding of those before, which the last change does not have.
        return 0 if residual <= result.damping * result.change + 2 * once else graph.vertices
    wanted, change = reference_scores(
        graph, result.iterations, damping=result.damping, share_dangling=result.share_dangling
    )
    allowed = result.iterations * once
    wrong = int(np.count_nonzero(~(np.abs(result.score - wanted) <= allowed * wanted)))
    return wrong + (not abs(result.change - change) <= 2 * allowed)
