# SPDX-License-Identifier: Apache-2.0
"""Which mode suits a program, by the cost model, and why."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from forebay.transfer.cost_model import OVER_THE_LINK, PLAIN, Constants, allocation_of
from forebay.transfer.profile import Profile
from forebay.transfer.runs import STUDY_MODES, mode_parts
from forebay.units import format_bytes, format_ns

MATTERS = 0.05  # a share of a run's time that is worth a change of the program
_MANY = 1e9


@dataclass(frozen=True)
class Advice:
    """A mode, and what the model expects."""

    mode: str
    overlap_allocation: bool
    """Whether it may pay to allocate for the next run while this one goes on. It does not where a pool does as well."""
    why: list[str]
    expected: dict[str, float]
    """Seconds of a run by mode: those of the study, and the one that is named."""


def advise(profile: Profile, constants: Constants, runs: int = 1, among: Collection[str] | None = None) -> Advice:
    """Names the mode with the least expected time.

    One beyond those of the study is named only if it is better by more than `MATTERS`.

    Args:
        profile: What the program does.
        constants: Of the machine.
        runs: How many runs share buffers that are page-locked once.
        among: The modes to choose from. None: all that the constants cover.
    """
    seconds = {
        mode: constants.seconds(profile, mode, runs) for mode in constants.modes() if among is None or mode in among
    }
    of_study = {mode: seconds[mode] for mode in seconds if mode in STUDY_MODES}
    best = min(seconds, key=seconds.__getitem__)
    if of_study:
        named = min(of_study, key=of_study.__getitem__)
        if seconds[best] >= (1 - MATTERS) * of_study[named]:
            best = named
    overlaps, about_overlap = _overlap(profile, constants, best, seconds[best])
    why = [
        _about_total(best, seconds),
        _about_movement(profile, constants, best),
        _about_locking(profile, constants, runs),
        _about_stage(profile, constants, best),
        about_overlap,
    ]
    return Advice(best, overlaps, [line for line in why if line], {**of_study, best: seconds[best]})


def _time(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def _whole(number: float) -> str:
    return f"{math.ceil(number):,}" if number < _MANY else "very many"


def _times(number: float) -> str:
    return "once" if number == 1 else f"{number:.3g} times"


def _percent(share: float) -> str:
    return f"{abs(share) * 100:.3g} %"


def _about_total(best: str, seconds: dict[str, float]) -> str:
    others = {mode: value for mode, value in seconds.items() if mode != best and mode in STUDY_MODES}
    if not others:
        return f"A run in mode {best} should take {_time(seconds[best])}."
    nearest = min(others, key=others.__getitem__)
    said = (
        f"A run in mode {best} should take {_time(seconds[best])}; the nearest other mode of the study, {nearest}, "
        f"{_time(others[nearest])}."
    )
    alike = others[nearest] <= (1 + MATTERS) * seconds[best]
    return f"{said} The model does not tell these two apart." if alike else said


def _about_movement(profile: Profile, constants: Constants, best: str) -> str:
    transfer = mode_parts(best)[0]
    ways = [transfer, *(way for way in dict.fromkeys(parts[0] for parts in STUDY_MODES.values()) if way != transfer)]
    times = [f"{way} {_time(constants.movement_seconds(profile, way))}" for way in ways if way in constants.movement]
    return (
        f"{format_bytes(int(profile.bytes_in))} go in and {format_bytes(int(profile.bytes_out))} come out. "
        f"To move them should take: {', '.join(times)}."
    )


def _about_locking(profile: Profile, constants: Constants, runs: int) -> str:
    """Page-locking pays if it is repaid: by the difference to the best mode without it, a run."""
    locked, free = [], []
    for mode in constants.modes():
        once = constants.locking_seconds(profile, mode_parts(mode)[0])
        seconds = constants.seconds(profile, mode, runs) - once / runs
        (locked if once else free).append((seconds, once, mode))
    if not (locked and free):
        return ""
    seconds, once, mode = min(locked)
    saved = min(free)[0] - seconds
    if saved <= 0:
        return f"Page-locking, {_time(once)} once, would save nothing."
    shared = "one run pays for it" if runs == 1 else f"{runs:,} runs share it"
    return (
        f"Page-locking takes {_time(once)} once. It saves {_time(saved)} a run over the best mode without, so it pays "
        f"from {_whole(once / saved)} runs on. Here {shared}."
    )


def _about_stage(profile: Profile, constants: Constants, best: str) -> str:
    stage = mode_parts(best)[2]
    others = [stage] if stage != PLAIN else [name for name in ("async4",) if name in constants.stages]
    if not others or not profile.staged_bytes:
        return ""
    over_the_link = mode_parts(best)[0] in OVER_THE_LINK
    change = (constants.link_stage_change if over_the_link else constants.stage_change)(profile, others[0])
    per_byte = profile.operations / profile.staged_bytes
    accesses = profile.shared_accesses / profile.staged_bytes
    effect = f"should make kernels {_percent(change)} {'slower' if change > 0 else 'faster'}"
    return (
        f"For each staged byte there are {per_byte:.3g} operations and {accesses:.3g} shared accesses, and each byte "
        f"is staged {_times(profile.reuse)}: {others[0]} {effect if change else 'should not change kernels'}."
    )


def _overlap(profile: Profile, constants: Constants, mode: str, total: float) -> tuple[bool, str]:
    """What a program saves at most that allocates for the next run during this one: all but the calls, if it fits."""
    transfer, allocation, _ = mode_parts(mode)
    takes = constants.allocation_seconds(profile, transfer, allocation)
    said = f"To allocate and free takes {_time(takes)}."
    kind = allocation_of(transfer, allocation)
    if kind == "pool":
        return False, f"{said} The pool keeps its memory, so there is little that overlap could hide."
    if kind == "malloc":
        return False, f"{said} A pool that keeps its memory saves most of that, so overlap does not pay."
    calls = min(takes, constants.allocation[kind][0] * profile.allocations)
    saved = min(takes - calls, total - takes)
    pays = total > 0 and saved > MATTERS * total
    least = f"{MATTERS * 100:.0f} %"
    return pays, (
        f"{said} To allocate for the next run during this one saves {_percent(saved / total if total else 0.0)} at "
        f"most, so it {'may pay' if pays else f'does not pay: less than {least} does not matter'}."
    )
