# SPDX-License-Identifier: Apache-2.0
"""The search of the mode pq, one query and one record at a time, in NumPy: what the kernel is compared with."""

import heapq
from dataclasses import dataclass, field

import numpy as np

NONE = 0xFFFFFFFF
INFINITE = np.float32(np.inf)


@dataclass
class Parts:
    """An index in memory, by slots."""

    vectors: np.ndarray
    neighbours: np.ndarray  # NONE after the last of each
    codes: np.ndarray
    codebook: np.ndarray
    navigation_slots: np.ndarray
    navigation_neighbours: np.ndarray
    metric: str = "l2"
    allowed: np.ndarray | None = None
    tables: dict = field(default_factory=dict)


def table_of(components, offset, scale, codebook, metric):
    """The parts of the distances, whole numbers of shape (chunks, 256)."""
    sums = np.zeros(codebook.shape[:2], np.float32)
    for d in range(codebook.shape[2]):  # in the kernel's order
        x, y = components[:, None, d], codebook[:, :, d]
        sums += -(x * y) if metric == "inner_product" else (x - y) * (x - y)
    return np.minimum((sums + offset) * scale + np.float32(0.5), np.float32(65535)).astype(np.uint16).astype(np.int64)


def exact_distances(query, vectors, metric):
    """Distances as the lanes of a warp add them up."""
    if vectors.dtype.kind in "iu":
        a, b = query.astype(np.int64), vectors.astype(np.int64)
        total = ((a - b) ** 2).sum(1) if metric == "l2" else (a * b).sum(1)
        norms = (b * b).sum(1).astype(np.float32)
        total = total.astype(np.float32)
    else:
        total = summed(lane_terms(query, vectors, metric))
        norms = summed(lane_terms(None, vectors, "norm"))
    if metric == "l2":
        return total
    if metric == "inner_product":
        return -total
    length = np.float32(np.sqrt((query.astype(np.float64) ** 2).sum()))
    return np.float32(1) - total / (length * np.sqrt(norms))


def lane_terms(query, vectors, metric):
    b = vectors.astype(np.float32)
    if metric == "norm":
        return by_word(b * b, vectors.dtype)
    a = query.astype(np.float32)[None]
    return by_word((a - b) * (a - b) if metric == "l2" else a * b, vectors.dtype)


def by_word(terms, dtype):
    """Terms of shape (vectors, rounds, lanes, components of a word)."""
    each = 4 // dtype.itemsize
    whole = np.zeros((len(terms), -(-terms.shape[1] // (32 * each)) * 32 * each), np.float32)
    whole[:, : terms.shape[1]] = terms
    return whole.reshape(len(terms), -1, 32, each)


def summed(terms):
    lanes = np.zeros((len(terms), 32), np.float32)
    for around in range(terms.shape[1]):
        for component in range(terms.shape[3]):
            lanes += terms[:, around, :, component]
    for step in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[:, np.arange(32) ^ step]
    return lanes[:, 0]


class Candidates:
    """The best (distance, number) pairs, and which of them were expanded."""

    def __init__(self, size):
        self.size, self.keys, self.expanded = size, [], set()

    def add(self, keys):
        self.keys = heapq.nsmallest(self.size, set(self.keys) | set(keys))

    def take(self):
        for key in self.keys:
            if key not in self.expanded:
                self.expanded.add(key)
                return key
        return None


def search(parts, query, components, offset, scale, k, list_size, navigation_size):
    """The slots and distances of the k nearest, and the slots that were read."""
    table = table_of(components, offset, scale, parts.codebook, parts.metric)
    chunks = np.arange(table.shape[0])

    def keys(slots, numbers):
        distances = table[chunks[None], parts.codes[slots]].sum(1)
        return list(zip(distances.tolist(), numbers.tolist(), strict=True))

    seeds = Candidates(navigation_size)
    first = np.arange(min(32, len(parts.navigation_slots)))
    seeds.add(keys(parts.navigation_slots[first], first))
    while (key := seeds.take()) is not None:
        around = parts.navigation_neighbours[key[1]]
        around = around[around != NONE]
        seeds.add(keys(parts.navigation_slots[around], around))
    found = Candidates(list_size)
    found.add([(distance, int(parts.navigation_slots[number])) for distance, number in seeds.keys])
    read = []
    while (key := found.take()) is not None:
        read.append(key[1])
        around = parts.neighbours[key[1]]
        around = around[around != NONE]
        found.add(keys(around, around))
    slots = np.array(read)
    if parts.allowed is not None:
        slots = slots[parts.allowed[slots]]
    distances = exact_distances(query, parts.vectors[slots], parts.metric)
    order = np.lexsort((slots, distances))[:k]
    missing = k - len(order)
    return (
        np.concatenate([slots[order], np.full(missing, NONE)]).astype(np.uint32),
        np.concatenate([distances[order], np.full(missing, INFINITE)]).astype(np.float32),
        read,
    )
