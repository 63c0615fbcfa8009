# SPDX-License-Identifier: Apache-2.0
"""A graph as compressed sparse rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Graph:
    """The out-neighbours of vertex v are `neighbours[row_begin[v]:row_begin[v + 1]]`, ascending."""

    row_begin: npt.NDArray[np.int64]
    neighbours: npt.NDArray[np.int32]
    directed: bool

    @property
    def vertices(self) -> int:
        """How many vertices there are; their ids are 0 to `vertices - 1`."""
        return len(self.row_begin) - 1

    @property
    def arcs(self) -> int:
        """Entries of `neighbours`: each edge once, or both ways in an undirected graph."""
        return len(self.neighbours)

    @property
    def degrees(self) -> npt.NDArray[np.int64]:
        """Out-degree of each vertex."""
        return np.diff(self.row_begin)

    @classmethod
    def from_arcs(
        cls,
        sources: npt.ArrayLike,
        targets: npt.ArrayLike,
        vertices: int,
        *,
        directed: bool = True,
        keep_loops: bool = False,
    ) -> "Graph":
        """Builds from pairs in any order. Duplicates are dropped, and loops too unless kept, as GAP's builder does.

        An undirected graph gets both directions of every pair.
        """
        sources = np.asarray(sources, dtype=np.int64)
        targets = np.asarray(targets, dtype=np.int64)
        if not directed:
            sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        if not keep_loops:
            kept = sources != targets
            sources, targets = sources[kept], targets[kept]
        pairs = np.sort(sources * max(vertices, 1) + targets)
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        sources, targets = np.divmod(pairs, max(vertices, 1))
        row_begin = np.zeros(vertices + 1, dtype=np.int64)
        np.cumsum(np.bincount(sources, minlength=vertices), out=row_begin[1:])
        return cls(row_begin, targets.astype(np.int32), directed)

    def inverse(self) -> "Graph":
        """The graph with every arc turned round."""
        sources = np.repeat(np.arange(self.vertices, dtype=np.int64), self.degrees)
        return Graph.from_arcs(self.neighbours, sources, self.vertices, keep_loops=True)

    def symmetrized(self) -> "Graph":
        """The undirected graph of the same pairs."""
        if not self.directed:
            return self
        sources = np.repeat(np.arange(self.vertices, dtype=np.int64), self.degrees)
        return Graph.from_arcs(sources, self.neighbours, self.vertices, directed=False, keep_loops=True)
