# SPDX-License-Identifier: Apache-2.0
"""What a search of an index found."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SearchResult:
    """The nearest neighbours that a search found, and what it took.

    Attributes:
        ids: Of the neighbours, the nearest first; ``NO_NEIGHBOUR`` where there are no more. ``uint32`` of shape
            ``(queries, k)``.
        distances: How far each is, as ``METRICS`` says; infinite where there are no more. ``float32`` of that shape.
        reads: The reads that each query began. ``uint32`` of shape ``(queries,)``, as the others below.
        unused_reads: How many of them were in vain: when the record came, nearer candidates had pushed it out.
        latency_ns: The time that each query took, in nanoseconds, from when a warp took it until it had the result.
        errors: Why queries have no result, by the number of the query. Empty: all have one.
        seconds: The time of all queries together.
        concurrency: How many queries ran at a time at most.
    """

    ids: npt.NDArray[np.uint32]
    distances: npt.NDArray[np.float32]
    reads: npt.NDArray[np.uint32]
    unused_reads: npt.NDArray[np.uint32]
    latency_ns: npt.NDArray[np.uint64]
    errors: dict[int, str]
    seconds: float
    concurrency: int

    @property
    def qps(self) -> float:
        """The queries that were answered in a second."""
        return len(self.ids) / self.seconds

    @property
    def reads_per_query(self) -> float:
        """The mean number of reads."""
        return float(self.reads.mean())

    def figures(self) -> dict[str, Any]:
        """Puts the figures of the search together.

        Returns:
            The figures, as the JSON of ``forebay search query`` has them.
        """
        p50, p99, p999 = np.percentile(self.latency_ns, [50, 99, 99.9])
        return {
            "queries": len(self.ids),
            "k": self.ids.shape[1],
            "seconds": self.seconds,
            "qps": self.qps,
            "latency_ns": {
                "mean": float(self.latency_ns.mean()),
                "p50": float(p50),
                "p99": float(p99),
                "p99.9": float(p999),
                "max": int(self.latency_ns.max()),
            },
            "reads_per_query": self.reads_per_query,
            "unused_reads_per_query": float(self.unused_reads.mean()),
            "failed_queries": len(self.errors),
            "concurrency": self.concurrency,
        }
