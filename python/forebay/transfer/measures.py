# SPDX-License-Identifier: Apache-2.0
"""What claims are held against: figures that are computed from results, each the ratio of two times or counts.

A measure is a small object that says in `words` what it computes, and in `needs` of which measurements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from forebay.transfer.measured import Arm, Results, Row
from forebay.transfer.runs import STUDY_MODES
from forebay.transfer.shapes import METRICS, PUBLISHED_SHAPES, Need, differs

STANDARD = "standard"
LARGEST = ("mega", "super")  # the sizes of the study, of gigabytes
_LEAST_COPIES = 1e-9  # seconds
_KIB = 1024
_FLOAT_BYTES = 4


class NotMeasuredError(Exception):
    """Measurements lack: why, and which."""

    def __init__(self, why: str, needs: Sequence[Need]) -> None:
        """Keeps both."""
        super().__init__(why)
        self.why = why
        self.needs = tuple(needs)


@dataclass(frozen=True)
class Measurement:
    """A figure, and what is to be said about how it came about."""

    ratio: float
    remarks: tuple[str, ...] = ()


class Measure(Protocol):
    """Computes a figure from results."""

    @property
    def words(self) -> str:
        """What it computes."""

    def needs(self, results: Results) -> list[Need]:
        """The measurements that it is computed from."""

    def __call__(self, results: Results) -> Measurement:
        """The figure. Throws NotMeasuredError."""


def seconds(row: Row, what: str) -> float:
    """A time of a row: `total`, `kernels`, `copies` (traced), or `locked`, the total with page-locking.

    `rate` is no time, but that of kernels: one over their time, as all modes read the same bytes.
    """
    if what == "copies":
        return (row.traced or {}).get("copies", 0.0)
    if what == "rate":
        return 1 / row.mean("kernels")
    if what == "locked":
        return row.mean("total") + row.page_locking
    return row.mean(what)


_WORDS = {
    "total": "total time",
    "kernels": "time of the kernels",
    "copies": "time of the copies, from traced runs",
    "locked": "total time with page-locking",
    "rate": "rate of the kernels (one over their time)",
}


@dataclass(frozen=True)
class OverStandard:
    """The mean over workloads of the time in a mode over that in `standard`. `of` is a group, or names of workloads."""

    of: str | tuple[str, ...]
    mode: str
    sizes: tuple[str, ...]
    what: str = "total"
    published_at: str = ""  # the size, where the study says it
    asked: str = ""  # the size to measure if there is none; the last of them by default

    @property
    def words(self) -> str:
        """What it computes."""
        of = f"the mean over all workloads of the group {self.of} of" if isinstance(self.of, str) else ""
        sizes = " or else ".join(self.sizes)
        which = f" of {', '.join(self.of)}" if not isinstance(self.of, str) else ""
        return f"{of} the {_WORDS[self.what]}{which} in mode {self.mode} over that in {STANDARD}, at {sizes}".strip()

    def workloads(self, results: Results) -> list[str]:
        """The workloads by name. `micro` and the like are groups; `*_training` ends names."""
        if not isinstance(self.of, str):
            return list(self.of)
        if self.of in ("inference", "training"):
            return [name for name in results.of_group("network") if name.endswith(f"_{self.of}")]
        return results.of_group(self.of)

    def needs(self, results: Results) -> list[Need]:
        """The measurements that it is computed from."""
        size = self.asked or self.sizes[-1]
        return [Need("run", name, mode, size) for name in self.workloads(results) for mode in (STANDARD, self.mode)]

    def __call__(self, results: Results) -> Measurement:
        """The figure. Throws NotMeasuredError."""
        untraced: list[str] = []
        for size in self.sizes:
            found = [results.matching(name, (STANDARD, self.mode), size) for name in self.workloads(results)]
            pairs = [pair for pair in found if pair is not None]
            if len(pairs) == len(found):
                if why := self._untraced(pairs):
                    untraced.append(why)
                    continue
                ratios = [seconds(changed, self.what) / seconds(usual, self.what) for usual, changed in pairs]
                return Measurement(float(np.mean(ratios)), self._remarks(size, pairs))
        if untraced:
            raise NotMeasuredError(untraced[0], self.needs(results))
        raise NotMeasuredError(self._why(results), self._lacking(results))

    def _untraced(self, pairs: Sequence[Sequence[Row]]) -> str:
        """Why traces do not have the figure; empty if they do, or if it is none of traces."""
        for row in (row for pair in pairs for row in pair if self.what == "copies"):
            if row.traced is None:
                why = f"no traced run of {row.workload} in mode {row.mode}"
                return f"{why}: {row.traced_reason}" if row.traced_reason else why
            if row.traced["copies"] < _LEAST_COPIES:
                return f"the trace of {row.workload} has no copies"
        return ""

    def _remarks(self, size: str, pairs: Sequence[Sequence[Row]]) -> tuple[str, ...]:
        said = [f"at {size}"] if len(self.sizes) > 1 else []
        if self.published_at not in ("", size):
            said = [f"at {size}, where the study has {self.published_at}"]
        return (*said, *_shapes([row for pair in pairs for row in pair]))

    def _lacking(self, results: Results) -> list[Need]:
        return [
            need for need in self.needs(results) if results.matching(need.workload, (need.mode,), need.size) is None
        ]

    def _why(self, results: Results) -> str:
        size = self.asked or self.sizes[-1]
        for need in self.needs(results):
            if why := results.why_not(need.workload, need.mode, size):
                return f"{need.workload} in mode {need.mode} at {size}: {why}"
        lacking = self._lacking(results)
        if not lacking:  # each is there, but no two of one launch
            return "the modes were measured with different launches"
        return f"no row at {size} of {_listed([f'{need.workload} in mode {need.mode}' for need in lacking])}"


@dataclass(frozen=True)
class BestSpeedup:
    """The best of all modes and workloads over `standard`. With `share` the part of that time that is not kernels."""

    share: bool = False

    @property
    def words(self) -> str:
        """What it computes."""
        best = "the best total time of any workload in any mode"
        if self.share:
            return f"of that workload, the part of its time in {STANDARD} in which no kernel runs"
        return f"the total time in {STANDARD} over {best} of the study, among {' and '.join(reversed(LARGEST))}"

    def needs(self, results: Results) -> list[Need]:
        """The measurements that it is computed from."""
        return [Need("run", name, mode, LARGEST[-1]) for name in results.of_group("micro") for mode in STUDY_MODES]

    def __call__(self, results: Results) -> Measurement:
        """The figure. Throws NotMeasuredError."""
        lacking = [
            need for need in self.needs(results) if results.matching(need.workload, (need.mode,), need.size) is None
        ]
        if lacking:
            named = _listed([f"{need.workload} in mode {need.mode}" for need in lacking])
            raise NotMeasuredError(f"no row at {LARGEST[-1]} of {named}", lacking)
        ratio, usual, best = max(self._speedups(results), key=lambda one: one[0])
        if self.share:
            return Measurement(1 - usual.mean("kernels") / usual.mean("total"), ())
        return Measurement(ratio, (f"{best.workload} in mode {best.mode} at {best.size}", *_shapes([best])))

    def _speedups(self, results: Results) -> Iterator[tuple[float, Row, Row]]:
        rows = [row for row in results.rows.values() if row.timed and row.size in LARGEST]
        usual = {(row.workload, *row.key[2:4]): row for row in rows if row.mode == STANDARD}
        for row in (row for row in rows if row.mode in STUDY_MODES):
            if before := usual.get((row.workload, *row.key[2:4])):
                yield before.mean("total") / row.mean("total"), before, row


@dataclass(frozen=True)
class Swept:
    """A ratio of times within a sweep of vector_seq: at `value` over at `base`, or in `mode` over in `standard`.

    Values of tiles are KiB of shared memory of a block. With `spread` the greatest time over the least. What is swept
    changes kernels alone, so a total is that of its kernels and the mean of all else in the sweep: pageable copies
    drift by more than kernels take.
    """

    parameter: str
    what: str
    mode: str = STANDARD
    value: int = 0
    base: int = 0
    over_standard: bool = False
    spread: bool = False
    workload: str = "vector_seq"

    FIXED: ClassVar = {"blocks": {"threads": 256}, "threads": {"blocks": 256}, "tile": {"blocks": 4096, "threads": 256}}
    SIZE: ClassVar = "large"
    VALUES: ClassVar = {
        "blocks": (4096, 2048, 1024, 512, 256, 128, 64, 32, 16),
        "threads": (32, 64, 128, 256, 512, 1024),
        "tile": (256, 512, 1024, 2048, 4096, 8192, 16384),
    }

    @property
    def words(self) -> str:
        """What it computes."""
        time = f"the {_WORDS[self.what]} of {self.workload} in mode {self.mode}"
        if self.what == "total":
            time = f"{time} (its kernels, and the mean of all else in the sweep)"
        fixed = " and ".join(
            f"a tile of {number}" if name == "tile" else f"{number} {name}" for name, number in self._fixed.items()
        )
        if self.spread:
            return f"{time}: the greatest over the least, of 4096 to 16 blocks with {fixed}"
        unit = "KiB of shared memory a block" if self.parameter == "tile" else self.parameter
        if self.over_standard and self.base:
            return f"{time} over that in {STANDARD}, at {self.value} {unit} over at {self.base}, with {fixed}"
        if self.over_standard:
            return f"{time} over that in {STANDARD}, at {self.value} {unit} with {fixed}"
        return f"{time}, at {self.value} {unit} over at {self.base}, with {fixed}"

    @property
    def _fixed(self) -> dict[str, int]:
        """The rest of the launch, as the study has it."""
        shape = {**PUBLISHED_SHAPES.get(self.workload, {}), **self.FIXED[self.parameter]}
        return {name: number for name, number in shape.items() if name != self.parameter}

    @property
    def _modes(self) -> list[str]:
        return list(dict.fromkeys([STANDARD, self.mode] if self.over_standard else [self.mode]))

    def needs(self, results: Results) -> list[Need]:
        """The measurements that it is computed from."""
        del results
        fixed, values = tuple(self._fixed.items()), self.VALUES[self.parameter]
        return [Need("sweep", self.workload, mode, self.SIZE, self.parameter, values, fixed) for mode in self._modes]

    def __call__(self, results: Results) -> Measurement:
        """The figure, of the study's launch if it is there. Throws NotMeasuredError."""
        for size, launches in results.launches(self.workload, self.parameter):
            rows = [{mode: self._shown(launch.get(mode, {})) for mode in self._modes} for launch in launches]
            enough = [(_shapes([row for of in found.values() for row in of.values()]), found) for found in rows]
            enough = [one for one in enough if self._suffices(one[1])]
            if enough:
                remarks, found = min(enough, key=lambda one: len(one[0]))
                at = f"at {size}" if size == self.SIZE else f"at {size}, where the study has {self.SIZE}"
                times = {mode: self._times(of) for mode, of in found.items()}
                return Measurement(self._ratio(times), (at, *remarks, *self._drift(found[self.mode])))
        why = f"no sweep of {self.parameter} of {self.workload} with these values"
        raise NotMeasuredError(why, self.needs(results))

    def _shown(self, rows: dict[int, Row]) -> dict[int, Row]:
        """The rows of the study's values, with the rest of the launch that belongs to them, by what is shown."""
        fixed = self.FIXED[self.parameter]
        found = {}
        for value, row in rows.items():
            if all(row.shape[name] == number for name, number in fixed.items()):
                shown = value * row.shape["stages"] * _FLOAT_BYTES // _KIB if self.parameter == "tile" else value
                if not self.spread or shown in self.VALUES[self.parameter]:
                    found[shown] = row
        return found

    def _suffices(self, found: dict[str, dict[int, Row]]) -> bool:
        wanted = (16, 4096) if self.spread else [value for value in (self.value, self.base) if value]
        return all(value in found[mode] for mode in self._modes for value in wanted)

    def _times(self, rows: dict[int, Row]) -> dict[int, float]:
        if self.what != "total":
            return {value: seconds(row, self.what) for value, row in rows.items()}
        rest = float(np.mean([_all_but_kernels(row) for row in rows.values()]))
        return {value: row.mean("kernels") + rest for value, row in rows.items()}

    def _drift(self, rows: dict[int, Row]) -> tuple[str, ...]:
        """How much of a total changes though what is swept does not change it."""
        if self.what != "total":
            return ()
        found = [1e3 * _all_but_kernels(row) for row in rows.values()]
        return (f"outside kernels in {self.mode}: {min(found):,.0f} to {max(found):,.0f} ms",)

    def _ratio(self, times: dict[str, dict[int, float]]) -> float:
        mine = times[self.mode]
        if self.spread:
            return max(mine.values()) / min(mine.values())
        if self.over_standard:
            at = mine[self.value] / times[STANDARD][self.value]
            return at / (mine[self.base] / times[STANDARD][self.base]) if self.base else at
        return mine[self.value] / mine[self.base]


@dataclass(frozen=True)
class JobsSpeedup:
    """How much faster a series of jobs is if the next one's memory is allocated while one runs: the best there is."""

    tiny: bool = False
    base: str = "malloc"
    arm: str = "pool_side_stream"

    @property
    def words(self) -> str:
        """What it computes."""
        sizes = "at tiny" if self.tiny else "the best of any workload and size but tiny"
        return f"the median time of the arm {self.base} over that of {self.arm}, {sizes}"

    def needs(self, results: Results) -> list[Need]:
        """The measurements that it is computed from."""
        del results
        return [Need("pipeline", "vector_seq", "", "tiny" if self.tiny else "large")]

    def __call__(self, results: Results) -> Measurement:
        """The figure. Throws NotMeasuredError."""
        by_series: dict[tuple[object, ...], dict[str, Arm]] = {}
        for arm in results.arms.values():
            if arm.seconds and (arm.size == "tiny") == self.tiny:
                by_series.setdefault(arm.key[1:], {})[arm.arm] = arm
        found = [
            (float(np.median(arms[self.base].seconds) / np.median(arms[self.arm].seconds)), arms[self.arm])
            for arms in by_series.values()
            if self.base in arms and self.arm in arms
        ]
        if not found:
            size = "tiny" if self.tiny else "a size but tiny"
            raise NotMeasuredError(f"no pipeline of {size} with {self.base} and {self.arm}", self.needs(results))
        ratio, best = max(found, key=lambda one: one[0])
        return Measurement(ratio, (f"{best.workload} at {best.size}, {best.jobs} jobs",))


@dataclass(frozen=True)
class Counted:
    """A counter of `ncu` in a mode over that in `standard`: the mean over workloads. `rate` is a count over time."""

    counter: str
    of: tuple[str, ...]  # none: the micro workloads
    mode: str = "async"
    rate: bool = False

    @property
    def words(self) -> str:
        """What it computes."""
        of = ", ".join(self.of) or "the micro workloads, their mean,"
        what = f"{METRICS[self.counter]} over {METRICS['time']}" if self.rate else METRICS[self.counter]
        return f"{what} of {of} in mode {self.mode} over that in {STANDARD}"

    def needs(self, results: Results) -> list[Need]:
        """The measurements that it is computed from."""
        names = self.of or tuple(results.of_group("micro"))
        return [Need("ncu", name, mode, "large") for name in names for mode in (STANDARD, self.mode)]

    def __call__(self, results: Results) -> Measurement:
        """The figure. Throws NotMeasuredError."""
        for size in reversed(results.sizes):
            ratios = [self._of(results, name, size) for name in self.of or results.of_group("micro")]
            found = [ratio for ratio in ratios if ratio is not None]
            if len(found) == len(ratios):
                return Measurement(float(np.mean(found)), (f"at {size}",))
        raise NotMeasuredError("no counters of ncu", self.needs(results))

    def _of(self, results: Results, name: str, size: str) -> float | None:
        values = []
        for mode in (self.mode, STANDARD):
            counted = results.counters.get((name, mode, size))
            sums = counted.sums if counted else {}
            value, time = sums.get(METRICS[self.counter], 0.0), sums.get(METRICS["time"], 0.0)
            values.append(value / time if self.rate and time else 0.0 if self.rate else value)
        return values[0] / values[1] if all(values) else None


def _all_but_kernels(row: Row) -> float:
    return max(row.mean("total") - row.mean("kernels"), 0.0)


def _shapes(rows: Sequence[Row]) -> tuple[str, ...]:
    found = dict.fromkeys(
        differs(row.workload, row.shape, row.parameter) for row in rows if row.workload in PUBLISHED_SHAPES
    )
    other = [one for one in found if one]
    return (f"not the study's launch: {'; '.join(other)}",) if other else ()


def _listed(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
