# SPDX-License-Identifier: Apache-2.0
"""What the algorithms return. All arrays are NumPy's, so that other libraries take them by DLPack, without a copy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

UNREACHED = np.uint32(0xFFFFFFFF)
"""The distance of a vertex to which no path leads."""
UNREACHED_WEIGHTED = np.uint64(0xFFFFFFFFFFFFFFFF)
"""The distance of a vertex to which no path leads, in a search with weights."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run of an algorithm took, whichever it was. None stands for what the place of the lists does not count.

    Attributes:
        seconds: The time from the first launch to the end of the last.
        reads: How many reads the run made.
        bytes_read: How many bytes these reads moved.
        bytes_needed: How many bytes of entries the algorithm asked for. An entry that is asked for twice counts twice.
        loads: How often the threads waited for modelled external memory. One wait may be for several reads.
        late: How many of ``loads`` took longer than the model says.
        clat_ns: The latency of reads in nanoseconds, from the submission until the thread saw the completion: ``min``,
            ``max``, ``mean``, ``stddev``, ``N`` and ``percentile``, as fio has them.
        iodepth: How many reads were in flight at most, each of a thread of its own.
        request_bytes: The length of the longest read, in bytes.
    """

    seconds: float
    reads: int | None
    bytes_read: int | None
    bytes_needed: int
    loads: int | None = None
    late: int | None = None
    clat_ns: dict[str, Any] | None = None
    iodepth: int | None = None
    request_bytes: int | None = None

    @property
    def iops(self) -> float | None:
        """The number of reads a second, over the whole run; None if reads are not counted."""
        return self.reads / self.seconds if self.reads is not None else None

    @property
    def read_amplification(self) -> float | None:
        """The number of bytes read for each byte needed; 0 if none was needed, and None if they are not counted."""
        if self.bytes_read is None:
            return None
        return self.bytes_read / self.bytes_needed if self.bytes_needed else 0.0

    def figures(self) -> dict[str, Any]:
        """Returns everything but arrays, as a dictionary for a JSON document."""
        return {
            "seconds": self.seconds,
            "reads": self.reads,
            "iops": self.iops,
            "bytes_read": self.bytes_read,
            "bytes_needed": self.bytes_needed,
            "read_amplification": self.read_amplification,
            "loads": self.loads,
            "late": self.late,
            "clat_ns": self.clat_ns,
            "iodepth": self.iodepth,
            "request_bytes": self.request_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class BfsResult(Run):
    """What one breadth-first search found, and what it took.

    Attributes:
        seconds: The time from the start of the first level to the end of the last.
        reads: How many reads the search made; None if the place of the lists does not count them.
        bytes_read: How many bytes these reads moved, such as whole blocks of a drive; None likewise.
        bytes_needed: How many bytes of neighbour lists the search asked for.
        loads: How often the threads waited for modelled external memory; None elsewhere.
        late: How many of ``loads`` took longer than the model says; None elsewhere.
        clat_ns: The latency of the reads in nanoseconds, from the submission until the thread saw the completion:
            ``min``, ``max``, ``mean``, ``stddev``, ``N`` and ``percentile``, as fio has them. None unless the lists are
            read from a drive past the cache.
        iodepth: How many reads were in flight at most, each of a thread of its own; None likewise.
        request_bytes: The length of the longest read, in bytes; None likewise.
        distance: The distance of each vertex from the source, in arcs: ``uint32`` of shape ``(vertices,)``;
            ``UNREACHED`` where no path leads.
        predecessor: The vertex before each vertex on a shortest path from the source, of the same type and shape;
            ``UNREACHED`` for the source, and where no path leads.
        frontier: How many vertices are at distance 0, 1, 2 and so on.
        levels: A dictionary for each member of ``frontier``: ``vertices``, ``entries`` (those that the search asked
            for), ``from_below`` (whether unreached vertices looked for a neighbour in the frontier) and ``seconds``.
            None if the search did not count them.
    """

    distance: npt.NDArray[np.uint32]
    predecessor: npt.NDArray[np.uint32]
    frontier: list[int]
    levels: list[dict[str, Any]] | None = None

    @property
    def vertex(self) -> npt.NDArray[np.uint32]:
        """The vertices, in the order of the other arrays: 0, 1, 2 and so on, ``uint32`` of shape ``(vertices,)``."""
        return np.arange(len(self.distance), dtype=np.uint32)

    @property
    def reached(self) -> int:
        """The number of vertices that have a distance, the source among them."""
        return sum(self.frontier)

    def figures(self) -> dict[str, Any]:
        """Returns everything but arrays, as a dictionary for a JSON document."""
        return {**super().figures(), "reached": self.reached, "frontier": self.frontier, "levels": self.levels}


@dataclass(frozen=True, kw_only=True)
class SsspResult(Run):
    """What one search for shortest paths found, and what it took.

    Attributes:
        seconds: The time from the first launch to the end of the last.
        reads: How many reads the search made; None if the place of the lists does not count them.
        bytes_read: How many bytes these reads moved; None likewise.
        bytes_needed: How many bytes of lists the search asked for. It may visit a vertex several times.
        loads: How often the threads waited for modelled external memory; None elsewhere.
        late: How many of ``loads`` took longer than the model says; None elsewhere.
        clat_ns: The latency of the reads, as in ``BfsResult``.
        iodepth: How many reads were in flight at most, as in ``BfsResult``.
        request_bytes: The length of the longest read, as in ``BfsResult``.
        distance: The sum of the weights on a shortest path from the source to each vertex: ``uint64`` of shape
            ``(vertices,)``; 2^64 - 1 where no path leads.
        predecessor: The vertex before each vertex on a shortest path from the source: ``uint32`` of the same shape;
            2^32 - 1 for the source, and where no path leads.
        buckets: How many ranges of ``delta`` held vertices.
        phases: How many times the vertices of a bucket were visited, of all buckets together.
    """

    distance: npt.NDArray[np.uint64]
    predecessor: npt.NDArray[np.uint32]
    buckets: int
    phases: int

    @property
    def vertex(self) -> npt.NDArray[np.uint32]:
        """The vertices, in the order of the other arrays: 0, 1, 2 and so on, ``uint32`` of shape ``(vertices,)``."""
        return np.arange(len(self.distance), dtype=np.uint32)

    @property
    def reached(self) -> int:
        """The number of vertices that have a distance, the source among them."""
        return int(np.count_nonzero(self.distance != UNREACHED_WEIGHTED))

    def figures(self) -> dict[str, Any]:
        """Returns everything but arrays, as a dictionary for a JSON document."""
        return {**super().figures(), "reached": self.reached, "buckets": self.buckets, "phases": self.phases}


@dataclass(frozen=True, kw_only=True)
class PagerankResult(Run):
    """What a PageRank computed, and what it took.

    Attributes:
        seconds: The time from the first launch to the end of the last.
        reads: How many reads the run made; None if the place of the lists does not count them.
        bytes_read: How many bytes these reads moved; None likewise.
        bytes_needed: How many bytes of lists the run asked for: all of them in each iteration.
        loads: How often the threads waited for modelled external memory; None elsewhere.
        late: How many of ``loads`` took longer than the model says; None elsewhere.
        clat_ns: The latency of the reads, as in ``BfsResult``.
        iodepth: How many reads were in flight at most, as in ``BfsResult``.
        request_bytes: The length of the longest read, as in ``BfsResult``.
        score: The score of each vertex: ``float32`` of shape ``(vertices,)``. The sum of all is at most 1.
        iterations: How many iterations there were.
        change: By how much the scores changed in the last one: the sum of the absolute values.
        damping: What part of a score the neighbours hand on.
        share_dangling: Whether vertices without outgoing arcs give their score to all vertices.
    """

    score: npt.NDArray[np.float32]
    iterations: int
    change: float
    damping: float
    share_dangling: bool

    @property
    def vertex(self) -> npt.NDArray[np.uint32]:
        """The vertices, in the order of the other arrays: 0, 1, 2 and so on, ``uint32`` of shape ``(vertices,)``."""
        return np.arange(len(self.score), dtype=np.uint32)

    def figures(self) -> dict[str, Any]:
        """Returns everything but arrays, as a dictionary for a JSON document."""
        return {**super().figures(), "iterations": self.iterations, "change": self.change}


@dataclass(frozen=True, kw_only=True)
class ComponentsResult(Run):
    """Which vertices are connected, and what it took to find out.

    Attributes:
        seconds: The time from the first launch to the end of the last.
        reads: How many reads the run made; None if the place of the lists does not count them.
        bytes_read: How many bytes these reads moved; None likewise.
        bytes_needed: How many bytes of lists the run asked for: all of them, once.
        loads: How often the threads waited for modelled external memory; None elsewhere.
        late: How many of ``loads`` took longer than the model says; None elsewhere.
        clat_ns: The latency of the reads, as in ``BfsResult``.
        iodepth: How many reads were in flight at most, as in ``BfsResult``.
        request_bytes: The length of the longest read, as in ``BfsResult``.
        label: The smallest vertex of each vertex's component: ``uint32`` of shape ``(vertices,)``.
        components: How many components there are. A vertex without arcs is one.
    """

    label: npt.NDArray[np.uint32]
    components: int

    @property
    def vertex(self) -> npt.NDArray[np.uint32]:
        """The vertices, in the order of the other arrays: 0, 1, 2 and so on, ``uint32`` of shape ``(vertices,)``."""
        return np.arange(len(self.label), dtype=np.uint32)

    def figures(self) -> dict[str, Any]:
        """Returns everything but arrays, as a dictionary for a JSON document."""
        return {**super().figures(), "components": self.components}


@dataclass(frozen=True, kw_only=True)
class TrianglesResult(Run):
    """How many triangles a graph has, and what it took to count them.

    Attributes:
        seconds: The time from the first launch to the end of the last.
        reads: How many reads the run made; None if the place of the lists does not count them.
        bytes_read: How many bytes these reads moved; None likewise.
        bytes_needed: How many bytes the lists have. A list is read once for each neighbour that needs it.
        loads: How often the threads waited for modelled external memory; None elsewhere.
        late: How many of ``loads`` took longer than the model says; None elsewhere.
        clat_ns: The latency of the reads, as in ``BfsResult``.
        iodepth: How many reads were in flight at most, as in ``BfsResult``.
        request_bytes: The length of the longest read, as in ``BfsResult``.
        triangles: The number of triangles. Each set of three vertices counts once.
    """

    triangles: int

    def figures(self) -> dict[str, Any]:
        """Returns everything, as a dictionary for a JSON document."""
        return {**super().figures(), "triangles": self.triangles}


@dataclass(frozen=True, kw_only=True)
class SpmvResult(Run):
    """The product of a sparse matrix and a vector, and what it took.

    Attributes:
        seconds: The time from the first launch to the end of the last.
        reads: How many reads the run made; None if the place of the lists does not count them.
        bytes_read: How many bytes these reads moved; None likewise.
        bytes_needed: How many bytes of lists and values the run asked for: all of them, once.
        loads: How often the threads waited for modelled external memory; None elsewhere.
        late: How many of ``loads`` took longer than the model says; None elsewhere.
        clat_ns: The latency of the reads, as in ``BfsResult``.
        iodepth: How many reads were in flight at most, as in ``BfsResult``.
        request_bytes: The length of the longest read, as in ``BfsResult``.
        y: The product: ``float32`` of shape ``(vertices,)``.
    """

    y: npt.NDArray[np.float32]

    @property
    def vertex(self) -> npt.NDArray[np.uint32]:
        """The vertices, in the order of the other arrays: 0, 1, 2 and so on, ``uint32`` of shape ``(vertices,)``."""
        return np.arange(len(self.y), dtype=np.uint32)
