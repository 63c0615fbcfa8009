# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import Graph, load, save
from forebay.graph.formats import FORMATS
from graphs import UNWEIGHTED, WEIGHTED, arcs, random_graph, refused, same, weights_of

BASE = Graph.from_arcs([0, 0, 2], [1, 2, 1], 3)


def test_the_end_of_the_name_says_the_format(tmp_path):
    save(BASE, tmp_path / "g.sg")
    save(BASE, str(tmp_path / "g.el"))
    assert same(load(tmp_path / "g.sg"), load(str(tmp_path / "g.el")))
    assert not load(tmp_path / "g.sg", symmetrize=True).directed
    for path in (tmp_path / "g.txt", tmp_path / "g", tmp_path / "g.SG"):
        with pytest.raises(RefusedInput, match=r"must end in \.sg, \.wsg, \.el, \.wel, \.gr or \.mtx"):
            load(path)
        with pytest.raises(RefusedInput, match="must end in"):
            save(BASE, path)
    for suffix in FORMATS:
        with pytest.raises(RefusedInput, match="no such file"):
            load(tmp_path / f"missing{suffix}")


def converted(forebay, source, target):
    """Converts, and gives each edge the weight 1 where that is the only way."""
    command = ["graph", "convert", source, target]
    if source.suffix in UNWEIGHTED and target.suffix in WEIGHTED:
        forebay(*command).refused("TO", str(target), "--weights unit")
        assert not target.exists()
        command += ["--weights", "unit"]
    assert forebay(*command).status == 0


@pytest.mark.parametrize(("first", "second"), list(itertools.product(FORMATS, repeat=2)))
def test_a_graph_comes_back_from_every_other_format(tmp_path, forebay, first, second):
    seed = 10 * list(FORMATS).index(first) + list(FORMATS).index(second)
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    vertices = int(random.integers(2, 200))
    # An edge list has as many vertices as its largest number says, so there is an edge of the last one.
    sources, targets = np.append(random.integers(0, vertices, (2, 500)), [[0], [vertices - 1]], axis=1)
    graph = Graph.from_arcs(sources, targets, vertices, weights=random.integers(0, 100, 501))
    a, b, c = tmp_path / f"a{first}", tmp_path / f"b{second}", tmp_path / f"c{first}"
    save(graph, a)
    converted(forebay, a, b)
    converted(forebay, b, c)
    back = load(c)
    assert arcs(back) == arcs(graph)
    assert (back.vertices, back.directed) == (vertices, True)
    if first in UNWEIGHTED or (first == ".mtx" and second in UNWEIGHTED):
        assert back.weights is None
    else:
        assert same(back, graph.with_unit_weights() if second in UNWEIGHTED else graph)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("suffix", FORMATS)
def test_an_undirected_graph_keeps_both_arcs_and_their_weights(tmp_path, suffix, seed):
    graph = random_graph(seed, directed=False, weighted=True)
    save(graph, tmp_path / f"g{suffix}")
    read = load(tmp_path / f"g{suffix}", symmetrize=True)
    assert not read.directed
    assert arcs(read) == arcs(graph)
    if suffix not in UNWEIGHTED:
        assert weights_of(read) == weights_of(graph)


@pytest.mark.parametrize("suffix", [".wsg", ".wel", ".gr", ".mtx"])
def test_of_both_directions_the_smaller_weight_stays(tmp_path, suffix):
    save(Graph.from_arcs([0, 1, 1], [1, 0, 2], 3, weights=[9, 4, 6]), tmp_path / f"g{suffix}")
    read = load(tmp_path / f"g{suffix}", symmetrize=True)
    assert weights_of(read) == {(0, 1): 4, (1, 0): 4, (1, 2): 6, (2, 1): 6}
    structure = load(tmp_path / f"g{suffix}", symmetrize=True, weights=False)
    assert structure.weights is None
    assert arcs(structure) == arcs(read)


@pytest.mark.parametrize("suffix", WEIGHTED)
def test_a_format_with_weights_needs_some(tmp_path, suffix):
    with pytest.raises(RefusedInput, match="with_unit_weights"):
        save(BASE, tmp_path / f"g{suffix}")
    assert not (tmp_path / f"g{suffix}").exists()


def test_the_choice_of_weights(tmp_path, forebay):
    heavy, light = tmp_path / "g.wel", tmp_path / "g.el"
    heavy.write_text("0 1 5\n1 2 9\n")
    light.write_text("0 1\n")
    described = forebay("graph", "info", heavy, "--json", "-").json()
    assert (described["weighted"], described["weight_min"], described["weight_max"]) == (True, 5, 9)
    described = forebay("graph", "info", light, "--json", "-").json()
    assert (described["weighted"], described["weight_min"], described["weight_max"]) == (False, None, None)
    forebay("graph", "info", heavy, "--weights", "unit").refused("--weights", "'unit'", "file or none")
    forebay("graph", "convert", heavy, light, "--weights", "x").refused("--weights", "'x'", "file, none or unit")
    forebay("graph", "convert", heavy, light, "--weights", "unit").refused("--weights", "has no weights")
    forebay("graph", "convert", heavy, heavy, "--weights", "none").refused("--weights", "file or unit")
    mtx = tmp_path / "g.mtx"
    for choice, wanted in (("file", "1 2 5\n2 3 9\n"), ("none", "1 2\n2 3\n"), ("unit", "1 2 1\n2 3 1\n")):
        assert forebay("graph", "convert", heavy, mtx, "--weights", choice).status == 0
        assert mtx.read_text().endswith("3 3 2\n" + wanted)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_search_reads_every_format_and_needs_no_weights(tmp_path, forebay, suffix):
    save(Graph.from_arcs([0, 1, 1], [1, 2, 3], 4, weights=[7, 7, 7]), tmp_path / f"g{suffix}")
    if suffix not in (".sg", ".wsg"):
        text = (tmp_path / f"g{suffix}").read_text()
        (tmp_path / f"g{suffix}").write_text(text.replace(" 7\n", " -7\n"))
    command = ["graph", "bfs", "-f", tmp_path / f"g{suffix}", "-r", "0", "-n", "1", "--device", "cpu", "--json", "-"]
    document = forebay(*command).json()
    assert (document["verified"], document["trials"][0]["reached"]) == (True, 4)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_may_be_converted_onto_itself(tmp_path, forebay, suffix):
    path = tmp_path / f"g{suffix}"
    graph = random_graph(8, weighted=suffix not in UNWEIGHTED)
    save(graph, path)
    before = path.read_bytes()
    assert forebay("graph", "convert", path, path).status == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_of_another_format_is_refused(tmp_path, forebay, suffix):
    for other in FORMATS:
        graph = random_graph(9, weighted=other not in UNWEIGHTED)
        save(graph, tmp_path / f"g{other}")
        path = tmp_path / f"x{suffix}"
        path.write_bytes((tmp_path / f"g{other}").read_bytes())
        if other != suffix:
            refused(load, path)
            forebay("graph", "info", path).refused(str(path))


def damaged(data, random):
    data = bytearray(data or b"0")
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(0, len(data)))
        kind = random.integers(0, 3)
        if kind == 0:
            data[at] = int(random.integers(0, 256))
        elif kind == 1:
            del data[at : at + int(random.integers(1, 20))]
        else:
            data[at:at] = bytes(random.choice(list(b" \n0123456789-.ac%#e"), int(random.integers(1, 5))).tolist())
        data = data or bytearray(b"0")
    return bytes(data)


@pytest.mark.parametrize("seed", range(0, 60, 20))
@pytest.mark.parametrize("suffix", FORMATS)
def test_any_damaged_file_is_refused_or_a_graph(tmp_path, suffix, seed, monkeypatch):
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 64 << 20)  # damaged digits may be many nodes
    path = tmp_path / f"g{suffix}"
    for one in range(seed, seed + 20):
        save(random_graph(one, weighted=True, vertices_max=30), path)
        data = damaged(path.read_bytes(), np.random.default_rng(one))
        path.write_bytes(data)
        print(f"seed {one}: {data!r}")
        try:
            graph = load(path)
        except RefusedInput:
            continue
        assert graph.row_begin[-1] == graph.arcs
        assert graph.arcs == 0 or 0 <= graph.neighbours.min() <= graph.neighbours.max() < graph.vertices
        assert graph.weights is None or graph.arcs == 0 or graph.weights.min() >= 0
