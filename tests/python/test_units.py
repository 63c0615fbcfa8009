# SPDX-License-Identifier: Apache-2.0
import pytest
from forebay import RefusedInput
from forebay.units import format_bytes, format_ns, format_rate, parse_duration, parse_size


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
    ],
)
def test_sizes(text, size):
    assert parse_size("--bs", text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5K", "4Q", "0x10", "4 4"])
def test_no_sizes(text):
    with pytest.raises(RefusedInput) as refused:
        parse_size("--bs", text)
    assert refused.value.field == "--bs"
    assert refused.value.value == text
    assert str(refused.value).startswith(f"--bs: '{text}': ")


@pytest.mark.parametrize(("text", "seconds"), [("3", 3), ("0.5", 0.5), ("500ms", 0.5), ("2m", 120), ("10us", 1e-5)])
def test_durations(text, seconds):
    assert parse_duration("--runtime", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "3 days", "nan", "inf"])
def test_no_durations(text):
    with pytest.raises(RefusedInput):
        parse_duration("--runtime", text)


def test_formats():
    assert format_bytes(0) == "0 B"
    assert format_bytes(1536) == "1.5 KiB"
    assert format_bytes(10 << 20) == "10.0 MiB"
    assert format_ns(512) == "512 ns"
    assert format_ns(50_400) == "50.4 us"
    assert format_ns(2_000_000_000) == "2 s"
    assert format_rate(2_470_000) == "2.47M"
    assert format_rate(12) == "12"
