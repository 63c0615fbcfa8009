# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import reference_distances, wordnet


@pytest.fixture(scope="module")
def loaded():
    return wordnet.load()


def test_counts_are_those_of_wordnet_3_0(loaded):
    assert loaded.graph.vertices == 117_659
    assert loaded.pointers == 377_592
    assert loaded.graph.arcs == 361_647
    assert len(loaded.synsets) == 117_659


def test_entity_reaches_111743_synsets(loaded):
    distances = reference_distances(loaded.graph, loaded.synsets["n00001740"])
    assert np.count_nonzero(distances != 0xFFFFFFFF) == 111_743
    assert loaded.words[loaded.synsets["n00001740"]] == "entity"


def test_pointers_of_one_synset(loaded):
    """noun 00001930 (physical entity) has the pointers that its line in data.noun lists."""
    v = loaded.synsets["n00001930"]
    row = loaded.graph.neighbours[loaded.graph.row_begin[v] : loaded.graph.row_begin[v + 1]]
    named = {"n00001740", "n00002452", "n00002684", "n00007347", "n00020827", "n00029677", "n14580597"}
    assert set(row.tolist()) == {loaded.synsets[name] for name in named}


def test_reference_agrees_with_networkx(loaded):
    networkx = pytest.importorskip("networkx")
    source = loaded.synsets["n00001740"]
    sources = np.repeat(np.arange(loaded.graph.vertices), loaded.graph.degrees)
    graph = networkx.DiGraph(list(zip(sources.tolist(), loaded.graph.neighbours.tolist(), strict=True)))
    wanted = networkx.single_source_shortest_path_length(graph, source)
    got = reference_distances(loaded.graph, source)
    assert {v: int(d) for v, d in enumerate(got) if d != 0xFFFFFFFF} == dict(wanted)


def test_missing_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FOREBAY_WORDNET", str(tmp_path))
    with pytest.raises(RefusedInput, match="wordnet-base"):
        wordnet.load()


@pytest.mark.parametrize(
    "line",
    [
        "garbage\n",
        "00000001 03 n 01 entity 0 001 ~ 00000002 | cut\n",
        "00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | x\n",
    ],
)
def test_damaged_files_are_refused(tmp_path, line):
    for name in ("data.noun", "data.verb", "data.adj", "data.adv"):
        (tmp_path / name).write_text("  1 licence\n")
    (tmp_path / "data.noun").write_text("  1 licence\n" + line)
    with pytest.raises(RefusedInput, match="wordnet-base again"):
        wordnet.load(tmp_path)
