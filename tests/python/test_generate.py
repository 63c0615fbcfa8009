# SPDX-License-Identifier: Apache-2.0
"""The graphs that are generated, against a reference that draws one number after the other."""

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import generate
from graphs import same, weights_of


class Twister:
    """The Mersenne Twister of the C++ standard, mt19937, from its definition there."""

    def __init__(self, seed):
        self.words, self.at = [seed], 624
        for i in range(1, 624):
            self.words.append((1812433253 * (self.words[-1] ^ self.words[-1] >> 30) + i) & 0xFFFFFFFF)

    def __call__(self):
        if self.at == 624:
            for i in range(624):
                both = self.words[i] & 0x80000000 | self.words[(i + 1) % 624] & 0x7FFFFFFF
                self.words[i] = self.words[(i + 397) % 624] ^ both >> 1 ^ (0x9908B0DF if both & 1 else 0)
            self.at = 0
        word = self.words[self.at]
        self.at += 1
        word ^= word >> 11
        word ^= word << 7 & 0x9D2C5680
        word ^= word << 15 & 0xEFC60000
        return word ^ word >> 18


def test_the_reference_twister_has_the_standards_number():
    twister = Twister(5489)
    assert [twister() for _ in range(10_000)][-1] == 4123659995


def pairs_of(graph):
    return set(
        zip(np.repeat(np.arange(graph.vertices), graph.degrees).tolist(), graph.neighbours.tolist(), strict=True)
    )


@pytest.mark.parametrize(("scale", "degree", "block"), [(0, 1, 1 << 18), (5, 3, 1 << 18), (7, 4, 100)])
def test_uniform_edges_are_those_of_gap(scale, degree, block, monkeypatch):
    monkeypatch.setattr(generate, "_BLOCK_EDGES", block)
    wanted = set()
    for at in range(0, degree << scale, block):
        twister = Twister(27491095 + at // block)
        for _ in range(min(block, (degree << scale) - at)):
            one, other = twister() % (1 << scale), twister() % (1 << scale)
            wanted |= {(one, other), (other, one)} if one != other else set()
    assert pairs_of(generate.uniform(scale, degree)) == wanted


def test_kronecker_edges_are_those_of_gap_before_its_permutation(monkeypatch):
    monkeypatch.setattr(generate, "_BLOCK_EDGES", 100)
    scale, degree = 6, 4
    names = np.random.RandomState(27491095).permutation(1 << scale).tolist()
    largest, wanted = 2**32 - 1, set()
    a, b, c = int(0.57 * largest), int(0.19 * largest), int(0.19 * largest)
    for at in range(0, degree << scale, 100):
        twister = Twister(27491095 + at // 100)
        for _ in range(min(100, (degree << scale) - at)):
            source = target = 0
            for _ in range(scale):
                point, source, target = twister(), source * 2, target * 2
                if point < a + b:
                    target += point > a
                else:
                    source += 1
                    target += point > a + b + c
            one, other = names[source], names[target]
            wanted |= {(one, other), (other, one)} if one != other else set()
    assert pairs_of(generate.kronecker(scale, degree)) == wanted


@pytest.mark.parametrize(("block", "largest"), [(1 << 18, 2**32 - 1), (100, 2**32 - 1), (100, None)])
def test_weights_are_those_of_gap_and_the_smallest_stays(block, largest, monkeypatch):
    scale, degree = 5, 9
    monkeypatch.setattr(generate, "_BLOCK_EDGES", block)
    if largest is None:
        # No seed at hand draws the largest number, in whose place GAP draws again. Here another one is the largest.
        largest = Twister(27491095)()
        monkeypatch.setattr(generate, "_LARGEST", largest)
    wanted = {}
    for at in range(0, degree << scale, block):
        twister, other = Twister(27491095 + at // block), Twister(27491095 + at // block)
        for _ in range(min(block, (degree << scale) - at)):
            pair = [twister() % (1 << scale), twister() % (1 << scale)]
            while (number := other()) == largest:
                pass
            if pair[0] != pair[1]:
                for arc in (tuple(pair), tuple(reversed(pair))):
                    wanted[arc] = min(wanted.get(arc, 255), number % 255 + 1)
    graph = generate.uniform(scale, degree, weights=True)
    assert weights_of(graph) == wanted
    assert pairs_of(generate.uniform(scale, degree)) == set(wanted)


def checksum(numbers):
    """A number that depends on every number of a list and on its place."""
    return int((np.arange(1, len(numbers) + 1, dtype=np.uint64) * numbers.astype(np.uint64)).sum())


# tests/apps/graph_build_test.cpp has the same numbers: the device generates the same graphs.
@pytest.mark.parametrize(
    ("make", "vertices", "weights"),
    [
        (lambda: generate.own("kronecker", 10, 8, seed=5, weights=True), 41252543562, 8579938648),
        (lambda: generate.own("uniform", 10, 8, seed=5, weights=True), 72591983930, 16876113523),
        (lambda: generate.uniform(10, 8, weights=True), 73280235438, 16751322291),
    ],
    ids=["own kronecker", "own uniform", "gap uniform"],
)
def test_graphs_are_those_that_the_device_generates(make, vertices, weights):
    graph = make()
    assert checksum(graph.row_begin) + checksum(graph.neighbours) == vertices
    assert checksum(graph.weights) == weights


@pytest.mark.parametrize("kind", generate.KINDS)
def test_our_graphs_do_not_depend_on_the_size_of_a_step(kind, monkeypatch):
    graph = generate.own(kind, 6, 5, weights=True)
    monkeypatch.setattr(generate, "_BLOCK_EDGES", 7)
    assert same(graph, generate.own(kind, 6, 5, weights=True))


@pytest.mark.parametrize("kind", generate.KINDS)
def test_our_graphs_depend_on_the_seed_and_their_edges_do_not_depend_on_weights(kind):
    graph = generate.own(kind, 7, 4, seed=3)
    assert graph.weights is None
    assert pairs_of(graph) == pairs_of(generate.own(kind, 7, 4, seed=3, weights=True))
    assert pairs_of(graph) != pairs_of(generate.own(kind, 7, 4, seed=4))
    assert generate.own(kind, 0, 3).arcs == 0
    assert set(generate.own(kind, 9, 40, weights=True).weights.tolist()) == set(range(1, 256))


def test_our_kronecker_graph_has_the_degrees_of_gaps():
    ours, gaps = (np.sort(graph.degrees)[::-1] for graph in (generate.own("kronecker", 12), generate.kronecker(12)))
    assert ours[:10] == pytest.approx(gaps[:10], rel=0.1)
    assert np.count_nonzero(ours) == pytest.approx(np.count_nonzero(gaps), rel=0.05)


def test_a_vertex_has_no_edge():
    for graph in (generate.uniform(0), generate.kronecker(0), generate.own("uniform", 0), generate.own("kronecker", 0)):
        assert (graph.vertices, graph.arcs) == (1, 0)


def test_what_our_generator_does_not_have_is_refused():
    with pytest.raises(RefusedInput, match="kind: 'star': must be uniform or kronecker"):
        generate.own("star", 3)
    for seed in (-1, 2**64):
        with pytest.raises(RefusedInput, match="seed"):
            generate.own("uniform", 3, seed=seed)


@pytest.mark.parametrize(
    "make", [generate.uniform, generate.kronecker, lambda *sizes: generate.own("uniform", *sizes, weights=True)]
)
def test_graphs_that_cannot_be_generated_are_refused(make, monkeypatch):
    for scale, degree, field in ((-1, 16, "scale"), (31, 16, "scale"), (4, 0, "degree"), (4, 2**21, "degree")):
        with pytest.raises(RefusedInput) as refused:
            make(scale, degree)
        assert refused.value.field == field
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 1 << 20)
    with pytest.raises(RefusedInput, match=r"1\.0 MiB are available"):
        make(20)
