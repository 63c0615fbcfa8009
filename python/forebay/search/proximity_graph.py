# SPDX-License-Identifier: Apache-2.0
"""Builds the graph of an index: for each vector some near ones, so that a search finds its way from any to any.

The steps: for each vector the nearest ones of k-means lists around its own, and the nearest ones of two samples, which
give the long edges; of these the ones in different directions; and then the vectors that name it themselves.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput
from forebay.search._arrays import Array, Arrays, arrays_on
from forebay.search.build_options import Progress
from forebay.search.exact import NO_NEIGHBOUR, checked_vectors
from forebay.search.kmeans import centres_of, nearest_centres, squared_distances
from forebay.search.prepared import code_rows
from forebay.search.pruning import diverse, once

_LIST = 512  # vectors of a list, about
_LIST_MAX = 4 * _LIST
_ASKING_MAX = 1 << 12  # vectors that are compared with lists at a time
_PROBES = 8  # lists in which a vector's neighbours are looked for
_SAMPLES = ((32, 16), (1024, 8))  # one of so many vectors, and how many candidates of these a vector gets
_ROWS_ONCE = 1 << 14
_ROWS_SEARCHED = 1 << 20
_TRAINED_PER_LIST = 64
_ITERATIONS = 6
_NOT_REACHED, _FIRST = -2, -1  # in place of the vector from which another was reached
_REVERSE_EDGES = 1 << 26  # that are sorted at a time


def build_graph(
    vectors: npt.NDArray[Any],
    *,
    metric: str = "l2",
    graph_degree: int = 64,
    intermediate_degree: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> npt.NDArray[np.uint32]:
    """Builds a graph. The same arguments give the same graph.

    Args:
        vectors: Of shape ``(vectors, dimension)``: ``uint8``, ``int8``, ``float16`` or ``float32``. It may be a
            ``numpy.memmap``.
        metric: One of ``METRICS``.
        graph_degree: How many neighbours each vector has at most.
        intermediate_degree: From how many near vectors they are chosen. None: one and a half times as many.
        seed: What is drawn at random, is drawn from it.
        device: ``cpu``, or ``cuda:N``, where PyTorch computes; the vectors and the graph then fit its memory.
        checkpoints: A folder that keeps what each step has made, so that a build that was ended goes on there. None:
            nothing is kept.
        progress: Called now and then with the name of a step, and how much of how much of it is done.

    Returns:
        The ids of neighbours, ``uint32`` of shape ``(vectors, graph_degree)``, ``NO_NEIGHBOUR`` after the last of each
        row. No row names its own vector, and none names one twice. Each vector can be reached from the first one.

    Raises:
        RefusedInput: An argument is wrong, or the folder keeps steps of another build.
    """
    rows = checked_vectors("vectors", vectors, metric)
    count = len(rows)
    if graph_degree < 1:
        raise RefusedInput("graph_degree", graph_degree, "must be at least 1")
    wanted = graph_degree if intermediate_degree is None else intermediate_degree
    if count <= 1:
        return np.full((count, graph_degree), NO_NEIGHBOUR, np.uint32)
    build = _Build(arrays_on(device), rows, metric, seed, progress)
    kept = _Kept(checkpoints, rows, metric=metric, graph_degree=graph_degree, wanted=wanted, seed=seed)
    candidates = kept.step("candidates", lambda: build.candidates(wanted))
    forward = kept.step("forward", lambda: build.diverse(candidates, graph_degree))
    graph = kept.step("graph", lambda: build.with_reverse(forward, candidates, graph_degree))
    return build.reachable(graph)


class _Kept:
    """What steps have made, in a folder."""

    def __init__(self, folder: Path | None, rows: npt.NDArray[Any], **parameters: Any) -> None:  # noqa: ANN401
        self._folder = folder
        if folder is None:
            return
        sample = np.ascontiguousarray(rows[:: max(1, len(rows) // 1024)])
        parameters |= {"shape": list(rows.shape), "dtype": rows.dtype.name, "sample": zlib.crc32(sample.tobytes())}
        folder.mkdir(parents=True, exist_ok=True)
        described = folder / "build.json"
        if not described.exists():
            described.write_text(json.dumps(parameters))
        before = json.loads(described.read_text())
        for name, value in parameters.items():
            if before.get(name) != value:
                remedy = f"keeps a build with {name} {before.get(name)}, this one has {value}: name another folder"
                raise RefusedInput("checkpoints", folder, remedy)

    def step(self, name: str, make: Callable[[], npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
        if self._folder is None:
            return make()
        kept = self._folder / f"{name}.npy"
        if kept.exists():
            found: npt.NDArray[np.uint32] = np.load(kept)
            return found
        made = make()
        whole = kept.with_suffix(".part.npy")
        np.save(whole, made)
        whole.rename(kept)  # only what is whole has the name
        return made


class _Build:
    def __init__(
        self, arrays: Arrays, rows: npt.NDArray[Any], metric: str, seed: int, progress: Progress | None
    ) -> None:
        self._arrays = arrays
        self._seed = seed
        self._progress = progress
        self._by_product = metric == "inner_product"
        # The cosine orders as the distance of vectors of length 1 does.
        self._rows = arrays.put(code_rows(rows, metric) if metric == "cosine" else np.ascontiguousarray(rows))
        self._count = len(rows)

    def _tell(self, step: str, done: int, total: int) -> None:
        if self._progress:
            self._progress(step, done, total)

    def _floats(self, ids: Array) -> Array:
        return self._arrays.floats(self._rows[ids])

    def _distances(self, left: Array, right: Array) -> Array:
        return -(left @ right.T) if self._by_product else squared_distances(left, right)

    def candidates(self, wanted: int) -> npt.NDArray[np.uint32]:
        """The nearest vectors of each, and the nearest ones of samples, each a small part of the one before."""
        random = np.random.default_rng([self._seed, 1])
        order = random.permutation(self._count)
        parts = [self._near(np.arange(self._count), wanted, "neighbours")]
        for share, number in _SAMPLES:
            if self._count // share > number:
                parts.append(self._near(np.sort(order[: self._count // share]), number, f"neighbours in 1/{share}"))
        return np.concatenate(parts, axis=1)

    def _near(self, base: npt.NDArray[np.int64], wanted: int, step: str) -> npt.NDArray[np.uint32]:
        """The nearest of some vectors for each vector, of those in the lists around it, the nearest first."""
        arrays = self._arrays
        wanted = min(wanted, len(base) - 1)
        members, around, asking = self._lists(base)
        found = np.full((self._count, wanted), NO_NEIGHBOUR, np.uint32)
        for number, own in enumerate(asking):
            others = arrays.put(np.concatenate([members[other] for other in around[number]]))
            of_others = self._floats(others)
            for first in range(0, len(own), _ASKING_MAX):
                some = own[first : first + _ASKING_MAX]
                mine = arrays.put(some)
                distances = self._distances(self._floats(mine), of_others)
                distances[mine[:, None] == others[None]] = float("inf")
                values, places = arrays.smallest(distances, min(wanted, len(others)))
                ids = arrays.get(others[places])
                ids[~np.isfinite(arrays.get(values))] = NO_NEIGHBOUR
                found[some, : ids.shape[1]] = ids
            self._tell(step, number + 1, len(asking))
        return found

    def _lists(
        self, base: npt.NDArray[np.int64]
    ) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
        """The ids of ``base`` in each list, the lists around each, and the ids of all vectors that look there."""
        arrays = self._arrays
        count = len(base) // _LIST
        if count <= _PROBES:
            return [base], np.zeros((1, 1), np.int64), [np.arange(self._count)]
        random = np.random.default_rng(self._seed)
        chosen = np.sort(random.permutation(base)[: _TRAINED_PER_LIST * count])
        sample = self._floats(arrays.put(chosen))
        first = sample[arrays.put(random.permutation(len(chosen))[:count])]
        batch = max(1, (arrays.rows << 14) // count)
        centres = centres_of(arrays, sample, first, _ITERATIONS, batch)
        labels = arrays.get(nearest_centres(arrays, self._rows, centres, batch))
        asking = _by_label(labels, np.arange(self._count), count)
        members = _by_label(labels[base], base, count)
        around = np.empty((count, _PROBES), np.int64)
        for at in range(0, count, batch):
            _, places = arrays.smallest(squared_distances(centres[at : at + batch], centres), _PROBES)
            around[at : at + batch] = arrays.get(places)
        # A list that is much too long is thinned out for the others. Its own vectors still find enough near ones.
        return [ids[:: -(-len(ids) // _LIST_MAX)] if len(ids) > _LIST_MAX else ids for ids in members], around, asking

    def diverse(self, candidates: npt.NDArray[np.uint32], degree: int) -> npt.NDArray[np.uint32]:
        """Of the candidates of each vector the nearest ones that lie in different directions."""
        arrays = self._arrays
        width = candidates.shape[1]
        found = np.full((len(candidates), degree), NO_NEIGHBOUR, np.uint32)
        for first in range(0, len(candidates), arrays.rows):
            names = once(arrays, arrays.longs(arrays.put(candidates[first : first + arrays.rows])), width)
            ids, direct, given = self._in_order(names, first)
            picks = diverse(arrays, self._floats(ids), direct, given, degree, by_product=self._by_product)
            is_one = arrays.longs(picks >= 0)
            chosen = arrays.get(is_one * (arrays.along(ids, picks * is_one) + 1) - 1)
            found[first : first + len(names), : chosen.shape[1]] = chosen.astype(np.uint32)
            self._tell("diverse neighbours", first + len(names), len(candidates))
        return found

    def _in_order(self, names: Array, first: int) -> tuple[Array, Array, Array]:
        """Candidates of the vectors from number ``first`` on: in order, how far each is, and which there are."""
        arrays = self._arrays
        given = names != NO_NEIGHBOUR
        ids = names * arrays.longs(given)
        own = self._floats(arrays.arange(self._count)[first : first + len(names)])
        others = self._floats(ids)
        products = (others @ own[..., None])[..., 0]
        if self._by_product:
            direct = -products
        else:
            direct = (others * others).sum(-1) + (own * own).sum(-1)[:, None] - 2 * products
        direct[~given] = float("inf")
        order = arrays.order(direct)
        return arrays.along(ids, order), arrays.along(direct, order), arrays.along(given, order)

    def with_reverse(
        self, forward: npt.NDArray[np.uint32], candidates: npt.NDArray[np.uint32], degree: int
    ) -> npt.NDArray[np.uint32]:
        """Half of the places for the best neighbours, then vectors that name this one, then the others, then any."""
        arrays = self._arrays
        graph = np.empty((self._count, degree), np.uint32)
        half = (degree + 1) // 2
        piece = max(1, _REVERSE_EDGES // forward.shape[1])
        on_device = arrays.put(forward)
        for first in range(0, self._count, piece):
            end = min(first + piece, self._count)
            reverse = self._reverse(on_device, first, end, degree)
            for at in range(first, end, _ROWS_ONCE):
                some = slice(at, min(at + _ROWS_ONCE, end))
                own, near = on_device[some], arrays.put(candidates[some])
                behind = reverse[some.start - first : some.stop - first]
                names = arrays.joined([own[:, :half], behind, own[:, half:], near], 1)
                graph[some] = arrays.get(once(arrays, arrays.longs(names), degree)).astype(np.uint32)
            self._tell("reverse edges", end, self._count)
        return graph

    def _reverse(self, forward: Array, first: int, end: int, degree: int) -> Array:
        """The vectors that name each of those in a range, by the place in which they do."""
        arrays = self._arrays
        width = forward.shape[1]
        keys, sources = [], []
        for at in range(0, self._count, _ROWS_SEARCHED):
            names = forward[at : at + _ROWS_SEARCHED]
            rows, ranks = arrays.where((names >= first) & (names < end))
            keys.append((arrays.longs(names[rows, ranks]) - first) * width + ranks)
            sources.append(rows + at)
        key, source = arrays.joined(keys, 0), arrays.joined(sources, 0)
        order = arrays.order(key)
        target = key[order] // width
        begin = arrays.first_of(target, end - first)
        rank = arrays.arange(len(target)) - begin[target]
        found = arrays.full((end - first, degree), NO_NEIGHBOUR)
        kept = rank < degree
        found[target[kept], rank[kept]] = source[order][kept]
        return found

    def reachable(self, graph: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Leads edges to vectors that cannot be reached from the first one.

        An edge by which a vector was first reached stays. So what can be reached grows with each round.
        """
        random = np.random.default_rng([self._seed, 2])
        degree = graph.shape[1]
        while True:
            parents = self._parents(graph)
            lost = np.flatnonzero(parents == _NOT_REACHED)
            if not len(lost):
                return graph
            children = np.bincount(parents[parents >= 0], minlength=self._count)
            has_room = (parents != _NOT_REACHED) & (children < degree)
            # The edge begins at one of its own neighbours if that has room, else anywhere.
            names = graph[lost]
            usable = (names != NO_NEIGHBOUR) & has_room[np.where(names == NO_NEIGHBOUR, 0, names)]
            own = names[np.arange(len(lost)), usable.argmax(1)]
            begins = np.where(usable.any(1), own, random.choice(np.flatnonzero(has_room), len(lost))).astype(np.int64)
            # Several edges that begin at one vector take places one each; if there are too few, the others wait.
            order = np.argsort(begins, kind="stable")
            begins, lost = begins[order], lost[order]
            rank = np.arange(len(begins)) - np.searchsorted(begins, begins)
            places, room = _places(graph[begins], parents, begins)
            kept = rank < room
            graph[begins[kept], places[kept, rank[kept]]] = lost[kept]
            self._tell("reach", self._count - len(lost), self._count)

    def _parents(self, graph: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """From which vector each was first reached, beginning with the first one."""
        parents = np.full(self._count, _NOT_REACHED)
        parents[0] = _FIRST
        frontier = np.zeros(1, np.int64)
        while len(frontier):
            found = np.zeros(self._count, bool)
            for first in range(0, len(frontier), _ROWS_SEARCHED):
                rows, places = np.nonzero(graph[frontier[first : first + _ROWS_SEARCHED]] != NO_NEIGHBOUR)
                begins = frontier[first + rows]
                names = graph[begins, places]
                is_new = parents[names] == _NOT_REACHED
                parents[names[is_new]] = begins[is_new]
                found[names[is_new]] = True
            frontier = np.flatnonzero(found)
        return parents


def _places(
    rows: npt.NDArray[np.uint32], parents: npt.NDArray[np.int64], begins: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order in which the places of rows may be taken, and how many of each may: free ones, then the last ones."""
    given = rows != NO_NEIGHBOUR
    needed = given & (parents[np.where(given, rows, 0)] == begins[:, None])
    place = np.arange(rows.shape[1])[None]
    worth = np.where(needed, 2 * rows.shape[1], np.where(given, rows.shape[1] - place, place - rows.shape[1]))
    return np.argsort(worth, axis=1, kind="stable"), (~needed).sum(1)


def _by_label(labels: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.int64]]:
    """The ids with each label."""
    order = np.argsort(labels, kind="stable")
    return np.split(ids[order], np.searchsorted(labels[order], np.arange(1, count)))
