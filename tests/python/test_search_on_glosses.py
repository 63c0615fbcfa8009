# SPDX-License-Identifier: Apache-2.0
"""An index of real text, WordNet's glosses: imported, searched with a filter, and changed."""

import diskann_writer as writer
import numpy as np
import pytest
from forebay import Storage
from forebay.search import NO_NEIGHBOUR, Index, exact_neighbours, import_diskann, recall
from forebay.search.quantiser import encode, train_codebook

CHUNKS = 32
ROOM = 2000


@pytest.fixture(scope="module")
def storage():
    with Storage("emulated:size=512M", device="cpu") as drive:
        yield drive


@pytest.fixture(scope="module")
def index(storage, glosses, graph_of_glosses):
    base = glosses[0]
    room = len(base) + ROOM
    with Index.build(storage, base, "built", graph=graph_of_glosses, chunks=CHUNKS, capacity=room) as built:
        yield built


def test_an_import_of_glosses_finds_nineteen_of_twenty_neighbours(storage, glosses, graph_of_glosses, tmp_path):
    base, queries, true = glosses
    codebook = train_codebook(base, CHUNKS)
    centroid = base.mean(0)
    lists = [row[row != NO_NEIGHBOUR].tolist() for row in graph_of_glosses]
    centres = codebook.transpose(1, 0, 2).reshape(256, -1) - centroid
    offsets = writer.split(base.shape[1], CHUNKS)
    writer.write(tmp_path / "ann", base, lists, centres, centroid, offsets, encode(base, codebook))
    with import_diskann(storage, tmp_path / "ann", "imported", dtype="float32") as imported:
        found = imported.search(queries, 10, itopk_size=160)
    storage.remove_extent("imported/meta")
    assert recall(base, queries, found.ids, true) >= 0.95


def test_with_a_filter_nineteen_of_twenty_of_the_allowed_neighbours_are_found(index, glosses):
    base, queries, _ = glosses
    allowed = np.zeros(len(base), bool)
    some = np.sort(np.random.default_rng(11).permutation(len(base))[: len(base) // 2])
    allowed[some] = True
    found = index.search(queries[:250], 10, itopk_size=320, filter=allowed)
    true = some[exact_neighbours(base[some], queries[:250], 10).ids]
    assert allowed[found.ids].all()
    assert recall(base, queries[:250], found.ids, true.astype(np.uint32)) >= 0.95


def test_after_deletes_and_inserts_nineteen_of_twenty_neighbours_are_found(index, glosses):
    base, queries, true = glosses
    # A part of those that are deleted are neighbours of queries, and come again with other ids.
    gone = np.unique(np.concatenate([true[:20].reshape(-1), np.random.default_rng(12).permutation(len(base))[:300]]))
    index.delete(gone)
    found = index.search(queries[:250], 10, itopk_size=192)
    assert not np.isin(found.ids, gone).any()
    left = np.delete(np.arange(len(base)), gone)
    of_left = left[exact_neighbours(base[left], queries[:250], 10).ids].astype(np.uint32)
    assert recall(base, queries[:250], found.ids, of_left) >= 0.95

    again = index.insert(base[gone])
    index.flush()
    found = index.search(queries[:250], 10, itopk_size=192)
    ids = found.ids.copy()
    for old, new in zip(gone, again, strict=True):
        ids[ids == new] = old
    assert np.isin(found.ids, again).any()
    assert recall(base, queries[:250], ids, true[:250]) >= 0.95
