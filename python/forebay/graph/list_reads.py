# SPDX-License-Identifier: Apache-2.0
"""What is read of an edge list if every neighbour list is read once, in whole aligned blocks."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay.errors import RefusedInput
from forebay.graph.csr import Graph

Integers = npt.NDArray[np.int64]

ORDERS = ("bfs", "bfs-sorted", "scan")
ALIGNMENT_MAX = 1 << 30
_ENTRY_BYTES_MAX = 64
_PIECE = 1 << 20  # lists, or arcs of a frontier, that are looked at in one step
# While a cache is modelled: the times of its lists, and the pairs of touches with what counts them.
_BYTES_A_LIST = 160


@dataclass(frozen=True)
class ListReads:
    """What one traversal reads.

    Attributes:
        bytes_needed: The bytes of the lists (E).
        bytes_read: The bytes of the blocks that were read (D).
        requests: How many requests read them.
    """

    bytes_needed: int
    bytes_read: int
    requests: int

    @property
    def read_amplification(self) -> float:
        """The bytes read for each byte needed (RAF)."""
        return self.bytes_read / self.bytes_needed

    @property
    def request_bytes(self) -> float:
        """The mean bytes of a request (d)."""
        return self.bytes_read / self.requests


def list_reads(
    row_begin: Integers,
    alignment: int,
    *,
    entry_bytes: int = 4,
    request_max: int | None = None,
    lines: bool = False,
) -> ListReads:
    """Counts what is read without a cache: each list rounds out to whole blocks, and is cut into requests.

    Args:
        row_begin: Where the list of each vertex begins and the last ends, as in ``Graph``, in entries. The first entry
            lies at a multiple of every alignment.
        alignment: The bytes of a block, a power of two.
        entry_bytes: The bytes of an entry of a list.
        request_max: The bytes of the longest request, a power of two, at least ``alignment``; None for one block.
        lines: Where requests are cut. False: each ``request_max`` bytes from the first block of the list on, as a drive
            reads. True: at multiples of ``request_max``, as a GPU reads memory by lines of its cache.

    Returns:
        The bytes and the requests.

    Raises:
        RefusedInput: No list has an entry, or a number is out of range.
    """
    request_max = alignment if request_max is None else request_max
    _check(row_begin, alignment, entry_bytes)
    require_power_of_two("request_max", request_max)
    if request_max < alignment:
        raise RefusedInput("request_max", request_max, f"must be at least the alignment, {alignment}")
    bytes_read = requests = 0
    for first, end in _blocks(row_begin, alignment, entry_bytes):
        bytes_read += int((end - first).sum()) * alignment
        a_request = request_max // alignment
        if lines:
            requests += int((-(-end // a_request) - first // a_request).sum())
        else:
            requests += int((-(-(end - first) // a_request)).sum())
    return ListReads(_bytes_needed(row_begin, entry_bytes), bytes_read, requests)


def cached_list_reads(
    row_begin: Integers,
    alignment: int,
    cache_bytes: int,
    order: Integers,
    *,
    entry_bytes: int = 4,
) -> ListReads:
    """Counts what is read through a cache that keeps the blocks which were used last (LRU).

    The lists are read one after the other, and the blocks of a list in ascending order. Each block that is not in the
    cache is a request.

    Args:
        row_begin: As for ``list_reads``.
        alignment: The bytes of a block, a power of two.
        cache_bytes: The bytes of the cache. It holds as many blocks as fit, at least one.
        order: The vertices in the order in which their lists are read, each once. Vertices without a list do not
            matter.
        entry_bytes: The bytes of an entry of a list.

    Returns:
        The bytes and the requests.

    Raises:
        RefusedInput: No list has an entry, a number is out of range, no block fits, or the machine has too little
            memory.
    """
    _check(row_begin, alignment, entry_bytes)
    capacity = cache_bytes // alignment
    if capacity < 1:
        raise RefusedInput("cache_bytes", cache_bytes, f"must hold a block of {alignment} bytes")
    _require_memory(row_begin)
    has_list = np.diff(row_begin) > 0
    order = order[has_list[order]]
    ranges = list(_blocks(row_begin, alignment, entry_bytes))
    first, end = (np.concatenate(parts) for parts in zip(*ranges, strict=True))
    visit = (np.cumsum(has_list) - 1)[order]  # lists are numbered without the empty ones
    begins, touches = _touch_times(first, end, visit)
    before, again = _repeats(first, end, begins)
    hits = _lru_hits(before, again, capacity, touches - len(again))
    return ListReads(_bytes_needed(row_begin, entry_bytes), (touches - hits) * alignment, touches - hits)


def reading_order(graph: Graph, order: str, root: int) -> Integers:
    """The vertices in the order in which a traversal reads their lists.

    Args:
        graph: The graph.
        order: One of ``ORDERS``. ``bfs``: a breadth-first search, each level in the order in which its vertices were
            found. ``bfs-sorted``: the same, each level by the numbers of the vertices. ``scan``: all by their numbers.
            Vertices that a search does not reach follow by their numbers.
        root: The vertex that a search starts from.

    Returns:
        The vertices, each once.

    Raises:
        RefusedInput: The order is unknown, or the root is not a vertex.
    """
    if order not in ORDERS:
        raise RefusedInput("order", order, f"must be one of {', '.join(ORDERS)}")
    if order == "scan":
        return np.arange(graph.vertices, dtype=np.int64)
    levels = list(bfs_levels(graph, root))
    reached = np.zeros(graph.vertices, bool)
    for level in levels:
        reached[level] = True
        if order == "bfs-sorted":
            level.sort()
    return np.concatenate([*levels, np.flatnonzero(~reached)])


def bfs_levels(graph: Graph, root: int) -> Iterator[Integers]:
    """Yields the levels of a breadth-first search, each in the order in which a queue finds its vertices."""
    if not 0 <= root < graph.vertices:
        raise RefusedInput("root", root, f"must be a vertex, 0 to {graph.vertices - 1}")
    degrees = graph.degrees
    reached = np.zeros(graph.vertices, bool)
    finder = np.empty(graph.vertices, np.int64)
    frontier = np.array([root], np.int64)
    reached[root] = True
    while len(frontier):
        yield frontier.copy()
        found = [np.empty(0, np.int64)]
        arcs = np.cumsum(degrees[frontier])
        cuts = np.searchsorted(arcs, np.arange(_PIECE, arcs[-1] + _PIECE, _PIECE), side="right")
        for piece in np.split(frontier, np.unique(cuts)):
            new = _neighbours(graph, piece, degrees[piece])
            new = new[~reached[new]]
            # The last of several writes to one place stays, and that is the first arc to the vertex.
            finder[new[::-1]] = np.arange(len(new) - 1, -1, -1)
            new = new[finder[new] == np.arange(len(new))]
            reached[new] = True
            found.append(new)
        frontier = np.concatenate(found)


def require_power_of_two(field: str, value: int, most: int = ALIGNMENT_MAX) -> None:
    """Refuses a size that is no power of two, or is too large."""
    if not 1 <= value <= most or value & (value - 1):
        raise RefusedInput(field, value, f"must be a power of two from 1 to {most}")


def _neighbours(graph: Graph, vertices: Integers, degrees: Integers) -> Integers:
    ends = np.cumsum(degrees)
    total = int(ends[-1]) if len(ends) else 0
    at = np.arange(total) + np.repeat(graph.row_begin[vertices] - ends + degrees, degrees)
    return graph.neighbours[at].astype(np.int64)


def _check(row_begin: Integers, alignment: int, entry_bytes: int) -> None:
    require_power_of_two("alignment", alignment)
    if not 1 <= entry_bytes <= _ENTRY_BYTES_MAX:
        raise RefusedInput("entry_bytes", entry_bytes, f"must be 1 to {_ENTRY_BYTES_MAX}")
    if len(row_begin) < 2 or row_begin[-1] == row_begin[0]:
        raise RefusedInput("graph", f"{max(len(row_begin) - 1, 0)} vertices", "has no edge: there is nothing to read")


def _require_memory(row_begin: Integers) -> None:
    lists = int(np.count_nonzero(np.diff(row_begin)))
    needed, remedy = lists * _BYTES_A_LIST, "leave the cache out, or use a larger machine"
    memory.require(needed, "graph", f"{len(row_begin) - 1} vertices", "a cache's hits", remedy)


def _bytes_needed(row_begin: Integers, entry_bytes: int) -> int:
    return int(row_begin[-1] - row_begin[0]) * entry_bytes


def _blocks(row_begin: Integers, alignment: int, entry_bytes: int) -> Iterator[tuple[Integers, Integers]]:
    """Yields the first block of each list that has entries, and the block after its last, for many lists at a time."""
    for at in range(0, len(row_begin) - 1, _PIECE):
        bounds = row_begin[at : at + _PIECE + 1] * entry_bytes
        kept = bounds[1:] > bounds[:-1]
        yield bounds[:-1][kept] // alignment, -(-bounds[1:][kept] // alignment)


def _touch_times(first: Integers, end: Integers, visit: Integers) -> tuple[Integers, int]:
    """When the first block of each list is touched, by a clock that counts touches, and how many there are.

    A list that begins in the block where the one before it ended does not touch it again: every cache has it.
    """
    firsts, ends = first[visit], end[visit]
    again = np.zeros(len(visit), np.int64)
    again[1:] = firsts[1:] == ends[:-1] - 1
    after = np.cumsum(ends - firsts - again)
    begins = np.empty(len(visit), np.int64)
    begins[visit] = after - (ends - firsts)
    return begins, int(after[-1])


def _repeats(first: Integers, end: Integers, begins: Integers) -> tuple[Integers, Integers]:
    """The touches of blocks that were touched before: the time of the last touch before each, and its own time.

    Only the first and the last block of a list can be another's too.
    """
    # A step begins where no block is shared, so that it sees all touches of its blocks.
    cuts = np.flatnonzero(first[1:] >= end[:-1]) + 1
    steps = np.unique(np.searchsorted(cuts, np.arange(_PIECE, len(first), _PIECE)))
    bounds = [0, *cuts[steps[steps < len(cuts)]].tolist(), len(first)]
    before, again = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for low, high in itertools.pairwise(bounds):
        starts, stops, times = first[low:high], end[low:high] - 1, begins[low:high]
        longer = stops > starts
        blocks = np.concatenate([starts, stops[longer]])
        at = np.concatenate([times, (times + stops - starts)[longer]])
        sorting = np.lexsort((at, blocks))
        blocks, at = blocks[sorting], at[sorting]
        repeated = (blocks[1:] == blocks[:-1]) & (at[1:] != at[:-1])
        before.append(at[:-1][repeated])
        again.append(at[1:][repeated])
    return np.concatenate(before), np.concatenate(again)


def _lru_hits(before: Integers, again: Integers, capacity: int, distinct: int) -> int:
    """How many of the touches find their block: fewer than `capacity` others were touched since it was.

    Among the touches between, those count once that touch a block for the second time.
    """
    between = again - before - 1
    if capacity >= distinct or not len(again) or between.max() < capacity:
        return len(again)
    sorting = np.argsort(again)
    return int(np.count_nonzero((between[sorting] - _larger_before(before[sorting])) < capacity))


def _larger_before(values: Integers) -> Integers:
    """For each of these different numbers, how many larger ones stand before it."""
    size = len(values)
    sorting = np.argsort(values)
    ranks = np.empty(size, np.int32 if size < 2**31 else np.int64)
    ranks[sorting] = np.arange(size, dtype=ranks.dtype)
    counts = np.zeros_like(ranks)
    places = np.arange(size, dtype=ranks.dtype)
    # Radix sort from the highest bit on, stable: a number with a 0 is passed by the numbers of its group that stand
    # before it and have a 1. Ranks are all numbers from 0 on, so each group lies where its numbers belong.
    for bit in range(max(size - 1, 1).bit_length() - 1, -1, -1):
        ones = (ranks >> bit) & 1
        groups = places >> (bit + 1) << (bit + 1)
        ones_before = np.cumsum(ones, dtype=ranks.dtype) - ones
        ones_before -= ones_before[groups]
        counts += np.where(ones == 1, 0, ones_before)
        to = np.where(ones == 1, groups + (1 << bit) + ones_before, places - ones_before)
        moved_ranks, moved_counts = np.empty_like(ranks), np.empty_like(counts)
        moved_ranks[to], moved_counts[to] = ranks, counts
        ranks, counts = moved_ranks, moved_counts
    out = np.empty(size, np.int64)
    out[sorting] = counts
    return out
