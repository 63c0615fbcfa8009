# SPDX-License-Identifier: Apache-2.0
"""The options of commands that read or generate a graph, or give its vertices other numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.contract import missing, progress
from forebay.errors import RefusedInput
from forebay.graph import generate
from forebay.graph.csr import Graph
from forebay.graph.formats import load
from forebay.graph.reorder import REORDERINGS, require_reordering

GENERATORS = generate.GENERATORS
SEED_DEFAULT = 1
ON_DEVICE_SCALE_MIN = 20
"""Graphs of this scale and above are generated on the GPU, if the command runs there: NumPy takes minutes."""
_ONE_GRAPH = "give one of -f, -g and -u"
_SEED_MAX = 2**63 - 1

FileOption = Annotated[
    Path | None, typer.Option("-f", "--file", metavar="FILE", help="The graph file, as `forebay graph info` reads it.")
]
SymmetrizeOption = Annotated[
    bool, typer.Option("-s", "--symmetrize", help="Make the graph undirected: add the reverse of each edge.")
]
KroneckerOption = Annotated[
    int | None,
    typer.Option("-g", "--kronecker", metavar="SCALE", help="Generate a Kronecker graph of 2^SCALE vertices."),
]
UniformOption = Annotated[
    int | None,
    typer.Option("-u", "--uniform", metavar="SCALE", help="Generate a uniform random graph of 2^SCALE vertices."),
]
DegreeOption = Annotated[
    int | None,
    typer.Option("-k", "--degree", metavar="N", help="Edges a vertex of a generated graph.", show_default="16"),
]
GeneratorOption = Annotated[
    str | None,
    typer.Option(
        "--generator",
        metavar="|".join(GENERATORS),
        help="Whose random numbers -g and -u draw: GAP's, or those of Forebay's generator for GPUs.",
        show_default=GENERATORS[0],
    ),
]
ReorderOption = Annotated[
    str | None,
    typer.Option(
        "--reorder",
        metavar="|".join(REORDERINGS),
        help="Give the vertices other numbers: by their degrees, by SciPy's reverse Cuthill-McKee, or at random.",
        show_default="no",
    ),
]
RandomSeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Seed of all that is random.", show_default=str(SEED_DEFAULT)),
]


def check_generator(option: str, scale: int, degree: int | None, generator: str | None) -> None:
    """Refuses numbers and a name that no generated graph has.

    Args:
        option: The option that the scale is of.
        scale: The graph has 2^scale vertices.
        degree: Edges a vertex; None for the default.
        generator: One of ``GENERATORS``; None for the default.

    Raises:
        RefusedInput: One of them is out of range, or unknown.
    """
    if not 0 <= scale <= generate.SCALE_MAX:
        raise RefusedInput(option, scale, f"must be 0 to {generate.SCALE_MAX}: the graph has 2^SCALE vertices")
    if degree is not None and not 1 <= degree <= generate.DEGREE_MAX:
        raise RefusedInput("-k", degree, f"must be 1 to {generate.DEGREE_MAX}")
    if generator is not None and generator not in GENERATORS:
        raise RefusedInput("--generator", generator, f"must be {' or '.join(GENERATORS)}")


def generated(
    option: str,
    scale: int,
    degree: int | None = None,
    generator: str | None = None,
    seed: int | None = None,
    *,
    weights: bool = False,
    device: str = "cpu",
) -> tuple[str, Graph]:
    """Generates the graph of a command line.

    Args:
        option: ``-g`` for a Kronecker graph, ``-u`` for a uniform one.
        scale: The graph has 2^scale vertices.
        degree: Edges a vertex; None for 16.
        generator: One of ``GENERATORS``; None for GAP's.
        seed: Of our own generator; None for 1. GAP's graphs do not depend on it.
        weights: Whether the edges get weights, 1 to 255.
        device: The device that generates large graphs, ``cpu`` or ``cuda:N``.

    Returns:
        What to call the graph, and the graph.

    Raises:
        RefusedInput: A value is out of range, or the machine has too little memory.
    """
    check_generator(option, scale, degree, generator)
    kind = "kronecker" if option == "-g" else "uniform"
    degree = 16 if degree is None else degree
    generator = generator or GENERATORS[0]
    seed = SEED_DEFAULT if seed is None else seed
    name = f"own {kind} {scale}, seed {seed}" if generator == "own" else f"{kind} {scale}"
    with progress("generating the graph", None):
        if device != "cpu" and scale >= ON_DEVICE_SCALE_MIN:
            graph = generate.on_device(
                kind, scale, degree, generator=generator, seed=seed, weights=weights, device=device
            )
        elif generator == "own":
            graph = generate.own(kind, scale, degree, seed=seed, weights=weights)
        else:
            graph = (generate.kronecker if option == "-g" else generate.uniform)(scale, degree, weights=weights)
    return name, graph


@dataclass(frozen=True)
class GraphChoice:
    """Which graph a command line names: a file's, or a generated one."""

    file: Path | None
    kronecker: int | None
    uniform: int | None
    degree: int | None
    generator: str | None
    seed: int | None
    symmetrize: bool

    def graph(self, *, weights: bool = False, device: str = "cpu") -> tuple[str, Graph]:
        """Reads the file, or generates the graph.

        Args:
            weights: Whether to keep the weights of a file that has some, and to generate some.
            device: The device that generates large graphs.

        Returns:
            What to call the graph, and the graph.

        Raises:
            RefusedInput: The options name no graph, or several, or the file is refused.
        """
        given = {"-f": self.file, "-g": self.kronecker, "-u": self.uniform}
        options = [option for option, value in given.items() if value is not None]
        if not options:
            raise missing("-f", f"no graph is generated; {_ONE_GRAPH}")
        if len(options) > 1:
            raise RefusedInput(options[1], given[options[1]], f"{options[0]} is another graph; {_ONE_GRAPH}")
        if self.file is not None:
            for option, value in (("-k", self.degree), ("--generator", self.generator)):
                if value is not None:
                    remedy = "is for generated graphs; leave it out, or use -g or -u in place of -f"
                    raise RefusedInput(option, value, remedy)
            return str(self.file), load(self.file, symmetrize=self.symmetrize, weights=weights)
        scale = self.kronecker if self.kronecker is not None else self.uniform or 0
        return generated(options[0], scale, self.degree, self.generator, self.seed, weights=weights, device=device)


def check_reordering(
    order: str | None, seed: int | None, generator: str | None = None, *, random: bool = False
) -> None:
    """Refuses an order that is unknown, and a seed that is out of range or that nothing depends on.

    `random`: the command itself draws random numbers.
    """
    if order is not None:
        require_reordering("--reorder", order)
    if seed is None:
        return
    if not 0 <= seed <= _SEED_MAX:
        raise RefusedInput("--seed", seed, "must be a whole number from 0 to 2^63 - 1")
    if not random and order != "random" and generator != "own":
        raise RefusedInput("--seed", seed, "nothing here is random but --generator own and --reorder random")
