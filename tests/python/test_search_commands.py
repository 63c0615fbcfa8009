# SPDX-License-Identifier: Apache-2.0
"""`forebay search`: indexes that commands build on drives, searches that are right, and what is refused."""

import json

import numpy as np
import pytest
from forebay.cli import main
from forebay.search import exact_neighbours, read_vectors, synthetic_vectors, write_vectors

BASE, DIMENSION = 600, 16
VECTORS = f"synthetic:{BASE}x{DIMENSION}"
SMALL = ("--graph-degree", "16", "--device", "cpu")


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
def drive(tmp_path_factory):
    """A drive in a file, with the index of VECTORS."""
    image = tmp_path_factory.mktemp("search") / "index.img"
    assert main(["drive", "create", str(image), "--size", "16M"]) == 0
    uri = f"emulated:backing=file,path={image}"
    assert main(["search", "build", VECTORS, "--drive", uri, *SMALL]) == 0
    return uri


@pytest.fixture(scope="module")
def true():
    base, queries = (synthetic_vectors(n, DIMENSION, queries=n == 20) for n in (BASE, 20))
    return exact_neighbours(base, queries, 10).ids


def test_a_build_says_what_it_built_and_checks_it(capsys, tmp_path):
    image = tmp_path / "a.img"
    run(capsys, "drive", "create", image, "--size", "16M")
    document, err = run(capsys, "search", "build", VECTORS, "--drive", f"file:{image}", *SMALL, "--name", "a")
    assert document["verified"] is True
    assert document["recall"] >= 0.9
    assert document["verified_vectors"] == 100
    assert document["index"]["count"] == BASE
    assert document["index"]["graph_degree"] == 16
    assert {"train codes", "encode", "write", "open"} <= set(document["steps"])
    assert sum(document["steps"].values()) <= document["seconds"]
    assert not err
    listed, _ = run(capsys, "search", "info", "--drive", f"file:{image}")
    assert [each["name"] for each in listed["indexes"]] == ["a"]
    described, _ = run(capsys, "search", "info", "--drive", f"file:{image}", "--name", "a")
    assert described["index"] == document["index"]
    assert listed["indexes"][0]["drive_bytes"] == described["index"]["drive_bytes"]
    assert "--replace" not in run(capsys, "search", "build", VECTORS, "--drive", f"file:{image}", *SMALL)[0]
    refused = run(capsys, "search", "build", VECTORS, "--drive", f"file:{image}", *SMALL, "--name", "a", status=2)
    assert "--name: 'a': is in use" in refused
    words = ("--name", "a", "--replace", "--mode", "exact", "--metric", "cosine")
    replaced, _ = run(capsys, "search", "build", VECTORS, "--drive", f"file:{image}", *SMALL, *words)
    assert (replaced["index"]["mode"], replaced["index"]["metric"]) == ("exact", "cosine")
    assert replaced["verified"]


def test_a_build_that_was_ended_goes_on_from_its_folder(capsys, tmp_path):
    kept = tmp_path / "kept"
    words = ("--drive", "emulated:size=16M", *SMALL, "--checkpoints", kept)
    first, _ = run(capsys, "search", "build", VECTORS, *words)
    again, _ = run(capsys, "search", "build", VECTORS, *words)
    assert {"lists", "neighbours", "reverse edges"} <= set(first["steps"])
    assert not {"lists", "neighbours", "reverse edges"} & set(again["steps"])
    assert again["index"] == first["index"]
    refused = run(capsys, "search", "build", VECTORS, *words, "--seed", "1", status=2)
    assert refused.startswith(f"forebay: --checkpoints: '{kept}': keeps a build with seed 0, and this one has 1")
    refused = run(capsys, "search", "build", VECTORS, *words, "--checkpoints", kept / "build.json", status=2)
    assert refused.startswith(f"forebay: --checkpoints: '{kept}/build.json': cannot be used: ")


def test_a_drive_in_memory_is_told_to_be_lost(capsys):
    _, err = run(capsys, "search", "build", "synthetic:50x8", "--drive", "emulated:size=16M", *SMALL)
    assert "name a drive in a file" in err


def test_a_query_finds_the_exact_neighbours(capsys, drive, true, tmp_path):
    output = tmp_path / "found.ibin"
    words = ("--drive", drive, "--base", VECTORS, "--recall-min", "0.9", "--output", output, "--device", "cpu")
    document, _ = run(capsys, "search", "query", "synthetic:20", *words)
    found = read_vectors(output)
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(found, true, strict=True))
    assert document["verified"] is True
    assert hits / true.size == pytest.approx(document["recall"], abs=0.02)  # of equal distances either counts
    assert document["reads_per_query"] >= 64
    assert document["qps"] > 0
    assert document["latency_ns"]["p50"] <= document["latency_ns"]["p99"] <= document["latency_ns"]["max"]
    read = sum(each["statistics"]["read_commands"] for each in document["forebay"]["drives"])
    assert read == round(document["reads_per_query"] * 20)


def test_without_true_neighbours_nothing_is_verified(capsys, drive):
    document, _ = run(capsys, "search", "query", "synthetic:5", "--drive", drive, "--device", "cpu")
    assert (document["recall"], document["verified"]) == (None, None)


def test_true_neighbours_of_a_file(capsys, drive, true, tmp_path):
    truth = tmp_path / "truth.ibin"
    write_vectors(true.view(np.int32), truth)
    words = ("synthetic:20", "--drive", drive, "--truth", truth, "--device", "cpu", "-k", "5")
    document, _ = run(capsys, "search", "query", *words)
    assert document["recall"] > 0.9
    assert document["verified"] is None
    write_vectors((true.view(np.int32) + 1) % BASE, truth)
    document, err = run(capsys, "search", "query", *words, "--recall-min", "0.9", status=1)
    assert document["verified"] is False
    assert document["recall"] < 0.5
    assert "--recall-min is 0.9" in err
    write_vectors(true.view(np.int32) + BASE, truth)
    err = run(capsys, "search", "query", *words, status=2)
    assert f"must be the ids of vectors of the index, 0 to {BASE - 1}" in err


def test_a_filter_leaves_only_its_ids(capsys, drive, tmp_path):
    allowed, output = tmp_path / "allowed.ibin", tmp_path / "found.ibin"
    ids = np.arange(0, BASE, 3, dtype=np.int32)
    write_vectors(ids[:, None], allowed)
    words = ("--drive", drive, "--base", VECTORS, "--filter", allowed, "--output", output, "--itopk-size", "192")
    document, _ = run(capsys, "search", "query", "synthetic:20", *words, "--recall-min", "0.9", "--device", "cpu")
    assert document["filter"] == len(ids)
    found = read_vectors(output)
    assert set(found[found >= 0].tolist()) <= set(ids.tolist())


def test_one_command_builds_and_searches(capsys, tmp_path):
    for mode in ("pq", "exact"):
        words = ("--vectors", VECTORS, "--mode", mode, "--recall-min", "0.9", *SMALL)
        document, _ = run(capsys, "search", "query", "synthetic:10", *words)
        assert document["verified"] is True
        assert document["index"]["mode"] == mode
    base = tmp_path / "base.fbin"
    write_vectors(np.random.default_rng(1).standard_normal((300, 8), np.float32), base)
    words = ("--vectors", base, "--metric", "inner_product", "--recall-min", "0.9", *SMALL)
    document, _ = run(capsys, "search", "query", base, *words)
    assert document["index"]["dtype"] == "float32"
    assert document["count"] == 300


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("query synthetic:5 --drive @ -k 65", "-k: '65': must be 1 to --itopk-size, 64"),
        ("query synthetic:5 --drive @ --itopk-size 5000", "--itopk-size: '5000': must be 1 to 4096"),
        ("query synthetic:5 --drive @ --search-width 33", "--search-width: '33': must be 1 to 32, or auto"),
        ("query synthetic:5 --drive @ --search-width 4 --refill-size 5", "--refill-size: '5': must be 1 to the search"),
        ("query synthetic:5 --drive @ --navigation-size 0", "--navigation-size: '0': must be"),
        ("query synthetic:5 --drive @ --max-iterations 3", "--max-iterations: '3': only an index of the mode exact"),
        ("query synthetic:5x8 --drive @", "QUERIES: 'dimension 8': must have that of the index, 16"),
        ("query synthetic:5 --drive @ --name b", "--name: 'b': is no index of these drives; the drives have index"),
        ("query synthetic:5 --drive @ --memory uvm", "--memory: 'uvm': must be storage, hbm or host"),
        ("query synthetic:5 --drive @ --metric l2", "--metric: 'l2': is of an index that --vectors builds"),
        ("query synthetic:5 --drive @ --base synthetic:9x16", "--base: 'synthetic:9x16': has 9 vectors of uint8 x 16"),
        ("query synthetic:5 --drive @ --recall-min 0.5", "--base: is missing, and --recall-min needs"),
        (f"query synthetic:5 --drive @ --base {VECTORS} --recall-min 2", "--recall-min: '2.0': must be 0 to 1"),
        ("query synthetic:5", "--drive: is missing"),
        ("query synthetic: --drive @", "QUERIES: 'synthetic:': give a number of vectors"),
        ("query vectors.txt --drive @", "QUERIES: 'vectors.txt': must be FILE.fbin"),
        ("query synthetic:5 --drive @ --output found.bin", "--output: 'found.bin': the name must end in .ibin"),
        ("build synthetic:5x8 --drive emulated:size=16M --mode no", "--mode: 'no': must be pq or exact"),
        ("build synthetic:5x8 --drive emulated:size=16M --metric no", "--metric: 'no': must be l2"),
        ("build synthetic:5x8 --drive emulated:size=16M --chunks 3", "--chunks: '3': must be a multiple of 4"),
        ("build synthetic:5x8 --drive emulated:size=16M --capacity 4", "--capacity: '4': must be at least"),
        ("build synthetic:5x8 --drive emulated:size=16M --graph-degree 0", "--graph-degree: '0': must be 1 to 512"),
        ("build synthetic:50000x8 --drive emulated:size=2M", "--drive: '2097152 bytes': is too small for the index"),
        ("build synthetic:0 --drive emulated:size=2M", "VECTORS: 'synthetic:0': give a number of vectors"),
        ("info --drive @ --name b", "--name: 'b': is no index of these drives"),
    ],
)
def test_what_is_refused_names_option_value_and_remedy(capsys, drive, words, line):
    err = run(capsys, "search", *words.replace("@", drive).split(), status=2)
    assert err.startswith(f"forebay: {line}")
    assert err.count("\n") == 1


def test_vectors_that_are_no_numbers_are_refused(capsys, tmp_path):
    base = tmp_path / "base.fbin"
    vectors = np.ones((5, 4), np.float32)
    vectors[3, 1] = np.nan
    write_vectors(vectors, base)
    err = run(capsys, "search", "build", base, "--drive", "emulated:size=16M", *SMALL, status=2)
    assert err.startswith("forebay: VECTORS[3]: 'nan': must be finite")
    write_vectors(vectors[:0], base)
    err = run(capsys, "search", "build", base, "--drive", "emulated:size=16M", *SMALL, status=2)
    assert "has no vector" in err
