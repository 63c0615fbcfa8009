# SPDX-License-Identifier: Apache-2.0
"""What is read of an edge list, against a simulation that looks at each block."""

from collections import OrderedDict

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph, generate, list_reads, reference_distances
from forebay.graph.list_reads import ORDERS, bfs_levels, cached_list_reads, reading_order


def random_graph(random):
    vertices = int(random.integers(1, 300))
    sources, targets = random.integers(0, vertices, (2, int(random.integers(1, 2000))))
    return Graph.from_arcs(sources, targets, vertices, directed=bool(random.integers(2)), keep_loops=True)


def blocks_of(graph, vertex, alignment, entry_bytes):
    begin, end = (int(at) * entry_bytes for at in graph.row_begin[vertex : vertex + 2])
    return range(begin // alignment, (end - 1) // alignment + 1) if end > begin else range(0)


def requests_of(blocks, blocks_a_request, lines):
    """Looks at one block after the other, and starts a request where the last one may not go on."""
    count = room = 0
    for block in blocks:
        if room == 0 or (lines and block % blocks_a_request == 0):
            count, room = count + 1, blocks_a_request
        room -= 1
    return count


def misses_of(graph, order, alignment, capacity, entry_bytes):
    kept = OrderedDict()
    misses = 0
    for vertex in order:
        for block in blocks_of(graph, vertex, alignment, entry_bytes):
            misses += block not in kept
            kept[block] = True
            kept.move_to_end(block)
            if len(kept) > capacity:
                kept.popitem(last=False)
    return misses


# Small steps, so that these graphs take several.
@pytest.fixture(params=[list_reads._PIECE, 7])
def piece(request, monkeypatch):
    monkeypatch.setattr(list_reads, "_PIECE", request.param)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("seed", range(20))
def test_reads_without_a_cache_are_those_of_a_simulation(seed):
    random = np.random.default_rng(seed)
    graph = random_graph(random)
    entry_bytes = int(random.choice([4, 8, 12, 16]))
    for alignment in (1, 16, 32, 128, 4096):
        each = [blocks_of(graph, v, alignment, entry_bytes) for v in range(graph.vertices)]
        for longer in (1, 2, 8):
            for lines in (False, True):
                got = list_reads.list_reads(
                    graph.row_begin, alignment, entry_bytes=entry_bytes, request_max=alignment * longer, lines=lines
                )
                assert got.bytes_needed == graph.arcs * entry_bytes
                assert got.bytes_read == sum(map(len, each)) * alignment
                assert got.requests == sum(requests_of(blocks, longer, lines) for blocks in each)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(15))
def test_reads_through_a_cache_are_those_of_a_simulation(seed, order):
    random = np.random.default_rng(seed)
    graph = random_graph(random)
    entry_bytes, alignment = int(random.choice([4, 8, 16])), int(2 ** random.integers(2, 11))
    vertices = reading_order(graph, order, int(random.integers(graph.vertices)))
    for capacity in (1, 2, 3, 5, 9, 17, 40, 100, 1000):
        cache = capacity * alignment + int(random.integers(alignment))
        got = cached_list_reads(graph.row_begin, alignment, cache, vertices, entry_bytes=entry_bytes)
        wanted = misses_of(graph, vertices.tolist(), alignment, capacity, entry_bytes)
        assert (got.requests, got.bytes_read) == (wanted, wanted * alignment), f"a cache of {capacity} blocks"


@pytest.mark.parametrize("seed", range(20))
def test_more_cache_reads_no_more_and_enough_of_it_reads_each_block_once(seed):
    random = np.random.default_rng(seed)
    graph = random_graph(random)
    order = reading_order(graph, "bfs", 0)
    reads = [cached_list_reads(graph.row_begin, 64, 64 << power, order).requests for power in range(12)]
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] == len({b for v in range(graph.vertices) for b in blocks_of(graph, v, 64, 4)})


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("seed", range(10))
def test_levels_are_the_distances_in_the_order_of_a_queue(seed):
    random = np.random.default_rng(seed)
    graph = random_graph(random)
    root = int(random.integers(graph.vertices))
    queue, at = [root], 0
    while at < len(queue):
        row = graph.neighbours[graph.row_begin[queue[at]] : graph.row_begin[queue[at] + 1]].tolist()
        queue += [v for v in row if v not in queue]
        at += 1
    levels = list(bfs_levels(graph, root))
    assert np.concatenate(levels).tolist() == queue
    distances = reference_distances(graph, root)
    assert all((distances[level] == depth).all() for depth, level in enumerate(levels))
    rest = sorted(set(range(graph.vertices)) - set(queue))
    assert reading_order(graph, "bfs", root).tolist() == queue + rest
    by_number = [v for level in levels for v in sorted(level.tolist())]
    assert reading_order(graph, "bfs-sorted", root).tolist() == by_number + rest
    assert reading_order(graph, "scan", root).tolist() == list(range(graph.vertices))


@pytest.mark.parametrize("seed", range(10))
def test_larger_numbers_before(seed):
    values = np.random.default_rng(seed).permutation(500)[: int(np.random.default_rng(seed).integers(0, 300))]
    wanted = [int((values[:at] > value).sum()) for at, value in enumerate(values)]
    assert list_reads._larger_before(values).tolist() == wanted


# ---- what was published


@pytest.fixture(scope="module")
def uniform_18():
    return generate.uniform(18)


@pytest.mark.parametrize(("alignment", "published"), [(32, 1.09), (128, 1.47), (512, 2.97), (4096, 16.97)])
def test_published_amplification_of_a_uniform_graph_of_scale_18(uniform_18, alignment, published):
    reads = list_reads.list_reads(uniform_18.row_begin, alignment, entry_bytes=8)
    assert reads.read_amplification == pytest.approx(published, abs=6e-3)


@pytest.mark.parametrize(("alignment", "published"), [(32, 1.03), (128, 1.13), (512, 1.40), (4096, 2.15)])
def test_published_amplification_with_each_block_read_once_a_level(uniform_18, alignment, published):
    """The source is not published; the frontiers, and with them the figures, depend on it."""
    order = reading_order(uniform_18, "bfs-sorted", 1)
    reads = cached_list_reads(uniform_18.row_begin, alignment, alignment, order, entry_bytes=8)
    assert reads.read_amplification == pytest.approx(published, abs=0.01)


def test_published_times_of_drives_over_host_memory_lie_between_those_of_much_cache_and_of_none(uniform_18):
    host = list_reads.list_reads(uniform_18.row_begin, 32, entry_bytes=8).bytes_read
    order = reading_order(uniform_18, "bfs-sorted", 1)
    least = cached_list_reads(uniform_18.row_begin, 4096, 4096, order, entry_bytes=8).bytes_read
    most = list_reads.list_reads(uniform_18.row_begin, 4096, entry_bytes=8).bytes_read
    assert least / host < 2.76 < most / host


def test_published_request_of_zero_copy_is_about_that_of_lines(uniform_18):
    """The publication takes four shares for granted, which make 89.6 bytes."""
    reads = list_reads.list_reads(uniform_18.row_begin, 32, entry_bytes=8, request_max=128, lines=True)
    assert reads.request_bytes == pytest.approx(89.6, rel=0.07)


# ---- sizes and refusals


def test_more_than_2_to_the_32_entries():
    row_begin = np.array([0, 1, 2**33, 2**33, 2**34 + 1], np.int64)
    reads = list_reads.list_reads(row_begin, 4096, entry_bytes=8)
    assert reads.bytes_needed == (2**34 + 1) * 8
    assert reads.bytes_read == 4096 + 2**36 + 2**36 + 4096
    cached = cached_list_reads(row_begin, 4096, 1 << 20, np.array([1, 0, 2, 3]), entry_bytes=8)
    assert cached.bytes_read == 2**37 + 4096 + 4096, "the first block has left the cache before vertex 0 reads it"


def test_one_vertex_with_a_loop():
    graph = Graph.from_arcs([0], [0], 1, keep_loops=True)
    reads = cached_list_reads(graph.row_begin, 16, 16, reading_order(graph, "bfs", 0))
    assert (reads.bytes_needed, reads.bytes_read, reads.requests) == (4, 16, 1)


@pytest.mark.parametrize("row_begin", [[0], [0, 0], [0, 0, 0]])
def test_a_graph_without_an_edge_is_refused(row_begin):
    with pytest.raises(RefusedInput, match="has no edge"):
        list_reads.list_reads(np.array(row_begin, np.int64), 16)


@pytest.mark.parametrize(
    ("field", "numbers"),
    [
        ("alignment", {"alignment": 0}),
        ("alignment", {"alignment": 24}),
        ("alignment", {"alignment": -16}),
        ("alignment", {"alignment": 1 << 31}),
        ("entry_bytes", {"entry_bytes": 0}),
        ("request_max", {"request_max": 48}),
        ("request_max", {"request_max": 16}),
    ],
)
def test_sizes_that_cannot_be_are_refused(field, numbers):
    with pytest.raises(RefusedInput) as refused:
        list_reads.list_reads(np.array([0, 1], np.int64), **{"alignment": 32, **numbers})
    assert refused.value.field == field


def test_a_cache_that_holds_no_block_or_needs_too_much_memory_is_refused(monkeypatch):
    row_begin, order = np.array([0, 1], np.int64), np.array([0])
    with pytest.raises(RefusedInput, match="cache_bytes: '63'"):
        cached_list_reads(row_begin, 64, 63, order)
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 100)
    with pytest.raises(RefusedInput, match="100 B are available"):
        cached_list_reads(row_begin, 64, 64, order)


def test_an_order_or_a_root_that_is_none_is_refused():
    graph = Graph.from_arcs([0], [1], 2)
    for order, root, field in (("dfs", 0, "order"), ("bfs", 2, "root"), ("bfs", -1, "root")):
        with pytest.raises(RefusedInput) as refused:
            reading_order(graph, order, root)
        assert refused.value.field == field
