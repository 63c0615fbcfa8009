# SPDX-License-Identifier: Apache-2.0
"""Files of vectors."""

import struct

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput
from forebay.search import read_vectors, write_vectors
from forebay.search.vectors import SUFFIXES


def some(kind, shape=(5, 3)):
    return np.random.default_rng(1).integers(0, 100, shape).astype(kind)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("shape", [(5, 3), (1, 1), (0, 7), (300, 128)])
def test_what_is_written_is_read(tmp_path, suffix, shape):
    path, vectors = tmp_path / f"some{suffix}", some(SUFFIXES[suffix], shape)
    write_vectors(vectors, path)
    found = read_vectors(path)
    assert (found.dtype, found.shape) == (vectors.dtype, shape)
    assert np.array_equal(found, vectors)
    assert found.size == 0 or not found.flags.writeable
    assert path.stat().st_size == 8 + vectors.nbytes


def test_a_file_is_as_others_write_it(tmp_path):
    path = tmp_path / "two.fbin"
    path.write_bytes(struct.pack("<2I4f", 2, 2, 1.5, -2.0, 0.0, 3.25))
    assert read_vectors(path).tolist() == [[1.5, -2.0], [0.0, 3.25]]
    write_vectors(np.array([[1.5, -2.0], [0.0, 3.25]], np.float32), tmp_path / "same.fbin")
    assert (tmp_path / "same.fbin").read_bytes() == path.read_bytes()


def test_large_arrays_are_written_in_pieces_wherever_they_lie(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.search.vectors._PIECE_BYTES", 64)
    vectors = np.asfortranarray(some("f4", (100, 9)))[::-1]
    write_vectors(vectors, tmp_path / "some.fbin")
    assert np.array_equal(read_vectors(tmp_path / "some.fbin"), vectors)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", "size"),
        (b"1234567", "size"),
        (struct.pack("<2I", 1, 0), "dimension"),
        (struct.pack("<2I", 1, 1 << 17), "dimension"),
        (struct.pack("<2I", 1 << 31, 4), "vectors"),
        (struct.pack("<2I", 0xFFFFFFFF, 0xFFFFFFFF), "vectors"),
        (struct.pack("<2I", 2, 2) + b"\0" * 15, "size"),
        (struct.pack("<2I", 2, 2) + b"\0" * 17, "size"),
        (struct.pack("<2I", (1 << 31) - 1, 1 << 16), "size"),
    ],
)
def test_a_file_that_is_cut_or_corrupt_is_refused(tmp_path, content, field):
    path = tmp_path / "bad.fbin"
    path.write_bytes(content)
    with pytest.raises(RefusedInput) as refused:
        read_vectors(path)
    assert refused.value.field == f"{path}: {field}"
    assert refused.value.remedy


def test_files_that_cannot_be_are_refused(tmp_path):
    for name in ("missing.fbin", "vectors.npy", "vectors", ".fbin"):
        with pytest.raises(RefusedInput, match="vector file"):
            read_vectors(tmp_path / name)
    (tmp_path / "folder.fbin").mkdir()
    with pytest.raises(RefusedInput, match="directory"):
        read_vectors(tmp_path / "folder.fbin")


@pytest.mark.parametrize(
    ("vectors", "name", "remedy"),
    [
        (some("f8"), "x.fbin", "convert them"),
        (some("f2"), "x.fbin", "convert them"),
        (some(">f4"), "x.fbin", "convert them"),
        (some("u1"), "x.i8bin", "u8bin"),
        (some("f4", (4,)), "x.fbin", "must have the shape"),
        (some("f4", (4, 0)), "x.fbin", "must have the shape"),
        (some("f4"), "x.bin", "must end in"),
        (some("f4"), "none/x.fbin", "there is no directory"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_there(tmp_path, vectors, name, remedy):
    with pytest.raises(RefusedInput, match=remedy):
        write_vectors(vectors, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_fails(tmp_path):
    full = tmp_path / "full.fbin"
    full.symlink_to("/dev/full")
    with pytest.raises(OperationFailed, match="No space"):
        write_vectors(some("f4", (5000, 8)), full)
