# SPDX-License-Identifier: Apache-2.0
"""`forebay graph bfs|sssp|pr|cc|tc|spmv`."""

import json

import pytest
from forebay.cli.graph_commands import COMMANDS
from forebay.graph import Graph, read_sg, save, write_sg
from graphs import named_graph, random_graph

PNG = b"\x89PNG\r\n\x1a\n"
PLACES = ("host", "storage:cache_bytes=64K", "storage_direct", "external:latency_us=2,alignment=32")
ON_CPU = ("--device", "cpu")


@pytest.fixture
def weighted(tmp_path):
    path = tmp_path / "graph.wsg"
    save(named_graph("miserables"), path)
    return path


@pytest.fixture
def directed(tmp_path):
    path = tmp_path / "graph.sg"
    write_sg(random_graph(3), path)
    return path


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.partition(":")[0])
@pytest.mark.parametrize("algorithm", COMMANDS)
def test_every_command_in_every_place(forebay, weighted, algorithm, place):
    document = forebay("graph", algorithm, "-f", weighted, "-n", 2, "--memory", place, "--json", "-", *ON_CPU).json()
    assert document["algorithm"] == algorithm
    assert (document["memory"], document["file"], document["graph"]) == (place, str(weighted), str(weighted))
    assert (document["verified"], document["verified_by"]) == (True, "scipy")
    assert (document["directed"], document["vertices"], document["edges"]) == (False, 77, 508)
    assert document["seconds"] > 0
    assert document["fidelity"] in ("ok", "exceeded")
    assert document["device"] == document["forebay"]["device"] == "cpu"
    assert document["forebay"]["path"] == place.partition(":")[0]
    assert len(document["drives"]) == place.startswith("storage")
    assert len(document["trials"]) == 2
    counted = place != "host"
    for trial in document["trials"]:
        assert trial["wrong"] == 0
        assert ("source" in trial) == (algorithm in ("bfs", "sssp"))
        assert (trial["bytes_read"] is not None) == counted
        assert (trial["late"] is not None) == place.startswith("external")
        assert (trial["model"] is not None) == place.startswith("external")  # the drive is an ideal one
        assert (trial["clat_ns"] is not None) == (place == "storage_direct")
    assert (document["read_amplification"] is not None) == counted


@pytest.mark.parametrize("algorithm", COMMANDS)
def test_what_a_person_sees(forebay, algorithm):
    outcome = forebay("graph", algorithm, "-u", 6, "-k", 3, "-n", 2, "--memory", "host", *ON_CPU)
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0] == "timing: not modelled; the lists lie in host"
    assert sum(line.startswith("Trial Time:          ") for line in lines) == 2
    assert lines.count("Verification:           PASS") == 2
    assert sum(line.startswith("Average Time:        ") for line in lines) == 1
    assert lines[-1].startswith("on cpu; host; ")
    assert lines[-1].endswith("results checked by SciPy")
    outcome = forebay("graph", algorithm, "-u", 6, "-k", 3, "-n", 1, "--memory", "host", "--no-verify", *ON_CPU)
    assert "Verification" not in outcome.out
    assert outcome.out.splitlines()[-1].endswith("results not checked")


def test_a_graph_is_a_file_or_generated(forebay, directed):
    host = ("-n", 1, "--memory", "host", *ON_CPU)
    document = forebay("graph", "cc", "-g", 6, "-k", 2, "--generator", "own", "--seed", 7, *host, "--json", "-").json()
    assert (document["graph"], document["file"]) == ("own kronecker 6, seed 7", None)
    assert forebay("graph", "cc", *host).status == 2
    forebay("graph", "cc", "-f", directed, "-u", 4, *host).refused("-u", "-f is another graph")
    forebay("graph", "cc", "-g", 4, "-u", 4, *host).refused("give one of -f, -g and -u")
    forebay("graph", "cc", "-f", directed, "-k", 4, *host).refused("-k", "generated graphs")
    forebay("graph", "cc", "-g", 31, *host).refused("-g", "0 to 30")
    forebay("graph", "cc", "-u", 4, "--seed", 7, *host).refused("--seed", "nothing here is random")
    forebay("graph", "cc", "-f", directed.with_name("none.sg"), *host).refused("none.sg")


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        (["--memory", "hbm"], ("--memory: 'hbm'", "use host, or a GPU")),
        (["--memory", "uvm"], ("--memory: 'uvm'", "use host, or a GPU")),
        (["--memory", "hots"], ("did you mean host?",)),
        (["--memory", "storage:cache=1M"], ("did you mean cache_bytes?",)),
        (["--memory", "external:latncy_us=1"], ("did you mean latency_us?",)),
        (["--memory", "storage:cache_bytes=4K"], ("--memory", "16 pages")),
        (["--memory", "host", "--drive", "emulated:size=4M"], ("--drive", "leave it out")),
        (["--memory", "host", "--bs", "512"], ("--bs", "storage_direct")),
        (["--memory", "storage", "--iodepth", "4"], ("--iodepth", "storage_direct")),
        (["--iodepth", "0"], ("--iodepth", "at least 1")),
        (["--bs", "700"], ("--bs: '700'", "power of two")),
        (["--wide-ids"], ("--wide-ids", "hbm, host, external")),
        (["--drive", "emulated:size=1M"], ("--drive: 'emulated:size=1M'", "give a drive of size=2M")),
        (["-n", "0"], ("-n", "1 to")),
        (["-r", "64"], ("-r: '64'", "0 to 63")),
        (["--direction", "up"], ("--direction", "auto, above or below")),
        (["--device", "cuda:77"], ("--device", "forebay doctor")),
        (["--reorder", "degre"], ("--reorder", "did you mean degree?")),
        (["--plot", "levels.jpg"], ("--plot", ".png")),
        (["--seed", "-1"], ("--seed",)),
    ],
)
def test_options_that_are_refused(forebay, option, parts):
    forebay("graph", "bfs", "-u", 6, "-k", 2, *ON_CPU, *option).refused(*parts)


def test_options_of_one_algorithm_that_are_refused(forebay, weighted, directed):
    forebay("graph", "tc", "-f", directed, *ON_CPU).refused("-f", "is directed", "-s")
    forebay("graph", "bfs", "-f", directed, "--direction", "below", *ON_CPU).refused("--direction", "-s")
    forebay("graph", "sssp", "-f", directed, *ON_CPU).refused("-f", "has no weights", "--weights unit")
    forebay("graph", "sssp", "-f", weighted, "--weights", "none", *ON_CPU).refused("--weights", "file or unit")
    forebay("graph", "spmv", "-f", weighted, "--weights", "unit", *ON_CPU).refused("--weights", "file or none")
    forebay("graph", "sssp", "-f", weighted, "-d", 0, *ON_CPU).refused("-d", "1 to 2147483648")
    forebay("graph", "pr", "-f", weighted, "-i", 0, *ON_CPU).refused("-i", "1 to")
    forebay("graph", "pr", "-f", weighted, "-t", -1, *ON_CPU).refused("-t", "0 or more")
    forebay("graph", "pr", "-f", weighted, "-t", "nan", *ON_CPU).refused("-t", "0 or more")


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "0.5", "2147483648"])
def test_weights_that_no_path_can_have_are_refused(forebay, tmp_path, weight):
    path = tmp_path / "g.wel"
    path.write_text(f"0 1 2\n1 2 {weight}\n")
    for algorithm in ("sssp", "spmv"):
        forebay("graph", algorithm, "-f", path, "--memory", "host", *ON_CPU).refused(f"{path}:2", weight)


def test_graphs_that_are_next_to_nothing(forebay, tmp_path):
    for vertices in (0, 1):
        path = tmp_path / f"{vertices}.sg"
        write_sg(Graph.from_arcs([], [], vertices, directed=False), path)
        for algorithm in ("bfs", "pr", "cc", "tc", "spmv"):
            outcome = forebay("graph", algorithm, "-f", path, "-n", 1, "--memory", "host", *ON_CPU)
            if vertices:
                assert outcome.status == 0, outcome.err
            else:
                outcome.refused("-f", "has no vertex")
            refusal = f"has no {'edge' if vertices else 'vertex'}"
            forebay("graph", algorithm, "-f", path, "-n", 1, *ON_CPU).refused("-f", refusal)


def test_loops_and_duplicates_are_dropped_from_text_and_do_no_harm(forebay, tmp_path):
    path = tmp_path / "g.wel"
    path.write_text("0 0 1\n0 1 5\n0 1 3\n1 2 1\n2 0 1\n3 3 1\n")
    for algorithm in COMMANDS:
        outcome = forebay("graph", algorithm, "-s", "-f", path, "-n", 1, "--json", "-", *ON_CPU)
        assert outcome.json()["edges"] == 6
    document = forebay("graph", "tc", "-s", "-f", path, "-n", 1, "--json", "-", *ON_CPU).json()
    assert document["trials"][0]["triangles"] == 1
    document = forebay("graph", "bfs", "-s", "-f", path, "-r", 3, "-n", 1, "--json", "-", *ON_CPU).json()
    assert document["trials"][0]["frontier"] == [1], "an isolated source"


def test_other_numbers_of_the_vertices_keep_the_names_of_roots(forebay, weighted):
    options = ("-f", weighted, "-r", 5, "-n", 1, "--memory", "host", "--json", "-", *ON_CPU)
    plain = forebay("graph", "bfs", *options).json()
    for order in ("degree", "rcm", "random"):
        other = forebay("graph", "bfs", *options, "--reorder", order).json()
        assert (plain["reorder"], other["reorder"]) == (None, order)
        assert other["verified"] is True
        assert other["trials"][0]["source"] == 5
        assert other["trials"][0]["frontier"] == plain["trials"][0]["frontier"]
    assert forebay("graph", "tc", "-f", weighted, "-n", 1, "--reorder", "degree", *ON_CPU).status == 0


def test_unit_weights_make_paths_of_arcs(forebay, directed):
    options = ("-f", directed, "-r", 0, "-n", 1, "--memory", "host", "--json", "-", *ON_CPU)
    hops = forebay("graph", "bfs", *options).json()["trials"][0]
    paths = forebay("graph", "sssp", "--weights", "unit", *options).json()["trials"][0]
    assert paths["reached"] == hops["reached"]
    assert paths["buckets"] == len(hops["frontier"])


def test_random_roots_have_a_neighbour_and_depend_on_the_seed(forebay, directed):
    options = ("-f", directed, "-n", 8, "--memory", "host", "--no-verify", "--json", "-", *ON_CPU)
    roots = [
        [trial["source"] for trial in forebay("graph", "bfs", *options, "--seed", seed).json()["trials"]]
        for seed in (1, 1, 2)
    ]
    assert roots[0] == roots[1] != roots[2]
    assert (read_sg(directed).degrees[roots[0]] > 0).all()


def test_lists_stay_on_a_drive_under_names_of_their_own(forebay, weighted, tmp_path):
    uri = forebay("drive", "create", tmp_path / "d.img", "--size", "16M", "--json", "-").json()["uri"]
    for algorithm in COMMANDS:
        for place in ("storage_direct", "storage:cache_bytes=64K"):
            outcome = forebay(
                *("graph", algorithm, "-f", weighted, "-n", 1, "--memory", place, "--drive", uri, *ON_CPU)
            )
            assert outcome.status == 0, outcome.err
    found = forebay("drive", "ls", uri, "--json", "-").json()["extents"]
    assert [extent["name"] for extent in found] == ["edges", "edges_weighted", "edges_values"]


@pytest.mark.parametrize("place", PLACES[1:3])
def test_a_read_that_fails_fails_the_command(forebay, place):
    # The seed lets everything pass until the search reads.
    drive = "emulated:size=4M,errors_ppm=20000,seed=4"
    outcome = forebay("graph", "bfs", "-u", 12, "-n", 16, "--memory", place, "--drive", drive, *ON_CPU)
    assert outcome.status == 1
    assert "reads failed" in outcome.err
    assert "unrecovered read error" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("algorithm", COMMANDS)
def test_a_wrong_result_fails_the_command(forebay, monkeypatch, weighted, algorithm):
    names = {"bfs": "distances", "sssp": "paths", "pr": "scores", "cc": "components", "tc": "triangles"}
    verify = f"forebay.cli.graph_commands.verify_{names.get(algorithm, 'product')}"
    monkeypatch.setattr(verify, lambda *_, **__: 2)
    target = weighted.with_name("out.json")
    outcome = forebay("graph", algorithm, "-f", weighted, "-n", 1, "--memory", "host", "--json", target, *ON_CPU)
    assert outcome.status == 1
    assert "Verification:           FAIL" in outcome.out
    assert "not equal to SciPy's" in outcome.err
    assert json.loads(target.read_text())["verified"] is False


def test_large_graphs_are_checked_on_the_device(forebay, monkeypatch):
    monkeypatch.setattr("forebay.graph.checks.SCIPY_VERTICES_MAX", 16)
    for algorithm in COMMANDS:
        document = forebay("graph", algorithm, "-u", 6, "-k", 3, "-n", 1, "--json", "-", *ON_CPU).json()
        assert document["verified"] is True
        assert document["verified_by"] == ("scipy" if algorithm == "spmv" else "device")


def test_equal_results_are_checked_once(forebay, monkeypatch, weighted):
    asked = []
    monkeypatch.setattr("forebay.cli.graph_commands.verify_triangles", lambda *_, **__: asked.append(1) or 0)
    document = forebay("graph", "tc", "-f", weighted, "-n", 5, "--memory", "host", "--json", "-", *ON_CPU).json()
    assert [trial["wrong"] for trial in document["trials"]] == [0] * 5
    assert len(asked) == 1


def test_a_plot_of_the_levels(forebay, weighted, tmp_path):
    path = tmp_path / "levels.png"
    for direction in ("above", "below"):
        outcome = forebay(*("graph", "bfs", "-f", weighted, "-n", 1, "--plot", path, "--direction", direction, *ON_CPU))
        assert outcome.status == 0, outcome.err
        assert path.read_bytes().startswith(PNG)
    assert path.stat().st_size > 10_000
