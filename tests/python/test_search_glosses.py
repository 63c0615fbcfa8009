# SPDX-License-Identifier: Apache-2.0
"""The vectors of WordNet's glosses."""

import sys

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import wordnet
from forebay.search import exact_neighbours, gloss_vectors


def test_each_synset_has_a_vector_of_length_1_unless_it_shares_no_word(vectors_of_glosses):
    assert (vectors_of_glosses.dtype, vectors_of_glosses.shape) == (np.float32, (117_659, 128))
    lengths = np.linalg.norm(vectors_of_glosses, axis=1)
    assert lengths[lengths > 0] == pytest.approx(1, abs=1e-5)
    assert np.count_nonzero(lengths == 0) < 1000


def test_glosses_that_share_words_are_near(vectors_of_glosses):
    words = [set(text.split()) for text in wordnet.glosses()]
    random = np.random.default_rng(1)
    queries = random.integers(0, len(words), 50)
    near = exact_neighbours(vectors_of_glosses, vectors_of_glosses[queries], 10).ids

    def shared(others):
        pairs = [(words[a], words[b]) for a, row in zip(queries, others, strict=True) for b in row if a != b]
        return np.mean([len(one & other) / len(one | other) for one, other in pairs])

    assert shared(near) > 2 * shared(random.integers(0, len(words), near.shape))


def test_the_texts_are_those_of_the_vertices():
    texts = wordnet.glosses()
    loaded = wordnet.load()
    assert len(texts) == loaded.graph.vertices
    assert texts[loaded.synsets["n00001740"]].startswith("that which is perceived or known")


@pytest.mark.parametrize("dimension", [0, 1025, 1.5])
def test_a_dimension_that_cannot_be_is_refused(dimension):
    with pytest.raises(RefusedInput, match="dimension"):
        gloss_vectors(dimension)


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(RefusedInput, match="wordnet-base"):
        gloss_vectors(directory=tmp_path)


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    with pytest.raises(RefusedInput, match="pip install scikit-learn"):
        gloss_vectors()
