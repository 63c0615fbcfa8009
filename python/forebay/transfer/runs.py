# SPDX-License-Identifier: Apache-2.0
"""Runs of the transfer suite: what to run, one result after another, and results that can be continued."""

import difflib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay import memory
from forebay._native import interruptible, transfer_core
from forebay.documents import read_json
from forebay.errors import RefusedInput
from forebay.provenance import build_and_host
from forebay.transfer.tracing import cupti_folders, traced_runs

# The six modes of the study that the suite repeats: transfer, allocation, stage.
STUDY_MODES = {
    "standard": ("pageable", "malloc", "plain"),
    "async": ("pageable", "malloc", "async4"),
    "uvm": ("managed_prefetch", "malloc", "plain"),
    "uvm_async": ("managed_prefetch", "malloc", "async4"),
    "pm": ("pinned", "malloc", "plain"),
    "pm_async": ("pinned", "malloc", "async4"),
}
_REPETITIONS = {"super": 5, "mega": 1}
_REPETITIONS_DEFAULT = 30
_REPETITIONS_MAX = 10_000
_SECONDS_MAX = 1e9
_TIMES = ("total", "allocation", "release", "kernels")
_SHAPE = ("blocks", "threads", "tile", "stages")
RUN_KEY = ("workload", "mode")
"""What tells the results of a run from each other."""
_OF_OPTIONS = ("workload", "size", "jobs")  # what a result repeats of the options, where they have it


@dataclass(frozen=True)
class Plan:
    """What to run. A member that the shape lacks is the workload's own choice."""

    workloads: tuple[str, ...] = ()
    size: str = "tiny"
    modes: tuple[str, ...] = ()
    shape: dict[str, int] = field(default_factory=dict)
    seed: int = 1
    repetitions: int | None = None
    gpu: int | None = None
    trace: bool = True

    def validate(self) -> None:
        """Refuses what no device can do, before anything is allocated."""
        check_named("--size", self.size, transfer_core().SIZES)
        for name in self.workloads:
            check_named("--workload", name, names())
        check_once("--workload", self.workloads)
        check_once("--mode", self.modes)
        for mode in self.modes:
            _check_mode(mode, on_gpu=self.gpu is not None)
        check_repetitions(self.repetitions)
        for name, value in self.shape.items():
            if not 1 <= value < 2**32:
                raise RefusedInput(f"--{name}", value, "must be a whole number from 1 to 2^32 - 1")
        for name in self.chosen:
            # On a GPU the host has the buffers too, scratch for the check.
            needed = sum(buffer["bytes"] for buffer in self.workload(name).buffers())
            memory.require(needed, "--size", self.size, f"the buffers of {name}", "choose a smaller size")

    @property
    def chosen(self) -> list[str]:
        """The workloads by name: all, if none was named."""
        return list(self.workloads) or names()

    @property
    def chosen_modes(self) -> list[str]:
        """The modes: on the CPU the four stage policies, on a GPU the six modes of the study."""
        if self.modes:
            return list(self.modes)
        return list(STUDY_MODES) if self.gpu is not None else list(transfer_core().STAGES)

    @property
    def chosen_repetitions(self) -> int:
        """How many runs are timed, after the one that is verified."""
        return self.repetitions or usual_repetitions(self.size)

    @property
    def keys(self) -> list[tuple[object, ...]]:
        """What tells the results from each other, as `RUN_KEY` has it."""
        return [(name, mode) for name in self.chosen for mode in self.chosen_modes]

    def workload(self, name: str) -> Any:  # noqa: ANN401 (of the extension module)
        """The workload with this plan's size and shape.

        Raises:
            RefusedInput: The shape does not fit.
        """
        shape = {part: self.shape.get(part, 0) for part in _SHAPE}
        return transfer_core().Workload(name, size=self.size, **shape)

    def options(self) -> dict[str, Any]:
        """What the results of two runs must have in common to be of one set."""
        return {
            "size": self.size,
            "shape": self.shape,
            "seed": self.seed,
            "repetitions": self.chosen_repetitions if self.gpu is not None else None,
            "trace": self.trace if self.gpu is not None else None,
            "device": "cpu" if self.gpu is None else f"cuda:{self.gpu}",
            "gpu": gpu_identity(self.gpu) if self.gpu is not None else None,
            "commit": build_and_host()["commit"],
        }


@functools.cache
def gpu_identity(ordinal: int) -> dict[str, str]:
    """The GPU's `name`, and the version of its `driver`."""
    return transfer_core().gpu(ordinal=ordinal)


def check_repetitions(repetitions: int | None) -> None:
    """Refuses a number of timed runs that makes no sense; None stands for the usual one."""
    if repetitions is not None and not 1 <= repetitions <= _REPETITIONS_MAX:
        raise RefusedInput("--repetitions", repetitions, f"must be a whole number from 1 to {_REPETITIONS_MAX}")


def usual_repetitions(size: str) -> int:
    """How many runs of a size are timed if nothing else is asked for."""
    return _REPETITIONS.get(size, _REPETITIONS_DEFAULT)


def names() -> list[str]:
    """The workloads, in the order of the study."""
    return [workload["name"] for workload in transfer_core().workloads()]


def sizes() -> list[str]:
    """The sizes of workloads, the smallest first."""
    return list(transfer_core().SIZES)


def workload_list() -> list[dict[str, Any]]:
    """Each workload with its group, what it computes, and per size its bytes, operations and own shape."""
    listed = []
    for facts in transfer_core().workloads():
        by_size = {}
        for size in transfer_core().SIZES:
            work = Plan(size=size).workload(facts["name"])
            buffers = work.buffers()
            by_size[size] = {
                "bytes": sum(buffer["bytes"] for buffer in buffers),
                "buffers": buffers,
                "shape": work.shape(),
                **work.costs(),
            }
        listed.append({**facts, "sizes": by_size})
    return listed


def mode_parts(mode: str) -> tuple[str, str, str]:
    """Transfer, allocation and stage policy of a mode: one of the study, or `TRANSFER/ALLOCATION/STAGE`."""
    if mode in STUDY_MODES:
        return STUDY_MODES[mode]
    transfer, allocation, stage = (*mode.split("/"), "", "")[:3]
    return transfer, allocation or "malloc", stage or "plain"


def usual_name(mode: str) -> str:
    """The name that the study has for a mode, or the mode itself with all its three parts."""
    parts = mode_parts(mode)
    return next((name for name, its in STUDY_MODES.items() if its == parts), "/".join(parts))


def _check_mode(mode: str, *, on_gpu: bool) -> None:
    core = transfer_core()
    if not on_gpu:
        check_named("--mode", mode, core.STAGES)
        return
    if mode in STUDY_MODES:
        return
    if mode.count("/") > 2:
        raise RefusedInput("--mode", mode, "must be TRANSFER, TRANSFER/ALLOCATION or TRANSFER/ALLOCATION/STAGE")
    for part, known in zip(mode_parts(mode), (core.TRANSFERS, core.ALLOCATIONS, core.STAGES), strict=True):
        if part not in known:
            near = difflib.get_close_matches(mode, [*STUDY_MODES, *core.TRANSFERS], 1, 0.0)[0]
            raise RefusedInput(
                "--mode",
                mode,
                f"{part!r} is none of {', '.join(known)}, and the mode none of {', '.join(STUDY_MODES)}; "
                f"did you mean {near}?",
            )


def check_named(field_name: str, value: str, known: Sequence[str]) -> None:
    """Refuses what is none of the known names, with the nearest of them."""
    if value in known:
        return
    near = difflib.get_close_matches(value, known, 1, 0.0)[0]
    raise RefusedInput(field_name, value, f"did you mean {near}? It must be one of {', '.join(known)}")


def check_once(field_name: str, values: Sequence[object]) -> None:
    """Refuses what is there twice: a file has one result of each."""
    for at, value in enumerate(values):
        if value in values[:at]:
            raise RefusedInput(field_name, str(value), f"is there twice: give each {field_name[2:]} once")


def read_results(
    path: Path,
    wanted: Mapping[str, Any],
    key: Sequence[str] = RUN_KEY,
    coming: Collection[tuple[object, ...]] = (),
    is_one: Callable[[object], bool] | None = None,
) -> list[dict[str, Any]]:
    """The results that an earlier command with the options `wanted` left in a file; none if there is no file.

    Args:
        path: The file.
        wanted: The options.
        key: What tells the results of one file from each other.
        coming: The keys of what the command runs unless the file has it. Wrong results with these are left out, so that
            they are tried again; other wrong ones stay, so that the file goes on saying that they are wrong.
        is_one: What a result looks like; by default, as that of a run.

    Raises:
        RefusedInput: The file holds something else, or results of other options.
    """
    if not path.is_file():  # to be made, or a device or pipe, which has nothing to read
        return []
    if not path.stat().st_size:
        return []
    document = read_json("--json", path, "name another file, or remove it")
    options, results = (document.get("options"), document.get("results")) if isinstance(document, dict) else (None, 0)
    if not (isinstance(options, dict) and isinstance(results, list) and all(map(is_one or is_result, results))):
        raise RefusedInput("--json", path, "is no document of `forebay transfer`: name another file, or remove it")
    for name in (*wanted, *(name for name in options if name not in wanted)):
        if options.get(name) != wanted.get(name):
            raise RefusedInput(
                "--json",
                path,
                f"has results with {name} {options.get(name)!r}, not {wanted.get(name)!r}: "
                "name another file to begin anew",
            )
    _check_results(path, wanted, key, results)
    return [one for one in results if one["verified"] is not False or key_of(one, key) not in coming]


def key_of(result: Mapping[str, Any], key: Sequence[str]) -> tuple[object, ...]:
    """The members of a result that tell it from others."""
    return tuple(result[part] for part in key)


def _check_results(path: Path, wanted: Mapping[str, Any], key: Sequence[str], results: list[dict[str, Any]]) -> None:
    """Refuses results without a key, of something else than the options, and two of the same."""
    remedy = "name another file, or remove it"
    seen: set[tuple[object, ...]] = set()
    for result in results:
        for part in key:
            if type(result.get(part)) is not (int if part == "value" else str):
                raise RefusedInput("--json", path, f"has results without {part}: {remedy}")
        for name in _OF_OPTIONS:
            if name in wanted and result.get(name) != wanted[name]:
                found = f"has a result with {name} {result.get(name)!r}, where its options have {wanted[name]!r}"
                raise RefusedInput("--json", path, f"{found}: {remedy}")
        its = key_of(result, key)
        if its in seen:
            raise RefusedInput("--json", path, f"has two results of {' '.join(map(str, its))}: {remedy}")
        seen.add(its)


def is_result(found: object) -> bool:
    """Whether this is what a result of this package looks like: refused, or with the times of one kind of device."""
    texts = ("workload", "mode", "size")
    if not (isinstance(found, dict) and all(isinstance(found.get(text), str) for text in texts)):
        return False
    verified = found.get("verified", 0)
    if verified is None:
        return isinstance(found.get("refused"), str)
    if not isinstance(verified, bool) or "refused" in found or (not verified and "mismatch" not in found):
        return False
    if "seconds" in found:
        return is_seconds(found["seconds"]) and "warm" not in found and "cold" not in found
    return _are_times(found.get("cold")) and isinstance(found.get("warm"), list) and all(map(_are_times, found["warm"]))


def _are_times(found: object) -> bool:
    return isinstance(found, dict) and all(is_seconds(found.get(part)) for part in _TIMES)


def is_seconds(found: object) -> bool:
    """Whether this is a duration."""
    return isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found <= _SECONDS_MAX


def run(plan: Plan, kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Runs what `kept` does not have yet, and yields each result when it is there."""
    have = {(result["workload"], result["mode"]) for result in kept}
    for name in plan.chosen:
        work = plan.workload(name)
        for mode in plan.chosen_modes:
            if (name, mode) not in have:
                yield run_one(plan, name, work, mode)


def run_one(plan: Plan, name: str, work: Any, mode: str) -> dict[str, Any]:  # noqa: ANN401 (of the extension module)
    """The result of one workload, of the plan's size and any shape, in one mode."""
    result: dict[str, Any] = {"workload": name, "mode": mode, "size": plan.size, "shape": work.shape()}
    if plan.gpu is None:
        ran = interruptible(work.run_on_cpu, stage=mode, seed=plan.seed)
        times: dict[str, Any] = {"seconds": ran["seconds"]}
    else:
        transfer, allocation, stage = mode_parts(mode)
        result |= {"transfer": transfer, "allocation": allocation, "stage": stage}
        try:
            ran = interruptible(
                work.run_on_gpu,
                transfer=transfer,
                allocation=allocation,
                stage=stage,
                seed=plan.seed,
                repetitions=plan.chosen_repetitions,
                traced=traced_runs(plan.size, plan.chosen_repetitions, trace=plan.trace),
                cupti_folders=cupti_folders(),
                ordinal=plan.gpu,
            )
        except RefusedInput as refused:  # not of this GPU, or not with this size
            return {**result, "verified": None, "refused": str(refused)}
        times = {part: ran[part] for part in ("cold", "warm", "page_locking_seconds", "traced")}
        if ran["traced"] is None:
            times["traced_reason"] = ran["traced_reason"]
    verified = ran["mismatch"] == ""
    return {**result, "verified": verified, **({} if verified else {"mismatch": ran["mismatch"]}), **times}


def document(plan: Plan, results: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of a run. Times of the CPU executor say nothing of a GPU, so they are `untimed`."""
    return {
        "options": plan.options(),
        "plan": {"workloads": plan.chosen, "modes": plan.chosen_modes},
        "verified": all(result["verified"] is not False for result in results),
        "fidelity": "ok" if plan.gpu is not None else "untimed",
        "results": results,
        "forebay": build_and_host(),
    }


def typical_seconds(result: dict[str, Any]) -> tuple[float, float | None]:
    """Of a result that was not refused, the seconds of kernels and in total: those of the run with the median total.

    The CPU executor has no total. If nothing was timed but the run that was verified, this one counts.
    """
    if "seconds" in result:
        return result["seconds"], None
    warm = sorted(result["warm"], key=lambda times: times["total"])
    typical = warm[len(warm) // 2] if warm else result["cold"]
    return typical["kernels"], typical["total"]
