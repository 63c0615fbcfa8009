# SPDX-License-Identifier: Apache-2.0
"""What advice is given for: the bytes, operations and allocations of a program, of the suite or of a user."""

import difflib
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.errors import RefusedInput
from forebay.files import reading
from forebay.transfer.runs import Plan

_FILE_MAX_BYTES = 1 << 20
_MOST = 1e30  # of anything: products of two stay finite
_NEEDED = ("bytes_in", "bytes_out", "scratch_bytes", "operations", "shared_accesses", "allocations")
_EITHER = ("staged_bytes", "reuse")
_MORE = {"bytes_in_place": 0.0, "launches": 1.0}  # and what they are where a profile lacks them
_KEYS = (*_NEEDED, *_EITHER, *_MORE)
_TOO_LONG = f"has a whole number of thousands of digits: numbers are from 0 to {_MOST:g}"
_HELP = "see the keys in the reference of `forebay transfer advise`"


@dataclass(frozen=True)
class Profile:
    """What a run of a program does."""

    bytes_in: float
    """Bytes that kernels read and the host provides."""
    bytes_out: float
    """Bytes of results that the host wants."""
    bytes_in_place: float
    """Bytes that are in both of these."""
    scratch_bytes: float
    """Bytes that only kernels use."""
    operations: float
    """Arithmetic of the kernels."""
    staged_bytes: float
    """Bytes that tiles bring to shared memory, each time that they do."""
    shared_accesses: float
    """Loads and stores of shared memory by threads."""
    allocations: float
    """Buffers on the device."""
    launches: float
    """Kernels that run one after the other."""

    @property
    def host_bytes(self) -> float:
        """Bytes of buffers that the host has."""
        return self.bytes_in + self.bytes_out - self.bytes_in_place

    @property
    def all_bytes(self) -> float:
        """Bytes of all buffers."""
        return self.host_bytes + self.scratch_bytes

    @property
    def reuse(self) -> float:
        """How often a byte that comes in is brought to shared memory."""
        return self.staged_bytes / self.bytes_in if self.bytes_in else 0.0


def profile_of_workload(name: str, size: str, shape: dict[str, int] | None = None) -> Profile:
    """The profile of a workload of the suite.

    Raises:
        RefusedInput: There is no such workload, size or shape.
    """
    work = Plan(workloads=(name,), size=size, shape=shape or {}).workload(name)
    buffers, costs = work.buffers(), work.costs()

    def total(*uses: str) -> float:
        return float(sum(buffer["bytes"] for buffer in buffers if buffer["use"] in uses))

    return Profile(
        bytes_in=total("in", "in_out"),
        bytes_out=total("out", "in_out"),
        bytes_in_place=total("in_out"),
        scratch_bytes=total("scratch"),
        allocations=float(len(buffers)),
        **{part: costs[part] for part in ("operations", "staged_bytes", "shared_accesses", "launches")},
    )


def read_profile(path: Path) -> Profile:
    """The profile in a TOML file.

    Raises:
        RefusedInput: It is no TOML, lacks a key, has one that is unknown, or a value that cannot be.
    """
    found = _document(path)
    for key in found:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1, 0.0)[0]
            raise RefusedInput(key, found[key], f"is no key of a profile; did you mean {near}? {_HELP}")
    for key in _NEEDED:
        if key not in found:
            raise RefusedInput("--profile", path, f"lacks the key {key}; {_HELP}")
    if sum(key in found for key in _EITHER) != 1:
        raise RefusedInput("--profile", path, f"must have one of the keys {' and '.join(_EITHER)}, not both; {_HELP}")
    numbers = {key: _number(key, value) for key, value in found.items()}
    reuse = numbers.pop("reuse", None)
    if reuse is not None:
        numbers["staged_bytes"] = reuse * numbers["bytes_in"]
    profile = Profile(**{**_MORE, **numbers})
    _check(profile, found)
    return profile


def _document(path: Path) -> dict[str, Any]:
    with reading("--profile", path) as file:
        data = file.read(_FILE_MAX_BYTES + 1)
    if len(data) > _FILE_MAX_BYTES:
        raise RefusedInput("--profile", path, f"is larger than 1 MiB, the limit; {_HELP}")
    try:
        found = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedInput("--profile", path, f"is not TOML ({error}); {_HELP}") from None
    except ValueError:  # of Python itself, which converts no more than some thousands of digits
        raise RefusedInput("--profile", path, _TOO_LONG) from None
    try:  # such a number can be hexadecimal, and deep in a list: only a message would convert it
        str(found)
    except ValueError:
        raise RefusedInput("--profile", path, _TOO_LONG) from None
    return found


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedInput(key, value, "must be a number")
    if not 0 <= value <= _MOST:  # NaN too
        raise RefusedInput(key, value, f"must be from 0 to {_MOST:g}")
    return float(value)


def _check(profile: Profile, found: dict[str, Any]) -> None:
    for key, what in {"allocations": "buffers", "launches": "kernels"}.items():
        number = getattr(profile, key)
        if not 1 <= number == math.floor(number):
            raise RefusedInput(key, found[key], f"must be a whole number of {what}, at least 1")
    if profile.bytes_in_place > min(profile.bytes_in, profile.bytes_out):
        remedy = "are bytes that go in and come out: at most bytes_in and bytes_out each"
        raise RefusedInput("bytes_in_place", found["bytes_in_place"], remedy)
    if profile.all_bytes == 0:
        raise RefusedInput("bytes_in", found["bytes_in"], "must not be 0 where bytes_out and scratch_bytes are")
