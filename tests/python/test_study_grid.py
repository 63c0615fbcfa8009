# SPDX-License-Identifier: Apache-2.0
"""The drives of a study: URIs, their times, and values that are refused."""

import pytest
from forebay import RefusedInput
from forebay.study import Grid
from forebay.study.grid import describe, differences, with_keys


@pytest.mark.parametrize(
    ("uri", "keys", "expected"),
    [
        ("emulated:size=1M", {"iops": "5k"}, "emulated:size=1M,iops=5k"),
        ("emulated:size=1M,iops=1k,seed=2", {"iops": "5k"}, "emulated:size=1M,iops=5k,seed=2"),
        ("emulated:iops_bytes=512", {"iops": "5k"}, "emulated:iops_bytes=512,iops=5k"),
        ("emulated:", {"iops": "5k"}, "emulated:iops=5k"),
        ("file:/a=b,io=mmap", {"io": "uring"}, "file:/a=b,io=uring"),
        ("emulated:size=1M", {}, "emulated:size=1M"),
    ],
)
def test_keys_take_the_place_of_those_in_the_uri(uri, keys, expected):
    assert with_keys(uri, keys) == expected


def test_every_combination_is_a_drive():
    grid = Grid(["emulated:size=1M", "emulated:size=2M"], {"iops": ["1k", "2k"], "link": ["gen4x4"]}, {"n": ["1", "2"]})
    grid.check()
    assert grid.uris() == [
        f"emulated:size={size},iops={iops},link=gen4x4" for size in ("1M", "2M") for iops in ("1k", "2k")
    ]
    assert grid.combinations() == [{"n": "1"}, {"n": "2"}]
    assert Grid().combinations() == [{}]


@pytest.mark.parametrize(
    ("grid", "parts"),
    [
        (Grid([]), ["drive"]),
        (Grid(axes={"iops": ["1k", ""]}), ["--iops", "empty"]),
        (Grid(axes={"iops": ["1k", "1k"]}), ["--iops", "'1k'", "twice"]),
        (Grid(axes={"iops": ["fast"]}), ["--iops", "'fast'", "20000"]),
        (Grid(axes={"latency_us": ["-1"]}), ["--latency-us", "'-1'"]),
        (Grid(axes={"latency_us": ["nan"]}), ["--latency-us", "'nan'"]),
        (Grid(axes={"link": ["gen4x5"]}), ["--link", "did you mean gen4x8?"]),
        (Grid(axes={"channels": ["65"]}), ["--channels", "1 to 64"]),
        (Grid(settings={"iodepth": ["1.5"]}), ["--iodepth", "whole number"]),
        (
            Grid(drives=["emulated:size=1M", "file:x"], axes={"iops": ["1k"]}),
            ["--drive: 'file:x'", "only emulated: drives have iops to vary"],
        ),
        (
            Grid(axes={"iops": [str(n + 1) for n in range(101)]}, settings={"n": [str(n) for n in range(100)]}),
            ["10100"],
        ),
    ],
)
def test_values_that_are_not_of_their_kind_are_refused(grid, parts):
    with pytest.raises(RefusedInput) as refused:
        grid.check("--")
    for part in parts:
        assert part in str(refused.value)


def test_a_drive_says_its_times():
    slow, optane, ideal, file = describe(
        [
            "emulated:size=1M,iops=20k,latency_us=500,link=gen4x4,channels=2,threads=3",
            "emulated:profile=p5800x,size=1M,backing=hbm,residency=served",
            "emulated:backing=file,path=/nowhere",
            "file:/nowhere",
        ]
    )
    assert slow.iops() == pytest.approx(20_000)
    assert (slow.latency_us, slow.link, slow.channels) == (500, "gen4x4", 2)
    assert slow.link_bytes_per_second == pytest.approx(7.877e9, rel=1e-3)
    assert optane.iops(512) == pytest.approx(4.9e6, rel=0.03)
    assert optane.iops(4096) == pytest.approx(1.5e6, rel=0.03)
    assert (ideal.iops(), ideal.latency_us, ideal.link) == (None, None, None)
    assert (file.timing, file.iops(), file.channels) == (None, None, None)


@pytest.mark.parametrize("uri", ["emulated:size=1M,iosp=5", "emulated:size=1M,profile=none", "emulated:size=1M,x"])
def test_a_drive_that_is_refused_is_refused_before_it_runs(uri):
    with pytest.raises(RefusedInput):
        describe([uri])


@pytest.mark.parametrize(
    ("uris", "shared", "own"),
    [
        (["emulated:size=1M,iops=1k", "emulated:size=1M,iops=2k"], "emulated:size=1M", ["iops=1k", "iops=2k"]),
        (["emulated:size=1M"], "emulated:size=1M", [""]),
        (["file:a", "emulated:size=1M"], "", ["file:a", "emulated:size=1M"]),
        (["emulated:a=1", "emulated:a=1,b=2"], "", ["emulated:a=1", "emulated:a=1,b=2"]),
    ],
)
def test_drives_are_told_apart_in_few_words(uris, shared, own):
    assert differences(uris) == (shared, own)
