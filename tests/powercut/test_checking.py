# SPDX-License-Identifier: Apache-2.0
"""The check, on recordings made by hand: what it must find, and what it must let pass."""

import json
import shutil
from dataclasses import replace

import guest
import hand_made
import numpy as np
import pytest
import sectors
from checking import Check, FileSystem, FileSystemError
from hand_made import FLUSH
from recording import DATA_SECTOR, DRIVE_SECTORS, MARK_SECTOR, Case, Recording, file_system

SEED = 5
CASE = Case("by-hand", "raw", "uring", SEED)

# Two writes, a Flush that covers the first one, and a third write.
EVENTS = [
    ["write", 1, 10, 4],
    ["written", 1],
    ["flush", 1],
    ["write", 2, 12, 4],
    ["written", 2],
    ["flushed", 1],
    ["write", 3, 10, 1],
    ["written", 3],
    ["flush", 2],
    ["flushed", 2],
]


def written(first: int, count: int, generation: int) -> tuple[int, bytes]:
    data = sectors.fill(first + np.arange(count), np.full(count, generation), SEED)
    return DATA_SECTOR + first, data.tobytes()


def mark(number: int) -> tuple[int, bytes]:
    data = sectors.fill(np.array([sectors.MARK_NUMBER], np.uint64), np.array([number]), SEED)
    return MARK_SECTOR, data.tobytes()


ENTRIES = [mark(0), written(10, 4, 1), FLUSH, written(12, 4, 2), mark(1), written(10, 1, 3), FLUSH, mark(2)]


def check(tmp_path, entries: list[tuple] = ENTRIES, case: Case = CASE) -> dict[str, set[int]]:
    """Which sectors are wrong in any of some images, and how."""
    data = np.zeros((DATA_SECTOR + DRIVE_SECTORS, sectors.BYTES), np.uint8)
    data[DATA_SECTOR:] = sectors.fill(np.arange(DRIVE_SECTORS), np.zeros(DRIVE_SECTORS), SEED)
    data.tofile(tmp_path / "first.img")
    (tmp_path / "journal.json").write_text(json.dumps({"events": EVENTS, "file": {"direct": case.io == "uring"}}))
    recording = Recording(case, tmp_path)
    hand_made.write(recording.log, entries)
    one = Check(recording)
    found: dict[str, set[int]] = {"lost": set(), "mixed": set(), "strange": set(), "torn": set()}
    for verdict in one.verdicts(one.plan(60)):
        for kind, numbers in found.items():
            numbers.update(getattr(verdict, kind).tolist())
        assert not verdict.broken, verdict.broken
        assert verdict.right == (not (len(verdict.lost) or len(verdict.mixed) or len(verdict.strange)))
        assert verdict.right == str(verdict).endswith("right")
    return {kind: numbers for kind, numbers in found.items() if numbers}


def need_ext4() -> None:
    for name in ("mkfs.ext4", "e2fsck", "debugfs"):
        if not shutil.which(guest.program(name)):
            pytest.skip(f"there is no {name} here: scripts/setup --test installs e2fsprogs")


def mixture(first: int, old: int, new: int) -> tuple[int, bytes]:
    sector, begin = written(first, 1, new)
    return sector, begin[:256] + written(first, 1, old)[1][256:]


def test_a_disk_that_keeps_its_promises_is_right(tmp_path):
    assert check(tmp_path) == {}


def test_a_flush_that_was_lost_is_found(tmp_path):
    entries = [entry for entry in ENTRIES if entry != FLUSH]
    # Write 2 is newer than write 1 and may stand in its place, but only where it reached the disk.
    assert check(tmp_path, entries) == {"lost": {10, 11, 12, 13, 14, 15}}


def test_a_write_that_came_after_the_flush_that_should_cover_it_is_found(tmp_path):
    late = [ENTRIES[0], FLUSH, ENTRIES[1], *ENTRIES[3:]]
    assert check(tmp_path, late) == {"lost": {10, 11, 12, 13}}


def test_a_sector_that_was_never_written_to_the_disk_is_found(tmp_path):
    assert check(tmp_path, [ENTRIES[0], written(10, 3, 1), *ENTRIES[2:]]) == {"lost": {13}}


def test_a_mixed_sector_is_found(tmp_path):
    assert check(tmp_path, [*ENTRIES[:3], mixture(12, 1, 2), *ENTRIES[3:]]) == {"mixed": {12}}


def test_only_sectors_with_a_write_that_was_not_flushed_may_be_torn_and_only_without_direct_io(tmp_path):
    mapped = replace(CASE, io="mmap")
    assert check(tmp_path, [*ENTRIES[:3], mixture(12, 1, 2), *ENTRIES[3:]], mapped) == {"torn": {12}}
    # Write 1 is the only one of sector 11, and it was flushed.
    assert check(tmp_path, [*ENTRIES[:5], mixture(11, 0, 1), *ENTRIES[5:]], mapped) == {"mixed": {11}}


def test_a_torn_sector_may_have_no_other_bytes_than_its_own(tmp_path):
    sector, data = mixture(12, 1, 2)
    other = (sector, data[:-1] + bytes([data[-1] ^ 1]))
    mapped = replace(CASE, io="mmap")
    assert check(tmp_path, [*ENTRIES[:3], other, *ENTRIES[3:]], mapped) == {"mixed": {12}}


def test_a_write_to_the_wrong_place_or_of_another_time_is_found(tmp_path):
    assert check(tmp_path, [*ENTRIES[:3], written(20, 1, 2), *ENTRIES[3:]]) == {"strange": {20}}
    assert check(tmp_path, [mark(0), written(10, 1, 3), *ENTRIES[1:]]) == {"strange": {10}}


def test_a_file_system_that_is_destroyed_is_found(tmp_path):
    need_ext4()
    # There is none.
    with pytest.raises(AssertionError, match="e2fsck ended with 8"):
        check(tmp_path, case=replace(CASE, kind="ext4"))


def test_a_file_that_is_gone_or_cut_shorter_is_found(tmp_path):
    need_ext4()
    drive = sectors.fill(np.arange(DRIVE_SECTORS), np.zeros(DRIVE_SECTORS), SEED)
    with FileSystem() as files:
        assert (files.drive(file_system(drive, tmp_path)) == drive).all()
        with pytest.raises(FileSystemError, match=f"has {(DRIVE_SECTORS - 1) * 512} bytes"):
            files.drive(file_system(drive[:-1], tmp_path))
        with pytest.raises(FileSystemError, match="no file with the drive"):
            files.drive(file_system(drive, tmp_path, name="other"))


def test_marks_that_are_not_those_of_the_journal_are_refused(tmp_path):
    with pytest.raises(ValueError, match="marks"):
        check(tmp_path, ENTRIES[:-1])
