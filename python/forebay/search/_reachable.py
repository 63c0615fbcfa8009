# SPDX-License-Identifier: Apache-2.0
"""Makes sure that a search can go from each vertex of a graph to each other."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from forebay.search._arrays import Arrays
from forebay.search._rows import Rows

_ROWS = 1 << 18  # whose edges are looked at together
_COMPARED = 1 << 12  # vertices among which a near one is looked for
_LINKED = 256  # vertices that get an edge to or from one of these together


def connect(
    arrays: Arrays, rows: Rows, graph: npt.NDArray[np.int32], seed: int, tell: Callable[[int, int], None]
) -> None:
    """Changes edges so that there is a way from vertex 0 to each, and from each to vertex 0.

    The edges that change are not those by which a search from vertex 0 first comes to a vertex.

    Args:
        arrays: Where to compute.
        rows: What the vertices are.
        graph: The edges of each vertex, -1 after the last; changed in place.
        seed: Chooses the vertices among which a near one is looked for.
        tell: Told how many vertices can be reached.
    """
    count = len(graph)
    if count <= 1:
        return
    random = np.random.default_rng([seed, 2])
    first_edge = np.full(count, -1, np.int64)  # by which each is reached: a place in the flattened graph
    reached = np.zeros(count, bool)
    reached[0] = True
    frontier = np.zeros(1, np.int64)
    while True:
        _spread(graph, reached, first_edge, frontier)
        tell(int(reached.sum()), count)
        lost = np.flatnonzero(~reached)
        if not len(lost):
            break
        frontier = _lead_to(arrays, rows, graph, reached, first_edge, lost, random)
    _lead_back(arrays, rows, graph, first_edge, random)


def _spread(
    graph: npt.NDArray[np.int32],
    reached: npt.NDArray[np.bool_],
    first_edge: npt.NDArray[np.int64],
    frontier: npt.NDArray[np.int64],
) -> None:
    """Marks what can be reached from the frontier, and notes the edge by which each vertex is."""
    degree = graph.shape[1]
    while len(frontier):
        fresh = []
        for first in range(0, len(frontier), _ROWS):
            sources = frontier[first : first + _ROWS]
            targets = graph[sources]
            source, place = np.nonzero((targets >= 0) & ~reached[targets])
            found, at = np.unique(targets[source, place], return_index=True)
            reached[found] = True
            first_edge[found] = sources[source[at]] * degree + place[at]
            fresh.append(found)
        frontier = np.concatenate(fresh)


def _free_places(
    graph: npt.NDArray[np.int32], first_edge: npt.NDArray[np.int64], vertices: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Where each vertex can take another edge: its first empty place, else its last that reaches no vertex, else -1."""
    edges = graph[vertices]
    degree = graph.shape[1]
    empty = edges < 0
    free = empty | (first_edge[edges] != vertices[:, None] * degree + np.arange(degree))
    last = np.where(free.any(1), degree - 1 - free[:, ::-1].argmax(1), -1)
    return np.where(empty.any(1), empty.argmax(1), last)


def _lead_to(
    arrays: Arrays,
    rows: Rows,
    graph: npt.NDArray[np.int32],
    reached: npt.NDArray[np.bool_],
    first_edge: npt.NDArray[np.int64],
    lost: npt.NDArray[np.int64],
    random: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Leads edges to some of those that cannot be reached, and returns them."""
    # Each would best be reached from a neighbour of its own.
    targets, hosts = [], []
    for first in range(0, len(lost), _ROWS):
        some = lost[first : first + _ROWS]
        edges = graph[some]
        usable = (edges >= 0) & reached[edges]
        near = edges[np.arange(len(some)), usable.argmax(1)].astype(np.int64)
        has = usable.any(1)
        targets.append(some[has])
        hosts.append(near[has])
    target, host = np.concatenate(targets), np.concatenate(hosts)
    host, at = np.unique(host, return_index=True)  # one edge of each at a time
    target = target[at]
    place = _free_places(graph, first_edge, host)
    target, host, place = target[place >= 0], host[place >= 0], place[place >= 0]
    if not len(target):
        target = _some(lost, _LINKED, random)
        everyone = np.flatnonzero(reached)
        host = _some(everyone, _COMPARED, random)
        if not (_free_places(graph, first_edge, host) >= 0).any():
            host = everyone
        host = host[_free_places(graph, first_edge, host) >= 0]
        target, host = _pairs(arrays, rows, target, host)
        place = _free_places(graph, first_edge, host)
    graph[host, place] = target
    reached[target] = True
    first_edge[target] = host * graph.shape[1] + place
    return target


def _lead_back(
    arrays: Arrays,
    rows: Rows,
    graph: npt.NDArray[np.int32],
    first_edge: npt.NDArray[np.int64],
    random: np.random.Generator,
) -> None:
    """Leads edges from some of those from which vertex 0 cannot be reached, until there are none."""
    leads = np.zeros(len(graph), bool)
    leads[0] = True
    while True:
        before = 0
        while before != (now := int(leads.sum())):
            before = now
            others = np.flatnonzero(~leads)
            for first in range(0, len(others), _ROWS):
                some = others[first : first + _ROWS]
                edges = graph[some]
                leads[some] = ((edges >= 0) & leads[edges]).any(1)
        stuck = np.flatnonzero(~leads)
        if not len(stuck):
            return
        free = stuck[_free_places(graph, first_edge, stuck) >= 0]
        source, target = _pairs(
            arrays, rows, _some(free, _LINKED, random), _some(np.flatnonzero(leads), _COMPARED, random)
        )
        graph[source, _free_places(graph, first_edge, source)] = target


def _some(vertices: npt.NDArray[np.int64], count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    return vertices if len(vertices) <= count else random.choice(vertices, count, replace=False)


def _pairs(
    arrays: Arrays, rows: Rows, some: npt.NDArray[np.int64], others: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs vertices with the nearest of others that is left; each has one partner at most."""
    others = others[: max(_COMPARED, len(some))]
    one, other = rows.of(arrays.put(some)), rows.of(arrays.put(others))
    distances = arrays.get((other * other).sum(-1) - 2 * (one @ other.swapaxes(0, 1))).copy()
    partners = []
    for row in distances[: len(others)]:
        partners.append(int(row.argmin()))
        distances[:, partners[-1]] = np.inf
    return some[: len(partners)], others[partners]
