# SPDX-License-Identifier: Apache-2.0
"""Inserts, deletes, consolidation and flushes of an index."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput, Storage, create_drive
from forebay.search import METRICS, NO_NEIGHBOUR, Index, exact_neighbours, recall, synthetic_vectors
from forebay.search.index_file import extent_sizes, read_meta, read_part
from forebay.search.pq_mode import layout_of

pytestmark = pytest.mark.usefixtures("one_thread_a_product")

DRIVE = "emulated:size=64M,latency_us=20"
DIMENSION, BUILT, MORE, ROOM = 32, 1000, 150, 1400
SEED = 20_261_128


def vectors_of(count, dtype="uint8", *, queries=False):
    drawn = synthetic_vectors(count, DIMENSION, seed=SEED, queries=queries)
    return drawn if dtype == "uint8" else ((drawn.astype(np.float32) - 128) / 16).astype(dtype)


@pytest.fixture(scope="module")
def built_image(tmp_path_factory):
    """A file drive with an index of 1,000 vectors and room for 1,400, to be copied."""
    path = tmp_path_factory.mktemp("drive") / "built.img"
    create_drive(f"file:{path},size=16M")
    with Storage(f"file:{path}", device="cpu") as storage:
        Index.build(storage, vectors_of(BUILT), graph_degree=16, capacity=ROOM).close()
        storage.flush()
    return path


@pytest.fixture
def drive(built_image, tmp_path):
    path = tmp_path / "drive.img"
    shutil.copy(built_image, path)
    return path


@pytest.fixture
def storage(drive):
    with Storage(f"file:{drive}", device="cpu") as opened:
        yield opened


def lists_of(storage):
    """The ids of the neighbours of each id."""
    meta = read_meta(storage, "index")
    records = np.empty((meta.slots, meta.record_words), "<u4")
    storage.read_extent("index/nodes", records)
    slots = meta.map.of(np.arange(meta.count))
    assert layout_of(meta).sound(slots, records[slots]).all()
    return meta.map.ids_of_lists(layout_of(meta).neighbours(records[slots]))


def found_by(index, queries, **options):
    return index.search(queries, k=10, itopk_size=64, **options)


def same_results(left, right):
    assert np.array_equal(left.ids, right.ids)
    assert np.array_equal(left.distances, right.distances)


@pytest.mark.parametrize(("metric", "dtype"), [*((metric, "float32") for metric in METRICS), ("l2", "uint8")])
def test_a_grown_index_finds_what_a_fresh_one_does(metric, dtype):
    base, queries = vectors_of(BUILT + MORE, dtype), vectors_of(40, dtype, queries=True)
    with Storage(DRIVE, device="cpu") as storage:
        fresh = Index.build(storage, base, "fresh", metric=metric, graph_degree=16)
        grown = Index.build(storage, base[:BUILT], "grown", metric=metric, graph_degree=16, capacity=len(base))
        ids = grown.insert(base[BUILT:])
        assert ids.dtype == np.uint32
        assert ids.tolist() == list(range(BUILT, BUILT + MORE))
        true = exact_neighbours(base, queries, 10, metric).ids
        of_fresh, of_grown = (recall(base, queries, found_by(i, queries).ids, true, metric) for i in (fresh, grown))
        assert of_grown >= of_fresh - 0.03
        own = exact_neighbours(base, base[ids], 1, metric).ids
        assert recall(base, base[ids], grown.search(base[ids], k=1).ids, own, metric) >= 0.95


def test_lists_of_a_grown_index_name_others_once_and_lead_to_each_new_vector(storage):
    with Index(storage) as index:
        ids = index.insert(vectors_of(BUILT + MORE)[BUILT:])
        index.flush()
    lists = lists_of(storage)
    named = lists[lists != NO_NEIGHBOUR]
    assert named.max() < BUILT + MORE
    assert np.isin(ids, named).all()
    for owner, line in enumerate(lists):
        given = line[line != NO_NEIGHBOUR]
        assert len(np.unique(given)) == len(given)
        assert owner not in given


def test_deleted_vectors_are_not_found_with_a_filter_and_without(storage):
    base = vectors_of(BUILT)
    random = np.random.default_rng(SEED)
    gone = random.permutation(BUILT)[:300]
    with Index(storage) as index:
        index.delete(gone)
        assert index.count == BUILT - 300
        assert index.info()["deleted"] == 300
        found = found_by(index, base[gone[:50]])
        assert not np.isin(found.ids, gone).any()
        new = index.insert(base[gone[:20]])
        assert (index.search(base[gone[:20]], k=1).distances == 0).all()
        allowed = np.zeros(BUILT + 20, bool)
        allowed[random.permutation(BUILT + 20)[:600]] = True
        found = index.search(base[gone[:30]], k=10, itopk_size=128, filter=allowed)
        ids = found.ids[found.ids != NO_NEIGHBOUR]
        assert len(ids) > 0.9 * found.ids.size
        assert allowed[ids].all()
        assert not np.isin(ids, gone).any()
        assert np.isin(new, found_by(index, base[gone[:20]]).ids).all()


def test_consolidation_takes_deleted_vectors_out_of_lists_and_of_the_sample(storage):
    base, queries = vectors_of(BUILT), vectors_of(40, queries=True)
    gone = np.random.default_rng(SEED).permutation(BUILT)[:400]
    kept = np.setdiff1d(np.arange(BUILT), gone)
    true = kept[exact_neighbours(base[kept], queries, 10).ids]
    told = []
    with Index(storage) as index:
        index.delete(gone)
        before = found_by(index, queries)
        index.consolidate(lambda *what: told.append(what))
        after = found_by(index, queries)
        assert not np.isin(lists_of(storage)[kept], gone).any()
        meta = read_meta(storage, "index")
        sample = read_part(storage, "index", meta, "navigation")[: meta.navigation_vertices]
        assert not np.isin(meta.map.ids(sample), gone).any()
        assert told[-1] == ("consolidate", meta.slots, meta.slots)
        assert recall(base, queries, after.ids, true) >= recall(base, queries, before.ids, true) - 0.03
        assert index.insert(base[gone[:1]]).tolist() == [BUILT]
    with Index(storage) as again:
        same_results(found_by(again, queries), after)


def test_an_index_of_which_all_was_deleted_takes_vectors(storage):
    base = vectors_of(BUILT)
    with Index(storage) as index:
        index.delete(np.arange(BUILT))
        assert (found_by(index, base[:5]).ids == NO_NEIGHBOUR).all()
        index.consolidate()
        ids = index.insert(base[:100])
        assert np.mean(index.search(base[:100], k=1).ids[:, 0] == ids) > 0.9
        index.consolidate()
        assert np.mean(index.search(base[:100], k=1).ids[:, 0] == ids) > 0.9


def test_a_flushed_index_opens_as_it_was(drive):
    base, queries = vectors_of(BUILT + MORE), vectors_of(20, queries=True)
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as index:
        index.insert(base[BUILT:])
        index.delete([3, BUILT + 5])
        index.flush()
        before, info = found_by(index, queries), index.info()
        assert "index/journal" not in extent_sizes(storage)
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as again:
        same_results(found_by(again, queries), before)
        assert again.info() == info
        with pytest.raises(RefusedInput, match="deleted already"):
            again.delete(3)


def test_without_a_flush_an_index_opens_as_it_was_before(drive):
    base, queries = vectors_of(BUILT + MORE), vectors_of(40, queries=True)
    true = exact_neighbours(base[:BUILT], queries, 10).ids
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as index:
        before = recall(base, queries, found_by(index, queries).ids, true)
        index.insert(base[BUILT:])
        index.delete([1, 2])
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as again:
        assert len(again) == BUILT
        found = found_by(again, queries)
        assert (found.ids < BUILT).all(), "as many live ones as asked for"
        assert recall(base, queries, found.ids, true) >= before - 0.05
        ids = again.insert(base[BUILT : BUILT + 60])
        assert ids[0] == BUILT
        assert np.mean(again.search(base[ids], k=1).distances == 0) >= 0.95


class Killed(Exception):  # noqa: N818 (it is no error)
    """Stands for the end of the program."""


def killed_at(monkeypatch, step):
    """Makes the step with that number raise, of all that change the drives; returns how many there were."""
    steps = []

    def counted(name):
        whole = getattr(Storage, name)

        def call(self, *arguments, **named):
            if len(steps) == step:
                raise Killed(name)
            steps.append(name)
            return whole(self, *arguments, **named)

        monkeypatch.setattr(Storage, name, call)

    for name in ("write_extent", "new_extent", "flush", "remove_extent"):
        counted(name)
    return steps


def test_a_flush_that_is_cut_off_anywhere_is_whole_or_none(built_image, tmp_path, monkeypatch):
    base, queries = vectors_of(BUILT + MORE), vectors_of(4, queries=True)
    counts, replays = set(), 0
    for step in range(10_000):
        path = tmp_path / "killed.img"
        shutil.copy(built_image, path)
        finished = False
        with Storage(f"file:{path}", device="cpu") as storage, Index(storage) as index:
            index.insert(base[BUILT : BUILT + 4])
            index.delete([7])
            live = found_by(index, queries)
            with monkeypatch.context() as patched:
                killed_at(patched, step)
                try:
                    index.flush()
                    finished = True
                except Killed:
                    pass
        with Storage(f"file:{path}", device="cpu", read_only=True) as storage:
            journal = "index/journal" in extent_sizes(storage)
            with Index(storage) as again:
                of_reader = found_by(again, queries)
        replays += journal
        with Storage(f"file:{path}", device="cpu") as storage, Index(storage) as again:
            assert "index/journal" not in extent_sizes(storage)
            counts.add(len(again))
            same_results(found_by(again, queries), of_reader)
            if len(again) == BUILT + 3:
                same_results(of_reader, live)
            else:
                assert len(again) == BUILT
                assert not journal
        if finished:
            break
    assert finished
    assert counts == {BUILT, BUILT + 3}
    assert replays >= 5


def test_a_replay_that_is_cut_off_is_done_again(drive, monkeypatch):
    base = vectors_of(BUILT + MORE)
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as index:
        index.insert(base[BUILT : BUILT + 4])
        with monkeypatch.context() as patched:
            killed_at(patched, 3)  # of the flush: after its first flush, its journal and a write of codes
            with pytest.raises(Killed):
                index.flush()
    for step in (2, 4, 5):
        with Storage(f"file:{drive}", device="cpu") as storage, monkeypatch.context() as patched:
            killed_at(patched, step)
            with pytest.raises(Killed):
                Index(storage)
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as index:
        assert len(index) == BUILT + 4


def test_a_flush_that_failed_can_be_called_again(storage, monkeypatch):
    with Index(storage) as index:
        index.insert(vectors_of(BUILT + 4)[BUILT:])
        with monkeypatch.context() as patched:
            killed_at(patched, 4)
            with pytest.raises(Killed):
                index.flush()
        index.delete([0])
        index.flush()
    with Index(storage) as again:
        assert len(again) == BUILT + 3


def test_a_changed_journal_is_refused(drive, monkeypatch):
    with Storage(f"file:{drive}", device="cpu") as storage, Index(storage) as index:
        index.delete([0])
        with monkeypatch.context() as patched:
            killed_at(patched, 3)
            with pytest.raises(Killed):
                index.flush()
        storage.write_extent("index/journal", b"\xff", 40)
        with pytest.raises(RefusedInput, match=r"journal.*changed or cut"):
            Index(storage)


def test_a_build_removes_the_journal_of_an_index_that_was(storage, monkeypatch):
    with Index(storage) as index:
        index.delete([0])
        with monkeypatch.context() as patched:
            killed_at(patched, 3)
            with pytest.raises(Killed):
                index.flush()
    with Index.build(storage, vectors_of(100), graph_degree=8, replace=True) as again:
        assert len(again) == 100


def test_bad_input_is_refused_and_changes_nothing(storage):
    base = vectors_of(BUILT + MORE)
    with Index(storage) as index:
        for bad, words in (
            (base[:, :16], "dimension 16"),
            (base.astype(np.float32), "float32"),
            (base[0], "shape"),
            (vectors_of(ROOM - BUILT + 1), "room for 400 more; build the index again with a larger capacity"),
        ):
            with pytest.raises(RefusedInput, match=words):
                index.insert(bad)
        for bad, words in (
            ([BUILT], "never given out"),
            ([-1], "never given out"),
            ([5, 5], "twice"),
            ([1.5], "whole numbers"),
            ([[1]], "whole numbers"),
        ):
            with pytest.raises(RefusedInput, match=words):
                index.delete(bad)
        assert index.insert(base[:0]).shape == (0,)
        index.delete([])
        assert len(index) == BUILT
        index.insert(vectors_of(ROOM - BUILT))
        index.flush()
        assert len(index) == ROOM
        with pytest.raises(RefusedInput, match="room for 0 more"):
            index.insert(base[:1])
    with pytest.raises(OperationFailed, match="closed"):
        index.insert(base[:1])
    with Index(storage, memory="host") as copy, pytest.raises(RefusedInput, match="memory"):
        copy.insert(base[:1])


def test_numbers_that_are_not_finite_and_vectors_without_direction_are_refused():
    base = vectors_of(200, "float32")
    with Storage(DRIVE, device="cpu") as storage:
        index = Index.build(storage, base, metric="cosine", graph_degree=8, capacity=300)
        bad = base[:2].copy()
        bad[1, 3] = np.nan
        with pytest.raises(RefusedInput, match=r"vectors\[1\]"):
            index.insert(bad)
        with pytest.raises(RefusedInput, match="cosine"):
            index.insert(np.zeros_like(bad))
        exact = Index.build(storage, base, "exact", mode="exact", graph_degree=8, capacity=300)
        for change in (lambda: exact.insert(base[:1]), lambda: exact.delete([0]), exact.consolidate, exact.flush):
            with pytest.raises(RefusedInput, match="mode: 'exact'"):
                change()


def test_a_read_only_storage_refuses_changes(drive):
    with Storage(f"file:{drive}", device="cpu", read_only=True) as storage, Index(storage) as index:
        for change in (lambda: index.insert(vectors_of(1)), lambda: index.delete([0]), index.consolidate, index.flush):
            with pytest.raises(RefusedInput, match="open the storage for writing"):
                change()
        assert len(index) == BUILT


def test_a_record_that_was_changed_fails_an_insert(storage):
    with Index(storage) as index:
        meta = read_meta(storage, "index")
        storage.write_extent("index/nodes", np.full(meta.slots * meta.record_words, 7, "<u4"))
        with pytest.raises(OperationFailed):
            index.insert(vectors_of(BUILT + 1)[BUILT:])
        assert len(index) == BUILT


def test_threads_take_turns(storage):
    base = vectors_of(BUILT + MORE)
    begin = threading.Barrier(3)
    with Index(storage) as index, ThreadPoolExecutor(3) as pool:

        def insert(first):
            begin.wait()
            return index.insert(base[first : first + 40])

        def search():
            begin.wait()
            return [found_by(index, base[:5]).errors for _ in range(5)]

        futures = [pool.submit(insert, BUILT), pool.submit(insert, BUILT + 40), pool.submit(search)]
        one, other, errors = (future.result() for future in futures)
        assert sorted([*one, *other]) == list(range(BUILT, BUILT + 80))
        assert not any(errors)
        assert len(index) == BUILT + 80


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_a_random_sequence_agrees_with_a_model(drive, seed):
    print(f"seed {seed}: pytest tests/python/test_search_updates.py -k 'random and {seed}'")
    random = np.random.default_rng(seed)
    pool = vectors_of(ROOM)
    given = list(range(BUILT))  # for each id, the vector
    live = set(range(BUILT))
    durable = (list(given), set(live))
    storage = Storage(f"file:{drive}", device="cpu")
    index = Index(storage)
    for _ in range(20):
        action = random.choice(
            ["insert", "delete", "search", "flush", "reopen", "consolidate"], p=[0.3, 0.2, 0.25, 0.1, 0.1, 0.05]
        )
        if action == "insert":
            chosen = random.integers(0, len(pool), min(int(random.integers(1, 40)), ROOM - len(given))).tolist()
            ids = index.insert(pool[chosen]).tolist()
            assert ids == list(range(len(given), len(given) + len(chosen)))
            given += chosen
            live |= set(ids)
        elif action == "delete" and live:
            gone = random.choice(sorted(live), min(len(live), int(random.integers(1, 100))), replace=False)
            index.delete(gone)
            live -= set(gone.tolist())
        elif action == "flush":
            index.flush()
            durable = (list(given), set(live))
        elif action == "consolidate":
            index.consolidate()
            durable = (list(given), set(live))
        elif action == "reopen":
            index.close()
            storage.close()
            storage = Storage(f"file:{drive}", device="cpu")
            index = Index(storage)
            given, live = list(durable[0]), set(durable[1])
        assert len(index) == len(live)
        queries = pool[random.integers(0, len(pool), 5)]
        found = found_by(index, queries)
        for query, ids, distances in zip(queries, found.ids, found.distances, strict=True):
            right = ids != NO_NEIGHBOUR
            assert set(ids[right].tolist()) <= live
            vectors = pool[[given[i] for i in ids[right]]].astype(np.int64)
            assert np.array_equal(((vectors - query) ** 2).sum(1), distances[right])
    index.close()
    storage.close()
