# SPDX-License-Identifier: Apache-2.0
"""What the model says of a run that was made."""

import pytest
from forebay.graph import Placed, SpmvResult, generate
from forebay.graph.modelled import modelled

GRAPH = generate.uniform(8, 4)


def run(reads, bytes_read, iodepth=None):
    return SpmvResult(seconds=1.0, reads=reads, bytes_read=bytes_read, bytes_needed=1, iodepth=iodepth, y=None)


def external(keys):
    return {"path": "external", "external": keys}


@pytest.mark.parametrize(
    ("keys", "seconds", "bound"),
    [
        ("latency_us=2,outstanding=8,link=none", 0.25, "latency"),  # 8 reads each 2 us: a million in 0.25 s
        ("latency_us=2,outstanding=none,link=none,iops=1M,devices=2", 0.5, "iops"),
        ("latency_us=2,outstanding=none,link=64M", 1.0, "link"),
        ("latency_us=0,link=1G", 0.064, "link"),
    ],
)
def test_one_bound_at_a_time(keys, seconds, bound):
    found = modelled(run(1_000_000, 64_000_000), external(keys))
    assert (found.seconds, found.bound, found.request_bytes) == (pytest.approx(seconds), bound, 64)


def test_drives_are_striped_and_take_longer_for_longer_reads():
    read = {"latency_min_us": 100, "per_command_ns": 1000, "per_byte_ns": 1, "granule_bytes": 512}
    drive = {"timing": {"channels": 2, "read": read}, "link": "none"}
    found = modelled(run(1000, 600_000), {"path": "storage_direct", "drives": [drive, drive]})
    assert found.memory.iops == pytest.approx(2 * 2e9 / 2024)
    assert found.seconds == pytest.approx(1000 / found.memory.iops)
    assert found.figures()["outstanding"] is None
    found = modelled(run(1000, 600_000, iodepth=4), {"path": "storage_direct", "drives": [drive, drive]})
    assert (found.bound, found.seconds) == ("latency", pytest.approx(1000 * 100e-6 / 4))
    found = modelled(run(1000, 600_000), {"path": "storage_direct", "drives": [{**drive, "link": "gen4x4"}]})
    assert 7e9 < found.memory.bytes_per_second < 8e9


@pytest.mark.parametrize(
    ("result", "report"),
    [
        (run(0, 0), external("latency_us=2")),
        (run(None, None), external("latency_us=2")),
        (run(1, 32), external("latency_us=0,link=none")),
        (run(1, 32), {"path": "host"}),
        (run(1, 512), {"path": "storage_direct", "drives": [{"link": "none"}]}),
    ],
)
def test_what_is_unknown_or_unbounded_is_not_predicted(result, report):
    assert modelled(result, report) is None


@pytest.mark.parametrize(
    ("place", "is_known"),
    [("external:latency_us=1", True), ("host", False), ("storage_direct", False), ("storage", False)],
)
def test_a_report_says_what_the_place_can_do(place, is_known):
    with Placed(GRAPH, place, device="cpu") as placed:
        assert (modelled(placed.components(), placed.report()) is not None) == is_known
    with Placed(GRAPH, "storage_direct", drives=["emulated:iops=1M,latency_us=10,size=4M"], device="cpu") as placed:
        found = modelled(placed.components(), placed.report())
        assert found.memory.iops == pytest.approx(1e6)
        assert found.memory.latency_s == pytest.approx(10e-6)
