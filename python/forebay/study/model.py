# SPDX-License-Identifier: Apache-2.0
"""What bounds a program: a fit of its time over drives, and the knee, from which on a faster drive changes little.

The model is ``t = max(compute, reads / IOPS, bytes / link, chain * latency)``. Each term is a coefficient times a
demand that the drive sets: 1, the time of a command, the time of a byte on the link, the latency. The coefficients are
fitted. A term whose demand is the same at all points cannot be told from the constant, and is part of it.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

COMPUTE = "compute"
_SAME = 1e-9  # relative difference of demands that are one
_NOISE = 0.02  # a term that improves the fit by less than this is not claimed
_CANDIDATES_MAX = 24  # of a coefficient
_ROUNDS_MAX = 64


@dataclass(frozen=True)
class Term:
    """One bound of the model.

    Attributes:
        name: ``compute``, ``iops``, ``link``, ``latency``, or what else was varied.
        coefficient: What the demand is multiplied by: seconds of ``compute``, reads of ``iops``, bytes of ``link``, the
            length of the chain of ``latency``. 0 where the term bounds no point.
        at_most: The largest coefficient with which the term exceeds the time of no point.
        points: How many points it bounds.
    """

    name: str
    coefficient: float
    at_most: float
    points: int

    @property
    def found(self) -> bool:
        """Whether there are points that show it."""
        return self.points > 0


@dataclass(frozen=True)
class Knee:
    """Where a term stops to bound the program, all other demands being the least of the grid.

    Attributes:
        demand: The demand of the term there; None if the points do not show it.
        next_bound: The term that bounds the program from there on; None likewise.
        at_least: The demand is at least this, if it is not known: the term bounds no point.
        at_most: The demand is at most this, if it is not known: no other term bounds a point.
    """

    demand: float | None
    next_bound: str | None = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Model:
    """A fit.

    Attributes:
        terms: The bounds, ``compute`` first.
        seconds: What the model says for each point.
        bounds: The term that bounds each point.
        error_rms: The root of the mean squared relative difference between model and points.
        error_max: The largest relative difference.
        merged: Terms that the points cannot tell from another one, each with the name of that.
        demands: The demand of each term at each point.
    """

    terms: tuple[Term, ...]
    seconds: tuple[float, ...]
    bounds: tuple[str, ...]
    error_rms: float
    error_max: float
    merged: Mapping[str, str]
    demands: Mapping[str, tuple[float, ...]]

    def term(self, name: str) -> Term | None:
        """Finds a term.

        Args:
            name: Its name.

        Returns:
            The term; None if the demands of the points do not differ in it.
        """
        return next((term for term in self.terms if term.name == name), None)

    def predict(self, demands: Mapping[str, float]) -> tuple[float, str]:
        """Says how long the program takes on a drive.

        Args:
            demands: The demand of each term. One that is left out bounds nothing.

        Returns:
            The seconds, and the name of the term that bounds them.
        """
        times = {term.name: term.coefficient * {COMPUTE: 1.0, **demands}.get(term.name, 0.0) for term in self.terms}
        bound = max(times, key=lambda name: times[name])
        return times[bound], bound

    def knee(self, name: str) -> Knee | None:
        """Finds the knee of a term.

        Args:
            name: The term.

        Returns:
            The knee; None if the demand of the term does not vary.
        """
        term = self.term(name)
        if term is None or name == COMPUTE:
            return None
        own = self.demands[name]
        if not term.found:
            return Knee(None, at_least=max(own))
        others = {
            other.name: other.coefficient * min(self.demands[other.name])
            for other in self.terms
            if other.found and other.name != name
        }
        if not others:
            return Knee(None, at_most=min(own))
        following = max(others, key=lambda other: others[other])
        return Knee(others[following] / term.coefficient, following)

    def figures(self) -> dict[str, Any]:
        """Returns it as a dictionary for a JSON document."""
        return {
            "terms": {
                term.name: {
                    "coefficient": term.coefficient if term.found else None,
                    "at_most": term.at_most if math.isfinite(term.at_most) else None,
                    "points": term.points,
                }
                for term in self.terms
            },
            "merged": dict(self.merged),
            "error_rms": self.error_rms,
            "error_max": self.error_max,
        }


def fit(seconds: Sequence[float], demands: Mapping[str, Sequence[float]]) -> Model:
    """Fits the model to points.

    The fit is exact for points that follow the model. For others it has the least squares of the logarithms that a
    search from many starts finds, with as few terms as explain the points within 2 %.

    Args:
        seconds: The time of each point, above 0.
        demands: For each term but ``compute`` its demand at each point, 0 for none.

    Returns:
        The fit.
    """
    time = np.asarray(seconds, np.float64)
    columns: dict[str, Array] = {COMPUTE: np.ones(len(time))}
    merged: dict[str, str] = {}
    for name, values in demands.items():
        column = np.asarray(values, np.float64)
        same = next((known for known, other in columns.items() if _proportional(column, other)), None)
        if same is None:
            columns[name] = column
        elif column.any():
            merged[name] = same
    names = list(columns)
    matrix = np.stack([columns[name] for name in names], 1)
    chosen = _least_terms(time, matrix)
    times = matrix * chosen
    bounds = times.argmax(1)
    modelled = times[np.arange(len(time)), bounds]
    with np.errstate(divide="ignore"):
        at_most = np.where(matrix > 0, time[:, None] / matrix, np.inf).min(0)
    terms = tuple(
        Term(name, float(chosen[k]), float(at_most[k]), int((bounds == k).sum())) for k, name in enumerate(names)
    )
    error = modelled / time - 1
    return Model(
        terms,
        tuple(modelled.tolist()),
        tuple(names[k] for k in bounds),
        float(np.sqrt((error**2).mean())),
        float(np.abs(error).max()),
        merged,
        {name: tuple(column.tolist()) for name, column in columns.items()},
    )


def _proportional(a: Array, b: Array) -> bool:
    """Whether two demands differ by a factor only, so that no points tell them apart."""
    if not a.any():
        return True
    if ((a > 0) != (b > 0)).any():
        return False
    ratio = a[b > 0] / b[b > 0]
    return bool(ratio.max() - ratio.min() <= _SAME * ratio.max())


def _least_terms(time: Array, matrix: Array) -> Array:
    """The coefficients of the fewest terms that explain the points about as well as all terms do; 0 for the others."""
    count = matrix.shape[1]
    best: dict[int, tuple[float, Array]] = {}
    for size in range(1, count + 1):
        for subset in itertools.combinations(range(count), size):
            used = list(subset)
            if not (matrix[:, used] > 0).any(1).all():  # a point that nothing bounds
                continue
            loss, coefficients = _fit_terms(time, matrix[:, used])
            whole = np.zeros(count)
            whole[used] = coefficients
            if size not in best or loss < best[size][0]:
                best[size] = loss, whole
    least = min(loss for loss, _ in best.values())
    return next(whole for _, (loss, whole) in sorted(best.items()) if loss <= least + _NOISE)


def _fit_terms(time: Array, matrix: Array) -> tuple[float, Array]:
    """The least loss that is found with these terms, and its coefficients."""
    with np.errstate(divide="ignore"):
        alone = np.where(matrix > 0, time[:, None] / matrix, np.inf)  # the coefficient with which a term is the point
    start = alone.min(0)  # exact if the points follow the model
    best = _refine(time, matrix, start)
    for k in range(matrix.shape[1]):
        finite = np.unique(alone[np.isfinite(alone[:, k]), k])
        picked = np.unique(np.linspace(0, len(finite) - 1, min(len(finite), _CANDIDATES_MAX)).round().astype(int))
        for candidate in finite[picked]:
            other = best[1].copy()
            other[k] = candidate
            best = min(best, _refine(time, matrix, other), key=lambda found: found[0])
    return best


def _refine(time: Array, matrix: Array, coefficients: Array) -> tuple[float, Array]:
    """Gives each point to the term that bounds it, and fits each term to its points, until nothing changes."""
    logs = np.log(time)
    best = math.inf, coefficients
    before = None
    for _ in range(_ROUNDS_MAX):
        times = matrix * coefficients
        bounds = times.argmax(1)
        modelled = times[np.arange(len(time)), bounds]
        if not (modelled > 0).all():
            break
        loss = float(np.sqrt(((np.log(modelled) - logs) ** 2).mean()))
        if loss < best[0]:
            best = loss, coefficients
        if before is not None and (bounds == before).all():
            break
        before = bounds
        coefficients = coefficients.copy()
        for k in np.unique(bounds):
            mine = bounds == k
            coefficients[k] = math.exp((logs[mine] - np.log(matrix[mine, k])).mean())
    return best
