# SPDX-License-Identifier: Apache-2.0
"""What follows from the points of a study: the drive that suffices, the next one, and the one that meets a latency."""

import pytest
from forebay.study import Drive, Figures, Point
from forebay.study.advice import advise, knee_lines, least_with_p99, model_of
from forebay.study.tax import Variant, _tax


def point(iops, seconds, latency_us=50.0, **figures):
    read = {"per_command_ns": 1e9 / iops, "per_byte_ns": 0.0, "granule_bytes": 512, "latency_min_us": latency_us}
    drive = Drive(f"emulated:iops={iops},latency_us={latency_us}", {"read": read, "channels": 1})
    return Point(drive, {}, ["x"], Figures(seconds, seconds, fidelity="ok", **figures), [seconds], 1)


def test_the_least_drive_within_the_tolerance_suffices():
    slow, enough, faster, fastest = (point(*one) for one in ((1e3, 2.0), (2e3, 1.04), (4e3, 1.02), (8e3, 1.0)))
    advice = advise([fastest, slow, faster, enough])
    assert (advice.suffices, advice.best, advice.following) == (enough, fastest, faster)
    assert advice.gain == pytest.approx(1.04 / 1.02)
    assert advise([fastest, slow, faster, enough], 0.01).suffices is fastest
    assert advise([slow, enough], 0.0).following is None
    assert advise([]) is None


def test_the_next_faster_drive_is_worse_in_nothing():
    enough, more_iops, all_better = point(1e3, 1.0, 10), point(4e3, 2.0, 20), point(8e3, 1.0, 10)
    assert advise([enough, more_iops, all_better]).following is all_better
    assert advise([enough, more_iops]).following is None


@pytest.mark.parametrize(
    ("p99_us", "on_time", "least"),
    [(100, None, 2e3), (100, True, 2e3), (100, False, 4e3), (60, None, 4e3), (10, None, None)],
)
def test_the_least_drive_that_meets_a_latency(p99_us, on_time, least):
    points = [
        point(4e3, 1.0, latency_ns={"p99": 50_000}),
        point(1e3, 1.0, latency_ns={"p99": 200_000}),
        point(2e3, 1.0, latency_ns={"p99": 100_000}, on_time=on_time),
        point(500, 1.0),
    ]
    found = least_with_p99(points, p99_us)
    assert (found and found.drive.iops()) == (least and pytest.approx(least))


@pytest.mark.parametrize(
    ("knee", "line"),
    [
        (
            {"iops": {"value": 2e4, "next_bound": "latency", "at_least": None, "at_most": None}},
            "knee: IOPS 20k; with slower drives the IOPS bounds the program, with faster ones the latency",
        ),
        (
            {"iops": {"value": None, "next_bound": None, "at_least": 5e6, "at_most": None}},
            "knee: IOPS above 5M; the IOPS bounds every point of the grid",
        ),
        (
            {"latency_us": {"value": None, "next_bound": None, "at_least": 500.0, "at_most": None}},
            "knee: latency above 500 us; the latency bounds no point of the grid",
        ),
        (
            {"latency_us": {"value": None, "next_bound": None, "at_least": None, "at_most": 5.0}},
            "knee: latency below 5 us; the latency bounds every point of the grid",
        ),
        (
            {"iodepth": {"value": None, "next_bound": None, "at_least": 64.0, "at_most": None}},
            "knee: iodepth above 64; latency bounds the rate at every depth",
        ),
    ],
)
def test_knees_in_words(knee, line):
    assert knee_lines(knee) == [line]


def test_a_tax_is_a_ratio_of_times_that_drives_kept():
    base, served = Variant("as_studied", "", "a", 3.0, "ok"), Variant("served", "", "b", 2.0, "ok")
    assert _tax(served, base) == pytest.approx(0.5)
    assert _tax(Variant("beside_idle", "", "a", 3.3, "ok"), base) == pytest.approx(0.1)
    assert _tax(Variant("served", "", "b", 2.0, "exceeded"), base) is None
    assert _tax(served, Variant("as_studied", "", "a", 3.0, "exceeded")) is None
    assert _tax(Variant("peer", "", error="needs two GPUs"), base) is None
    assert _tax(base, base) is None


def test_without_points_there_is_no_model():
    assert model_of([]) is None
    assert knee_lines(None) == []
