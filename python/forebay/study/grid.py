# SPDX-License-Identifier: Apache-2.0
"""The drives and the settings that a study compares: every combination of the values of its axes."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.errors import RefusedInput
from forebay.links import LINK_BYTES_PER_SECOND, link_bytes_per_second
from forebay.storage import Storage
from forebay.units import parse_rate

DRIVE_DEFAULT = "emulated:size=64M"
DRIVE_AXES = ("profile", "iops", "latency_us", "link", "channels")
POINTS_MAX = 10_000

_CHANNELS_MAX = 64
_REQUEST_BYTES = 512  # of programs that do not say how much they read
_EMULATED = "emulated:"
# Where bytes lie and what serves them: the times of a drive do not depend on it, and it may not be there yet.
_PLACE_KEYS = {
    "allow_destroy", "backing", "data", "errors_ppm", "io", "path", "precondition", "queues", "residency", "seed",
    "sms", "threads",
}  # fmt: skip


@dataclass(frozen=True)
class Drive:
    """A drive of a study, and the times that it models.

    Attributes:
        uri: Its URI.
        timing: The parameters of its timing model, as a storage reports them; None for a drive that is not emulated.
        link: The name of its modelled link; None without one.
    """

    uri: str
    timing: Mapping[str, Any] | None = None
    link: str | None = None

    def iops(self, request_bytes: float | None = None) -> float | None:
        """How many reads a second it completes when it is saturated.

        Args:
            request_bytes: The bytes of a read; None for 512.

        Returns:
            The rate; None if the model does not bound it.
        """
        if self.timing is None:
            return None
        read = self.timing["read"]
        granule = read["granule_bytes"]
        charged = math.ceil((request_bytes or _REQUEST_BYTES) / granule) * granule
        cost_ns = read["per_command_ns"] + read["per_byte_ns"] * charged
        return 1e9 / cost_ns if cost_ns > 0 else None

    @property
    def latency_us(self) -> float | None:
        """The least latency of a read in microseconds; None if the model has none."""
        latency = None if self.timing is None else float(self.timing["read"]["latency_min_us"])
        return latency or None

    @property
    def link_bytes_per_second(self) -> float | None:
        """What its modelled link carries; None without one."""
        return LINK_BYTES_PER_SECOND.get(self.link or "")

    @property
    def channels(self) -> int | None:
        """Its channels; None for a drive that is not emulated."""
        return None if self.timing is None else int(self.timing["channels"])

    def figures(self, request_bytes: float | None = None) -> dict[str, Any]:
        """Says what a JSON document says of it.

        Args:
            request_bytes: The bytes of a read, on which the rate depends; None for 512.

        Returns:
            Its URI as ``drive``, and ``iops``, ``latency_us``, ``link``, ``link_bytes_per_second``, ``channels``: None
            where there is no bound.
        """
        return {
            "drive": self.uri,
            "iops": self.iops(request_bytes),
            "latency_us": self.latency_us,
            "link": self.link,
            "link_bytes_per_second": self.link_bytes_per_second,
            "channels": self.channels,
        }


@dataclass(frozen=True)
class Grid:
    """What a study goes through.

    Attributes:
        drives: The drives that the axes change.
        axes: Values of keys of drive URIs, by the key, one of ``DRIVE_AXES``.
        settings: Values of the program's own settings, by the name of the placeholder in its command.
    """

    drives: Sequence[str] = (DRIVE_DEFAULT,)
    axes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def check(self, prefix: str = "") -> None:
        """Looks at the values, and opens nothing.

        Args:
            prefix: What to put before the names of axes in a refusal, such as ``--``.

        Raises:
            RefusedInput: A value is not of its kind, or an axis has none or one twice.
        """
        if not self.drives:
            raise RefusedInput(f"{prefix}drive", "", "name at least one drive")
        for name, values in {"drive": self.drives, **self.axes, **self.settings}.items():
            field = f"{prefix}{name}"
            if prefix == "--":
                field = field.replace("_", "-")
            if not values or not all(values):
                raise RefusedInput(field, ",".join(values), "has an empty value; give values with commas between them")
            twice = next((value for at, value in enumerate(values) if value in values[:at]), None)
            if twice is not None:
                raise RefusedInput(field, twice, "is there twice; leave one out")
            for value in values:
                _check_value(field, name, value)
        changed = next(iter(self.axes), None)
        real = next((drive for drive in self.drives if not drive.startswith(_EMULATED)), None)
        if changed is not None and real is not None:
            remedy = f"only emulated: drives have {changed} to vary; leave that out, or study an emulated drive"
            raise RefusedInput(f"{prefix}drive", real, remedy)
        count = math.prod(len(values) for values in (self.drives, *self.axes.values(), *self.settings.values()))
        if count > POINTS_MAX:
            raise RefusedInput("grid", count, f"has more than {POINTS_MAX} points; give fewer values")

    def uris(self) -> list[str]:
        """Returns the URIs of the drives, every combination once."""
        combinations = list(itertools.product(*self.axes.values()))
        return [
            with_keys(drive, dict(zip(self.axes, values, strict=True)))
            for drive, values in itertools.product(self.drives, combinations)
        ]

    def combinations(self) -> list[dict[str, str]]:
        """Returns the program's settings, every combination once; one without any if there are none."""
        return [dict(zip(self.settings, values, strict=True)) for values in itertools.product(*self.settings.values())]


def _check_value(field: str, name: str, value: str) -> None:
    if name == "iops":
        parse_rate(field, value)
    elif name == "link":
        link_bytes_per_second(field, value)
    elif name == "latency_us":
        try:
            latency = float(value)
        except ValueError:
            latency = math.nan
        if not (math.isfinite(latency) and latency >= 0):
            raise RefusedInput(field, value, "must be microseconds, such as 50 or 6.5")
    elif name == "iodepth" and not (value.isdecimal() and int(value) > 0):
        raise RefusedInput(field, value, "must be a whole number of at least 1: the commands in flight")
    elif name == "channels" and not (value.isdecimal() and 1 <= int(value) <= _CHANNELS_MAX):
        raise RefusedInput(field, value, f"must be a whole number from 1 to {_CHANNELS_MAX}")


def with_keys(uri: str, keys: Mapping[str, str]) -> str:
    """Gives a drive URI other values of some keys.

    Args:
        uri: The URI.
        keys: The values, by their keys. They take the place of those in the URI, or come at its end.

    Returns:
        The URI.
    """
    scheme, colon, rest = uri.partition(":")
    left = dict(keys)
    parts = []
    for part in rest.split(",") if rest else []:
        key, equals, _ = part.partition("=")
        parts.append(f"{key}={left.pop(key)}" if equals and key in left else part)
    return f"{scheme}{colon}" + ",".join([*parts, *(f"{key}={value}" for key, value in left.items())])


def differences(uris: Sequence[str]) -> tuple[str, list[str]]:
    """Tells drives apart in few words.

    Args:
        uris: The URIs of the drives.

    Returns:
        What all of them have in common, and of each what it has beside that, or all of it if they are too different.
    """
    parts = [uri.partition(":")[2].split(",") for uri in uris]
    shared = [part for part in parts[0] if all(part in other for other in parts)] if parts else []
    schemes = {uri.partition(":")[0] for uri in uris}
    own = [",".join(part for part in one if part not in shared) for one in parts]
    if len(set(uris)) == 1:
        return uris[0], ["" for _ in uris]
    if len(schemes) != 1 or not all(own):
        return "", list(uris)
    return f"{next(iter(schemes))}:{','.join(shared)}", own


def describe(uris: Iterable[str]) -> list[Drive]:
    """Asks the emulator for the times of drives. Each is opened in host memory for a moment, and used by nothing.

    Args:
        uris: The drives. One that is not emulated is not opened, and has no times.

    Returns:
        The drives, in the same order.

    Raises:
        RefusedInput: A URI is refused.
        OperationFailed: A drive cannot be opened.
    """
    return [_describe(uri) for uri in uris]


def _describe(uri: str) -> Drive:
    if not uri.startswith(_EMULATED):
        return Drive(uri)
    parts = [part for part in uri.removeprefix(_EMULATED).split(",") if part]
    kept = [part for part in parts if part.partition("=")[0] not in _PLACE_KEYS]
    if not any(part.startswith("size=") for part in kept):
        kept.append("size=64M")  # that of a file, which is not opened here
    with Storage(_EMULATED + ",".join(kept), device="cpu") as storage:
        (report,) = storage.report()["drives"]
    link = report.get("link")
    return Drive(uri, report.get("timing"), link if link in LINK_BYTES_PER_SECOND else None)
