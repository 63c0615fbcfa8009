# SPDX-License-Identifier: Apache-2.0
"""Disk indexes of DiskANN: what is taken over, what is refused, and the builder."""

import importlib.util
import struct
import sys
from pathlib import Path

import diskann_writer as writer
import forebay.search.diskann as importing
import numpy as np
import pytest
import search_reference
from forebay import OperationFailed, RefusedInput, Storage
from forebay.search import (
    NO_NEIGHBOUR,
    Index,
    build_graph,
    build_with_diskann,
    exact_neighbours,
    import_diskann,
    recall,
    synthetic_vectors,
)
from forebay.search.prepared import prepare

pytestmark = pytest.mark.usefixtures("one_thread_a_product")

DRIVE = "emulated:size=16M"
DISK, PIVOTS, CODES, METADATA = "_disk.index", "_pq_pivots.bin", "_pq_compressed.bin", "_metadata.bin"


def file_of(prefix, ending):
    return prefix.with_name(prefix.name + ending)


def made(folder, dtype="float32", count=400, dimension=22, chunks=6, degree=12, seed=5):
    """Files of an index over drawn vectors, and the parts that they hold."""
    random = np.random.default_rng(seed)
    vectors = synthetic_vectors(count, dimension, seed=seed).astype(np.float32)
    vectors = (vectors / np.abs(vectors).max() * 100).astype(dtype)
    graph = build_graph(vectors, graph_degree=degree, seed=seed)
    lists = [row[row != NO_NEIGHBOUR].tolist() for row in graph]
    lists[3] = lists[3][:2]
    offsets = writer.split(dimension, chunks)
    centroid = vectors.astype(np.float32).mean(0)
    centres = vectors[random.integers(0, count, 256)].astype(np.float32) - centroid
    rows = vectors.astype(np.float32) - centroid
    codes = np.empty((count, chunks), np.uint8)
    for chunk in range(chunks):
        part = slice(offsets[chunk], offsets[chunk + 1])
        codes[:, chunk] = ((rows[:, None, part] - centres[None, :, part]) ** 2).sum(2).argmin(1)
    prefix = folder / "ann"
    writer.write(prefix, vectors, lists, centres, centroid, offsets, codes, medoid=7)
    return prefix, vectors, lists, centres + centroid, offsets, codes


@pytest.fixture
def storage():
    with Storage(DRIVE, device="cpu") as opened:
        yield opened


@pytest.mark.parametrize(
    ("dtype", "dimension", "chunks", "capacity"),
    [
        ("float32", 22, 6, None),  # chunks of 3 and 4 components, and 2 of none
        ("uint8", 30, 8, 500),
        ("int8", 17, 5, None),  # a vector ends within a word
        ("float32", 1030, 7, None),  # a node is longer than a sector
    ],
)
def test_an_import_searches_as_the_reference_does(storage, tmp_path, dtype, dimension, chunks, capacity):
    prefix, vectors, lists, centres, offsets, codes = made(tmp_path, dtype, 300, dimension, chunks)
    index = import_diskann(storage, prefix, dtype=dtype, capacity=capacity)
    meta = index._meta
    assert meta.builder == "diskann"
    assert (index.count, index.dimension, index.dtype, meta.slots) == (300, dimension, dtype, capacity or 300)
    assert meta.chunks == -(-chunks // 4) * 4

    slots = meta.map.of(np.arange(300))
    neighbours = np.full((meta.slots, meta.graph_degree), NO_NEIGHBOUR, np.uint32)
    for node, around in enumerate(lists):
        neighbours[slots[node], : len(around)] = slots[around]
    by_slot = np.zeros((meta.slots, dimension), dtype)
    by_slot[slots] = vectors
    codebook, padded = (
        np.zeros((meta.chunks, 256, meta.chunk_dimension), np.float32),
        np.zeros((meta.slots, meta.chunks), np.uint8),
    )
    padded[slots, :chunks] = codes
    for chunk in range(chunks):
        width = offsets[chunk + 1] - offsets[chunk]
        codebook[chunk, :, :width] = centres[:, offsets[chunk] : offsets[chunk + 1]]
    sample = index._searcher._navigation
    parts = search_reference.Parts(
        vectors=by_slot,
        neighbours=neighbours,
        codes=padded,
        codebook=codebook,
        navigation_slots=sample[: meta.navigation_vertices],
        navigation_neighbours=sample[meta.navigation_vertices :].reshape(meta.navigation_vertices, -1),
    )
    queries = vectors[::60] + np.array(1, dtype)
    prepared = prepare(queries, "l2", meta.vector_words, codebook, meta.chunk_offsets)
    found = index.search(queries, 5, itopk_size=20, navigation_size=8)
    for number, query in enumerate(queries):
        wanted, distances, read = search_reference.search(
            parts, query, prepared.components[number], *prepared.offsets_and_scales[number], 5, 20, 8
        )
        assert found.ids[number].tolist() == meta.map.ids_of_lists(wanted).tolist()
        assert found.distances[number].tolist() == distances.tolist()
        assert found.reads[number] == len(read)


def test_vectors_for_which_no_code_can_be_made_are_not_inserted(storage, tmp_path):
    prefix, vectors, *_ = made(tmp_path, "uint8", 300, 30, 8)
    with import_diskann(storage, prefix, "uneven", dtype="uint8", capacity=500) as index:
        with pytest.raises(RefusedInput, match="chunks of different lengths"):
            index.insert(vectors[:2])
        assert index.count == 300


def test_an_import_finds_the_true_neighbours_and_stays(storage, tmp_path):
    prefix, vectors, *_ = made(tmp_path)
    steps = []
    import_diskann(storage, prefix, "taken", dtype="float32", progress=lambda *step: steps.append(step)).close()
    assert steps == [("check", 400, 400), ("write", 400, 400)]
    with Index(storage, "taken") as index:
        queries = vectors[::10]
        found = index.search(queries, 10, itopk_size=100)
        assert recall(vectors, queries, found.ids, exact_neighbours(vectors, queries, 10).ids) > 0.95
    with pytest.raises(RefusedInput, match="in use"):
        import_diskann(storage, prefix, "taken", dtype="float32")
    with import_diskann(storage, prefix, "taken", dtype="float32", replace=True) as index:
        assert index.count == 400


def test_pieces_make_the_index_that_one_piece_makes(storage, tmp_path, monkeypatch):
    prefix, *_ = made(tmp_path)
    import_diskann(storage, prefix, "a", dtype="float32").close()
    monkeypatch.setattr("forebay.search.diskann_files._PIECE_BYTES", 1000)
    monkeypatch.setattr("forebay.search.pq_mode._PIECE_BYTES", 5000)
    import_diskann(storage, prefix, "b", dtype="float32").close()
    sizes = {extent["name"]: extent["bytes"] for extent in storage.extents()}
    for part in ("nodes", "codes", "codebook", "navigation", "live"):
        a, b = (bytearray(sizes[f"{name}/{part}"]) for name in "ab")
        storage.read_extent(f"a/{part}", a)
        storage.read_extent(f"b/{part}", b)
        assert a == b, part


# ---- refusals


def number(offset, value, form="<Q"):
    """Puts a number into a file."""

    def change(data):
        struct.pack_into(form, data, offset, value)

    return change


def cut(size):
    def change(data):
        del data[size:]

    return change


def longer(data):
    data += b"\0"


NODE = 22 * 4  # where the number of neighbours is in a node
LENGTH = NODE + 4 * 13
REFUSALS = [
    (DISK, cut(40), "size.*a header has"),
    (DISK, cut(-4096), "size.*get all"),
    (DISK, longer, "size.*get all"),
    (DISK, number(0, 8, "<I"), "header.*another version"),
    (DISK, number(4, 2, "<I"), "header.*another version"),
    (DISK, number(8, 0), "nodes.*must be 1"),
    (DISK, number(8, 2**40), "nodes.*must be 1"),
    (DISK, number(8, 300), "size in the header"),
    (DISK, number(16, 0), "dimension"),
    (DISK, number(16, 1 << 40), "dimension"),
    (DISK, number(16, 50), "bytes of a node.*type of the vectors"),
    (DISK, number(16, 21), "pivots.*256 x 21"),
    (DISK, number(24, 400), "first node"),
    (DISK, number(32, 0), "bytes of a node"),
    (DISK, number(32, LENGTH + 1), "bytes of a node"),
    (DISK, number(40, 7), "nodes of a sector.*must be"),
    (DISK, number(48, 1), "frozen points"),
    (DISK, number(64, 1), "second copy"),
    (DISK, number(72, 4096), "size in the header"),
    (DISK, number(4096 + NODE, 13, "<I"), "neighbours of node 0"),
    (DISK, number(4096 + LENGTH + NODE + 4, 400, "<I"), "a neighbour of node 1"),
    (DISK, number(4096 + 2 * LENGTH, float("nan"), "<f"), "vector.*'2'.*finite"),
    (PIVOTS, cut(6), "offsets"),
    (PIVOTS, cut(5000), "size"),
    (PIVOTS, longer, "size"),
    (PIVOTS, number(0, 5, "<I"), "offsets.*another version"),
    (PIVOTS, number(8, 1 << 40), "pivots.*beyond"),
    (PIVOTS, number(4096, 255, "<I"), "pivots.*256 x 22"),
    (PIVOTS, number(4104, float("inf"), "<f"), "finite"),
    (PIVOTS, number(4104 + 256 * 88, 21, "<I"), "centroid"),
    (PIVOTS, number(4104 + 256 * 88 + 8 + 88 + 8, 1, "<I"), "chunks.*rise"),
    (PIVOTS, number(4104 + 256 * 88 + 8 + 88 + 12, 9, "<I"), "chunks.*rise"),
    (PIVOTS, number(4104 + 256 * 88 + 8 + 88, 8, "<I"), "chunks.*beyond"),
    (CODES, cut(7), "size.*a header has"),
    (CODES, cut(-1), "size.*get all"),
    (CODES, longer, "size.*get all"),
    (CODES, number(0, 399, "<I"), "shape.*400 x 6"),
    (CODES, number(4, 5, "<I"), "shape.*400 x 6"),
    (METADATA, cut(31), "size"),
    (METADATA, number(0, 2), "dtype.*uint8"),
    (METADATA, number(8, 1), "metric.*mips"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return made(tmp_path_factory.mktemp("sound"))[0]


@pytest.mark.parametrize(("ending", "change", "why"), REFUSALS)
def test_a_wrong_file_is_refused_and_nothing_is_written(storage, sound, tmp_path, ending, change, why):
    for each in (DISK, PIVOTS, CODES, METADATA):
        data = bytearray(file_of(sound, each).read_bytes())
        if each == ending:
            change(data)
            assert data != file_of(sound, each).read_bytes()
        (tmp_path / f"ann{each}").write_bytes(data)
    with pytest.raises(RefusedInput, match=why):
        import_diskann(storage, tmp_path / "ann", dtype="float32")
    assert storage.extents() == []


def test_a_neighbour_that_stands_twice_is_refused(storage, tmp_path):
    prefix, vectors, lists, *_ = made(tmp_path)
    lists[9] = [5, 6, 5]
    file_of(prefix, DISK).write_bytes(writer.disk_index(vectors, lists))
    with pytest.raises(RefusedInput, match=r"a neighbour of node 9.*'5'.*twice"):
        import_diskann(storage, prefix, dtype="float32")


@pytest.mark.parametrize("ending", [DISK, PIVOTS, CODES])
def test_a_missing_file_is_refused(storage, tmp_path, ending):
    prefix, *_ = made(tmp_path)
    file_of(prefix, METADATA).unlink()  # DiskANN's own programs write none
    import_diskann(storage, prefix, "whole", dtype="float32").close()
    file_of(prefix, ending).unlink()
    with pytest.raises(RefusedInput, match="no such file"):
        import_diskann(storage, prefix, dtype="float32")


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("_disk.index_pq_pivots.bin", "pq_disk_bytes=0"),
        ("_disk.index_max_base_norm.bin", "inner products"),
        ("_pq_pivots.bin_rotation_matrix.bin", "OPQ"),
    ],
)
def test_other_kinds_of_indexes_are_refused(storage, tmp_path, ending, why):
    prefix, *_ = made(tmp_path)
    file_of(prefix, ending).touch()
    with pytest.raises(RefusedInput, match=why):
        import_diskann(storage, prefix, dtype="float32")


def test_a_wrong_type_is_refused_without_metadata(storage, sound, tmp_path):
    for each in (DISK, PIVOTS, CODES):
        (tmp_path / f"ann{each}").write_bytes(file_of(sound, each).read_bytes())
    with pytest.raises(RefusedInput, match="type of the vectors"):
        import_diskann(storage, tmp_path / "ann", dtype="uint8")
    assert storage.extents() == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"dtype": "float16"}, "dtype"),
        ({"dtype": "nothing"}, "dtype"),
        ({"metric": "cosine"}, "length 1"),
        ({"metric": "inner_product"}, "metric"),
        ({"name": "a/b"}, "name"),
        ({"capacity": 399}, "capacity"),
        ({"capacity": 10**6}, "too small"),
        ({"seed": -1}, "seed"),
        ({"device": "cuda:x"}, "device"),
    ],
)
def test_wrong_arguments_are_refused(storage, sound, options, why):
    with pytest.raises(RefusedInput, match=why):
        import_diskann(storage, sound, **({"dtype": "float32"} | options))
    assert storage.extents() == []


# ---- the builder

STUB = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import diskann_writer as writer
import numpy as np

def build_disk_index(data, index_directory, index_prefix, vector_dtype, search_memory_maximum, **options):
    assert options == {options!r}, options
    count, dimension = np.fromfile(data, "<u4", 2)
    vectors = np.fromfile(data, vector_dtype, offset=8).reshape(count, dimension)
    chunks = int(search_memory_maximum * 2**30 / count)
    lists = [[(node + 1) % count] for node in range(count)]
    prefix = Path(index_directory) / index_prefix
    codes = np.zeros((count, chunks), np.uint8)
    centres, centroid = np.zeros((256, dimension)), vectors.mean(0)
    writer.write(prefix, vectors, lists, centres, centroid, writer.split(dimension, chunks), codes)
"""
ASKED = {"distance_metric": "l2", "complexity": 50, "graph_degree": 16, "build_memory_maximum": 4, "num_threads": 0}


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """A module of the name diskannpy that writes an index, with a ring for a graph."""
    path = tmp_path / "modules/diskannpy.py"
    path.parent.mkdir()
    path.write_text(STUB.format(tests=str(Path(__file__).parent), options=ASKED))
    monkeypatch.setenv("PYTHONPATH", str(path.parent))
    return path


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
def test_the_builder_gives_diskannpy_the_vectors(storage, tmp_path, stub, dtype):
    vectors = np.random.default_rng(3).integers(0, 100, (90, 16)).astype(dtype)
    prefix = build_with_diskann(vectors, tmp_path / "new/folder", graph_degree=16, complexity=50, chunks=5)
    assert stub.exists()
    assert sorted(each.name for each in prefix.parent.iterdir()) == sorted(
        f"ann{e}" for e in (DISK, PIVOTS, CODES, METADATA)
    )
    with import_diskann(storage, prefix, dtype=dtype) as index:
        found = index.search(vectors, 1, itopk_size=100, navigation_size=100)
        assert (found.distances == 0).all()
    with pytest.raises(RefusedInput, match="has an index ann"):
        build_with_diskann(vectors, tmp_path / "new/folder")


def test_the_builder_says_why_diskannpy_failed(tmp_path, stub):
    with pytest.raises(OperationFailed, match=r"AssertionError.*'complexity': 64"):
        build_with_diskann(np.ones((9, 8), np.uint8), tmp_path / "out", graph_degree=16, complexity=64)
    assert list((tmp_path / "out").iterdir()) == []
    stub.write_text("raise ImportError('it is broken')")
    with pytest.raises(RefusedInput, match=r"it is broken.*--no-deps"):
        build_with_diskann(np.ones((9, 8), np.uint8), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_other_codes_than_asked_for_are_a_failure(tmp_path, stub):
    stub.write_text(stub.read_text().replace("2**30 / count)", "2**30 / count) - 1"))
    with pytest.raises(OperationFailed, match=r"other codes.*90 x 4"):
        build_with_diskann(np.ones((90, 8), np.uint8), tmp_path, graph_degree=16, complexity=50, chunks=5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"vectors": np.ones((0, 8), np.uint8)}, "vectors"),
        ({"vectors": np.ones((9, 8), np.float16)}, "dtype"),
        ({"graph_degree": 0}, "graph_degree"),
        ({"complexity": 63}, "complexity"),
        ({"chunks": 9}, "chunks"),
        ({"chunks": 0}, "chunks"),
        ({"build_memory_gib": 0}, "build_memory_gib"),
        ({"threads": -1}, "threads"),
        ({"prefix": "a/b"}, "prefix"),
        ({"prefix": ""}, "prefix"),
        ({"python": "/no/such/python"}, "cannot be used"),
    ],
)
def test_the_builder_refuses(tmp_path, options, why):
    with pytest.raises(RefusedInput, match=why):
        build_with_diskann(**({"vectors": np.ones((9, 8), np.uint8), "folder": tmp_path / "out"} | options))
    assert not (tmp_path / "out").exists()


def test_memory_leaves_room_for_diskanns_cache():
    for count, chunks in ((1000, 7), (10**8, 10), (10**8, 16), (10**9, 32)):
        given = importing._memory_for_codes_gib(count, chunks)
        rest = given - 0.25 if given - 0.25 > 1 else given
        assert int(rest * 2**30 / count) == chunks


@pytest.mark.skipif(importlib.util.find_spec("diskannpy") is None, reason="diskannpy is not installed")
def test_diskannpy_itself(storage, tmp_path):
    vectors = synthetic_vectors(2000, 32, seed=1)
    prefix = build_with_diskann(vectors, tmp_path, graph_degree=32, threads=1, python=sys.executable)
    with import_diskann(storage, prefix, dtype=vectors.dtype) as index:
        queries = synthetic_vectors(50, 32, seed=1, queries=True)
        found = index.search(queries, 10, itopk_size=100)
        assert recall(vectors, queries, found.ids, exact_neighbours(vectors, queries, 10).ids) > 0.9
