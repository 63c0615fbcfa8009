# SPDX-License-Identifier: Apache-2.0
"""Indexes of vectors: what a search finds, and what is refused or fails."""

import dataclasses
import json
import zlib

import numpy as np
import pytest
import search_reference as reference
from forebay import OperationFailed, RefusedInput, Storage, build_info, create_drive
from forebay.search import (
    METRICS,
    NO_NEIGHBOUR,
    Index,
    build_graph,
    exact_neighbours,
    recall,
    synthetic_vectors,
)
from forebay.search.exact_mode import layout_of as exact_layout
from forebay.search.index_file import VERSION, Meta, read_meta, read_part, write_whole
from forebay.search.pq_mode import layout_of
from forebay.search.prepared import prepare
from forebay.search.quantiser import CENTROIDS

pytestmark = pytest.mark.usefixtures("one_thread_a_product")

DRIVE = "emulated:size=64M,latency_us=50"
SEED = 20_261_127


def vectors_of(dtype, count, dimension, seed=SEED):
    """Vectors that lie in clusters."""
    base = synthetic_vectors(count, dimension, seed=seed).astype(np.float64)
    if dtype == "uint8":
        return base.astype(np.uint8)
    return (base - 128).astype(dtype) if dtype == "int8" else ((base - 128) / 16).astype(dtype)


def queries_of(dtype, count, dimension):
    base = synthetic_vectors(count, dimension, seed=SEED, queries=True).astype(np.float64)
    if dtype == "uint8":
        return base.astype(np.uint8)
    return (base - 128).astype(dtype) if dtype == "int8" else ((base - 128) / 16).astype(dtype)


@pytest.fixture(scope="module")
def storage():
    with Storage("emulated:size=512M,latency_us=50", device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def small(storage):
    """An index of each mode over the same vectors."""
    base, queries = vectors_of("uint8", 2000, 32), queries_of("uint8", 50, 32)
    indexes = {
        mode: Index.build(storage, base, f"small-{mode}", mode=mode, graph_degree=16, capacity=2100)
        for mode in ("pq", "exact")
    }
    return base, queries, indexes


def reference_parts(storage, name):
    """What the reference searches, read from the extents."""
    meta = read_meta(storage, name)
    records = np.empty((meta.slots, meta.record_words), "<u4")
    storage.read_extent(f"{name}/nodes", records)
    layout = layout_of(meta)
    used = layout.sound(np.arange(meta.slots), records)
    vectors = layout.vectors(records, np.dtype(meta.dtype), meta.dimension)
    neighbours = np.full((meta.slots, meta.graph_degree), NO_NEIGHBOUR, np.uint32)
    neighbours[used] = layout.neighbours(records[used])
    codes = read_part(storage, name, meta, "codes").reshape(meta.slots, meta.chunks)
    codebook = read_part(storage, name, meta, "codebook").reshape(meta.chunks, CENTROIDS, meta.chunk_dimension)
    navigation = read_part(storage, name, meta, "navigation")
    sample = navigation[: meta.navigation_vertices]
    around = navigation[meta.navigation_vertices :].reshape(len(sample), meta.navigation_degree)
    return meta, reference.Parts(vectors, neighbours, codes, codebook, sample, around, meta.metric)


def reference_search(meta, parts, queries, k, list_size, navigation_size):
    prepared = prepare(queries, meta.metric, meta.vector_words, parts.codebook, meta.chunk_offsets)
    found = [
        reference.search(parts, query, components, offset, scale, k, list_size, navigation_size)
        for query, components, (offset, scale) in zip(
            queries, prepared.components, prepared.offsets_and_scales, strict=True
        )
    ]
    slots, distances = (np.stack([each[part] for each in found]) for part in (0, 1))
    return meta.map.ids_of_lists(slots), distances, np.array([len(read) for _, _, read in found])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "float32"])
def test_with_one_read_at_a_time_a_search_is_that_of_the_reference(storage, dtype, metric):
    base, queries = vectors_of(dtype, 700, 30), queries_of(dtype, 20, 30)
    with Index.build(storage, base, "each", metric=metric, graph_degree=12, chunks=8, replace=True) as index:
        found = index.search(queries, 5, itopk_size=24, navigation_size=8)
        meta, parts = reference_parts(storage, "each")
    ids, distances, reads = reference_search(meta, parts, queries, 5, 24, 8)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.distances, distances)
    np.testing.assert_array_equal(found.reads, reads)
    assert not found.errors


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_search_by_exact_distances_finds_the_nearest(storage, dtype, metric):
    base, queries = vectors_of(dtype, 700, 30), queries_of(dtype, 20, 30)
    with Index.build(storage, base, "exactly", mode="exact", metric=metric, graph_degree=12, replace=True) as index:
        found = index.search(queries, 5, itopk_size=64, search_width=2)
    true = exact_neighbours(base, queries, 5, metric)
    assert recall(base, queries, found.ids, true.ids, metric) >= 0.97
    for ids, distances, query in zip(found.ids, found.distances, queries, strict=True):
        exact = exact_neighbours(base[ids], query[None], len(ids), metric)
        np.testing.assert_allclose(distances, exact.distances[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mode", ["pq", "exact"])
def test_memory_and_drives_give_the_same_result(storage, small, mode):
    _, queries, indexes = small
    from_drives = indexes[mode].search(queries, 10)
    with Index(storage, f"small-{mode}", memory="host") as index:
        from_memory = index.search(queries, 10)
    np.testing.assert_array_equal(from_memory.ids, from_drives.ids)
    np.testing.assert_array_equal(from_memory.distances, from_drives.distances)
    np.testing.assert_array_equal(from_memory.reads, from_drives.reads)


def test_over_several_drives_and_in_batches_a_search_finds_the_same(small):
    base, queries, indexes = small
    with Storage(DRIVE, DRIVE, DRIVE, device="cpu") as drives, Index.build(drives, base, graph_degree=16) as index:
        found = index.search(queries, 10, batch=7, concurrency=3)
        reads = [drive["statistics"]["read_commands"] for drive in drives.report()["drives"]]
    assert found.concurrency == 3
    true = exact_neighbours(base, queries, 10)
    expected = recall(base, queries, indexes["pq"].search(queries, 10).ids, true.ids)
    assert recall(base, queries, found.ids, true.ids) == pytest.approx(expected, abs=0.02)
    assert min(reads) > 0.8 * max(reads)


@pytest.mark.parametrize("mode", ["pq", "exact"])
def test_a_filter_lets_only_its_ids_be_found(small, mode):
    base, queries, indexes = small
    allowed = np.arange(len(base)) % 3 == 0
    found = indexes[mode].search(queries, 10, itopk_size=128, filter=allowed)
    assert allowed[found.ids].all()
    of_bits = indexes[mode].search(queries, 10, itopk_size=128, filter=np.packbits(allowed, bitorder="little"))
    np.testing.assert_array_equal(found.ids, of_bits.ids)
    near = np.flatnonzero(allowed)[exact_neighbours(base[allowed], queries, 10).ids]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found.ids.tolist(), near.tolist(), strict=True)]) >= 9
    nothing = indexes[mode].search(queries, 10, filter=np.zeros(len(base), bool))
    assert (nothing.ids == NO_NEIGHBOUR).all()
    assert np.isinf(nothing.distances).all()


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("mode", ["pq", "exact"])
def test_few_vectors_are_all_found(storage, mode, count):
    base = vectors_of("float32", count, 9)
    with Index.build(storage, base, "few", mode=mode, graph_degree=4, replace=True) as index:
        found = index.search(base[:1], 10, itopk_size=64)
        assert len(index) == count
    assert sorted(found.ids[0][: min(count, 10)].tolist()) == sorted(
        exact_neighbours(base, base[:1], min(count, 10)).ids[0].tolist()
    )
    assert (found.ids[0][count:] == NO_NEIGHBOUR).all()


def test_equal_vectors_are_found(storage):
    base = np.repeat(vectors_of("float32", 3, 8), 100, axis=0)
    with Index.build(storage, base, "equal", graph_degree=8, replace=True) as index:
        found = index.search(base[::100], 5, itopk_size=64)
    np.testing.assert_array_equal(found.distances, 0)


def contents_of(storage, name):
    """What the extents of an index hold, by the names of its parts."""
    parts = {}
    for each in storage.extents():
        index, _, part = each["name"].rpartition("/")
        if index == name:
            parts[part] = bytearray(each["bytes"])
            storage.read_extent(each["name"], parts[part])
    return parts


def test_the_same_seed_gives_the_same_index(storage):
    base = vectors_of("uint8", 1500, 16)
    contents = []
    for seed in (3, 3, 4):
        Index.build(storage, base, "again", graph_degree=8, seed=seed, replace=True).close()
        contents.append(contents_of(storage, "again"))
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


@pytest.mark.parametrize("mode", ["pq", "exact"])
def test_a_build_that_was_ended_goes_on_where_it_was(storage, tmp_path, mode):
    base, kept = vectors_of("uint8", 1500, 16), tmp_path / "kept"

    def end_it(step, _done, _total):
        if step == "connections":
            raise KeyboardInterrupt

    options = {"mode": mode, "graph_degree": 8, "seed": 3, "replace": True}
    with pytest.raises(KeyboardInterrupt):
        Index.build(storage, base, f"ended-{mode}", **options, checkpoints=kept, progress=end_it)
    assert not contents_of(storage, f"ended-{mode}")
    steps = []
    with Index.build(
        storage, base, f"ended-{mode}", **options, checkpoints=str(kept), progress=lambda step, *_: steps.append(step)
    ):
        pass
    assert steps[0] == "connections"
    assert not {"lists", "neighbours", "reverse edges"} & set(steps)
    Index.build(storage, base, f"whole-{mode}", **options).close()
    assert contents_of(storage, f"ended-{mode}") == contents_of(storage, f"whole-{mode}")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seed 3, and this one has 4", {"seed": 4}),
        ("graph_degree 8, and this one has 9", {"graph_degree": 9}),
        ("metric l2, and this one has cosine", {"metric": "cosine"}),
        ("vectors 300, and this one has 299", {"vectors": vectors_of("uint8", 300, 16)[:-1]}),
        ("checksum", {"vectors": vectors_of("uint8", 300, 16)[::-1]}),
    ],
)
def test_checkpoints_of_another_build_are_refused(storage, tmp_path, name, change):
    options = {"vectors": vectors_of("uint8", 300, 16), "graph_degree": 8, "seed": 3, "checkpoints": tmp_path}
    Index.build(storage, name="first", **options, replace=True).close()
    with pytest.raises(RefusedInput, match=f"{name}.*name another") as refused:
        Index.build(storage, name="second", **(options | change))
    assert refused.value.field == "checkpoints"
    assert not contents_of(storage, "second")


def test_checkpoints_are_refused_where_they_would_keep_nothing(storage, tmp_path):
    base = vectors_of("uint8", 300, 16)
    graph = build_graph(base, graph_degree=8)
    with pytest.raises(RefusedInput, match=f"'{tmp_path}'.*leave one") as refused:
        Index.build(storage, base, "second", graph=graph, checkpoints=tmp_path)
    assert refused.value.field == "checkpoints"


@pytest.fixture(scope="module")
def of_glosses(glosses, graph_of_glosses):
    with (
        Storage("emulated:size=256M,latency_us=50", device="cpu") as storage,
        Index.build(storage, glosses[0], graph=graph_of_glosses, chunks=32) as index,
    ):
        yield storage, index


def test_nineteen_of_twenty_neighbours_of_glosses_are_found(glosses, of_glosses):
    base, queries, true = glosses
    found = of_glosses[1].search(queries, 10, itopk_size=160)
    assert recall(base, queries, found.ids, true) >= 0.95
    some, of_some = queries[:250], true[:250]
    one = recall(base, some, found.ids[:250], of_some)
    for width, refill in ((4, 1), (8, 4), ("auto", 1)):
        others = of_glosses[1].search(some, 10, itopk_size=160, search_width=width, refill_size=refill)
        assert recall(base, some, others.ids, of_some) >= one - 0.005


def test_each_neighbour_of_glosses_is_that_of_the_reference(glosses, of_glosses):
    queries = glosses[1][:40]
    meta, parts = reference_parts(of_glosses[0], "index")
    found = of_glosses[1].search(queries, 10, itopk_size=64)
    ids, distances, reads = reference_search(meta, parts, queries, 10, 64, 32)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.distances, distances)
    np.testing.assert_array_equal(found.reads, reads)


def flip(storage, extent, at):
    byte = bytearray(1)
    storage.read_extent(extent, byte, at)
    byte[0] ^= 0x10
    storage.write_extent(extent, byte, at)


@pytest.mark.parametrize(
    ("mode", "part"),
    [("pq", "codes"), ("pq", "codebook"), ("pq", "navigation"), ("pq", "live"), ("exact", "entries"), ("pq", "meta")],
)
def test_a_part_that_was_changed_is_refused_by_its_name(mode, part):
    with Storage(DRIVE, device="cpu") as storage:
        Index.build(storage, vectors_of("uint8", 300, 16), "x", mode=mode, graph_degree=8).close()
        size = next(each["bytes"] for each in storage.extents() if each["name"] == f"x/{part}")
        for at in (24, size // 2, size - 1):
            flip(storage, f"x/{part}", at)
            with pytest.raises(RefusedInput, match=f"x/{part}") as refused:
                Index(storage, "x")
            assert refused.value.field == "index"
            flip(storage, f"x/{part}", at)
        Index(storage, "x").close()


@pytest.mark.parametrize(("mode", "part"), [("pq", "nodes"), ("exact", "lists"), ("exact", "vectors")])
def test_a_record_that_was_changed_fails_the_queries_that_read_it(mode, part):
    random = np.random.default_rng(SEED)
    with Storage(DRIVE, device="cpu") as storage:
        base = vectors_of("float32", 300, 16)
        with Index.build(storage, base, "x", mode=mode, graph_degree=8) as index:
            meta = read_meta(storage, "x")
            piece = 4 * (meta.vector_words if part == "vectors" else meta.record_words)
            right = index.search(base[:64], 3)
            for slot in random.permutation(meta.slots)[:8].tolist():
                at = slot * piece + int(random.integers(piece))
                flip(storage, f"x/{part}", at)
                found = index.search(base[:64], 3, partial=True)
                for query, why in found.errors.items():
                    assert f"record {slot}," in why, f"seed {SEED}"
                    assert "guard" in why.lower()
                    assert (found.ids[query] == NO_NEIGHBOUR).all()
                fine = [query for query in range(64) if query not in found.errors]
                np.testing.assert_array_equal(found.ids[fine], right.ids[fine])
                nearest = int(meta.map.ids(np.array([slot]))[0])
                if nearest < 64:
                    assert nearest in found.errors
                    with pytest.raises(OperationFailed, match=r"query 0: .*record"):
                        index.search(base[nearest : nearest + 1], 3)
                flip(storage, f"x/{part}", at)


@pytest.mark.parametrize("mode", ["pq", "exact"])
def test_a_build_that_ends_early_leaves_no_index(mode):
    def stop(step, _done, _total):
        if step.startswith("write"):
            raise InterruptedError

    base = vectors_of("uint8", 200, 8)
    with Storage(DRIVE, device="cpu") as storage:
        Index.build(storage, base, "x", mode=mode, graph_degree=4).close()
        with pytest.raises(InterruptedError):
            Index.build(storage, base, "x", mode=mode, graph_degree=4, seed=1, replace=True, progress=stop)
        with pytest.raises(RefusedInput, match="no index"):
            Index(storage, "x")
        with Index.build(storage, base, "x", mode=mode, graph_degree=4, replace=True) as index:
            assert index.search(base[:1], 1).ids.tolist() == [[0]]


def test_an_index_that_was_cut_or_lacks_a_part_is_refused():
    with Storage(DRIVE, device="cpu") as storage:
        for mode, parts in (
            ("pq", ("nodes", "codes", "codebook", "navigation", "live")),
            ("exact", ("lists", "vectors", "entries", "live")),
        ):
            for part in parts:
                Index.build(storage, vectors_of("uint8", 300, 16), "x", mode=mode, graph_degree=8, replace=True).close()
                extent = f"x/{part}"
                size = next(each["bytes"] for each in storage.extents() if each["name"] == extent)
                kept = bytearray(size)
                storage.read_extent(extent, kept)
                storage.remove_extent(extent)
                with pytest.raises((RefusedInput, OperationFailed), match=part):
                    Index(storage, "x")
                with storage.new_extent(extent, size - 1) as write:
                    write(kept[:-1], 0)
                with pytest.raises(RefusedInput, match="cut"):
                    Index(storage, "x")
                storage.remove_extent(extent)
                for each in [each["name"] for each in storage.extents()]:
                    storage.remove_extent(each)


def test_an_index_of_another_version_or_none_is_refused():
    with Storage(DRIVE, device="cpu") as storage:
        with pytest.raises(RefusedInput, match="none"):
            Index(storage, "x")
        Index.build(storage, vectors_of("uint8", 100, 8), "x", graph_degree=4).close()
        with pytest.raises(RefusedInput, match="the drives have x"):
            Index(storage, "y")
        storage.write_extent("x/meta", np.array([VERSION + 1], "<u4"), 8)
        with pytest.raises(RefusedInput, match=f"version {VERSION + 1}"):
            Index(storage, "x")
        storage.write_extent("x/meta", b"something", 0)
        with pytest.raises(RefusedInput, match="no index"):
            Index(storage, "x")


def some_meta(**changed):
    words = {"mode": "pq", "dtype": "uint8", "metric": "l2", "builder": "x", "checksums": {}}
    given = {"chunk_offsets": [0, 1], "slot_offset": 0, "record_words": 128}
    return Meta(**dict.fromkeys((field.name for field in dataclasses.fields(Meta)), 1) | words | given | changed)


@pytest.mark.parametrize(
    "changed",
    [
        *({"mode": "x"}, {"dtype": "float64"}, {"metric": "x"}, {"dimension": 0}, {"slots": 0}, {"slots": 2**31}),
        *({"count": 2}, {"count": -1}, {"slots": 4, "slot_factor": 2}, {"slot_factor": 0}, {"slot_offset": 1}),
        *({"graph_degree": 0}, {"vector_words": 0}, {"record_words": 2}, {"chunk_offsets": [0, 2]}),
        *({"chunk_offsets": []}, {"chunk_dimension": 0}, {"navigation_vertices": 0}, {"navigation_degree": -1}),
        *({"slots": "1"}, {"count": 1.0}, {"slot_offset": None}, {"chunk_offsets": ["0", "1"]}, {"seed": True}),
        *({"chunk_offsets": 3}, {"checksums": {"live": "1"}}),
    ],
)
def test_a_meta_that_no_build_writes_is_refused(changed):
    with pytest.raises(RefusedInput) as refused:
        Meta.from_bytes(some_meta(**changed).to_bytes(), "x")
    assert "x/meta" in str(refused.value)


def test_a_meta_says_what_it_was_given():
    meta = some_meta()
    assert Meta.from_bytes(meta.to_bytes(), "x") == meta
    text = json.dumps({"mode": "pq"}).encode()
    numbers = np.array([VERSION, len(text), zlib.crc32(text), 0], "<u4").tobytes()
    with pytest.raises(RefusedInput, match="x/meta"):
        Meta.from_bytes(b"FBINDEX\n" + numbers + text, "x")


def bad_vectors():
    base = vectors_of("float32", 20, 8)
    broken = base.copy()
    broken[3, 2] = np.nan
    zeros = base.copy()
    zeros[5] = 0
    return [
        (base.astype(np.float64), {}, "vectors", "float32"),
        (base[0], {}, "vectors", "shape"),
        (base[:0], {}, "vectors", "no vector"),
        (broken, {}, "vectors[3]", "finite"),
        (zeros, {"metric": "cosine"}, "vectors[5]", "cosine"),
        (base, {"metric": "hamming"}, "metric", "l2"),
        (base, {"mode": "ivf"}, "mode", "pq"),
        (base, {"graph_degree": 0}, "graph_degree", "1 to"),
        (base, {"graph_degree": 513}, "graph_degree", "1 to"),
        (base, {"chunks": 6}, "chunks", "multiple of 4"),
        (base, {"chunks": 12}, "chunks", "from 4 to 8"),
        (base, {"capacity": 19}, "capacity", "20"),
        (base, {"capacity": 10_000_000}, "storage", "larger drives"),
        (base, {"name": "a/b"}, "name", "without"),
        (base, {"device": "tpu"}, "device", "cpu"),
        (base, {"graph": np.zeros((20, 4), np.uint32)}, "graph", "twice"),
        (base, {"graph": np.full((20, 4), 20, np.uint32)}, "graph", "0 to 19"),
        (base, {"graph": np.zeros((19, 4), np.uint32)}, "graph", "(20, graph_degree)"),
    ]


@pytest.mark.parametrize(("vectors", "options", "field", "remedy"), bad_vectors())
def test_a_build_refuses_what_cannot_be_and_writes_nothing(vectors, options, field, remedy):
    with Storage(DRIVE, device="cpu") as storage:
        with pytest.raises(RefusedInput) as refused:
            Index.build(storage, vectors, **({"graph_degree": 4} | options))
        assert refused.value.field == field
        assert remedy in str(refused.value)
        assert not storage.extents()


@pytest.mark.parametrize(
    ("mode", "options", "field"),
    [
        ("pq", {"k": 0}, "k"),
        ("pq", {"k": 65}, "k"),
        ("pq", {"itopk_size": 4097}, "itopk_size"),
        ("pq", {"search_width": 0}, "search_width"),
        ("pq", {"search_width": 33}, "search_width"),
        ("pq", {"refill_size": 0}, "refill_size"),
        ("pq", {"search_width": 4, "refill_size": 5}, "refill_size"),
        ("pq", {"navigation_size": 0}, "navigation_size"),
        ("pq", {"max_iterations": 3}, "max_iterations"),
        ("pq", {"timeout_s": 0}, "timeout_s"),
        ("pq", {"timeout_s": float("nan")}, "timeout_s"),
        ("pq", {"timeout_s": "soon"}, "timeout_s"),
        ("pq", {"timeout_s": 1e7}, "timeout_s"),
        ("pq", {"concurrency": 70_000}, "concurrency"),
        ("pq", {"filter": np.zeros(3, bool)}, "filter"),
        ("exact", {"search_width": "auto"}, "search_width"),
        ("exact", {"search_width": 9}, "search_width"),
        ("exact", {"search_width": 4, "refill_size": 2}, "refill_size"),
        ("exact", {"k": 65}, "k"),
        ("exact", {"navigation_size": 0}, "entries"),
    ],
)
def test_a_search_refuses_options_that_cannot_be(small, mode, options, field):
    _, queries, indexes = small
    with pytest.raises(RefusedInput) as refused:
        indexes[mode].search(queries, **options)
    assert refused.value.field == field


def test_a_search_refuses_queries_that_do_not_fit(small):
    _, queries, indexes = small
    for given, remedy in (
        (queries[:, :31], "dimension"),
        (queries.astype(np.float32), "astype"),
        (queries[:0], "at least one"),
        (queries[0], "shape"),
    ):
        with pytest.raises(RefusedInput, match=remedy) as refused:
            indexes["pq"].search(given)
        assert refused.value.field == "queries"


def test_an_index_that_is_closed_says_so(storage, small):
    _, queries, _ = small
    index = Index(storage, "small-pq")
    index.close()
    index.close()
    with pytest.raises(OperationFailed, match="closed"):
        index.search(queries)


def test_records_that_do_not_fit_the_blocks_of_the_drives_are_refused(tmp_path):
    path = tmp_path / "a.img"
    base = vectors_of("uint8", 100, 8)
    uri = f"emulated:backing=file,path={path},size=16M"
    create_drive(uri)
    with Storage(uri, device="cpu") as storage:
        Index.build(storage, base, graph_degree=4).close()
    with Storage(f"{uri},lba_bytes=4096", device="cpu") as storage:
        with pytest.raises(RefusedInput, match="block"):
            Index(storage)
        with Index.build(storage, base, graph_degree=4, replace=True) as index:
            assert index.info()["record_bytes"] == 4096
            assert index.search(base[:3], 1).ids[:, 0].tolist() == [0, 1, 2]


def test_an_index_stays_on_its_drive(tmp_path):
    path = tmp_path / "a.img"
    base = vectors_of("float16", 200, 24)
    uri = f"emulated:backing=file,path={path},size=16M"
    create_drive(uri)
    with Storage(uri, device="cpu") as storage:
        Index.build(storage, base, metric="cosine", graph_degree=8).close()
    with Storage(uri, device="cpu", read_only=True) as storage, Index(storage) as index:
        assert index.metric == "cosine"
        assert index.dtype == np.float16
        assert index.search(base[:5], 1).ids[:, 0].tolist() == list(range(5))


@pytest.mark.usefixtures("small")
def test_a_layout_of_lists_and_vectors_has_whole_blocks(storage):
    meta = read_meta(storage, "small-exact")
    layout = exact_layout(meta)
    assert (4 * layout.list_words) % 512 == 0
    assert (4 * layout.vector_words) % 512 == 0


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["pq", "exact"])
def test_a_gpu_finds_what_the_cpu_does(small, mode):
    if not build_info()["gpus"]:
        pytest.skip("no GPU")
    base, queries, indexes = small
    expected = indexes[mode].search(queries, 10)
    with Storage("emulated:size=64M,backing=hbm", device="cuda:0") as storage:
        with Index.build(storage, base, mode=mode, graph_degree=16, capacity=2100) as index:
            found = index.search(queries, 10)
        with Index(storage, memory="hbm") as index:
            in_memory = index.search(queries, 10)
    np.testing.assert_array_equal(found.ids, in_memory.ids)
    assert np.mean(found.ids == expected.ids) >= 0.98  # a sum may be rounded in another way


def test_a_drive_without_room_for_all_parts_is_refused_before_anything_is_written():
    vectors = np.random.default_rng(3).integers(0, 256, (500, 32)).astype(np.uint8)
    for mode, least in (("pq", 7), ("exact", 6)):
        with Storage(f"emulated:size={least - 1}M", device="cpu") as storage:
            with pytest.raises(RefusedInput, match=r"^storage: .* is too small for the index"):
                Index.build(storage, vectors, mode=mode, graph_degree=8)
            assert storage.extents() == []
        with Storage(f"emulated:size={least}M", device="cpu") as storage:
            Index.build(storage, vectors, mode=mode, graph_degree=8)


def test_a_build_that_fails_leaves_nothing_of_the_index(monkeypatch):
    vectors = np.random.default_rng(3).integers(0, 256, (500, 32)).astype(np.uint8)
    written = []

    def fail_at_the_third(storage, extent, data, *, replace):
        written.append(extent)
        if len(written) == 3:
            raise KeyboardInterrupt
        write_whole(storage, extent, data, replace=replace)

    with Storage("emulated:size=16M", device="cpu") as storage:
        with storage.new_extent("index/mine", 4096) as write:
            write(b"not of the index", 0)
        monkeypatch.setattr("forebay.search.pq_mode.write_whole", fail_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            Index.build(storage, vectors, graph_degree=8)
        assert [extent["name"] for extent in storage.extents()] == ["index/mine"]
        monkeypatch.undo()
        Index.build(storage, vectors, graph_degree=8)
        storage.remove_extent("index/meta")
        with pytest.raises(RefusedInput, match=r"has parts of an index that was not finished: choose another"):
            Index.build(storage, vectors, graph_degree=8)
        Index.build(storage, vectors, graph_degree=8, replace=True)
