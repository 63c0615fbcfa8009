# SPDX-License-Identifier: Apache-2.0
"""A graph in memory, as compressed sparse rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Graph:
    """A graph as compressed sparse rows.

    The vertices that arcs lead to from vertex ``v`` are ``neighbours[row_begin[v] : row_begin[v + 1]]``, ascending.
    Make a graph with ``from_arcs``, ``load`` or ``read_el``; the class itself checks nothing.

    Attributes:
        row_begin: Where the neighbours of each vertex begin, ``int64`` of shape ``(vertices + 1,)``. The first is 0,
            the last is the number of arcs, and none is less than the one before.
        neighbours: The ends of all arcs, ``int32`` of shape ``(arcs,)``.
        directed: Whether an arc leads one way only. In an undirected graph each edge is two arcs.
    """

    row_begin: npt.NDArray[np.int64]
    neighbours: npt.NDArray[np.int32]
    directed: bool

    @property
    def vertices(self) -> int:
        """The number of vertices. They are numbered from 0 on."""
        return len(self.row_begin) - 1

    @property
    def arcs(self) -> int:
        """The number of arcs: of edges in a directed graph, of twice the edges in an undirected one without loops."""
        return len(self.neighbours)

    @property
    def degrees(self) -> npt.NDArray[np.int64]:
        """The number of arcs that leave each vertex, ``int64`` of shape ``(vertices,)``."""
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
        """Builds a graph from pairs in any order, as GAP's builder does. It drops duplicates.

        Args:
            sources: Where each arc starts: vertices from 0 to ``vertices - 1``, of shape ``(arcs,)``.
            targets: Where each arc ends, of the same shape.
            vertices: The number of vertices.
            directed: Whether to keep the direction of the arcs. If not, the graph gets both directions of every pair.
            keep_loops: Whether to keep arcs from a vertex to itself.

        Returns:
            The graph.
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
        """Returns the graph with every arc turned round."""
        sources = np.repeat(np.arange(self.vertices, dtype=np.int64), self.degrees)
        return Graph.from_arcs(self.neighbours, sources, self.vertices, keep_loops=True)

    def symmetrized(self) -> "Graph":
        """Returns the undirected graph of the same pairs, which is the graph itself if it is undirected."""
        if not self.directed:
            return self
        sources = np.repeat(np.arange(self.vertices, dtype=np.int64), self.degrees)
        return Graph.from_arcs(sources, self.neighbours, self.vertices, directed=False, keep_loops=True)
