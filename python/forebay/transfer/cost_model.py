# SPDX-License-Identifier: Apache-2.0
"""How long a run takes in a mode: a sum of a few terms, whose constants are those of a machine.

A run allocates, moves bytes, computes, and frees. Each term is linear in what a profile says:

- *allocation and release*: so much a call, a byte of device memory and a byte of managed memory, by their kind;
- *movement*: a fixed time, and so much a byte in and out, by the way of transfer. What kernels lose on memory that is
  not the device's own belongs to it: where they write results that nothing brought, so much once and for each byte;
- *kernels*: a fixed time, and so much an operation, staged byte, access to shared memory and byte of buffers, where
  tiles are brought by loads and stores. Another stage policy changes that by a share, which is linear in how much of
  the kernels' time is staging;
- *page-locking*: so much a buffer and a byte, once for all runs that share the buffers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.transfer.profile import Profile
from forebay.transfer.runs import STUDY_MODES, mode_parts

IN_PLACE = ("managed_fault", "managed_prefetch", "managed_prefetch_overlapped", "mapped", "system")
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


def movement_terms(profile: Profile) -> tuple[float, ...]:
    """What the movement of bytes is linear in."""
    fresh = profile.bytes_out - profile.bytes_in_place
    return 1.0, profile.bytes_in, profile.bytes_out, float(fresh > 0), fresh


def kernel_terms(profile: Profile) -> tuple[float, float, float, float, float]:
    """What the time of kernels is linear in."""
    buffers = profile.host_bytes + profile.scratch_bytes
    return 1.0, profile.operations, profile.staged_bytes, profile.shared_accesses, buffers


def locking_terms(profile: Profile) -> tuple[float, float]:
    """What page-locking is linear in."""
    return profile.allocations, profile.host_bytes


def _sum(constants: tuple[float, ...], terms: tuple[float, ...]) -> float:
    return sum(constant * term for constant, term in zip(constants, terms, strict=True))


@dataclass(frozen=True)
class Constants:
    """Of a machine: seconds for each unit of each term."""

    allocation: Mapping[str, tuple[float, ...]]
    """By the kind of allocation, or `MANAGED`: of each of `allocation_terms`."""
    movement: Mapping[str, tuple[float, ...]]
    """By the way of transfer: of each of `movement_terms`."""
    kernels: tuple[float, ...]
    """Of each of `kernel_terms`, with the policy `plain`."""
    stages: Mapping[str, tuple[float, ...]]
    """By another stage policy: by what share it changes the kernels, as a line over `staging_share`."""
    locking: tuple[float, ...] | None
    """Of each of `locking_terms`; None where no page-locked memory was measured."""

    def staging_share(self, profile: Profile) -> float:
        """How much of the kernels' time goes to bring tiles to shared memory, as the model has it."""
        kernels = self.kernel_seconds(profile, PLAIN)
        return self.kernels[2] * profile.staged_bytes / kernels if kernels else 0.0

    def stage_change(self, profile: Profile, stage: str) -> float:
        """By what share a stage policy changes the kernels' time."""
        if stage == PLAIN:
            return 0.0
        return max(_sum(self.stages[stage], (1.0, self.staging_share(profile))), -0.9)

    def kernel_seconds(self, profile: Profile, stage: str) -> float:
        """The time of the kernels, on device memory."""
        plain = _sum(self.kernels, kernel_terms(profile))
        return plain if stage == PLAIN else plain * (1 + self.stage_change(profile, stage))

    def allocation_seconds(self, profile: Profile, transfer: str, allocation: str) -> float:
        """The time to allocate and to free what is on the device or managed."""
        return _sum(self.allocation[allocation_of(transfer, allocation)], allocation_terms(profile, transfer))

    def movement_seconds(self, profile: Profile, transfer: str) -> float:
        """The time in which bytes move and no kernel runs."""
        return _sum(self.movement[transfer], movement_terms(profile))

    def locking_seconds(self, profile: Profile, transfer: str) -> float:
        """The time to page-lock the host's buffers, once."""
        return _sum(self.locking or (0.0, 0.0), locking_terms(profile)) if transfer in PAGE_LOCKED else 0.0

    def seconds(self, profile: Profile, mode: str, runs: float | None) -> float:
        """The time of a run.

        Args:
            profile: What the run does.
            mode: In which mode.
            runs: How many runs share buffers that are page-locked once. None: page-locking does not count.
        """
        transfer, allocation, stage = mode_parts(mode)
        locking = self.locking_seconds(profile, transfer) / runs if runs else 0.0
        return (
            locking
            + self.allocation_seconds(profile, transfer, allocation)
            + self.movement_seconds(profile, transfer)
            + self.kernel_seconds(profile, stage)
        )

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
            "kernels": list(self.kernels),
            "stages": {kind: list(values) for kind, values in self.stages.items()},
            "locking": None if self.locking is None else list(self.locking),
        }
