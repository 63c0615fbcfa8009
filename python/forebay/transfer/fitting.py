# SPDX-License-Identifier: Apache-2.0
"""The constants of the cost model, fitted to what a machine was measured to do."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._native import transfer_core
from forebay.documents import read_json
from forebay.errors import RefusedInput
from forebay.transfer.cost_model import (
    IN_PLACE,
    OVER_THE_LINK,
    PLAIN,
    Constants,
    StageChange,
    allocation_of,
    allocation_terms,
    fault_terms,
    kernel_terms,
    link_stage_terms,
    locking_terms,
    movement_terms,
    stage_terms,
    unhidden,
)
from forebay.transfer.profile import Profile, profile_of_workload
from forebay.transfer.runs import check_named, is_result, is_seconds, mode_parts, names, sizes, usual_name

_ROUNDS = 8
_USES_PER_FEATURE = 3
_LEAST_GAIN = 1e-12
_TINY = 1e-300
_LEAST_SECONDS = 1e-7
_FAULT_ROUNDS = 3
_CACHE_BYTES = (0.0, 4e6, 8e6, 16e6, 32e6, 64e6)
_HELP = "name a document that `forebay transfer run --device cuda:0 --json FILE` wrote"


@dataclass(frozen=True)
class Measured:
    """What a mode took for a workload: medians over its warm runs, in seconds."""

    workload: str
    size: str
    mode: str
    profile: Profile
    total: float
    allocation: float
    kernels: float
    locking: float

    @property
    def parts(self) -> tuple[str, str, str]:
        """Transfer, allocation and stage."""
        return mode_parts(self.mode)

    @property
    def problem(self) -> tuple[str, str]:
        """What other modes had to do, too."""
        return self.workload, self.size


def read_measured(field: str, *paths: Path) -> list[Measured]:
    """The timed and verified results of documents of `forebay transfer run`, all of one GPU.

    Raises:
        RefusedInput: One is no such document, has no times of a GPU, or is of another GPU than those before it.
    """
    rows: list[Measured] = []
    known = ""
    for path in paths:
        gpu, found = _read(field, path)
        if gpu and known and gpu != known:
            why = f"was measured on {gpu}, and the documents before it on {known}: constants are of one GPU"
            raise RefusedInput(field, path, f"{why}; name documents of the same")
        known = known or gpu
        rows += found
    return rows


def _read(field: str, path: Path) -> tuple[str, list[Measured]]:
    """The name of the GPU, where a document has it, and its results."""
    document = read_json(field, path, _HELP)
    results = document.get("results") if isinstance(document, dict) else None
    if not (isinstance(results, list) and all(map(is_result, results))):
        raise RefusedInput(field, path, f"is no document of `forebay transfer run`; {_HELP}")
    options = document.get("options")
    options = options if isinstance(options, dict) else {}
    if "parameter" in options:
        raise RefusedInput(field, path, f"is a sweep, which has launches that no other program has; {_HELP}")
    found = [_measured(field, path, result) for result in results if result["verified"] and result.get("warm")]
    if not found:
        raise RefusedInput(field, path, f"has no times of a GPU; {_HELP}")
    gpu = options.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    return name if isinstance(name, str) else "", found


def _measured(field: str, path: Path, result: Mapping[str, Any]) -> Measured:
    core, parts, locking = transfer_core(), mode_parts(result["mode"]), result.get("page_locking_seconds")
    known = result["mode"].count("/") < len(parts) and all(
        part in known for part, known in zip(parts, (core.TRANSFERS, core.ALLOCATIONS, core.STAGES), strict=True)
    )
    shape = result.get("shape")
    is_shape = isinstance(shape, dict) and all(type(value) is int and 0 <= value < 2**32 for value in shape.values())
    if not (known and is_shape and is_seconds(locking)):
        raise RefusedInput(field, path, f"has a result without a known mode, a shape or page_locking_seconds; {_HELP}")
    try:
        check_named("workload", result["workload"], names())
        check_named("size", result["size"], sizes())
        profile = profile_of_workload(result["workload"], result["size"], shape)
    except RefusedInput as refused:
        raise RefusedInput(field, path, f"has a result that this build does not: {refused}; {_HELP}") from None
    if not all(times[part] >= _LEAST_SECONDS for times in result["warm"] for part in ("total", "kernels")):
        about = f"of less than 100 ns for {result['workload']}"
        raise RefusedInput(field, path, f"has a total or a time of kernels {about}; {_HELP}")
    median = {
        part: statistics.median(times[part] for times in result["warm"])
        for part in ("total", "allocation", "release", "kernels")
    }
    return Measured(
        workload=result["workload"],
        size=result["size"],
        mode=usual_name(result["mode"]),
        profile=profile,
        total=median["total"],
        allocation=median["allocation"] + median["release"],
        kernels=median["kernels"],
        locking=float(locking),
    )


def fit(rows: Sequence[Measured]) -> Constants:
    """The constants with which the model comes nearest to the rows, by the sum of relative errors.

    Raises:
        RefusedInput: The rows lack what the model compares with: a mode that copies, with the stage policy plain.
    """
    copied = [row for row in rows if row.parts[0] not in IN_PLACE]
    if not _suffices(rows):
        remedy = f"have no results of a mode that copies and has the stage policy plain, such as standard; {_HELP}"
        raise RefusedInput("--results", "the documents", remedy)
    movement, cache_bytes = _movement(rows)
    return Constants(
        allocation=_allocation(rows),
        movement=movement,
        cache_bytes=cache_bytes,
        kernels=_kernels(copied),
        stages=_stages(copied, lambda row: row.kernels, stage_terms),
        link_stages=_stages(
            [row for row in rows if row.parts[0] in OVER_THE_LINK],
            lambda row: row.total - row.allocation,
            link_stage_terms,
        ),
        locking=_locking(rows),
    )


def typical_error(rows: Sequence[Measured], runs: int) -> float | None:
    """How far off the model is for a workload that it was not fitted to.

    For each workload constants are fitted to all others. The error is the median of how far the model then is from the
    totals of its rows, as a share of these. Rows of modes that these constants do not cover are left out.

    Args:
        rows: Of some workloads.
        runs: How many runs share the time to page-lock the host's buffers, which totals contain here.

    Returns:
        0.1 if the model is off by at most a tenth for half of the rows. None if no row is left, as with one workload.
    """
    errors: list[float] = []
    for workload in dict.fromkeys(row.workload for row in rows):
        others = [row for row in rows if row.workload != workload]
        if not _suffices(others):
            continue
        constants = fit(others)
        covered = set(constants.modes())
        for row in (row for row in rows if row.workload == workload and row.mode in covered):
            measured = row.total + row.locking / runs
            errors.append(abs(constants.seconds(row.profile, row.mode, runs) - measured) / measured)
    return statistics.median(errors) if errors else None


def _suffices(rows: Sequence[Measured]) -> bool:
    return any(row.parts[0] not in IN_PLACE and row.parts[2] == PLAIN for row in rows)


def _grouped(rows: Iterable[Measured], kind_of: Callable[[Measured], str]) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for row in rows:
        groups.setdefault(kind_of(row), []).append(row)
    return groups


def _allocation(rows: Sequence[Measured]) -> dict[str, tuple[float, ...]]:
    return {
        kind: _line([allocation_terms(row.profile, row.parts[0]) for row in some], [row.allocation for row in some])
        for kind, some in _grouped(rows, lambda row: allocation_of(*row.parts[:2])).items()
    }


@dataclass(frozen=True)
class _Moved:
    """What a run took beyond allocation, and beyond kernels on the device's own memory."""

    row: Measured
    seconds: float
    kernels: float


def _movement(rows: Sequence[Measured]) -> tuple[dict[str, tuple[float, ...]], float]:
    """The constants of each way of transfer, with the size of caches for which those of copies come nearest."""
    on_device: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if row.parts[0] not in IN_PLACE:
            key = (*row.problem, row.parts[2])
            on_device[key] = min(row.kernels, on_device.get(key, row.kernels))
    moved: dict[str, list[_Moved]] = {}
    for row in rows:
        kernels = on_device.get((*row.problem, row.parts[2]))
        # What another policy changes over the link is a share of all.
        is_plain = row.parts[0] not in OVER_THE_LINK or row.parts[2] == PLAIN
        if kernels is not None and is_plain:
            one = _Moved(row, row.total - row.allocation - kernels, kernels)
            moved.setdefault(row.parts[0], []).append(one)
    copies = [some for transfer, some in moved.items() if transfer not in IN_PLACE]
    cache_bytes = min(_CACHE_BYTES, key=lambda size: sum(_moved_line(some, size)[1] for some in copies))
    return {transfer: _moved_line(some, cache_bytes)[0] for transfer, some in moved.items()}, cache_bytes


def _moved_line(moved: Sequence[_Moved], cache_bytes: float) -> tuple[tuple[float, ...], float]:
    """The constants of a way of transfer, and the error that is left. What hides faults depends on what they cost."""
    transfer = moved[0].row.parts[0]
    faults = [fault_terms(one.row.profile, transfer) for one in moved]
    shares, constants = [1.0] * len(moved), ()
    for _ in range(_FAULT_ROUNDS if any(fresh for _, fresh in faults) else 1):
        terms = [
            (*movement_terms(one.row.profile, transfer, cache_bytes), once, fresh * share)
            for one, (once, fresh), share in zip(moved, faults, shares, strict=True)
        ]
        totals = [one.row.total for one in moved]
        constants = _line(terms, [one.seconds for one in moved], totals)
        shares = [unhidden(constants[-1] * fresh, one.kernels) for one, (_, fresh) in zip(moved, faults, strict=True)]
    found = np.array(terms) @ np.array(constants)
    return constants, sum(
        abs(value - one.seconds) / one.row.total for value, one in zip(found.tolist(), moved, strict=True)
    )


def _kernels(copied: Sequence[Measured]) -> tuple[float, ...]:
    plain = [row for row in copied if row.parts[2] == PLAIN]
    return _line([kernel_terms(row.profile) for row in plain], [row.kernels for row in plain])


def _stages(
    copied: Sequence[Measured],
    seconds_of: Callable[[Measured], float],
    terms_of: Callable[[Profile], tuple[float, ...]],
) -> dict[str, StageChange]:
    """Of each other policy: by what share of some time it changes that time."""
    plain = {(*row.problem, row.parts[0], row.parts[1]): seconds_of(row) for row in copied if row.parts[2] == PLAIN}
    stages = {}
    for stage, some in _grouped(copied, lambda row: row.parts[2]).items():
        pairs = [(row, plain.get((*row.problem, row.parts[0], row.parts[1]))) for row in some]
        known = [(row, before) for row, before in pairs if before and row.profile.staged_bytes]
        if stage != PLAIN and known:
            terms = np.array([terms_of(row.profile) for row, _ in known])
            changes = np.array([seconds_of(row) / before - 1 for row, before in known])
            found = _least_absolute(terms, changes, _solved)
            stages[stage] = StageChange(tuple(found.tolist()), float(changes.min()), float(changes.max()))
    return stages


def _locking(rows: Sequence[Measured]) -> tuple[float, ...] | None:
    locked = [row for row in rows if row.locking > 0]
    return (
        _line([locking_terms(row.profile, row.parts[0]) for row in locked], [row.locking for row in locked])
        if locked
        else None
    )


def _line(
    terms: Sequence[tuple[float, ...]], seconds: Sequence[float], of: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Constants, none negative, whose sums come near to some durations, by the sum of errors relative to `of`."""
    features, targets = np.array(terms, float), np.array(seconds, float)
    relative_to = np.maximum(np.array(seconds if of is None else of, float), _LEAST_SECONDS)
    scale = np.where(features.any(axis=0), features.max(axis=0), 1.0)
    weighted = features / scale / relative_to[:, None]
    found = _least_absolute(weighted, targets / relative_to, _nonnegative) / scale
    return tuple(found.tolist())


Array = NDArray[np.float64]


def _least_absolute(features: Array, targets: Array, solve: Any) -> Array:  # noqa: ANN401 (one of the two below)
    """The solution with the least sum of absolute errors, by squares of which large ones count ever less."""
    weights = np.ones(len(targets))
    solution = solve(features, targets)
    for _ in range(_ROUNDS):
        errors = np.abs(features @ solution - targets)
        weights = 1 / np.sqrt(np.maximum(errors, 1e-3))
        solution = solve(features * weights[:, None], targets * weights)
    return solution


def _solved(features: Array, targets: Array) -> Array:
    return np.linalg.lstsq(features, targets, rcond=None)[0]


def _nonnegative(features: Array, targets: Array) -> Array:
    """The least squares of all solutions without a negative member, by the method of Lawson and Hanson.

    A feature is used if it lessens the error, and no longer once its member would be negative.
    """
    gram, right = features.T @ features, features.T @ targets
    solution, used = np.zeros(len(right)), np.zeros(len(right), bool)
    for _ in range(_USES_PER_FEATURE * len(right)):
        gains = np.where(used, 0.0, right - gram @ solution)
        if gains.max() <= _LEAST_GAIN * np.abs(right).max():
            break
        used[gains.argmax()] = True
        while True:
            trial = np.zeros(len(right))
            trial[used] = _solved(gram[np.ix_(used, used)], right[used])
            negative = used & (trial <= 0)
            if not negative.any():
                solution = trial
                break
            step = (solution[negative] / np.maximum(solution[negative] - trial[negative], _TINY)).min()
            solution = solution + step * (trial - solution)
            used &= solution > _TINY
            solution[~used] = 0.0
    return solution
