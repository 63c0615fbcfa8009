# SPDX-License-Identifier: Apache-2.0
"""`forebay search import`: an index of DiskANN that a command takes over, and what is refused."""

import json

import diskann_writer as writer
import numpy as np
import pytest
from forebay.cli import main
from forebay.search import exact_neighbours, read_vectors, write_vectors

COUNT, DIMENSION = 300, 16
ENDINGS = ("_disk.index", "_pq_pivots.bin", "_pq_compressed.bin", "_metadata.bin")
LONG = ("--itopk-size", 200, "--device", "cpu")
CPU = ("--dtype", "uint8", "--device", "cpu")


def run(capsys, *words, status=0):
    """Runs a command; returns its document, or its line on standard error."""
    words = [str(word) for word in words]
    if status in (0, 1):
        words += ["--json", "-"]
    found = main(words)
    out, err = capsys.readouterr()
    assert found == status, err
    return (json.loads(out), err) if status in (0, 1) else err


@pytest.fixture(scope="module")
def vectors():
    return writer.sample(COUNT, DIMENSION)


@pytest.fixture
def prefix(vectors, tmp_path):
    writer.write_sample(tmp_path / "ann", vectors)
    return tmp_path / "ann"


@pytest.fixture
def drive(capsys, tmp_path):
    run(capsys, "drive", "create", tmp_path / "drive.img", "--size", "8M")
    return f"file:{tmp_path / 'drive.img'}"


def test_an_import_is_checked_and_a_query_finds_what_the_vectors_say(capsys, tmp_path, prefix, drive, vectors):
    words = ("--drive", drive, "--name", "taken", "--capacity", COUNT + 9, "--seed", 3, *CPU)
    document, err = run(capsys, "search", "import", prefix, *words)
    assert not err
    assert (document["prefix"], document["drives"]) == (str(prefix), [drive])
    assert (document["verified"], document["verified_vectors"]) == (True, 100)
    assert 0.9 <= document["recall"] <= 1
    assert list(document["steps"]) == ["check", "write", "open"]
    assert sum(document["steps"].values()) <= document["seconds"]
    index = document["index"]
    assert (index["builder"], index["live"], index["slots"], index["seed"]) == ("diskann", COUNT, COUNT + 9, 3)
    described, _ = run(capsys, "search", "info", "--drive", drive, "--name", "taken")
    assert described["index"] == index

    base, queries, found = tmp_path / "base.u8bin", tmp_path / "queries.u8bin", tmp_path / "found.ibin"
    asked = writer.sample(20, DIMENSION, seed=9)
    write_vectors(vectors, base)
    write_vectors(asked, queries)
    words = ("--drive", drive, "--name", "taken", "--base", base, "--recall-min", "0.95", "--output", found)
    searched, _ = run(capsys, "search", "query", queries, *words, "-k", 5, *LONG)
    assert searched["verified"] is True
    true = exact_neighbours(vectors, asked, 5).ids
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(read_vectors(found), true, strict=True)]) >= 0.95 * 5


def test_a_name_in_use_is_refused_or_replaced(capsys, prefix, drive):
    run(capsys, "search", "import", prefix, "--drive", drive, *CPU)
    err = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, status=2)
    assert err.startswith("forebay: --name: 'index': is in use: choose another, or replace it (--replace)")
    replaced, _ = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, "--replace")
    assert replaced["verified"] is True


def test_an_index_in_which_its_vectors_are_not_found_is_a_failure(capsys, tmp_path, drive, vectors):
    writer.write_sample(tmp_path / "poor", vectors, lists=[[node ^ 1] for node in range(COUNT)])
    document, err = run(capsys, "search", "import", tmp_path / "poor", "--drive", drive, *CPU, status=1)
    assert document["verified"] is False
    assert document["recall"] < 0.9
    assert err.startswith("forebay: a search found ")
    assert "have DiskANN build it with" in err


def test_a_drive_in_memory_is_told_to_be_lost(capsys, prefix):
    _, err = run(capsys, "search", "import", prefix, "--drive", "emulated:size=8M", *CPU)
    assert "name a drive in a file" in err


@pytest.mark.parametrize("ending", ENDINGS[:3])
def test_a_missing_file_is_refused(capsys, prefix, drive, ending):
    file = prefix.with_name(f"ann{ending}")
    file.unlink()
    err = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, status=2)
    assert f"'{file}': no such file; check the path" in err
    assert_nothing_was_written(capsys, drive)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_was_cut_short_is_refused(capsys, prefix, drive, ending):
    file = prefix.with_name(f"ann{ending}")
    size = file.stat().st_size
    for length in (size - 1, size // 2, 3, 0):
        with file.open("rb+") as opened:
            opened.truncate(length)
        err = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, status=2)
        assert err.startswith(f"forebay: {file}: ")
        assert f"'{length}': " in err or ending == "_pq_pivots.bin"
        assert "get all of the file" in err
        assert err.count("\n") == 1
    assert_nothing_was_written(capsys, drive)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--dtype", "int8"), "--dtype: 'int8': {}_metadata.bin says that it is uint8; give that"),
        (("--dtype", "float16"), "--dtype: 'float16': must be one of float32, int8, uint8, which DiskANN has"),
        (("--dtype", "words"), "--dtype: 'words': must be one of float32, int8, uint8"),
        (("--capacity", "7"), "--capacity: '7': must be at least the number of vectors, 300"),
        (("--name", "a/b"), "--name: 'a/b': must be a name without '/'"),
        (("--seed", "-1"), "--seed: '-1': must be a whole number"),
        (("--device", "gpu"), "--device: 'gpu': must be"),
    ],
)
def test_what_is_refused_names_option_value_and_remedy(capsys, prefix, drive, words, line):
    err = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, *words, status=2)
    assert err.startswith("forebay: " + line.format(prefix))
    assert err.count("\n") == 1
    assert_nothing_was_written(capsys, drive)


def test_without_metadata_a_wrong_type_is_refused_by_the_length_of_a_node(capsys, prefix, drive):
    prefix.with_name("ann_metadata.bin").unlink()
    err = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, "--dtype", "float32", status=2)
    assert err.startswith(f"forebay: {prefix}_disk.index: bytes of a node: ")
    assert "give the type of the vectors" in err


def test_another_kind_of_index_is_refused(capsys, prefix, drive):
    prefix.with_name("ann_pq_pivots.bin_rotation_matrix.bin").touch()
    err = run(capsys, "search", "import", prefix, "--drive", drive, *CPU, status=2)
    assert err == f"forebay: PREFIX: '{prefix}': has codes of rotated vectors: build the index without OPQ\n"


def test_a_drive_that_is_too_small_is_refused(capsys, prefix):
    err = run(capsys, "search", "import", prefix, "--drive", "emulated:size=128K", *CPU, status=2)
    assert err.startswith("forebay: --drive: '131072 bytes': is too small for the index, which needs ")
    assert "use larger drives" in err


def assert_nothing_was_written(capsys, drive):
    listed, _ = run(capsys, "search", "info", "--drive", drive)
    assert listed["indexes"] == []
