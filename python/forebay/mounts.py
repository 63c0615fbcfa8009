# SPDX-License-Identifier: Apache-2.0
"""The file system on which a file lies."""

import os
import re
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class Mount:
    """A mounted file system. `type` is such as ext4, `source` what is mounted: a device, or a name."""

    point: str
    type: str
    source: str


def mount_of(path: str | os.PathLike[str], mountinfo: str) -> Mount | None:
    """The mount that a path belongs to, by the text of /proc/self/mountinfo; None where the text has none."""
    real = PurePath(os.path.realpath(path))
    found = None
    for line in mountinfo.splitlines():
        fields, separator, rest = line.partition(" - ")
        if not separator or len(fields.split()) < 5 or len(rest.split()) < 2:
            continue
        point = _unescaped(fields.split()[4])
        # Of two mounts at one place the later hides the earlier.
        if real.is_relative_to(point) and (found is None or len(point) >= len(found.point)):
            kind, source = rest.split()[:2]
            found = Mount(point, kind, _unescaped(source))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
