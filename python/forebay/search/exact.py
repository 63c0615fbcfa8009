# SPDX-License-Identifier: Apache-2.0
"""The nearest neighbours by comparing each query with each vector, and the recall of a search that compares fewer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import whole
from forebay.errors import RefusedInput

METRICS = ("l2", "inner_product", "cosine")
"""How far two vectors are apart: the square of the Euclidean distance, the inner product with its sign turned round, or
1 minus the cosine of the angle. The smaller, the nearer."""
NO_NEIGHBOUR = 0xFFFFFFFF
"""The id that stands where a search found nothing."""
_KINDS = ("u1", "i1", "f2", "f4")
_BLOCK_BYTES = 1 << 26
_QUERIES = 256  # at a time: their distances to a block of vectors stay small


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of queries.

    Attributes:
        ids: The numbers of the nearest vectors, the nearest first; of equal ones the least number first. ``uint32`` of
            shape ``(queries, k)``.
        distances: How far each is, as ``METRICS`` says: ``float64`` of the same shape.
    """

    ids: npt.NDArray[np.uint32]
    distances: npt.NDArray[np.float64]


def exact_neighbours(base: npt.ArrayLike, queries: npt.ArrayLike, k: int, metric: str = "l2") -> Neighbours:
    """Finds the nearest vectors of each query, and compares all of them with it.

    It computes with 8 bytes. So distances of integers are exact.

    Args:
        base: The vectors, of shape ``(vectors, dimension)``: ``uint8``, ``int8``, ``float16`` or ``float32``.
        queries: Of shape ``(queries, dimension)`` and one of these types.
        k: How many neighbours each query gets, 1 to the number of vectors.
        metric: One of ``METRICS``.

    Returns:
        The neighbours.

    Raises:
        RefusedInput: A shape, a type, a number or the metric is wrong, a component is not finite, or a vector of zeros
            has no cosine.
    """
    vectors, asked = checked_vectors("base", base, metric), checked_vectors("queries", queries, metric)
    if asked.shape[1] != vectors.shape[1]:
        raise RefusedInput("queries", f"dimension {asked.shape[1]}", f"must have that of base, {vectors.shape[1]}")
    if not len(vectors):
        raise RefusedInput("base", "0 vectors", "has no vector; there is nothing to search")
    if not 1 <= (k := whole("k", k)) <= len(vectors):
        raise RefusedInput("k", k, f"must be 1 to the number of vectors, {len(vectors)}")
    ids = np.empty((len(asked), k), np.uint32)
    distances = np.empty((len(asked), k))
    for first in range(0, len(asked), _QUERIES):
        some = slice(first, first + _QUERIES)
        ids[some], distances[some] = _nearest(vectors, asked[some], k, metric)
    return Neighbours(ids, distances)


def recall(
    base: npt.ArrayLike, queries: npt.ArrayLike, found: npt.ArrayLike, true: npt.ArrayLike, metric: str = "l2"
) -> float:
    """Returns what part of the true neighbours a search found, as the mean of all queries.

    A vector counts if it is as near as the farthest true one. So of several that are equally far each is right.

    Args:
        base: The vectors that were searched, as for ``exact_neighbours``.
        queries: The queries.
        found: The ids that the search found, of shape ``(queries, k)``; ``NO_NEIGHBOUR`` for none. One that stands
            there twice counts once.
        true: Those of ``exact_neighbours`` with the same k, in the same order.
        metric: One of ``METRICS``.

    Raises:
        RefusedInput: As ``exact_neighbours``; or an id is no vector, or the shapes do not fit.
    """
    vectors, asked = checked_vectors("base", base, metric), checked_vectors("queries", queries, metric)
    given, right = (_checked_ids(name, ids, len(vectors)) for name, ids in (("found", found), ("true", true)))
    if right.shape != given.shape or len(right) != len(asked) or not right.size:
        what = f"must have the shape of true, {right.shape}, with a row for each of {len(asked)} queries"
        raise RefusedInput("found", f"shape {given.shape}", what)
    if (right == NO_NEIGHBOUR).any():
        raise RefusedInput("true", NO_NEIGHBOUR, "must be vectors, all of them")
    hits = 0
    for query, one, farthest in zip(asked, given, right[:, -1], strict=True):
        once = np.unique(one[one != NO_NEIGHBOUR])
        limit = _between(vectors[farthest : farthest + 1], query[None], metric)[0, 0]
        # Both sides come from the same expression, of one query with some vectors, so equal vectors are equally far.
        each = [_between(vectors[i : i + 1], query[None], metric)[0, 0] for i in once]
        hits += int(np.count_nonzero(np.array(each) <= limit))
    return hits / right.size


def checked_vectors(field: str, given: npt.ArrayLike, metric: str) -> npt.NDArray[Any]:
    """Returns vectors as an array that can be searched.

    Args:
        field: The name of the argument.
        given: What the caller gave.
        metric: What they are to be compared by.

    Raises:
        RefusedInput: The metric, a shape, a type or a number is wrong, or a vector of zeros has no cosine.
    """
    if metric not in METRICS:
        raise RefusedInput("metric", metric, f"must be {', '.join(METRICS[:-1])} or {METRICS[-1]}")
    array = np.asarray(given)
    if array.ndim != 2 or not array.shape[1]:
        raise RefusedInput(field, f"shape {array.shape}", "must have the shape (vectors, dimension)")
    if array.dtype.str[1:] not in _KINDS or not array.dtype.isnative:
        raise RefusedInput(field, array.dtype, "must be uint8, int8, float16 or float32")
    for first, block in _blocks(array):
        if array.dtype.kind == "f" and not (fine := np.isfinite(block).all(1)).all():
            row = first + int(np.flatnonzero(~fine)[0])
            raise RefusedInput(f"{field}[{row}]", array[row][~np.isfinite(array[row])][0], "must be finite")
        if metric == "cosine" and not (some := block.any(1)).all():
            row = first + int(np.flatnonzero(~some)[0])
            raise RefusedInput(f"{field}[{row}]", "zeros", "has no direction, and so no cosine; leave it out")
    return array


def _checked_ids(field: str, given: npt.ArrayLike, vectors: int) -> npt.NDArray[np.int64]:
    array = np.asarray(given)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise RefusedInput(field, f"{array.dtype} of shape {array.shape}", "must be ids of the shape (queries, k)")
    ids = array.astype(np.int64)
    bad = (ids < 0) | ((ids >= vectors) & (ids != NO_NEIGHBOUR))
    if bad.any():
        raise RefusedInput(field, array[bad][0], f"must be the ids of vectors, 0 to {vectors - 1}")
    return ids


def _blocks(array: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    rows = max(1, _BLOCK_BYTES // (8 * array.shape[1]))
    for first in range(0, len(array), rows):
        yield first, array[first : first + rows]


def _between(vectors: npt.NDArray[Any], queries: npt.NDArray[Any], metric: str) -> npt.NDArray[np.float64]:
    """The distances of shape (queries, vectors)."""
    a, b = queries.astype(np.float64), vectors.astype(np.float64)
    products = a @ b.T
    if metric == "inner_product":
        return -products
    if metric == "cosine":
        return 1 - products / (np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)[None])
    squares = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)[None]
    return np.maximum(squares - 2 * products, 0)


def _nearest(
    vectors: npt.NDArray[Any], queries: npt.NDArray[Any], k: int, metric: str
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
    ids = np.empty((len(queries), 0), np.uint32)
    distances = np.empty((len(queries), 0))
    for first, block in _blocks(vectors):
        numbers = np.broadcast_to(np.arange(first, first + len(block), dtype=np.uint32), (len(queries), len(block)))
        ids = np.concatenate([ids, numbers], axis=1)
        distances = np.concatenate([distances, _between(block, queries, metric)], axis=1)
        order = _first(distances, k)
        ids, distances = (np.take_along_axis(each, order, 1) for each in (ids, distances))
    return ids, distances


def _first(distances: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.intp]:
    """Where the k least are in each row, in their order; of equal ones those that come first."""
    k = min(k, distances.shape[1])
    limits = np.partition(distances, k - 1, axis=1)[:, k - 1]
    order = np.empty((len(distances), k), np.intp)
    for row, (line, limit) in enumerate(zip(distances, limits, strict=True)):
        near = np.flatnonzero(line <= limit)
        order[row] = near[np.argsort(line[near], kind="stable")][:k]
    return order
