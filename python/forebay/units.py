# SPDX-License-Identifier: Apache-2.0
"""Sizes and times as people write them, as fio reads them."""

import re

from forebay.errors import RefusedInput

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DIGITS_MAX = 19
_DURATION_MIN_S, _DURATION_MAX_S = 1e-9, 1e6
_RATE_MAX = 1e12
_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_size(field: str, text: str) -> int:
    """Bytes in `text`: a whole number with K, M, G or T for powers of 1024, a trailing B or iB allowed."""
    match = re.fullmatch(r"0*([0-9]+)([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise RefusedInput(field, text, "is not a size; give a number of bytes such as 512, 4K, 64M or 2G")
    digits, unit = match.groups()
    size = int(digits[:_DIGITS_MAX]) * 1024 ** _POWERS[unit]
    if len(digits) > _DIGITS_MAX or size >= 2**63:
        raise RefusedInput(field, text, "must be less than 8 EiB")
    return size


def parse_duration(field: str, text: str) -> float:
    """Seconds in `text`: a number with us, ms, s, m or h; seconds where there is none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|)", text.strip().lower())
    if not match:
        raise RefusedInput(field, text, "is not a time; give seconds such as 3, or a unit as in 500ms or 2m")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _DURATION_MAX_S:
        raise RefusedInput(field, text, "must be at most 1000000 seconds")
    if 0 < seconds < _DURATION_MIN_S:
        raise RefusedInput(field, text, "must be at least a nanosecond, or 0")
    return seconds


def parse_rate(field: str, text: str) -> float:
    """A rate a second as drive URIs have them: a number with k, M or G for powers of 1000, from 1 to 1000G."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKMG]?)", text.strip())
    rate = float(match[1]) * 1000 ** _POWERS[match[2].lower()] if match else 0.0
    if not 1 <= rate <= _RATE_MAX:
        raise RefusedInput(field, text, "give a rate a second from 1 to 1000G, such as 20000, 2.47M or 7.2G")
    return rate


def format_bytes(count: float) -> str:
    """`count` bytes with a binary prefix and at most four digits."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError(count)


def format_ns(nanoseconds: float) -> str:
    """A time in the unit that leaves one to three digits before the point."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= scale:
            return f"{_short(nanoseconds / scale)} {unit}"
    return f"{nanoseconds:.0f} ns"


def format_rate(per_second: float) -> str:
    """A rate with a decimal prefix: 20k, 2.47M."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= scale:
            return f"{_short(per_second / scale)}{unit}"
    return _short(per_second)


def format_bandwidth(bytes_per_second: float) -> str:
    """A bandwidth with a decimal prefix, as drives state it: 102 MB/s, 7.2 GB/s."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= scale:
            return f"{_short(bytes_per_second / scale)} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def format_count(count: int, noun: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _short(number: float) -> str:
    """Three digits, or all that are before the point: no power of ten."""
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"
