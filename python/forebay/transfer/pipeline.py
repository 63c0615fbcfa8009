# SPDX-License-Identifier: Apache-2.0
"""Several jobs of a workload, one after another: what overlapping their allocations and transfers is worth."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forebay import memory
from forebay._native import interruptible, transfer_core
from forebay.errors import RefusedInput
from forebay.provenance import build_and_host
from forebay.transfer.runs import check_named, check_repetitions, gpu_identity, is_seconds, names, usual_repetitions

ARM_KEY = ("arm",)
"""What tells the results of one file from each other."""
ALLOCATIONS = ("malloc", "chunked")
JOBS_DEFAULT = 16
_JOBS_MAX = 1000


@dataclass(frozen=True)
class Pipeline:
    """What to run: `jobs` jobs in each arm, on a GPU. `allocation` is of the arms that have no pool."""

    workload: str
    size: str = "tiny"
    jobs: int = JOBS_DEFAULT
    arms: tuple[str, ...] = ()
    allocation: str = "malloc"
    seed: int = 1
    repetitions: int | None = None
    gpu: int = 0

    def validate(self) -> None:
        """Refuses what no GPU can do, and what the host lacks memory for in every arm, before anything is allocated."""
        check_named("--workload", self.workload, names())
        check_named("--size", self.size, transfer_core().SIZES)
        check_named("--allocation", self.allocation, ALLOCATIONS)
        known = arms()
        for at, arm in enumerate(self.arms):
            check_named("--arm", arm, list(known))
            if arm in self.arms[:at]:
                raise RefusedInput("--arm", arm, "is there twice: give each arm once")
            if known[arm]["is_pool"] and self.allocation != ALLOCATIONS[0]:
                others = ", ".join(name for name, facts in known.items() if not facts["is_pool"])
                raise RefusedInput("--arm", arm, f"has a pool; with --allocation {self.allocation} give {others}")
        if not 1 <= self.jobs <= _JOBS_MAX:
            raise RefusedInput("--jobs", self.jobs, f"must be a whole number from 1 to {_JOBS_MAX}")
        check_repetitions(self.repetitions)
        self._require_host_memory(min(self.chosen_arms, key=self.host_bytes))

    @property
    def chosen_arms(self) -> list[str]:
        """The arms by name: all that `allocation` has, if none was named."""
        if self.arms:
            return list(self.arms)
        return [name for name, facts in arms().items() if self.allocation == ALLOCATIONS[0] or not facts["is_pool"]]

    @property
    def chosen_repetitions(self) -> int:
        """How often all jobs are timed, after the pass that is verified."""
        return self.repetitions or usual_repetitions(self.size)

    @property
    def keys(self) -> list[tuple[object, ...]]:
        """What tells the results from each other, as `ARM_KEY` has it."""
        return [(arm,) for arm in self.chosen_arms]

    def host_bytes(self, arm: str) -> int:
        """What the jobs' input and results take of the host's memory, which is page-locked."""
        own_shape = dict.fromkeys(("blocks", "threads", "tile", "stages"), 0)
        buffers = transfer_core().Workload(self.workload, size=self.size, **own_shape).buffers()
        into = sum(buffer["bytes"] for buffer in buffers if buffer["use"] in ("in", "in_out"))
        out = sum(buffer["bytes"] for buffer in buffers if buffer["use"] != "in")
        return into + out * min(arms()[arm]["outputs"], self.jobs)

    def _require_host_memory(self, arm: str) -> None:
        what = f"the host's buffers of {self.workload} in arm {arm}"
        memory.require(self.host_bytes(arm), "--size", self.size, what, "choose a smaller size")

    def options(self) -> dict[str, Any]:
        """What the results of two commands must have in common to be of one set."""
        return {
            "workload": self.workload,
            "size": self.size,
            "jobs": self.jobs,
            "allocation": self.allocation,
            "seed": self.seed,
            "repetitions": self.chosen_repetitions,
            "device": f"cuda:{self.gpu}",
            "gpu": gpu_identity(self.gpu),
            "commit": build_and_host()["commit"],
        }

    def run(self, kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Runs the arms that `kept` does not have yet, and yields each result when it is there."""
        have = {result["arm"] for result in kept}
        arms_to_come = [arm for arm in self.chosen_arms if arm not in have]
        # Before the first arm takes memory: those after it use the same.
        refusals = {arm: self._refusal(arm) for arm in arms_to_come}
        jobs = _Jobs(self)
        for arm in arms_to_come:
            result: dict[str, Any] = {
                "arm": arm,
                "workload": self.workload,
                "size": self.size,
                "jobs": self.jobs,
                "allocation": "pool" if arms()[arm]["is_pool"] else self.allocation,
            }
            refusal = refusals[arm]
            yield {**result, **(jobs.run(arm) if refusal is None else _refused(refusal))}

    def _refusal(self, arm: str) -> RefusedInput | None:
        try:
            self._require_host_memory(arm)
        except RefusedInput as refused:
            return refused
        return None

    def document(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        """What `--json` gets."""
        return {
            "options": self.options(),
            "plan": {"arms": self.chosen_arms},
            "verified": all(result["verified"] is not False for result in results),
            "fidelity": "ok",
            "results": results,
            "forebay": build_and_host(),
        }


class _Jobs:
    """The jobs of a plan. They have their page-locked memory from the first arm on, and share it."""

    def __init__(self, plan: Pipeline) -> None:
        self._plan = plan
        self._core: Any = None

    def run(self, arm: str) -> dict[str, Any]:
        plan = self._plan
        try:
            if self._core is None:
                self._core = transfer_core().Pipeline(
                    plan.workload,
                    size=plan.size,
                    jobs=plan.jobs,
                    allocation=plan.allocation,
                    seed=plan.seed,
                    ordinal=plan.gpu,
                )
            ran = interruptible(self._core.run, arm=arm, repetitions=plan.chosen_repetitions)
        except RefusedInput as refused:  # not of this GPU, or not with this size
            return _refused(refused)
        counts = {part: ran[part] for part in ("verified_jobs", "compared_jobs")}
        if ran["mismatch"]:
            return {"verified": False, **counts, "mismatch": ran["mismatch"]}
        times = {part: ran[part] for part in ("seconds", "allocation_seconds", "page_locking_seconds")}
        return {"verified": True, **counts, **times}


def _refused(refused: RefusedInput) -> dict[str, Any]:
    return {"verified": None, "refused": str(refused)}


def arms() -> dict[str, dict[str, Any]]:
    """The arms by name: how many sets of buffers each has, whether it has a pool, and what it does."""
    return {facts["name"]: facts for facts in transfer_core().pipeline_arms()}


def is_arm_result(found: object) -> bool:
    """Whether this is what a result of an arm looks like."""
    texts = ("arm", "workload", "size", "allocation")
    if not (isinstance(found, dict) and all(isinstance(found.get(text), str) for text in texts)):
        return False
    verified = found.get("verified", 0)
    if verified is None:
        return isinstance(found.get("refused"), str)
    if "refused" in found:
        return False
    if verified is False:
        return isinstance(found.get("mismatch"), str)
    return verified is True and all(_are_seconds(found.get(part)) for part in ("seconds", "allocation_seconds"))


def _are_seconds(found: object) -> bool:
    return isinstance(found, list) and bool(found) and all(map(is_seconds, found))
