# SPDX-License-Identifier: Apache-2.0
"""The verdict on the times of drives, as commands print it."""

import pytest
from forebay.cli.timing import timing


def drive(fidelity, p99_ns, bound_ns=5000, count=100, lost=0.004):
    lateness = {"count": count, "p99_ns": p99_ns, "bound_ns": bound_ns, "rate_lost_at_most": lost}
    return {"fidelity": fidelity, "lateness": lateness}


@pytest.mark.parametrize(
    ("drives", "line"),
    [
        ([drive("ok", 1200)], "timing: kept, p99 completion 1.2 us late (5 us allowed)"),
        ([drive("ok", 12_000)], "timing: kept, p99 completion 12 us late, which lowers the rate by at most 0.4 %"),
        (
            [drive("exceeded", 2_000_000)],
            "timing: MISSED, p99 completion 2 ms late (5 us allowed); "
            "these are this machine's numbers, not the drive's",
        ),
        (
            [drive("ok", 40_000, bound_ns=50_000), drive("exceeded", 8000)],
            "timing: MISSED on 1 of 2 drives, p99 completion 8 us late (5 us allowed); "
            "these are this machine's numbers, not the drive's",
        ),
        (
            [drive("ok", 40_000, bound_ns=50_000), drive("ok", 8000, lost=0.006), drive("ok", 12_000)],
            "timing: kept, p99 completion 12 us late, which lowers the rate by at most 0.6 %",
        ),
        ([drive("ok", 0, count=0)], "timing: not modelled; the drive is as fast as this machine allows"),
        ([{"fidelity": "ok"}], "timing: not modelled; the drive is as fast as this machine allows"),
    ],
)
def test_the_line_says_whether_the_times_were_kept(drives, line):
    assert timing({"drives": drives}) == line
