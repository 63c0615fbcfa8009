# SPDX-License-Identifier: Apache-2.0
"""Sweeps: one member of the launch shape takes one value after another, and all else stays."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from forebay._native import transfer_core
from forebay.errors import RefusedInput
from forebay.transfer.runs import RUN_KEY, Plan, check_named, document, run_one

SWEEP_KEY = (*RUN_KEY, "value")
"""What tells the results of a sweep from each other."""
PARAMETERS = ("blocks", "threads", "tile", "stages")
# The sensitivity study that the suite repeats, of vector_seq: what it varied, and what the rest of the shape was.
STUDY_WORKLOAD = "vector_seq"
_STUDY_VALUES = {
    "blocks": (4096, 2048, 1024, 512, 256, 128, 64, 32, 16),
    "threads": (32, 64, 128, 256, 512, 1024),
    "stages": (1, 2, 3, 4, 5, 6, 7, 8),
}
_STUDY_SHAPES = {"blocks": {"threads": 256}, "threads": {"blocks": 256}, "tile": {"blocks": 4096, "threads": 256}}
_STUDY_SHARED_KIB = (2, 4, 8, 16, 32, 64, 128)
_TILE_UNIT, _TILE_UNIT_BYTES = "floats", 4


@dataclass(frozen=True)
class Sweep:
    """A plan whose shape lacks `parameter`, which takes each of `values`. Without values they are the study's."""

    plan: Plan
    parameter: str
    given_values: tuple[int, ...] = ()
    fixed: Plan = field(init=False)

    def __post_init__(self) -> None:
        """Adds the study's shape to what the plan leaves open."""
        shape = {**_STUDY_SHAPES.get(self.parameter, {}), **self.plan.shape}
        object.__setattr__(self, "fixed", replace(self.plan, shape=shape))

    @property
    def values(self) -> tuple[int, ...]:
        """What the parameter is set to, in this order.

        Raises:
            RefusedInput: The study's values are those of other tiles than the workload's.
        """
        if self.given_values:
            return self.given_values
        if self.parameter != "tile":
            return _STUDY_VALUES[self.parameter]
        units = {facts["name"]: facts["tile_unit"] for facts in transfer_core().workloads()}
        for name in self.fixed.chosen:
            if units[name] != _TILE_UNIT:
                remedy = f"the tile of {name} counts {units[name]}, of which the study has no values: give --values"
                raise RefusedInput("--parameter", self.parameter, remedy)
        stages = max(self.fixed.workload(name).shape()["stages"] for name in self.fixed.chosen)
        return tuple(kib * 1024 // (_TILE_UNIT_BYTES * stages) for kib in _STUDY_SHARED_KIB)

    def validate(self) -> None:
        """Refuses what no device can do, and a value that a workload cannot take, before anything runs."""
        if self.parameter in self.plan.shape:
            remedy = "is what --parameter varies: leave it out, or vary another"
            raise RefusedInput(f"--{self.parameter}", self.plan.shape[self.parameter], remedy)
        check_named("--parameter", self.parameter, PARAMETERS)
        replace(self.plan, shape={}).validate()  # all but the shape, of which only the whole need fit
        for at, value in enumerate(self.values):
            if value in self.values[:at]:
                raise RefusedInput("--values", value, "is there twice: give each value once")
            try:
                self.at(value).validate()
            except RefusedInput as refused:
                if refused.field != f"--{self.parameter}":
                    raise
                found = "" if refused.value == str(value) else f"{refused.value}: "
                raise RefusedInput("--values", value, f"{found}{refused.remedy}") from None

    def at(self, value: int) -> Plan:
        """The plan with the parameter at a value."""
        return replace(self.fixed, shape={**self.fixed.shape, self.parameter: value})

    def options(self) -> dict[str, Any]:
        """What the results of two sweeps must have in common to be of one set."""
        return {**self.fixed.options(), "parameter": self.parameter, "values": list(self.values)}

    def document(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        """As that of a run, with the parameter and its values."""
        return {**document(self.fixed, results), "options": self.options()}

    @property
    def keys(self) -> list[tuple[object, ...]]:
        """What tells the results from each other, as `SWEEP_KEY` has it."""
        return [(*key, value) for key in self.fixed.keys for value in self.values]

    def run(self, kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Runs what `kept` does not have yet, and yields each result when it is there."""
        have = {(result["workload"], result["mode"], result.get("value")) for result in kept}
        for name in self.fixed.chosen:
            for value in self.values:
                plan = self.at(value)
                work = plan.workload(name)
                for mode in plan.chosen_modes:
                    if (name, mode, value) not in have:
                        yield {**run_one(plan, name, work, mode), "parameter": self.parameter, "value": value}
