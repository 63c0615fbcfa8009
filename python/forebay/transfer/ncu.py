# SPDX-License-Identifier: Apache-2.0
"""Counters of kernels, as `ncu --csv --page raw` prints them."""

import csv
import io
from pathlib import Path

from forebay.errors import RefusedInput
from forebay.files import reading

SIZE_MAX = 16 << 20
_NAME = "name the file WORKLOAD.MODE.SIZE.csv, as in knn.async.super.csv"
_REMEDY = "give what `ncu --csv --page raw --log-file` wrote"
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "n": 1e-9, "u": 1e-6, "m": 1e-3}
_UNITS = ("second", "s", "byte", "inst")
_FIRST = '"ID"'


def read_csv(field: str, file: Path) -> tuple[str, str, str, dict[str, float]]:
    """Workload, mode and size, which the name of the file says, and the sums of the counters over all kernels.

    Raises:
        RefusedInput: The file has another name, or is none of ncu.
    """
    parts = file.name.split(".")
    if len(parts) != 4:
        raise RefusedInput(field, file, f"does not say what was counted; {_NAME}")
    with reading(field, file) as source:
        data = source.read(SIZE_MAX + 1)
    if len(data) > SIZE_MAX:
        raise RefusedInput(field, file, f"is larger than 16 MiB, the limit; {_REMEDY}")
    text = data.decode("utf-8", errors="replace")
    begin = text.find(_FIRST)
    try:
        lines = list(csv.reader(io.StringIO(text[begin:]))) if begin >= 0 else []
    except csv.Error:
        lines = []
    if len(lines) < 3:
        raise RefusedInput(field, file, f"has no kernel that ncu counted; {_REMEDY}")
    heads, units, *kernels = lines
    sums = {}
    for column, head in enumerate(heads):
        if head.count("__") == 1 and "." in head:
            unit = units[column] if column < len(units) else ""
            sums[head] = sum(_value(field, file, kernel, column) for kernel in kernels if kernel) * _scale(unit)
    if not sums:
        raise RefusedInput(field, file, f"has no counter; {_REMEDY}")
    return parts[0], parts[1], parts[2], sums


def _value(field: str, file: Path, kernel: list[str], column: int) -> float:
    try:
        return float(kernel[column].replace(",", ""))
    except (IndexError, ValueError):
        raise RefusedInput(field, file, f"lacks the value of a counter; {_REMEDY}") from None


def _scale(unit: str) -> float:
    """What a value in `unit` is in the unit without a prefix."""
    return _PREFIXES.get(unit[:1], 1.0) if unit[1:] in _UNITS else 1.0
