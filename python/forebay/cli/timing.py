# SPDX-License-Identifier: Apache-2.0
"""The verdict on the times of emulated drives, in words."""

from typing import Any

from forebay.units import format_ns

_OK = "ok"


def timing(report: dict[str, Any]) -> str:
    """One line on a storage's report: whether its drives completed their commands when they should have."""
    timed = [drive for drive in report["drives"] if (drive.get("lateness") or {}).get("count")]
    if not timed:
        return "timing: not modelled; the drive is as fast as this machine allows"
    missed = [drive for drive in timed if drive["fidelity"] != _OK]
    beyond = [drive for drive in timed if drive["lateness"]["p99_ns"] > drive["lateness"]["bound_ns"]]
    late = max((drive["lateness"] for drive in missed or beyond or timed), key=lambda lateness: lateness["p99_ns"])
    found = f"p99 completion {format_ns(late['p99_ns'])} late"
    bound = f"({format_ns(late['bound_ns'])} allowed)"
    if missed:
        where = f" on {len(missed)} of {len(timed)} drives" if len(timed) > 1 else ""
        return f"timing: MISSED{where}, {found} {bound}; these are this machine's numbers, not the drive's"
    if beyond:  # allowed under load, where commands take far longer
        lost = max(drive["lateness"]["rate_lost_at_most"] for drive in beyond)
        return f"timing: kept, {found}, which lowers the rate by at most {100 * lost:.2g} %"
    return f"timing: kept, {found} {bound}"
