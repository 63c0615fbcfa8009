# SPDX-License-Identifier: Apache-2.0
"""A best-first search along a graph in NumPy, of all queries at once, and its recall: by which graphs are judged."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Walk:
    """What a search has found.

    Attributes:
        ids: The best of each query, the best first, of shape (queries, list_size).
        expanded: For each query the vertices whose edges it looked at.
    """

    ids: np.ndarray
    expanded: list[list[int]]

    @property
    def hops(self):
        return float(np.mean([len(each) for each in self.expanded]))


def by_vectors(base, queries):
    """Squared distances, by the numbers of queries and the ids of vectors."""
    return lambda query, ids: ((base[ids].astype("f4") - queries[query].astype("f4")) ** 2).sum(1)


def by_codes(codes, codebook, queries):
    """Squared distances to what the codes stand for."""
    chunks = queries.reshape(len(queries), len(codebook), 1, -1)  # they divide the dimension
    tables = ((chunks - codebook) ** 2).sum(-1)
    return lambda query, ids: sum(tables[query, chunk, codes[ids, chunk]] for chunk in range(len(codebook)))


def entries_of(base, queries, seed=1):
    """The nearest vector of each query in a sample of one in a hundred."""
    size = max(1, len(base) // 100)
    sample = np.sort(np.random.default_rng(seed).permutation(len(base))[:size])
    vectors = base[sample].astype("f4")
    return sample[((vectors**2).sum(1) - 2 * queries.astype("f4") @ vectors.T).argmin(1)]


def walk(graph, distance, entries, list_size):
    """Expands the best vertex of each query's list that was not, until there is none."""
    queries, vertices = len(entries), len(graph)
    everyone = np.arange(queries)
    seen = np.zeros((queries, vertices), bool)
    seen[everyone, entries] = True
    ids = np.zeros((queries, list_size), np.int64)
    distances = np.full((queries, list_size), np.inf, np.float32)
    ids[:, 0], distances[:, 0] = entries, distance(everyone, entries)
    done = np.isinf(distances)
    expanded = [[] for _ in everyone]
    while len(active := np.flatnonzero(~done.all(1))):
        place = (~done[active]).argmax(1)
        done[active, place] = True
        current = ids[active, place]
        for query, vertex in zip(active, current, strict=True):
            expanded[query].append(int(vertex))
        edges = graph[current].astype(np.int64)
        fresh = edges < vertices
        edges = np.where(fresh, edges, 0)
        fresh &= ~seen[active[:, None], edges]
        row, column = np.nonzero(fresh)
        seen[active[row], edges[row, column]] = True
        found = np.full(edges.shape, np.inf, np.float32)
        found[row, column] = distance(active[row], edges[row, column])
        all_ids = np.concatenate([ids[active], edges], 1)
        all_distances = np.concatenate([distances[active], found], 1)
        all_done = np.concatenate([done[active], ~fresh], 1)
        order = np.argsort(all_distances, axis=1, kind="stable")[:, :list_size]
        ids[active] = np.take_along_axis(all_ids, order, 1)
        distances[active] = np.take_along_axis(all_distances, order, 1)
        done[active] = np.take_along_axis(all_done, order, 1)
    return Walk(ids, expanded)


def nearest_expanded(base, queries, expanded, k):
    """The k nearest of the vertices that each query expanded: those whose vectors a search has read."""
    found = np.full((len(queries), k), 0xFFFFFFFF, np.int64)
    for query, one in enumerate(expanded):
        order = np.argsort(((base[one] - queries[query]) ** 2).sum(1), kind="stable")[:k]
        found[query, : len(order)] = np.array(one)[order]
    return found
