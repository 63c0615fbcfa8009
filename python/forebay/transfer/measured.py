# SPDX-License-Identifier: Apache-2.0
"""What documents of the transfer suite hold: rows of workloads and modes, sweeps, pipelines and counters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from forebay.transfer.shapes import differs

# The parts of a traced run, in the order of bars. Together they are its wall time.
TRACED = ("kernels", "copies", "allocation", "host", "calls", "unattributed")
GROUPS = ("micro", "application", "network")
_SHAPE = ("blocks", "threads", "tile", "stages")


@dataclass(frozen=True)
class Times:
    """One run, in seconds."""

    total: float
    allocation: float
    release: float
    kernels: float


@dataclass(frozen=True)
class Spread:
    """The median of some runs, and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """That of one value or more; quartiles lie on the line between neighbours."""
        low, median, high = np.percentile(values, (25, 50, 75))
        return Spread(float(median), float(low), float(high), len(values))


@dataclass(frozen=True)
class Row:
    """A workload in a mode, of a size and shape. Where it has no times, `refused` or `mismatch` says why."""

    workload: str
    mode: str
    size: str
    shape: dict[str, int]
    file: str
    refused: str = ""
    mismatch: str = ""
    cold: Times | None = None
    warm: tuple[Times, ...] = ()
    page_locking: float = 0.0
    traced: dict[str, float] | None = None
    traced_reason: str = ""
    parameter: str = ""
    value: int = 0

    @property
    def timed(self) -> bool:
        """Whether there are times, of runs whose result was right."""
        return bool(self.warm)

    @property
    def key(self) -> tuple[object, ...]:
        """What two measurements of the same thing have in common."""
        shape = tuple(self.shape.get(name) for name in _SHAPE)
        return self.workload, self.mode, self.size, shape, self.parameter, self.value

    @property
    def covered(self) -> float | None:
        """The part of the traced run that its trace explains; None without a trace."""
        return (
            None
            if not self.traced or not self.traced["total"]
            else 1 - self.traced["unattributed"] / self.traced["total"]
        )

    @property
    def traced_change(self) -> float | None:
        """What tracing changed of the total: 0.05 is 5 % more. None without a trace."""
        return None if not self.traced else self.traced["total"] / self.spread().median - 1

    def spread(self, what: str = "total") -> Spread:
        """The median and quartiles of the warm runs."""
        return Spread.of([getattr(times, what) for times in self.warm])

    def mean(self, what: str = "total") -> float:
        """The mean of the warm runs: the study's figures are means."""
        return float(np.mean([getattr(times, what) for times in self.warm]))


@dataclass(frozen=True)
class Arm:
    """A way to run a series of jobs one after the other, and how long the series took, once for each repetition."""

    arm: str
    workload: str
    size: str
    jobs: int
    allocation: str
    file: str
    refused: str = ""
    mismatch: str = ""
    seconds: tuple[float, ...] = ()
    allocation_seconds: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What two measurements of the same thing have in common."""
        return self.arm, self.workload, self.size, self.jobs, self.allocation


@dataclass(frozen=True)
class Counters:
    """Sums over the kernels of a workload in a mode, as `ncu` counted them."""

    workload: str
    mode: str
    size: str
    file: str
    sums: dict[str, float]

    @property
    def key(self) -> tuple[object, ...]:
        """What two measurements of the same thing have in common."""
        return self.workload, self.mode, self.size


@dataclass(frozen=True)
class Source:
    """A file of results: what it is, and on what it was measured."""

    file: str
    kind: str
    command: str
    gpu: str = ""
    driver: str = ""
    host: str = ""
    commit: str = ""
    rows: int = 0
    replaced: int = 0


@dataclass
class Results:
    """All that some files say. The same measurement in a later file replaces that of an earlier one."""

    rows: dict[tuple[object, ...], Row] = field(default_factory=dict)
    sweeps: dict[tuple[object, ...], Row] = field(default_factory=dict)
    arms: dict[tuple[object, ...], Arm] = field(default_factory=dict)
    counters: dict[tuple[object, ...], Counters] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # of the workloads, in the order of the study
    sizes: tuple[str, ...] = ()

    @property
    def gpu(self) -> str:
        """The GPU that all of it was measured on."""
        return next((source.gpu for source in self.sources if source.gpu), "")

    def of_group(self, group: str) -> list[str]:
        """The workloads of a group."""
        return [name for name, its in self.groups.items() if its == group]

    def matching(self, workload: str, modes: Iterable[str], size: str) -> list[Row] | None:
        """Timed rows of one launch, one for each of the modes: the study's launch if it is there. None: some lack."""
        by_shape: dict[tuple[object, ...], dict[str, Row]] = {}
        for row in self.rows.values():
            if (row.workload, row.size) == (workload, size) and row.timed:
                by_shape.setdefault(row.key[3:4], {})[row.mode] = row
        wanted = list(modes)
        whole = [[of[mode] for mode in wanted] for of in by_shape.values() if all(mode in of for mode in wanted)]
        return min(whole, key=lambda rows: bool(differs(workload, rows[0].shape)), default=None)

    def why_not(self, workload: str, mode: str, size: str) -> str:
        """Why a row has no times, if there is such a row."""
        for row in self.rows.values():
            if (row.workload, row.mode, row.size) == (workload, mode, size) and not row.timed:
                return row.refused or f"a wrong result: {row.mismatch}"
        return ""

    def swept(self, workload: str, parameter: str) -> Iterator[tuple[str, dict[str, dict[int, Row]]]]:
        """For each size, the largest first: the timed rows of a sweep by mode and value."""
        for size in reversed(self.sizes):
            found: dict[str, dict[int, Row]] = {}
            for row in self.sweeps.values():
                if (row.workload, row.parameter, row.size) == (workload, parameter, size) and row.timed:
                    found.setdefault(row.mode, {})[row.value] = row
            if found:
                yield size, found

    def launches(self, workload: str, parameter: str) -> Iterator[tuple[str, list[dict[str, dict[int, Row]]]]]:
        """As `swept`, with the rows of each launch apart that differs in more than the parameter."""
        for size in reversed(self.sizes):
            found: dict[tuple[object, ...], dict[str, dict[int, Row]]] = {}
            for row in self.sweeps.values():
                if (row.workload, row.parameter, row.size) == (workload, parameter, size) and row.timed:
                    rest = tuple(row.shape[name] for name in _SHAPE if name != parameter)
                    found.setdefault(rest, {}).setdefault(row.mode, {})[row.value] = row
            yield size, list(found.values())
