# SPDX-License-Identifier: Apache-2.0
"""The options of commands that generate a graph, or give its vertices other numbers."""

from typing import Annotated

import typer

from forebay.cli.contract import progress
from forebay.errors import RefusedInput
from forebay.graph import generate
from forebay.graph.csr import Graph
from forebay.graph.reorder import REORDERINGS, require_reordering

GENERATORS = ("gap", "own")
SEED_DEFAULT = 1
_SEED_MAX = 2**63 - 1

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
) -> tuple[str, Graph]:
    """Generates the graph of a command line.

    Args:
        option: ``-g`` for a Kronecker graph, ``-u`` for a uniform one.
        scale: The graph has 2^scale vertices.
        degree: Edges a vertex; None for 16.
        generator: One of ``GENERATORS``; None for GAP's.
        seed: Of our own generator; None for 1. GAP's graphs do not depend on it.
        weights: Whether the edges get weights, 1 to 255.

    Returns:
        What to call the graph, and the graph.

    Raises:
        RefusedInput: A value is out of range, or the machine has too little memory.
    """
    check_generator(option, scale, degree, generator)
    kind = "kronecker" if option == "-g" else "uniform"
    degree = 16 if degree is None else degree
    with progress("generating the graph", None):
        if generator == "own":
            seed = SEED_DEFAULT if seed is None else seed
            return f"own {kind} {scale}, seed {seed}", generate.own(kind, scale, degree, seed=seed, weights=weights)
        make = generate.kronecker if option == "-g" else generate.uniform
        return f"{kind} {scale}", make(scale, degree, weights=weights)


def check_reordering(order: str | None, seed: int | None, generator: str | None = None) -> None:
    """Refuses an order that is unknown, and a seed that is out of range or that nothing depends on."""
    if order is not None:
        require_reordering("--reorder", order)
    if seed is None:
        return
    if not 0 <= seed <= _SEED_MAX:
        raise RefusedInput("--seed", seed, "must be a whole number from 0 to 2^63 - 1")
    if order != "random" and generator != "own":
        raise RefusedInput("--seed", seed, "nothing here is random but --generator own and --reorder random")
