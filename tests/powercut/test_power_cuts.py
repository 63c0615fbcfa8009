# SPDX-License-Identifier: Apache-2.0
"""Drives whose power is cut, in one guest: a small part of what power_cuts.py does."""

import itertools
import os
import random

import guest
import power_cuts
import pytest
import write_log
from recording import Case, Recording, record

IMAGES = 40
WRITES = 300
FOLDER = guest.ROOT / "build" / "powercut" / "make-test"
SEED = int(os.environ.get("FOREBAY_SEED") or random.getrandbits(32))
AGAIN = f"the seed was {SEED}: FOREBAY_SEED={SEED} {power_cuts.PYTHON} -m pytest tests/powercut/test_power_cuts.py"

DRIVES = [
    Case(f"{kind}-{io}", kind, io, SEED, WRITES) for kind, io in itertools.product(power_cuts.KINDS, power_cuts.IOS)
]
FAULTS = [
    Case(f"fault-{kind}-{io}", kind, io, SEED, WRITES, drop_flushes=True)
    for kind, io in (("ext4", "mmap"), ("raw", "uring"))
]


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    if reason := power_cuts.missing():
        pytest.skip(reason)
    if not power_cuts.writer().is_file():
        pytest.skip(f"there is no {power_cuts.writer()} here: make test builds it")
    return record([*DRIVES, *FAULTS], power_cuts.writer(), FOLDER)


def summary(recording: Recording) -> tuple[power_cuts.Summary, str]:
    """What images of a recording show, and in words."""
    said = [AGAIN]
    return power_cuts.summarise(recording, IMAGES, said.append), "\n".join(said)


@pytest.mark.parametrize("drive", DRIVES, ids=lambda case: case.name)
def test_what_was_flushed_survives_a_power_cut(recordings, drive):
    found, words = summary(recordings[drive.name])
    assert found.flushes > 2, words
    assert found.direct == (drive.io == "uring"), words
    assert found.wrong == 0, words


@pytest.mark.parametrize("fault", FAULTS, ids=lambda case: case.name)
def test_flushes_that_do_nothing_are_found(recordings, fault):
    found, words = summary(recordings[fault.name])
    assert found.flushes > 2, words
    assert found.wrong > IMAGES / 2, words


@pytest.mark.parametrize("case", [*DRIVES, *FAULTS], ids=lambda case: case.name)
def test_the_record_has_all_that_the_disk_holds(recordings, case):
    recording = recordings[case.name]
    disk = recording.first
    for entry in write_log.read(recording.log).entries:
        disk[entry.sector : entry.sector + len(entry.rows)] = entry.rows
    assert (disk == recording.last).all(), AGAIN
