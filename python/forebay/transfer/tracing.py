# SPDX-License-Identifier: Apache-2.0
"""Traced runs of the transfer suite: how many, and where NVIDIA's CUPTI may lie."""

import site
import sysconfig
from pathlib import Path

# Five are enough for a median, and large sizes take too long for it; the untraced runs are those whose times count.
_TRACED_MAX = 5
_TRACED = {"super": 1, "mega": 1}
# Where NVIDIA's wheels put the library: those of CUDA 13, then those of before.
_WHEEL_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")
_LIBRARY = "libcupti.so.13"


def traced_runs(size: str, repetitions: int, *, trace: bool) -> int:
    """How many runs of a size to trace beside so many timed ones."""
    return min(_TRACED.get(size, _TRACED_MAX), repetitions) if trace else 0


def cupti_folders() -> list[str]:
    """The folders of this Python's packages that have CUPTI. The loader's and the toolkit's are looked at before."""
    packages = dict.fromkeys([sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()])
    folders = [Path(package, folder) for package in packages for folder in _WHEEL_FOLDERS]
    return [str(folder) for folder in folders if (folder / _LIBRARY).is_file()]
