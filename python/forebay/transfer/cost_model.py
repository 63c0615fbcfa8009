# SPDX-License-Identifier: Apache-2.0
"""How long a run takes in a mode: a sum of a few terms, whose constants are those of a machine.

A run allocates, moves bytes, computes, and frees. Each term is linear in what a profile says, but for two shares:

- *allocation and release*: so much a call, a byte of device memory and a byte of managed memory, by their kind;
- *movement*: a fixed time, and so much a byte in and out, by the way of transfer, and a byte that the host's caches do
  not hold. Bytes that the host writes anew for each run are in no cache where a copy finds them soon. Where kernels
  read the host's memory over the link, so much also for each byte that they stage again, and a stage policy changes all
  of it by a share;
- *faults*: where kernels write results to pages that nothing brought, so much once and for each byte. Kernels that
  compute for long hide a share of it;
- *kernels*: so much a launch, an operation, a staged byte, an access to shared memory and a byte of buffers, where
  tiles are brought by loads and stores. Another stage policy changes that by a share, which depends on how many
  operations and accesses to shared memory there are for a staged byte;
- *page-locking*: so much a buffer and a byte, or so much for chunks, once for all runs that share them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from forebay.transfer.profile import Profile
from forebay.transfer.runs import STUDY_MODES, mode_parts

IN_PLACE = ("managed_fault", "managed_prefetch", "managed_prefetch_overlapped", "mapped", "system")
OVER_THE_LINK = ("mapped", "system")
"""Where kernels read the host's memory each time that they stage it."""
PAGE_LOCKED = ("pinned", "batch", "mapped")
PLAIN = "plain"
MANAGED = "managed"


def is_managed(transfer: str) -> bool:
    """Whether the host's buffers are managed memory."""
    return transfer.startswith("managed_")


def allocation_of(transfer: str, allocation: str) -> str:
    """The kind of memory whose allocation costs: where the host's buffers are managed, there is little else."""
    return MANAGED if is_managed(transfer) else allocation


def allocation_terms(profile: Profile, transfer: str) -> tuple[float, float, float]:
    """Calls and bytes of device memory that a run allocates, and bytes of managed memory."""
    managed = profile.host_bytes if is_managed(transfer) else 0.0
    on_device = profile.scratch_bytes if transfer in IN_PLACE else profile.scratch_bytes + profile.host_bytes
    return profile.allocations, on_device, managed


def movement_terms(profile: Profile, transfer: str, cache_bytes: float) -> tuple[float, ...]:
    """What the movement of bytes is linear in."""
    moved, rewritten = profile.bytes_in + profile.bytes_out, 2 * profile.bytes_in_place
    again = max(profile.staged_bytes - profile.bytes_in, 0.0) if transfer in OVER_THE_LINK else 0.0
    return 1.0, profile.bytes_in, profile.bytes_out, moved - min(cache_bytes, moved - rewritten), again


def fault_terms(profile: Profile, transfer: str) -> tuple[float, float]:
    """What the time of faults is linear in, if nothing hides it."""
    fresh = profile.bytes_out - profile.bytes_in_place if transfer in IN_PLACE else 0.0
    return float(fresh > 0), fresh


def unhidden(faults: float, kernels: float) -> float:
    """Which share of the faults of so many seconds adds to kernels of so many."""
    return faults / (faults + kernels) if faults else 1.0


def kernel_terms(profile: Profile) -> tuple[float, float, float, float, float]:
    """What the time of kernels is linear in."""
    return profile.launches, profile.operations, profile.staged_bytes, profile.shared_accesses, profile.all_bytes


def stage_terms(profile: Profile) -> tuple[float, float, float]:
    """What the share is linear in by which a stage policy changes the kernels."""
    staged = max(profile.staged_bytes, 1.0)
    return 1.0, math.log1p(profile.operations / staged), profile.shared_accesses / staged


def link_stage_terms(profile: Profile) -> tuple[float, float]:
    """The same, where tiles come over the link: what is staged again may be in a cache for one policy only."""
    return 1.0, math.log1p(max(profile.staged_bytes - profile.bytes_in, 0.0) / max(profile.bytes_in, 1.0))


def locking_terms(profile: Profile, transfer: str) -> tuple[float, float, float]:
    """What page-locking is linear in: calls and bytes of the host's buffers, or chunks, which are always the same."""
    if transfer in PAGE_LOCKED:
        return profile.allocations, profile.host_bytes, 0.0
    return 0.0, 0.0, float(transfer == "pinned_chunked")


def _sum(constants: tuple[float, ...], terms: tuple[float, ...]) -> float:
    return sum(constant * term for constant, term in zip(constants, terms, strict=True))


@dataclass(frozen=True)
class StageChange:
    """By what share a stage policy changes the time of kernels."""

    of_terms: tuple[float, ...]
    """Of each of `stage_terms`, or of `link_stage_terms`."""
    least: float
    """What was measured: the model does not go beyond."""
    most: float

    def share(self, terms: tuple[float, ...]) -> float:
        """The change: 0.1 stands for kernels that take a tenth longer."""
        return min(max(_sum(self.of_terms, terms), self.least), self.most)


@dataclass(frozen=True)
class Constants:
    """Of a machine: seconds for each unit of each term."""

    allocation: Mapping[str, tuple[float, ...]]
    """By the kind of allocation, or `MANAGED`: of each of `allocation_terms`."""
    movement: Mapping[str, tuple[float, ...]]
    """By the way of transfer: of each of `movement_terms`, then of `fault_terms`."""
    cache_bytes: float
    """What the host's caches hold from run to run."""
    kernels: tuple[float, ...]
    """Of each of `kernel_terms`, with the policy `plain`."""
    stages: Mapping[str, "StageChange"]
    """What another stage policy changes."""
    link_stages: Mapping[str, "StageChange"]
    """What it changes where tiles come over the link, of kernels and movement together."""
    locking: tuple[float, ...] | None
    """Of each of `locking_terms`; None where no page-locked memory was measured."""

    def stage_change(self, profile: Profile, stage: str) -> float:
        """By what share a stage policy changes the kernels' time."""
        if stage == PLAIN or not profile.staged_bytes:
            return 0.0
        return self.stages[stage].share(stage_terms(profile))

    def link_stage_change(self, profile: Profile, stage: str) -> float:
        """The same, of kernels and movement, where tiles come over the link."""
        if stage not in self.link_stages or not profile.staged_bytes:
            return 0.0
        return self.link_stages[stage].share(link_stage_terms(profile))

    def kernel_seconds(self, profile: Profile, stage: str) -> float:
        """The time of the kernels, on device memory."""
        plain = _sum(self.kernels, kernel_terms(profile))
        return plain if stage == PLAIN else plain * (1 + self.stage_change(profile, stage))

    def allocation_seconds(self, profile: Profile, transfer: str, allocation: str) -> float:
        """The time to allocate and to free what is on the device or managed."""
        return _sum(self.allocation[allocation_of(transfer, allocation)], allocation_terms(profile, transfer))

    def movement_seconds(self, profile: Profile, transfer: str) -> float:
        """What moving bytes adds to allocation and kernels."""
        terms = movement_terms(profile, transfer, self.cache_bytes)
        constants = self.movement[transfer]
        once, fresh = (
            constant * term
            for constant, term in zip(constants[len(terms) :], fault_terms(profile, transfer), strict=True)
        )
        faults = once + fresh * unhidden(fresh, self.kernel_seconds(profile, PLAIN))
        return _sum(constants[: len(terms)], terms) + faults

    def locking_seconds(self, profile: Profile, transfer: str) -> float:
        """The time to page-lock the host's buffers, once."""
        return _sum(self.locking, locking_terms(profile, transfer)) if self.locking else 0.0

    def seconds(self, profile: Profile, mode: str, runs: int) -> float:
        """The time of a run.

        Args:
            profile: What the run does.
            mode: In which mode.
            runs: How many runs share buffers that are page-locked once.
        """
        transfer, allocation, stage = mode_parts(mode)
        before = self.locking_seconds(profile, transfer) / runs + self.allocation_seconds(profile, transfer, allocation)
        moving = self.movement_seconds(profile, transfer)
        if transfer in OVER_THE_LINK:
            change = self.link_stage_change(profile, stage)
            return before + (moving + self.kernel_seconds(profile, PLAIN)) * (1 + change)
        return before + moving + self.kernel_seconds(profile, stage)

    def modes(self) -> Iterator[str]:
        """The modes that the constants cover, those of the study by name and first."""
        combined = [
            (transfer, allocation, stage)
            for transfer in self.movement
            for allocation in self.allocation
            if allocation != MANAGED and allocation_of(transfer, allocation) in self.allocation
            for stage in (PLAIN, *self.stages)
        ]
        yield from (name for name, parts in STUDY_MODES.items() if parts in combined)
        named = set(STUDY_MODES.values())
        yield from ("/".join(parts) for parts in combined if parts not in named)

    def to_document(self) -> dict[str, Any]:
        """The constants as JSON can have them."""
        return {
            "allocation": {kind: list(values) for kind, values in self.allocation.items()},
            "movement": {kind: list(values) for kind, values in self.movement.items()},
            "cache_bytes": self.cache_bytes,
            "kernels": list(self.kernels),
            "stages": {stage: asdict(change) for stage, change in self.stages.items()},
            "link_stages": {stage: asdict(change) for stage, change in self.link_stages.items()},
            "locking": None if self.locking is None else list(self.locking),
        }
