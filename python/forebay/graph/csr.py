# SPDX-License-Identifier: Apache-2.0
"""A graph in memory, as compressed sparse rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import whole
from forebay.errors import RefusedInput

VERTICES_MAX = 2**31
WEIGHT_MAX = 2**31 - 1
_PIECE_ARCS = 1 << 16  # what is computed of a piece stays in the processor's cache


@dataclass(frozen=True)
class Graph:
    """A graph as compressed sparse rows.

    The vertices that arcs lead to from vertex ``v`` are ``neighbours[row_begin[v] : row_begin[v + 1]]``, ascending, and
    the weights of these arcs are the same part of ``weights``. Make a graph with ``from_arcs`` or ``load``; the class
    itself checks nothing.

    Attributes:
        row_begin: Where the neighbours of each vertex begin, ``int64`` of shape ``(vertices + 1,)``. The first is 0,
            the last is the number of arcs, and none is less than the one before.
        neighbours: The ends of all arcs, ``int32`` of shape ``(arcs,)``.
        directed: Whether an arc leads one way only. In an undirected graph each edge is two arcs.
        weights: The weights of all arcs, ``int32`` of shape ``(arcs,)``, none negative; None if the graph has none. In
            an undirected graph both arcs of an edge have the same weight.
        incoming: The graph with every arc turned round, as far as it is in memory already: ``.sg`` and ``.wsg`` files
            of directed graphs hold it. None otherwise, and ``inverse`` computes it.
    """

    row_begin: npt.NDArray[np.int64]
    neighbours: npt.NDArray[np.int32]
    directed: bool
    weights: npt.NDArray[np.int32] | None = None
    incoming: "Graph | None" = None

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
        weights: npt.ArrayLike | None = None,
    ) -> "Graph":
        """Builds a graph from pairs in any order, as GAP's builder does. Of duplicates it keeps the smallest weight.

        Args:
            sources: Where each arc starts: vertices from 0 to ``vertices - 1``, of shape ``(arcs,)``.
            targets: Where each arc ends, of the same shape.
            vertices: The number of vertices.
            directed: Whether to keep the direction of the arcs. If not, the graph gets both directions of every pair.
            keep_loops: Whether to keep arcs from a vertex to itself.
            weights: The weight of each arc, 0 to 2^31 - 1, of the same shape; None for a graph without weights.

        Returns:
            The graph.

        Raises:
            RefusedInput: The arrays have different shapes, or a number is no whole number or out of range.
        """
        vertices = whole("vertices", vertices, VERTICES_MAX)
        sources = _numbers("sources", sources, np.int64, vertices - 1)
        targets = _numbers("targets", targets, np.int64, vertices - 1)
        _require_shape("targets", targets, sources)
        if weights is not None:
            weights = _numbers("weights", weights, np.int32, WEIGHT_MAX)
            _require_shape("weights", weights, sources)
        if not directed:
            sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
            weights = None if weights is None else np.concatenate([weights, weights])
        if not keep_loops:
            kept = sources != targets
            sources, targets = sources[kept], targets[kept]
            weights = None if weights is None else weights[kept]
        pairs = sources * max(vertices, 1) + targets
        del sources, targets  # of a large graph there is no room for more arrays of this length than are in use
        if weights is None:
            pairs.sort()
            pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        else:
            order = np.argsort(pairs)
            pairs, weights = pairs[order], weights[order]
            del order
            starts = np.flatnonzero(np.diff(pairs, prepend=-1))
            pairs = pairs[starts]
            weights = np.minimum.reduceat(weights, starts) if len(starts) else weights
        sources, targets = np.divmod(pairs, max(vertices, 1))
        row_begin = np.zeros(vertices + 1, dtype=np.int64)
        np.cumsum(np.bincount(sources, minlength=vertices), out=row_begin[1:])
        return cls(row_begin, targets.astype(np.int32), directed, weights)

    def inverse(self) -> "Graph":
        """Returns the graph with every arc turned round: ``incoming``, if the graph has it.

        An undirected graph is its own inverse. That of a directed graph has the graph as its ``incoming``.
        """
        if not self.directed:
            return self
        turned = self.incoming
        if turned is None:
            sources = np.repeat(np.arange(self.vertices, dtype=np.int64), self.degrees)
            turned = Graph.from_arcs(self.neighbours, sources, self.vertices, keep_loops=True, weights=self.weights)
        return replace(turned, incoming=replace(self, incoming=None))

    def symmetrized(self) -> "Graph":
        """Returns the undirected graph of the same pairs, which is the graph itself if it is undirected."""
        if not self.directed:
            return self
        sources = np.repeat(np.arange(self.vertices, dtype=np.int64), self.degrees)
        return Graph.from_arcs(
            sources, self.neighbours, self.vertices, directed=False, keep_loops=True, weights=self.weights
        )

    def with_unit_weights(self) -> "Graph":
        """Returns the graph with the weight 1 on every arc, in place of weights that it has."""
        incoming = self.incoming.with_unit_weights() if self.incoming else None
        return replace(self, weights=np.ones(self.arcs, np.int32), incoming=incoming)


def _numbers(field: str, given: npt.ArrayLike, kind: type[np.signedinteger[Any]], most: int) -> npt.NDArray[Any]:
    """Returns whole numbers from 0 to ``most`` as an array; refuses all else."""
    remedy = f"must be whole numbers from 0 to {most}, in an array of one dimension"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        raise RefusedInput(field, given, remedy) from None
    if array.ndim != 1:
        raise RefusedInput(field, f"shape {array.shape}", remedy)
    if not array.size:
        return np.empty(0, kind)
    if array.dtype.kind not in "iu":
        raise RefusedInput(field, array.dtype, remedy)
    for extreme in (array.min(), array.max()):
        if not 0 <= int(extreme) <= most:
            raise RefusedInput(field, extreme, remedy)
    return array.astype(kind, copy=False)


def _require_shape(field: str, array: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
    if array.shape != other.shape:
        raise RefusedInput(field, f"shape {array.shape}", f"must have the shape of sources, {other.shape}")


@dataclass(frozen=True)
class Arcs:
    """Some arcs of a graph that follow one another.

    Attributes:
        begin: Which arc of the graph is the first of them.
        sources: Where each starts, ``int64`` of shape ``(arcs,)``, ascending.
        targets: Where each ends, ``int32`` of the same shape.
        weights: The weight of each, ``int32`` of the same shape; None if the graph has none.
    """

    begin: int
    sources: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32] | None


def arcs_in_pieces(graph: Graph) -> Iterator[Arcs]:
    """Yields all arcs of a graph in their order, so many at a time that a piece of a large graph is small.

    Args:
        graph: The graph.

    Yields:
        Arcs, one at least.
    """
    at = 0
    while at < graph.arcs:
        first = int(np.searchsorted(graph.row_begin, at, side="right")) - 1
        last = int(np.searchsorted(graph.row_begin, at + _PIECE_ARCS, side="left"))
        last = min(last, graph.vertices, first + _PIECE_ARCS)  # rows without arcs cost room too
        stop = min(at + _PIECE_ARCS, int(graph.row_begin[last]))
        counts = np.diff(np.clip(graph.row_begin[first : last + 1], at, stop))
        sources = np.repeat(np.arange(first, last, dtype=np.int64), counts)
        weights = None if graph.weights is None else graph.weights[at:stop]
        yield Arcs(at, sources, graph.neighbours[at:stop], weights)
        at = stop
