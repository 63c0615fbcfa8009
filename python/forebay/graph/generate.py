# SPDX-License-Identifier: Apache-2.0
"""Random graphs of the two kinds that the GAP benchmark suite generates, in memory.

``uniform`` and ``kronecker`` draw GAP's numbers. ``own`` draws those of Forebay's generator for GPUs
(``apps/graph/edge_source.hpp``), in which each edge is a function of the seed alone.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from forebay import memory
from forebay._native import graph_core, interruptible
from forebay.errors import RefusedInput
from forebay.graph.csr import Graph
from forebay.graph.memory import resolve_device

SCALE_MAX = 30
GENERATORS = ("gap", "own")
DEGREE_MAX = 1 << 20
KINDS = ("uniform", "kronecker")
WEIGHT_MAX = 255
_SEED = 27491095
_BLOCK_EDGES = 1 << 18  # which share a stream of random numbers
_LARGEST = np.iinfo(np.uint32).max
_A, _B, _C = (int(share * _LARGEST) for share in (0.57, 0.19, 0.19))
_DEVICE_KEYS_BYTES = 16 << 30  # for keys while they are sorted on a device; a larger graph is made in several parts
_BYTES_A_VERTEX, _BYTES_AN_EDGE, _BYTES_OF_A_WEIGHT = 24, 120, 48
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

_Words = npt.NDArray[np.uint64]


def uniform(scale: int, degree: int = 16, *, weights: bool = False) -> Graph:
    """Makes a graph whose edges join two vertices at random, of GAP 1.5's numbers (its ``-u``).

    Args:
        scale: The graph has 2^scale vertices, 0 to 30.
        degree: How many edges are drawn for each vertex. The graph is undirected, without duplicates and loops.
        weights: Whether each edge that is drawn gets a weight from 1 to 255, as in GAP 1.5. Of duplicates the smallest
            weight stays.

    Returns:
        The graph.

    Raises:
        RefusedInput: A number is out of range, or the machine has too little memory.
    """
    _check(scale, degree, weights)
    pairs = [draw(count * 2).reshape(-1, 2) & np.uint32((1 << scale) - 1) for draw, count in _blocks(scale, degree)]
    return _graph(pairs, scale, _gap_weights(scale, degree) if weights else None)


def kronecker(scale: int, degree: int = 16, *, weights: bool = False) -> Graph:
    """Makes a Kronecker graph with Graph500's A, B and C of 0.57, 0.19 and 0.19 (GAP's ``-g``).

    The edges are GAP's before it permutes the vertices, which it leaves to its C++ library. The permutation here is
    another, so that the graph is isomorphic to GAP's and not equal to it.

    Args:
        scale: As for ``uniform``.
        degree: As for ``uniform``.
        weights: As for ``uniform``.

    Returns:
        The graph.

    Raises:
        RefusedInput: As ``uniform``.
    """
    _check(scale, degree, weights)
    names = np.random.RandomState(_SEED).permutation(1 << scale).astype(np.uint32)
    pairs = []
    for draw, count in _blocks(scale, degree):
        points = draw(count * scale).reshape(count, scale)
        source, target = (np.zeros(count, np.uint32) for _ in range(2))
        for level in range(scale):
            point = points[:, level]
            low = point >= _A + _B
            right = np.where(low, point > _A + _B + _C, point > _A)
            source, target = source << 1 | low, target << 1 | right
        pairs.append(names[np.column_stack([source, target])])
    return _graph(pairs, scale, _gap_weights(scale, degree) if weights else None)


def own(kind: str, scale: int, degree: int = 16, *, seed: int = 1, weights: bool = False) -> Graph:
    """Makes a graph of a seed: the one that the GPU's generator makes of the same numbers.

    Args:
        kind: One of ``KINDS``, with the distribution of the function of that name.
        scale: As for ``uniform``.
        degree: As for ``uniform``.
        seed: 0 to 2^64 - 1.
        weights: Whether each edge that is drawn gets a weight from 1 to 255. Of duplicates the smallest weight stays.

    Returns:
        The graph.

    Raises:
        RefusedInput: As ``uniform``; or the kind is unknown.
    """
    if kind not in KINDS:
        raise RefusedInput("kind", kind, f"must be {' or '.join(KINDS)}")
    if not 0 <= seed <= _MASK:
        raise RefusedInput("seed", seed, "must be 0 to 2^64 - 1")
    _check(scale, degree, weights)
    names = _own_names(scale, seed)
    pairs, each = [], []
    for begin in range(0, degree << scale, _BLOCK_EDGES):
        edges = np.arange(begin, min(begin + _BLOCK_EDGES, degree << scale), dtype=np.uint64)
        if kind == "uniform":
            both = _SplitMix(seed, edges)()
            ends = np.column_stack([both, both >> np.uint64(32)]) & np.uint64((1 << scale) - 1)
            pairs.append(ends.astype(np.uint32))
        else:
            pairs.append(names[_own_kronecker(_SplitMix(seed, edges), scale)])
        if weights:
            each.append(_SplitMix(_mixed(~seed & _MASK), edges).below(WEIGHT_MAX) + 1)
    return _graph(pairs, scale, np.concatenate(each).astype(np.int32) if weights else None)


def on_device(
    kind: str,
    scale: int,
    degree: int = 16,
    *,
    generator: str = "gap",
    seed: int = 1,
    weights: bool = False,
    device: str = "auto",
) -> Graph:
    """Makes a graph on a device, which takes seconds where ``uniform`` and the others take hours.

    The graph is the one that the function of its name makes of the same numbers, but for GAP's Kronecker graph, whose
    vertices are permuted in another way.

    Args:
        kind: One of ``KINDS``.
        scale: 1 to 30, else as for ``uniform``.
        degree: As for ``uniform``.
        generator: One of ``GENERATORS``: whose numbers are drawn.
        seed: As for ``own``. GAP's graphs do not depend on it.
        weights: Whether each edge that is drawn gets a weight from 1 to 255.
        device: ``cpu``, ``cuda:N``, or ``auto``, which is GPU 0 if there is one and else the CPU.

    Returns:
        The graph, in host memory.

    Raises:
        RefusedInput: As ``own``; or there is no such device, or one of the memories has too little room.
        OperationFailed: The extension module does not load.
    """
    if kind not in KINDS:
        raise RefusedInput("kind", kind, f"must be {' or '.join(KINDS)}")
    if generator not in GENERATORS:
        raise RefusedInput("generator", generator, f"must be {' or '.join(GENERATORS)}")
    if not 0 <= seed <= _MASK:
        raise RefusedInput("seed", seed, "must be 0 to 2^64 - 1")
    _check_numbers(scale, degree, 1)
    edge_bytes = 2 * (8 + 8 + 4) if weights else 2 * (4 + 4)  # both arcs, as they come and as the graph has them
    needed = (1 << scale) * (_BYTES_A_VERTEX + degree * edge_bytes)
    memory.require(needed, "scale", scale, f"{degree << scale} edges", "choose a smaller scale or degree")
    row_begin, data = interruptible(
        graph_core().generate,
        kind,
        scale,
        degree,
        generator=generator,
        seed=seed,
        entry="weighted" if weights else "id",
        device=resolve_device(device),
        memory_max_bytes=_DEVICE_KEYS_BYTES,
    )
    numbers = data.view(np.int32)
    neighbours, each = (numbers[::2].copy(), numbers[1::2].copy()) if weights else (numbers, None)
    return Graph(row_begin.view(np.int64), neighbours, directed=False, weights=each)


class _SplitMix:
    """SplitMix64 for many streams at once, as ``apps/common/random.hpp`` has it."""

    def __init__(self, seed: int, streams: _Words) -> None:
        first = np.uint64(_mixed(seed + _GOLDEN & _MASK))
        self._states = first ^ _mixed_words(streams * np.uint64(_GOLDEN) + np.uint64(1))

    def __call__(self) -> _Words:
        self._states += np.uint64(_GOLDEN)
        return _mixed_words(self._states)

    def below(self, bound: int) -> _Words:
        """The upper 64 bits of the product with a bound of at most 32 bits."""
        words, half = self(), np.uint64(32)
        low = (words & np.uint64(_LARGEST)) * np.uint64(bound) >> half
        return (words >> half) * np.uint64(bound) + low >> half


def _mixed_words(words: _Words) -> _Words:
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)


def _mixed(word: int) -> int:
    return int(_mixed_words(np.array([word], np.uint64))[0])


def _own_names(scale: int, seed: int) -> npt.NDArray[np.uint32]:
    """A permutation of the vertices."""
    names, mask = np.arange(1 << scale, dtype=np.uint64), np.uint64((1 << scale) - 1)
    half = np.uint64((scale + 1) // 2)
    for stage in range(3):
        factor, summand = np.uint64(_mixed(seed ^ stage) | 1), np.uint64(_mixed(seed + stage & _MASK))
        names = names * factor + summand & mask
        if scale:
            names ^= names >> half
    return names.astype(np.uint32)


def _own_kronecker(draw: _SplitMix, scale: int) -> npt.NDArray[np.uint64]:
    a, ab, abc = (np.uint64(int(share * (1 << 32))) for share in (0.57, 0.76, 0.95))
    two = draw()
    source, target = np.zeros_like(two), np.zeros_like(two)
    for level in range(scale):
        if level:
            two = draw() if level % 2 == 0 else two >> np.uint64(32)
        point = two & np.uint64(_LARGEST)
        low = point >= ab
        source = source << np.uint64(1) | low
        target = target << np.uint64(1) | ((point >= a) & ~low | (point >= abc))
    return np.column_stack([source, target])


class _Draws:
    """The numbers of one block: those of ``std::mt19937``."""

    def __init__(self, block: int) -> None:
        self._random = np.random.RandomState(_SEED + block)

    def __call__(self, count: int) -> npt.NDArray[np.uint32]:
        return self._random.randint(0, 1 << 32, count, dtype=np.uint32)


def _blocks(scale: int, degree: int) -> Iterator[tuple[_Draws, int]]:
    edges = degree << scale
    for block, at in enumerate(range(0, edges, _BLOCK_EDGES)):
        yield _Draws(block), min(_BLOCK_EDGES, edges - at)


def _gap_weights(scale: int, degree: int) -> npt.NDArray[np.int32]:
    """The weights of all edges. A block's stream begins anew for them: with the numbers of its first edges."""
    weights = []
    for draw, count in _blocks(scale, degree):
        numbers = draw(count)
        # GAP draws again in place of the largest number, without which all remainders are as likely.
        while (numbers := numbers[numbers != _LARGEST]).size < count:
            numbers = np.concatenate([numbers, draw(count - numbers.size)])
        weights.append((numbers % WEIGHT_MAX + 1).astype(np.int32))
    return np.concatenate(weights)


def _graph(pairs: list[npt.NDArray[np.uint32]], scale: int, weights: npt.NDArray[np.int32] | None) -> Graph:
    both = np.concatenate(pairs)
    return Graph.from_arcs(both[:, 0], both[:, 1], 1 << scale, directed=False, weights=weights)


def _check_numbers(scale: int, degree: int, scale_min: int = 0) -> None:
    if not scale_min <= scale <= SCALE_MAX:
        raise RefusedInput("scale", scale, f"must be {scale_min} to {SCALE_MAX}")
    if not 1 <= degree <= DEGREE_MAX:
        raise RefusedInput("degree", degree, f"must be 1 to {DEGREE_MAX}")


def _check(scale: int, degree: int, weights: bool) -> None:
    _check_numbers(scale, degree)
    an_edge = _BYTES_AN_EDGE + (_BYTES_OF_A_WEIGHT if weights else 0)
    needed = (1 << scale) * (_BYTES_A_VERTEX + degree * an_edge)
    memory.require(needed, "scale", scale, f"{degree << scale} edges", "choose a smaller scale or degree")
