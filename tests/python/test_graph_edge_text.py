# SPDX-License-Identifier: Apache-2.0
"""What the readers of text share, by the formats that use it."""

import math
import re

import numpy as np
import pytest
from forebay import RefusedInput
from forebay.graph import edge_text, load, read_el
from forebay.graph.dimacs import read_gr
from forebay.graph.edge_list import read_wel
from forebay.graph.matrix_market import read_mtx
from graphs import arcs, refused, weights_of

COUNT = 6  # nodes that the headers of the random files promise
LIMIT = 1000  # of the numbers of nodes, as long as the random files are read

# ---- every reader against one that goes line by line


HEADS = {
    ".el": "",
    ".wel": "",
    ".gr": "c random\np sp {nodes} {edges}\n",
    ".mtx": "%%MatrixMarket matrix coordinate real general\n% random\n{nodes} {nodes} {edges}\n",
}
READERS = {".el": read_el, ".wel": read_wel, ".gr": read_gr, ".mtx": read_mtx}
COMMENTS = {".el": "#", ".wel": "#", ".gr": "c", ".mtx": "%"}


def plain(suffix, line):
    """What a line means: an edge, None for a comment, or ValueError."""
    comment = COMMENTS[suffix]
    if suffix in (".el", ".wel"):
        line = line.partition(comment)[0]
    elif line.lstrip(" \t\r").startswith(comment):
        return None
    words = re.split(r"[ \t\r]+", line.strip(" \t\r"))
    if words == [""]:
        return None
    if suffix == ".gr" and words.pop(0) != "a":
        raise ValueError(line)
    if len(words) != (2 if suffix == ".el" else 3):
        raise ValueError(line)
    first = 1 if suffix in (".gr", ".mtx") else 0
    last = COUNT if first else LIMIT - 1
    nodes = []
    for word in words[:2]:
        if not re.fullmatch("[0-9]+", word) or not first <= int(word) <= last:
            raise ValueError(line)
        nodes.append(int(word) - first)
    if suffix == ".el":
        return (*nodes, None)
    if suffix != ".mtx" and not re.fullmatch("[+-]?[0-9]+", words[2]):
        raise ValueError(line)
    weight = float(re.sub(r"[_\s]", "x", words[2]))  # which Python takes
    if not math.isfinite(weight) or not 0 <= weight <= 2**31 - 1 or weight != int(weight):
        raise ValueError(line)
    return (*nodes, int(weight))


WORDS = [
    *[str(i) for i in range(8)],
    "a",
    "c",
    "#",
    "%",
    "x",
    "1.0",
    "2.",
    ".5",
    "1e2",
    "-1",
    "+3",
    "nan",
    "Infinity",
    "",
]
WORDS += ["9" * 19, "2147483647", "2147483648", "-", "1_0", "0x1", "1e", "e1", ".", "1-2", "a1", "1e400", "-0", "1\x0c"]
BLANKS = [" ", " ", " ", "  ", "\t", "\r", " \t", ""]


def random_line(random, suffix):
    choice = random.random()
    good = choice < 0.93
    count = 2 if suffix == ".el" else 3
    if not good:
        count = int(random.integers(0, 5))
    words = [str(random.integers(1, 7)) if good else WORDS[random.integers(len(WORDS))] for _ in range(count)]
    line = "".join(w + BLANKS[random.integers(len(BLANKS) - (1 if good else 0))] for w in words)
    line = ("a " if suffix == ".gr" else "") + line
    if choice < 0.1:
        return BLANKS[random.integers(len(BLANKS))] + COMMENTS[suffix] + line
    if choice < 0.2:
        return BLANKS[random.integers(len(BLANKS))]
    if choice < (0.3 if suffix in (".el", ".wel") else 0.22):
        return line + COMMENTS[suffix] + " more"
    return line


def random_body(seed, suffix):
    random = np.random.default_rng(seed)
    lines = [random_line(random, suffix) for _ in range(int(random.integers(0, 20)))]
    edges = []
    for at, line in enumerate(lines):
        try:
            edges.append(plain(suffix, line))
        except ValueError:
            return lines, [edge for edge in edges if edge], at
    return lines, [edge for edge in edges if edge], None


@pytest.mark.parametrize("suffix", HEADS)
@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_a_reader_takes_and_refuses_what_a_reader_of_single_lines_does(tmp_path, suffix, seed, monkeypatch):
    monkeypatch.setattr(edge_text, "VERTICES_MAX", LIMIT)
    path = tmp_path / f"g{suffix}"
    for one in range(seed, seed + 20):
        lines, edges, wrong = random_body(one, suffix)
        head = HEADS[suffix].format(nodes=COUNT, edges=len(edges) + (wrong is not None))
        path.write_bytes((head + "\n".join(lines) + "\n" * (one % 2)).encode())
        print(f"seed {one}: {path.read_bytes()!r}")
        monkeypatch.setattr(edge_text, "_PIECE_BYTES", 1 + one * 37 % 200)
        if wrong is not None:
            field = refused(READERS[suffix], path).field
            assert re.fullmatch(rf"{re.escape(str(path))}:{head.count(chr(10)) + wrong + 1}: (line|node|weight)", field)
            continue
        wanted = {}
        for s, t, w in edges:
            if s != t:
                wanted[s, t] = w if w is None else min(w, wanted.get((s, t), w))
        graph = READERS[suffix](path)
        assert arcs(graph) == set(wanted)
        assert suffix == ".el" or weights_of(graph) == wanted
        assert graph.vertices == (COUNT if head else max([-1, *[max(s, t) for s, t, _ in edges]]) + 1)


@pytest.mark.parametrize("suffix", HEADS)
def test_the_random_files_are_good_and_bad(suffix):
    """Otherwise the test above would say little."""
    bodies = [random_body(seed, suffix) for seed in range(200)]
    assert 40 < sum(wrong is None and len(edges) > 2 for _, edges, wrong in bodies) < 160
    assert 40 < sum(wrong is not None and len(edges) > 2 for _, edges, wrong in bodies) < 160


# ---- pieces


def test_a_line_is_counted_across_the_pieces_in_which_a_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.graph.edge_text._PIECE_BYTES", 64)
    path = tmp_path / "g.el"
    path.write_text("".join(f"{i} {i + 1}\n" for i in range(1000)) + "7 seven\n")
    with pytest.raises(RefusedInput) as refused:
        read_el(path)
    assert refused.value.field == f"{path}:1001: line"
    path.write_text("".join(f"{i} {i + 1}  # {'x' * (i % 90)}\n" for i in range(1000)))
    assert arcs(read_el(path)) == {(i, i + 1) for i in range(1000)}


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.graph.edge_text._PIECE_BYTES", 64)
    monkeypatch.setattr("forebay.graph.edge_text._LINE_MAX", 64)
    (tmp_path / "g.el").write_text("0 1\n# " + "x" * 1000)
    with pytest.raises(RefusedInput, match=r"g.el:2: line: .*goes on and on"):
        read_el(tmp_path / "g.el")
    (tmp_path / "g.el").write_text("0 x\n# " + "x" * 1000)
    with pytest.raises(RefusedInput, match=r"g.el:1: line: '0 x'"):
        read_el(tmp_path / "g.el")


@pytest.mark.parametrize("suffix", [".gr", ".mtx"])
def test_a_header_without_an_end_is_refused(tmp_path, suffix):
    banner = "%%MatrixMarket matrix coordinate pattern general\n" if suffix == ".mtx" else "c x\n"
    (tmp_path / f"g{suffix}").write_text(banner + "7" * (1 << 20))
    with pytest.raises(RefusedInput, match=r":2: line: .*goes on and on"):
        load(tmp_path / f"g{suffix}")


# ---- memory


def test_an_edge_list_whose_nodes_do_not_fit_the_memory_is_refused_by_its_line(tmp_path, monkeypatch):
    (tmp_path / "g.el").write_text("0 1\n1 2000000000\n")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 32 << 30)
    with pytest.raises(RefusedInput, match=r"44[.]7 GiB of memory, and 32[.]0 GiB are available") as refused:
        load(tmp_path / "g.el")
    assert refused.value.value == "2000000000"
    assert refused.value.field == f"{tmp_path / 'g.el'}:2: node"


def test_the_line_of_the_largest_node_is_found_in_an_earlier_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(edge_text, "_PIECE_BYTES", 16)
    path = tmp_path / "g.wel"
    path.write_text("# a\n0 1 7\n\n9 1 7\n" + "1 2 7\n" * 1000)
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 50_000)
    with pytest.raises(RefusedInput) as refused:
        load(path)
    assert (refused.value.field, refused.value.value) == (f"{path}:4: node", "9")


@pytest.mark.parametrize("id_", ["2147483647", "2147483646"])
def test_an_edge_list_of_two_nodes_far_apart_is_answered_at_once(tmp_path, monkeypatch, id_):
    """Where there is the memory, the answer takes as long as it takes to fill it."""
    (tmp_path / "g.el").write_text(f"0 {id_}\n")
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 24 << 30)
    with pytest.raises(RefusedInput, match=r"48[.]0 GiB of memory, and 24[.]0 GiB are available"):
        load(tmp_path / "g.el")


@pytest.mark.parametrize("suffix", [".gr", ".mtx"])
def test_a_header_that_promises_too_many_nodes_is_refused(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"g{suffix}"
    path.write_text(HEADS[suffix].format(nodes=2**31, edges=0))
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 24 << 30)
    with pytest.raises(RefusedInput, match=r"48[.]0 GiB of memory, and 24[.]0 GiB are available") as refused:
        load(path)
    assert refused.value.field.endswith(": nodes")


@pytest.mark.parametrize("suffix", HEADS)
def test_no_more_memory_is_taken_than_is_asked_for(tmp_path, suffix, monkeypatch):
    """What is refused is computed from what is measured here."""
    import tracemalloc

    random = np.random.default_rng(7)
    nodes, count = 10_000, 100_000
    values = random.integers(1, nodes + 1, (count, 3 if suffix != ".el" else 2))
    path = tmp_path / f"g{suffix}"
    with path.open("w") as file:
        file.write(HEADS[suffix].format(nodes=nodes, edges=count).replace("general", "symmetric"))
        np.savetxt(file, values, fmt=("a " if suffix == ".gr" else "") + " ".join(["%d"] * values.shape[1]))
    asked = []
    monkeypatch.setattr("forebay.memory.require", lambda needed, *_: asked.append(needed))
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 0)
    monkeypatch.setattr(edge_text, "_PIECE_BYTES", 1 << 16)
    tracemalloc.start()
    load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(asked) / 3 < peak < max(asked) + (1 << 20)
