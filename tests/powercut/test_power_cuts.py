# SPDX-License-Identifier: Apache-2.0
"""Drives whose power is cut, in one guest: a small part of what power_cuts.py does."""

import os
import random

import guest
import power_cuts
import pytest
import write_log
from recording import Case, Recording, RefusedError, record

IMAGES = 60
WRITES = 500
FOLDER = guest.ROOT / "build" / "powercut" / "make-test"
SEED = int(os.environ.get("FOREBAY_SEED") or random.getrandbits(32))
AGAIN = f"the seed was {SEED}: FOREBAY_SEED={SEED} {power_cuts.PYTHON} -m pytest tests/powercut/test_power_cuts.py"

DRIVES = [Case(kind, kind, SEED, WRITES) for kind in power_cuts.KINDS]
FAULT = Case("fault", "ext4", SEED, WRITES, drop_flushes=True)


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording | RefusedError]:
    if reason := guest.missing():
        pytest.skip(reason)
    if not power_cuts.writer().is_file():
        pytest.skip(f"there is no {power_cuts.writer()} here: make test builds it")
    return record([*DRIVES, FAULT], power_cuts.writer(), FOLDER)


def summary(recording: Recording | RefusedError) -> tuple[power_cuts.Summary, str]:
    """What images of a recording show, and in words."""
    if isinstance(recording, RefusedError):
        pytest.skip(str(recording))
    said = [AGAIN]
    return power_cuts.summarise(recording, IMAGES, said.append), "\n".join(said)


@pytest.mark.parametrize("drive", DRIVES, ids=lambda case: case.name)
def test_what_was_flushed_survives_a_power_cut(recordings, drive):
    found, words = summary(recordings[drive.name])
    assert found.flushes > 2, words
    assert found.wrong == 0, words


def test_flushes_that_do_nothing_are_found(recordings):
    found, words = summary(recordings[FAULT.name])
    assert found.flushes > 2, words
    assert found.wrong > IMAGES / 2, words


@pytest.mark.parametrize("case", [*DRIVES, FAULT], ids=lambda case: case.name)
def test_the_record_has_all_that_the_disk_holds(recordings, case):
    recording = recordings[case.name]
    if isinstance(recording, RefusedError):
        pytest.skip(str(recording))
    disk = recording.first
    for entry in write_log.read(recording.log).entries:
        disk[entry.sector : entry.sector + len(entry.rows)] = entry.rows
    assert (disk == recording.last).all(), AGAIN
