# SPDX-License-Identifier: Apache-2.0
"""The command `forebay graph model`."""

import pytest
from forebay.graph import Graph, generate, reorder, write_el, write_sg
from forebay.graph.list_reads import cached_list_reads, list_reads, reading_order


def test_host_memory_at_the_published_parameters(forebay):
    options = "--entry-bytes 8 --alignment 32 --request-max 128 --lines --bandwidth 24G --outstanding 768"
    document = forebay("graph", "model", "-u", 12, *options.split(), "--json", "-").json()
    reads = list_reads(generate.uniform(12).row_begin, 32, entry_bytes=8, request_max=128, lines=True)
    [row] = document["alignments"]
    assert row["bytes_read"] == reads.bytes_read
    assert row["read_amplification"] == pytest.approx(row["read_amplification_at_random"], rel=0.01)
    assert row["required_iops"] == pytest.approx(24e9 / reads.request_bytes)
    assert row["allowed_latency_ns"] == pytest.approx(768 * reads.request_bytes / 24)
    assert row["knee_latency_ns"] == row["allowed_latency_ns"]
    assert row["seconds"] == pytest.approx(reads.bytes_read / 24e9)
    assert (row["bound"], document["bytes_per_second"], document["latency_ns"]) == ("link", 24e9, 1200)
    assert document["bytes_needed"] == document["arcs"] * 8 == reads.bytes_needed
    assert set(document["forebay"]) == {"version", "commit", "host"}


def test_the_best_alignment_of_four_drives_is_the_power_of_two_about_4_kb(forebay):
    options = "--entry-bytes 8 --iops 1.5M --devices 4 --outstanding none --bandwidth 24G"
    document = forebay("graph", "model", "-u", 12, *options.split(), "--json", "-").json()
    assert document["best_request_bytes"] == pytest.approx(4000)
    assert document["best_alignment"] == 4096
    assert [row["alignment"] for row in document["alignments"]] == [16 << power for power in range(9)]
    assert [row["bound"] for row in document["alignments"]] == ["iops"] * 8 + ["link"]
    assert document["outstanding"] is None
    assert {row["allowed_latency_ns"] for row in document["alignments"]} == {None}


@pytest.mark.parametrize("order", ["bfs", "bfs-sorted", "scan"])
def test_a_cache_and_the_order_of_reads(forebay, order):
    graph = generate.kronecker(10)
    root = () if order == "scan" else ("-r", 5)
    options = ["--cache-bytes", "16K", "--order", order, *root, "--alignment", "512", "--json", "-"]
    document = forebay("graph", "model", "-g", 10, *options).json()
    reads = cached_list_reads(graph.row_begin, 512, 16384, reading_order(graph, order, 5))
    assert document["alignments"][0]["requests"] == reads.requests
    assert (document["cache_bytes"], document["order"]) == (16384, order)


def test_a_search_starts_at_the_vertex_with_the_most_neighbours(forebay):
    document = forebay("graph", "model", "-g", 8, "--cache-bytes", "64K", "--json", "-").json()
    assert document["root"] == int(generate.kronecker(8).degrees.argmax())
    assert document["order"] == "bfs"


def test_a_file_and_its_symmetric_graph(forebay, tmp_path):
    graph = Graph.from_arcs([0, 0, 2], [1, 2, 1], 3)
    write_sg(graph, tmp_path / "g.sg")
    write_el(graph, tmp_path / "g.el")
    for name in ("g.sg", "g.el"):
        document = forebay("graph", "model", "-f", tmp_path / name, "--json", "-").json()
        assert (document["graph"], document["arcs"], document["lists"]) == (str(tmp_path / name), 3, 2)
    both = forebay("graph", "model", "-s", "-f", tmp_path / "g.sg", "--json", "-").json()
    assert (both["directed"], both["arcs"], both["lists"]) == (False, 6, 3)


def test_rows_are_those_that_are_asked_for_in_order(forebay):
    options = ["--alignment", "4K", "--alignment", "64", "--alignment", "64"]
    document = forebay("graph", "model", "-u", 6, *options, "--json", "-").json()
    assert [row["alignment"] for row in document["alignments"]] == [64, 4096]
    short = forebay("graph", "model", "-u", 6, "--request-max", "8", "--json", "-").json()
    assert [row["alignment"] for row in short["alignments"]] == [8]


def test_the_table_has_the_rows_the_limits_and_what_is_best(forebay):
    done = forebay("graph", "model", "-u", 8, "--iops", "6M", "--latency-us", 0, "--link", "gen3x16")
    assert (done.status, done.err) == (0, "")
    for text in (
        "RAF",
        "4096",
        "gen3x16, 15.8 GB/s; 6M IOPS; 768 in flight; latency 0 ns",
        "no cache",
        "best alignment",
    ):
        assert text in done.out
    assert "…" not in done.out, "the table fits 80 columns"


@pytest.mark.parametrize("order", ["degree", "rcm", "random"])
def test_a_graph_in_another_order_and_before(forebay, order):
    graph = generate.kronecker(9)
    options = ["--cache-bytes", "8K", "-r", 5, "--alignment", "64", "--alignment", "1K", "--json", "-"]
    plain = forebay("graph", "model", "-g", 9, *options).json()
    document = forebay("graph", "model", "-g", 9, *options, "--reorder", order).json()
    assert (plain["reorder"], plain["before"], document["reorder"]) == (None, None, order)
    assert document["before"] == {key: plain[key] for key in ("best_alignment", "alignments")}
    assert document["root"] == 5, "by its old number"
    other, new = reorder(graph, order)
    for row in document["alignments"]:
        reads = cached_list_reads(other.row_begin, row["alignment"], 8192, reading_order(other, "bfs", int(new[5])))
        assert row["requests"] == reads.requests
    for key in plain.keys() - {"reorder", "before", "alignments", "best_alignment"}:
        assert document[key] == plain[key], key


def test_the_tables_of_a_graph_in_another_order_fit_80_columns(forebay):
    done = forebay("graph", "model", "-g", 8, "--reorder", "rcm", "--cache-bytes", "16K")
    assert (done.status, done.err) == (0, "")
    for text in ("kronecker 8, reordered: rcm", "RAF before", "RAF after"):
        assert text in done.out
    assert "…" not in done.out


@pytest.mark.parametrize(("option", "kind"), [("-g", "kronecker"), ("-u", "uniform")])
def test_the_generator_is_that_of_gap_or_our_own(forebay, option, kind):
    def facts(*options):
        document = forebay("graph", "model", option, 8, *options, "--json", "-").json()
        return document["graph"], document["arcs"]

    assert facts() == facts("--generator", "gap") == (f"{kind} 8", getattr(generate, kind)(8).arcs)
    for seed, options in ((1, ()), (6, ("--seed", 6))):
        wanted = generate.own(kind, 8, seed=seed).arcs
        assert facts("--generator", "own", *options) == (f"own {kind} 8, seed {seed}", wanted)


REFUSED = [
    ("", "-f: is missing"),
    ("-u 3 -g 3", "-u: '3'"),
    ("-u 31", "-u: '31'"),
    ("-g -1", "-g: '-1'"),
    ("-u 0", "graph: 'uniform 0': has no edge"),
    ("-u 3 -k 0", "-k: '0'"),
    ("-f no.sg -k 3", "-k: '3'"),
    ("-f no.sg --generator own", "--generator: 'own': is for generated graphs"),
    ("-u 4 --generator mine", "--generator: 'mine': must be gap or own"),
    ("-u 4 --seed 2", "--seed: '2': nothing here is random"),
    ("-u 4 --generator gap --seed 2", "--seed: '2': nothing here is random"),
    ("-u 4 --generator own --seed -2", "--seed: '-2': must be a whole number"),
    ("-u 4 --reorder degre", "--reorder: 'degre': must be one of degree, rcm, random; did you mean degree?"),
    ("-f no.sg", "graph file: 'no.sg': no such file"),
    ("-u 4 --alignment 24", "--alignment: '24': must be a power of two"),
    ("-u 4 --alignment 0", "--alignment: '0': must be a power of two"),
    ("-u 4 --alignment -16", "--alignment: '-16'"),
    ("-u 4 --alignment 2G", "--alignment: '2G': must be a power of two from 1 to"),
    ("-u 4 --alignment nan", "--alignment: 'nan'"),
    ("-u 4 --entry-bytes 5", "--entry-bytes: '5'"),
    ("-u 4 --request-max 100", "--request-max: '100': must be a power of two"),
    ("-u 4 --request-max 64 --alignment 128", "--alignment: '128': must be at most --request-max"),
    ("-u 4 --lines", "--request-max: is missing"),
    ("-u 4 --link gen4x1", "did you mean gen4x16?"),
    ("-u 4 --link none", "--link: 'none': says no bandwidth"),
    ("-u 4 --bandwidth 40G", "--bandwidth: '40G': is more than gen4x16 carries"),
    ("-u 4 --bandwidth 0", "--bandwidth: '0'"),
    ("-u 4 --iops nan", "--iops: 'nan'"),
    ("-u 4 --iops -3", "--iops: '-3'"),
    ("-u 4 --devices 0", "--devices: '0'"),
    ("-u 4 --outstanding 0", "--outstanding: '0'"),
    ("-u 4 --outstanding 1.5", "--outstanding: '1.5'"),
    ("-u 4 --outstanding 9999999999", "--outstanding: '9999999999'"),
    ("-u 4 --latency-us nan", "--latency-us: 'nan'"),
    ("-u 4 --latency-us -1", "--latency-us: '-1.0'"),
    ("-u 4 --latency-us inf", "--latency-us: 'inf'"),
    ("-u 4 --order bfs", "--order: 'bfs': matters to a cache only"),
    ("-u 4 -r 2", "-r: '2': matters to a cache only"),
    ("-u 4 --cache-bytes 0", "--cache-bytes: '0'"),
    ("-u 4 --cache-bytes 2K", "--cache-bytes: '2K': must hold a block of 4096 bytes"),
    ("-u 4 --cache-bytes 1M --order up", "--order: 'up': must be one of bfs"),
    ("-u 4 --cache-bytes 1M --order scan -r 2", "-r: '2': a scan starts at vertex 0"),
    ("-u 4 --cache-bytes 1M -r 16", "-r: '16': must be a vertex"),
    ("-u 4 --cache-bytes 1M --request-max 4K", "--cache-bytes: '1M': a cache reads one block a request"),
    ("-u 4 --json no/such/file", "--json: 'no/such/file'"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[options or "nothing" for options, _ in REFUSED])
def test_bad_input_is_refused_with_its_field(forebay, options, message):
    forebay("graph", "model", *options.split()).refused(message)


def test_an_empty_file_is_refused(forebay, tmp_path):
    (tmp_path / "g.el").write_text("")
    forebay("graph", "model", "-f", tmp_path / "g.el").refused("graph", "g.el", "has no edge")
