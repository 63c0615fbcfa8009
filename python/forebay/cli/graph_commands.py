# SPDX-License-Identifier: Apache-2.0
"""`forebay graph bfs|sssp|pr|cc|tc|spmv`: algorithms over a graph in each place where its lists can lie."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from forebay.cli.contract import DeviceOption, JsonOption
from forebay.cli.generated_graph import (
    SEED_DEFAULT,
    DegreeOption,
    FileOption,
    GeneratorOption,
    GraphChoice,
    KroneckerOption,
    ReorderOption,
    SymmetrizeOption,
    UniformOption,
)
from forebay.cli.graph_run import (
    TRIALS_DEFAULT,
    Algorithm,
    BsOption,
    DriveOption,
    ExtentOption,
    GraphSeedOption,
    MemoryOption,
    Place,
    PlaceIodepthOption,
    RootOption,
    Trials,
    TrialsOption,
    VerifyOption,
    check_seed,
    run,
    shown_levels,
)
from forebay.errors import RefusedInput
from forebay.graph.bfs import verify_distances
from forebay.graph.components import verify_components
from forebay.graph.csr import Graph
from forebay.graph.pagerank import verify_scores
from forebay.graph.placed import DELTA_MAX, DIRECTIONS, ITERATIONS_MAX, resolve_direction
from forebay.graph.spmv import values_of, verify_product
from forebay.graph.sssp import verify_paths
from forebay.graph.triangles import verify_triangles

_MEMORY_DEFAULT, _EXTENT_DEFAULT = "storage_direct", "edges"


def _without_weights(choice: GraphChoice, device: str) -> tuple[str, Graph]:
    return choice.graph(device=device)


def bfs(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    root: RootOption = None,
    trials: TrialsOption = TRIALS_DEFAULT,
    verify: VerifyOption = True,
    direction: Annotated[
        str,
        typer.Option(
            "--direction",
            metavar="|".join(DIRECTIONS),
            help="Whose lists are read in a level: those of its vertices (above), those of vertices that are not "
            "reached yet (below, in undirected graphs), or whichever are shorter.",
        ),
    ] = "auto",
    memory: MemoryOption = _MEMORY_DEFAULT,
    drive: DriveOption = None,
    extent: ExtentOption = _EXTENT_DEFAULT,
    bs: BsOption = "",
    iodepth: PlaceIodepthOption = None,
    wide_ids: Annotated[
        bool,
        typer.Option("--wide-ids", help="Neighbours are numbers of 8 bytes in place of 4: in hbm, host and external."),
    ] = False,
    reordering: ReorderOption = None,
    seed: GraphSeedOption = None,
    device: DeviceOption = "auto",
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Also draw time, frontier and bytes of each level."),
    ] = None,
    json_target: JsonOption = None,
) -> None:
    """Search a graph breadth-first; the threads read its neighbour lists where they lie.

    By default they lie on a drive. They are written there first, unless they are there. Every distance is checked.
    """
    choice = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize)
    check_seed(choice, reordering, random=True)
    if direction not in DIRECTIONS:
        raise RefusedInput("--direction", direction, f"must be {', '.join(DIRECTIONS[:-1])} or {DIRECTIONS[-1]}")

    def algorithm(graph: Graph) -> Algorithm:
        resolve_direction(graph, direction)
        return Algorithm(
            "bfs",
            lambda placed, source: placed.bfs(source, direction=direction),
            lambda graph, source, result, device: verify_distances(graph, source, result, device=device),
            "distance",
            {"reached": lambda result: str(result.reached), "levels": shown_levels},
            has_source=True,
        )

    run(
        algorithm,
        choice,
        Place(memory, drive, extent, bs, iodepth, wide_ids=wide_ids),
        Trials(trials, verify, device, reordering, root, json_target, plot),
        _without_weights,
    )


def sssp(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            metavar="file|unit",
            help="The weights: those of the file, or 1 on each edge. Generated graphs have weights from 1 to 255.",
        ),
    ] = "file",
    root: RootOption = None,
    trials: TrialsOption = TRIALS_DEFAULT,
    verify: VerifyOption = True,
    delta: Annotated[
        int,
        typer.Option("-d", "--delta", metavar="N", help="Width of the buckets of distances."),
    ] = 1,
    memory: MemoryOption = _MEMORY_DEFAULT,
    drive: DriveOption = None,
    extent: ExtentOption = _EXTENT_DEFAULT,
    bs: BsOption = "",
    iodepth: PlaceIodepthOption = None,
    reordering: ReorderOption = None,
    seed: GraphSeedOption = None,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Find the shortest paths from a vertex by delta-stepping; the threads read lists with weights where they lie."""
    choice = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize)
    check_seed(choice, reordering, random=True)
    _check_weights(weights, ("file", "unit"))
    if not 1 <= delta <= DELTA_MAX:
        raise RefusedInput("-d", delta, f"must be 1 to {DELTA_MAX}")

    def load(choice: GraphChoice, device: str) -> tuple[str, Graph]:
        name, graph = choice.graph(weights=weights == "file", device=device)
        if weights == "unit":
            return name, graph.with_unit_weights()
        if graph.weights is None:
            remedy = "has no weights; use a file with weights, such as .wsg, or --weights unit"
            raise RefusedInput("-f", name, remedy)
        return name, graph

    def algorithm(_graph: Graph) -> Algorithm:
        return Algorithm(
            "sssp",
            lambda placed, source: placed.sssp(source, delta=delta),
            lambda graph, source, result, device: verify_paths(graph, source, result, device=device),
            "distance",
            {"reached": lambda result: str(result.reached), "buckets": lambda result: str(result.buckets)},
            has_source=True,
        )

    run(
        algorithm,
        choice,
        Place(memory, drive, extent, bs, iodepth, weighted=True),
        Trials(trials, verify, device, reordering, root, json_target),
        load,
    )


def pagerank(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    trials: TrialsOption = TRIALS_DEFAULT,
    verify: VerifyOption = True,
    iterations: Annotated[int, typer.Option("-i", "--iterations", metavar="N", help="Iterations at most.")] = 20,
    tolerance: Annotated[
        float,
        typer.Option("-t", "--tolerance", metavar="X", help="End when all scores together change by less than this."),
    ] = 1e-4,
    memory: MemoryOption = _MEMORY_DEFAULT,
    drive: DriveOption = None,
    extent: ExtentOption = _EXTENT_DEFAULT,
    bs: BsOption = "",
    iodepth: PlaceIodepthOption = None,
    reordering: ReorderOption = None,
    seed: GraphSeedOption = None,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Rank the vertices of a graph (PageRank); each iteration reads all incoming neighbour lists where they lie."""
    choice = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize)
    check_seed(choice, reordering, random=False)
    if not 1 <= iterations <= ITERATIONS_MAX:
        raise RefusedInput("-i", iterations, f"must be 1 to {ITERATIONS_MAX}")
    if not tolerance >= 0:
        raise RefusedInput("-t", tolerance, "must be 0 or more")

    def algorithm(_graph: Graph) -> Algorithm:
        return Algorithm(
            "pr",
            lambda placed, _: placed.pagerank(iterations=iterations, tolerance=tolerance),
            lambda graph, _, result, device: verify_scores(graph, result, device=device),
            "score",
            {"iterations": lambda result: str(result.iterations), "change": lambda result: f"{result.change:.2e}"},
        )

    run(
        algorithm,
        choice,
        Place(memory, drive, extent, bs, iodepth, incoming=True),
        Trials(trials, verify, device, reordering, None, json_target),
        _without_weights,
    )


def components(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    trials: TrialsOption = TRIALS_DEFAULT,
    verify: VerifyOption = True,
    memory: MemoryOption = _MEMORY_DEFAULT,
    drive: DriveOption = None,
    extent: ExtentOption = _EXTENT_DEFAULT,
    bs: BsOption = "",
    iodepth: PlaceIodepthOption = None,
    reordering: ReorderOption = None,
    seed: GraphSeedOption = None,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Find the connected components of a graph, of a directed one the weakly connected ones."""
    choice = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize)
    check_seed(choice, reordering, random=False)

    def algorithm(_graph: Graph) -> Algorithm:
        return Algorithm(
            "cc",
            lambda placed, _: placed.components(),
            lambda graph, _, result, device: verify_components(graph, result, device=device),
            "label",
            {"components": lambda result: str(result.components)},
        )

    run(
        algorithm,
        choice,
        Place(memory, drive, extent, bs, iodepth),
        Trials(trials, verify, device, reordering, None, json_target),
        _without_weights,
    )


def triangles(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    trials: TrialsOption = TRIALS_DEFAULT,
    verify: VerifyOption = True,
    memory: MemoryOption = _MEMORY_DEFAULT,
    drive: DriveOption = None,
    extent: ExtentOption = _EXTENT_DEFAULT,
    bs: BsOption = "",
    iodepth: PlaceIodepthOption = None,
    reordering: ReorderOption = None,
    seed: GraphSeedOption = None,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Count the triangles of an undirected graph. `--reorder degree` makes it faster where degrees differ much."""
    choice = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize)
    check_seed(choice, reordering, random=False)

    def algorithm(graph: Graph) -> Algorithm:
        if graph.directed:
            given = choice.file if choice.file is not None else "directed"
            raise RefusedInput("-f", given, "is directed, and triangles are of undirected graphs; make it one with -s")
        return Algorithm(
            "tc",
            lambda placed, _: placed.triangles(),
            lambda graph, _, result, device: verify_triangles(graph, result, device=device),
            "triangle",
            {"triangles": lambda result: str(result.triangles)},
        )

    run(
        algorithm,
        choice,
        Place(memory, drive, extent, bs, iodepth),
        Trials(trials, verify, device, reordering, None, json_target),
        _without_weights,
    )


def spmv(
    file: FileOption = None,
    kronecker: KroneckerOption = None,
    uniform: UniformOption = None,
    degree: DegreeOption = None,
    generator: GeneratorOption = None,
    symmetrize: SymmetrizeOption = False,
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            metavar="file|none",
            help="The values of the matrix: the weights of the file or of the generated graph, or 1. A file without "
            "weights has values of 1.",
        ),
    ] = "file",
    trials: TrialsOption = TRIALS_DEFAULT,
    verify: VerifyOption = True,
    memory: MemoryOption = _MEMORY_DEFAULT,
    drive: DriveOption = None,
    extent: ExtentOption = _EXTENT_DEFAULT,
    bs: BsOption = "",
    iodepth: PlaceIodepthOption = None,
    reordering: ReorderOption = None,
    seed: GraphSeedOption = None,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Multiply the sparse matrix of a graph by a random vector; the threads read the matrix where it lies."""
    choice = GraphChoice(file, kronecker, uniform, degree, generator, seed, symmetrize)
    check_seed(choice, reordering, random=True)
    _check_weights(weights, ("file", "none"))

    def load(choice: GraphChoice, device: str) -> tuple[str, Graph]:
        return choice.graph(weights=weights == "file", device=device)

    def algorithm(graph: Graph) -> Algorithm:
        x = np.random.default_rng(SEED_DEFAULT if seed is None else seed).random(graph.vertices, dtype=np.float32)
        return Algorithm(
            "spmv",
            lambda placed, _: placed.spmv(x),
            lambda graph, _, result, _device: verify_product(graph, x, result),
            "row",
            {"rows": lambda result: str(len(result.y))},
            by="scipy",
        )

    run(
        algorithm,
        choice,
        Place(memory, drive, extent, bs, iodepth),
        Trials(trials, verify, device, reordering, None, json_target),
        load,
        values_of,
    )


def _check_weights(value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise RefusedInput("--weights", value, f"must be {' or '.join(known)}")


COMMANDS = {"bfs": bfs, "sssp": sssp, "pr": pagerank, "cc": components, "tc": triangles, "spmv": spmv}
"""The commands of `forebay graph` that run an algorithm, by their names."""
