# SPDX-License-Identifier: Apache-2.0
"""The formats of graph files, by the ending of the file's name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forebay.errors import RefusedInput
from forebay.graph import dimacs, edge_list, gap, matrix_market
from forebay.graph.csr import Graph


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        read: Reads a file, with or without the weights that it has.
        write: Writes a file.
        weights: Whether a file of the format has weights.
    """

    read: Callable[[Path, bool], Graph]
    write: Callable[[Graph, Path], None]
    weights: Literal["never", "always", "if the graph has them"]


FORMATS = {
    ".sg": Format(lambda path, _: gap.read_sg(path), gap.write_sg, "never"),
    ".wsg": Format(lambda path, weights: gap.read_wsg(path, weights=weights), gap.write_wsg, "always"),
    ".el": Format(lambda path, _: edge_list.read_el(path), edge_list.write_el, "never"),
    ".wel": Format(lambda path, weights: edge_list.read_wel(path, weights=weights), edge_list.write_wel, "always"),
    ".gr": Format(lambda path, weights: dimacs.read_gr(path, weights=weights), dimacs.write_gr, "always"),
    ".mtx": Format(
        lambda path, weights: matrix_market.read_mtx(path, weights=weights),
        matrix_market.write_mtx,
        "if the graph has them",
    ),
}
ENDINGS = ", ".join(list(FORMATS)[:-1]) + f" or {list(FORMATS)[-1]}"


def format_of(path: Path | str, field: str = "graph file") -> Format:
    """Returns the format that the name of a file says.

    Args:
        path: The file.
        field: What an error calls it.

    Raises:
        RefusedInput: The name has another ending.
    """
    found = FORMATS.get(Path(path).suffix)
    if not found:
        raise RefusedInput(field, path, f"the name must end in {ENDINGS}")
    return found


def load(path: Path | str, *, symmetrize: bool = False, weights: bool = True) -> Graph:
    """Reads a graph from a file. It checks all of the file.

    Args:
        path: The file. The end of its name says the format: ``.sg``, ``.wsg``, ``.el``, ``.wel``, ``.gr`` or ``.mtx``.
        symmetrize: Whether to make the graph undirected (GAP's ``-s``). An edge gets the smaller one of its weights.
        weights: Whether to keep the weights, if the file has any: whole numbers from 0 to 2^31 - 1. If not, the weights
            in the file may be others.

    Returns:
        The graph. Of text formats it has no duplicates and no loops, as GAP's builder makes it. Of duplicates the
        smallest weight stays.

    Raises:
        RefusedInput: The name has another ending, the file cannot be read or is not of the format, a weight to keep is
            out of range, or the graph needs more memory than is available. The error names the line or the field.
    """
    path = Path(path)
    graph = format_of(path).read(path, weights)
    return graph.symmetrized() if symmetrize else graph


def save(graph: Graph, path: Path | str) -> None:
    """Writes a graph to a file, in place of one that exists.

    Args:
        graph: The graph. ``.sg`` and ``.el`` leave its weights out. For ``.wsg``, ``.wel`` and ``.gr`` it needs some.
        path: The file. The end of its name says the format, as for ``load``.

    Raises:
        RefusedInput: The name has another ending, or the graph lacks the weights that the format has.
        OperationFailed: The file cannot be written.
    """
    path = Path(path)
    to = format_of(path)
    require_weights(graph, to, path)
    to.write(graph, path)


def require_weights(graph: Graph, to: Format, path: Path, field: str = "graph file") -> None:
    """Refuses a file whose format has weights, for a graph that has none."""
    if to.weights == "always" and graph.weights is None:
        raise RefusedInput(
            field,
            path,
            f"a {path.suffix} file has weights and the graph has none; give each edge the weight 1 "
            "(--weights unit, in Python with_unit_weights), or write a .sg, .el or .mtx file",
        )
