# SPDX-License-Identifier: Apache-2.0
"""The reader of records, on records made by hand."""

import struct

import hand_made
import pytest
import write_log
from hand_made import FLUSH, rows
from write_log import Flag


def test_entries_are_read_with_their_data_and_flags(tmp_path):
    path = tmp_path / "log"
    hand_made.write(
        path, [(7, rows(1, 2)), FLUSH, (9, 5, Flag.DISCARD), (0, b"", Flag.MARK), (3, rows(4), Flag.FUA | Flag.FLUSH)]
    )
    log = write_log.read(path)
    assert log.sector_bytes == 512
    assert [(entry.sector, entry.flags) for entry in log.entries] == [
        (7, Flag(0)),
        (0, Flag.FLUSH),
        (9, Flag.DISCARD),
        (0, Flag.MARK),
        (3, Flag.FUA | Flag.FLUSH),
    ]
    assert [entry.rows.tobytes() for entry in log.entries] == [rows(1, 2), b"", rows(0) * 5, b"", rows(4)]


def test_a_record_of_nothing_has_no_entries(tmp_path):
    path = tmp_path / "log"
    hand_made.write(path, [])
    assert write_log.read(path).entries == []


def test_sectors_may_have_another_size(tmp_path):
    path = tmp_path / "log"
    hand_made.write(path, [(1, rows(*range(16)))], 4096)
    assert write_log.read(path).entries[0].rows.shape == (2, 4096)


@pytest.mark.parametrize(
    ("at", "form", "value", "says"),
    [
        (0, "<Q", 1, "magic 0x1"),
        (8, "<Q", 2, "version 2"),
        (16, "<Q", 3, "ends before entry 2 of 3"),
        (24, "<I", 500, "sectors of 500 bytes"),
        (512 + 16, "<Q", 0x20, "entry 0 has the flags 0x20"),
        (512 + 8, "<Q", 4, "ends within entry 0 of 2"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, at, form, value, says):
    path = tmp_path / "log"
    hand_made.write(path, [(0, rows(1)), FLUSH])
    content = bytearray(path.read_bytes())
    content[at : at + struct.calcsize(form)] = struct.pack(form, value)
    path.write_bytes(content)
    with pytest.raises(write_log.WrongLogError, match=says):
        write_log.read(path)


def test_a_file_that_is_too_short_is_refused(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"")
    with pytest.raises(write_log.WrongLogError, match="too short"):
        write_log.read(path)
