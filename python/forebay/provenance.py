# SPDX-License-Identifier: Apache-2.0
"""On what a result was measured: what is under `forebay` in every JSON document."""

import platform
from typing import Any

from forebay.storage import Storage, build_info


def provenance(storage: Storage, path: str = "storage_direct") -> dict[str, Any]:
    """The storage's report, what matters of its drives at the top, the build and the host.

    Where several drives differ, `profile` and `residency` name each once, and `lateness` is that of the latest drive.
    """
    report = storage.report()
    drives = report["drives"]
    return {
        **report,
        "path": path,
        "profile": _named(drives, "profile"),
        "residency": _named(drives, "residency"),
        "lateness": max((drive.get("lateness") or {} for drive in drives), key=lambda late: late.get("p99_ns", 0)),
        **build_and_host(),
    }


def build_and_host() -> dict[str, Any]:
    """What measured, and where."""
    built = build_info()
    return {"version": built["version"], "commit": built["commit"], "host": platform.node()}


def _named(drives: list[dict[str, Any]], key: str) -> str:
    return ", ".join(dict.fromkeys(str(drive[key]) for drive in drives if key in drive))
