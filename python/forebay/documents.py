# SPDX-License-Identifier: Apache-2.0
"""JSON that comes from outside, bounded before it is parsed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import RefusedInput
from forebay.files import reading
from forebay.units import format_bytes

SIZE_MAX = 16 << 20
DEPTH_MAX = 64

_OTHERS = bytes(set(range(256)) - set(b'[{]}"'))
_STEPS = np.zeros(256, np.int32)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_PIECE = 1 << 20


def read_json(
    field: str, path: Path, remedy: str, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:  # noqa: ANN401 (as json.loads)
    """The document in a file. Lines before the first that begins with `{` are left out: fio's own warnings."""
    with reading(field, path) as file:
        data = file.read(SIZE_MAX + 1)
    if len(data) > SIZE_MAX:
        raise RefusedInput(field, path, f"is larger than {format_bytes(SIZE_MAX)}, the limit; {remedy}")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.startswith(b"{"):
        data = data[data.find(b"\n{") + 1 :]
    if _too_deep(data):
        raise RefusedInput(field, path, f"is nested more than {DEPTH_MAX} deep; {remedy}")
    try:
        return json.loads(data, object_pairs_hook=object_pairs_hook)
    except ValueError as error:
        raise RefusedInput(field, path, f"is not JSON ({error}); {remedy}") from None


def _too_deep(data: bytes) -> bool:
    marks = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    depth = in_string = 0
    for at in range(0, len(marks), _PIECE):
        piece = np.frombuffer(marks[at : at + _PIECE], np.uint8)
        inside = (np.cumsum(piece == ord('"'), dtype=np.int32) + in_string) & 1
        depths = np.cumsum(_STEPS[piece] * (1 - inside), dtype=np.int32) + depth
        if depths.max() > DEPTH_MAX:
            return True
        depth, in_string = int(depths[-1]), int(inside[-1])
    return False
