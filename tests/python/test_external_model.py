# SPDX-License-Identifier: Apache-2.0
"""The equations of external memory, against the numbers that were published with them."""

import math
import sys
from pathlib import Path

import pytest
from forebay import RefusedInput, Storage
from forebay.graph.external_model import (
    UNBOUNDED,
    ExternalMemory,
    amplification_at_random,
    latency_in_flight_s,
    outstanding_requests,
)
from forebay.links import LINK_BYTES_PER_SECOND, link_bytes_per_second

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/report"))

import results

US = 1e-6
# The mean request of a GPU that reads lists by zero-copy: requests of 32, 64, 96 and 128 bytes by their shares.
ZERO_COPY_BYTES = 0.2 * 32 + 0.2 * 64 + 0.2 * 96 + 0.4 * 128
GEN4 = ExternalMemory(24e9, outstanding=768, latency_s=1.2 * US)
GEN3 = ExternalMemory(12e9, outstanding=256, latency_s=1.2 * US)


def test_published_request_of_zero_copy():
    assert pytest.approx(89.6) == ZERO_COPY_BYTES


@pytest.mark.parametrize(("memory", "iops", "latency_us"), [(GEN4, 268e6, 2.87), (GEN3, 134e6, 1.91)])
def test_published_requirements_of_gen4_and_gen3(memory, iops, latency_us):
    assert memory.required_iops(ZERO_COPY_BYTES) == pytest.approx(iops, rel=2e-3)
    assert memory.allowed_latency_s(ZERO_COPY_BYTES) == pytest.approx(latency_us * US, rel=2e-3)


def test_published_host_memory_is_bound_by_the_link():
    flowing = GEN4.outstanding * ZERO_COPY_BYTES / GEN4.latency_s
    assert flowing == pytest.approx(57_344e6)
    assert GEN4.throughput(ZERO_COPY_BYTES) == 24e9
    assert GEN4.bound(ZERO_COPY_BYTES) == "link"


def test_published_slope_of_48_is_a_latency_of_16_us_and_a_knee_at_500_bytes():
    assert latency_in_flight_s(48e6, 768, 1) == pytest.approx(16 * US)
    memory = ExternalMemory(24e9, outstanding=768, latency_s=16 * US)
    assert memory.requests_per_second == pytest.approx(48e6)
    assert memory.best_request_bytes == pytest.approx(500)
    assert memory.throughput(250) == pytest.approx(12e9)
    assert memory.bound(250) == "latency"
    assert memory.bound(501) == "link"


def test_published_best_request_of_four_drives_is_4_kb():
    memory = ExternalMemory(24e9, iops=6e6)
    assert memory.best_request_bytes == pytest.approx(4000)
    assert memory.bound(512) == "iops"


def test_published_xlfdd_needs_93_75_miops_and_has_176():
    memory = ExternalMemory(24e9, iops=16 * 11e6)
    assert memory.required_iops(256) == pytest.approx(93.75e6)
    assert memory.bound(256) == "link"


def test_published_cxl_device_of_2500_mb_s_answers_after_3_3_us():
    latency = latency_in_flight_s(2500e6, 128, 64)
    assert latency == pytest.approx(3.3 * US, rel=0.01)
    assert outstanding_requests(2500e6, latency, 64) == pytest.approx(128)


@pytest.mark.parametrize(
    ("gb_per_s", "latency_us", "longer_us"), [(45, 1.53, 2.18), (50, 1.38, 1.97), (55, 1.25, 1.79)]
)
def test_predicted_requirements_of_gen5(gb_per_s, latency_us, longer_us):
    memory = ExternalMemory(gb_per_s * 1e9, outstanding=768)
    assert memory.allowed_latency_s(ZERO_COPY_BYTES) == pytest.approx(latency_us * US, rel=4e-3)
    assert memory.allowed_latency_s(128) == pytest.approx(longer_us * US, rel=4e-3)
    assert 502e6 <= memory.required_iops(ZERO_COPY_BYTES) <= 614e6


@pytest.mark.parametrize(("alignment", "published"), [(32, 1.09), (128, 1.47), (512, 2.97), (4096, 16.97)])
def test_published_amplification_of_lists_of_256_bytes(alignment, published):
    assert amplification_at_random(alignment, 8, 256) == pytest.approx(published, abs=5e-3)


def test_blocks_shorter_than_an_entry_amplify_nothing():
    assert amplification_at_random(4, 8, 256) == 1


@pytest.mark.parametrize("iops", [20e6, 100e6, 268e6, 1e9, UNBOUNDED])
def test_the_run_gets_slower_from_the_knee_on(iops):
    knee = ExternalMemory(24e9, iops, 768).knee_latency_s(ZERO_COPY_BYTES)

    def seconds(latency_s):
        return ExternalMemory(24e9, iops, 768, latency_s).seconds(1e9, ZERO_COPY_BYTES)

    assert seconds(knee * 0.99) == pytest.approx(seconds(0))
    assert seconds(knee * 1.01) == pytest.approx(seconds(0) * 1.01)
    assert seconds(knee * 4) == pytest.approx(seconds(0) * 4)


def test_the_time_is_the_bytes_over_the_throughput():
    assert GEN4.seconds(48e9, ZERO_COPY_BYTES) == pytest.approx(2)
    assert ExternalMemory(24e9, iops=1e6).seconds(4096e6, 4096) == pytest.approx(1)


def test_memory_whose_link_has_no_bound():
    memory = ExternalMemory(math.inf, iops=1e6, latency_s=2 * US)
    assert memory.throughput(64) == 64e6
    assert memory.bound(64) == "iops"
    assert memory.best_request_bytes == math.inf
    assert memory.seconds(64e6, 64) == 1


def test_memory_that_nothing_but_the_link_bounds():
    memory = ExternalMemory(24e9)
    assert memory.requests_per_second == math.inf
    assert memory.best_request_bytes == 0
    assert memory.allowed_latency_s(64) == memory.knee_latency_s(64) == math.inf
    assert memory.throughput(1) == 24e9


@pytest.mark.parametrize("value", [0, -1, math.nan, -math.inf])
@pytest.mark.parametrize("field", ["bytes_per_second", "iops", "outstanding", "latency_s"])
def test_memory_that_cannot_be_is_refused(field, value):
    if (field, value) == ("latency_s", 0):
        return
    with pytest.raises(RefusedInput) as refused:
        ExternalMemory(**{"bytes_per_second": 1e9, field: value})
    assert (refused.value.field, refused.value.value) == (field, str(value))


def test_what_must_be_finite_is_refused():
    unbounded = {"bytes_per_second": math.inf}
    for fields in (unbounded, {**unbounded, "outstanding": 8}, {"bytes_per_second": 1e9, "latency_s": math.inf}):
        with pytest.raises(RefusedInput):
            ExternalMemory(**fields)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_requests_that_cannot_be_are_refused(value):
    for method in ("throughput", "required_iops", "allowed_latency_s", "knee_latency_s"):
        with pytest.raises(RefusedInput, match="request_bytes"):
            getattr(GEN4, method)(value)
    with pytest.raises(RefusedInput, match="latency_s"):
        outstanding_requests(1e9, value, 64)
    with pytest.raises(RefusedInput, match="bytes_per_second"):
        latency_in_flight_s(value, 768, 64)
    with pytest.raises(RefusedInput, match="list_bytes"):
        amplification_at_random(32, 8, value)


def test_links_are_those_of_the_emulator():
    with pytest.raises(RefusedInput) as refused:
        Storage("emulated:size=1M,link=gen9x1", device="cpu")
    assert refused.value.remedy == f"use one of {', '.join(LINK_BYTES_PER_SECOND)}, or leave it out"


def test_links_carry_what_the_reports_of_benchmarks_hold_against_them():
    assert {name: rate / 1e9 for name, rate in LINK_BYTES_PER_SECOND.items()} == pytest.approx(results.LINK_GB_PER_S)


@pytest.mark.parametrize(
    ("name", "near"), [("gen4x1", "gen4x16"), ("GEN5X16", "gen5x16"), ("gen7x8", "gen6x8"), ("", "")]
)
def test_an_unknown_link_is_refused_with_the_nearest(name, near):
    with pytest.raises(RefusedInput, match=f"did you mean {near}"):
        link_bytes_per_second("--link", name)
