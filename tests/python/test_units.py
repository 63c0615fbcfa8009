# SPDX-License-Identifier: Apache-2.0
import pytest
from forebay import RefusedInput
from forebay.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_ns,
    format_rate,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("4k", 4096),
        ("4K", 4096),
        ("4KiB", 4096),
        ("64M", 64 << 20),
        ("2G", 2 << 30),
        ("1tb", 1 << 40),
        ("0" * 5000 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text, size):
    assert parse_size("--bs", text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1", 1), ("20000", 2e4), ("20k", 2e4), ("20K", 2e4), ("2.47M", 2.47e6), ("7.2G", 7.2e9), ("1000G", 1e12)],
)
def test_rates(text, rate):
    assert parse_rate("--iops", text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "0", "0.5", "-1", "1e6", "nan", "inf", "2T", "4m", "1001G", "M", "9" * 400, "٤"])
def test_no_rates(text):
    with pytest.raises(RefusedInput) as refused:
        parse_rate("--iops", text)
    assert refused.value.field == "--iops"
    assert refused.value.value == text


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5K", "4Q", "0x10", "4 4", "٤K", "nan", "9223372036854775808", "8388608T"]
)
def test_no_sizes(text):
    with pytest.raises(RefusedInput) as refused:
        parse_size("--bs", text)
    assert refused.value.field == "--bs"
    assert refused.value.value == text
    assert str(refused.value).startswith(f"--bs: '{text}': ")


def test_a_number_too_long_for_python_is_refused_and_not_shown_whole():
    with pytest.raises(RefusedInput, match="must be less than 8 EiB") as refused:
        parse_size("--bs", "9" * 5000)
    assert refused.value.value == "9" * 5000
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(("text", "seconds"), [("3", 3), ("0.5", 0.5), ("500ms", 0.5), ("2m", 120), ("10us", 1e-5)])
def test_durations(text, seconds):
    assert parse_duration("--runtime", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "3 days", "nan", "inf", "٣", "9" * 400, "1000001", "0.0000001us"])
def test_no_durations(text):
    with pytest.raises(RefusedInput) as refused:
        parse_duration("--runtime", text)
    assert refused.value.field == "--runtime"
    assert refused.value.value == text


def test_formats():
    assert format_bytes(0) == "0 B"
    assert format_bytes(1536) == "1.5 KiB"
    assert format_bytes(10 << 20) == "10.0 MiB"
    assert format_ns(512) == "512 ns"
    assert format_ns(50_400) == "50.4 us"
    assert format_ns(2_000_000_000) == "2 s"
    assert format_rate(2_470_000) == "2.47M"
    assert format_rate(12) == "12"
    assert format_bandwidth(12) == "12 B/s"
    assert format_bandwidth(102_400_000) == "102 MB/s"
    assert format_bandwidth(7_250_000_000) == "7.25 GB/s"
    assert format_count(1, "thread") == "1 thread"
    assert format_count(2, "thread") == "2 threads"


def test_no_format_has_a_power_of_ten():
    assert format_ns(999_900) == "1000 us"
    assert format_ns(5_000_000_000_000) == "5000 s"
    assert format_rate(999_900) == "1000k"
    assert format_bandwidth(3_000_000_000_000_000) == "3000 TB/s"
