# SPDX-License-Identifier: Apache-2.0
"""WordNet 3.0 as a graph: synsets and the pointers between them (Debian's ``wordnet-base``; format: wndb(5WN))."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forebay.errors import RefusedInput
from forebay.files import reading
from forebay.graph.csr import Graph

_FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
_LINE_MAX = 1 << 16  # the longest is a fifth of it
_DEFAULT = Path("/usr/share/wordnet")


@dataclass(frozen=True)
class WordNet:
    """WordNet as a graph, and what its vertices are.

    Attributes:
        graph: The graph: a vertex for each synset, an arc for each pair of synsets that a pointer joins.
        pointers: How many pointers the data files hold. Several may join the same pair.
        synsets: The vertex of each synset, by its part of speech and its offset, such as ``"n00001740"``.
        words: The first word of each vertex.
    """

    graph: Graph
    pointers: int
    synsets: dict[str, int]
    words: list[str]


def default_directory() -> Path:
    """Returns the folder of the data files: FOREBAY_WORDNET, or where Debian's package puts them."""
    return Path(os.environ.get("FOREBAY_WORDNET") or _DEFAULT)


def load(directory: Path | None = None) -> WordNet:
    """Reads the four data files. Vertices are numbered in file order: nouns, verbs, adjectives, adverbs.

    Args:
        directory: The folder of the data files; None for ``default_directory()``.

    Returns:
        The graph, and what its vertices are.

    Raises:
        RefusedInput: A file cannot be read, or a line of it is not a synset.
    """
    synsets: dict[str, int] = {}
    words: list[str] = []
    pointers: list[tuple[int, str]] = []
    for part, path, number, line in _lines(directory):
        try:
            offset, word, targets = _parse_synset(line)
        except (ValueError, IndexError):
            raise RefusedInput(
                "WordNet", f"{path}:{number}", "is not a synset of wndb(5WN); install wordnet-base again"
            ) from None
        vertex = len(words)
        synsets[part + offset] = vertex
        words.append(word)
        pointers += [(vertex, target) for target in targets]
    try:
        arcs = np.array([(source, synsets[target]) for source, target in pointers], dtype=np.int64).reshape(-1, 2)
    except KeyError as missing:
        raise RefusedInput(
            "WordNet",
            missing.args[0],
            "a pointer leads to this synset, which is not in the files; install wordnet-base again",
        ) from None
    graph = Graph.from_arcs(arcs[:, 0], arcs[:, 1], len(words), keep_loops=True)
    return WordNet(graph, len(pointers), synsets, words)


def glosses(directory: Path | None = None) -> list[str]:
    """Reads the gloss of each synset: what explains it, in words. They have the order of the vertices of ``load``.

    Args:
        directory: The folder of the data files; None for ``default_directory()``.

    Raises:
        RefusedInput: A file cannot be read.
    """
    return [line.partition(" | ")[2].strip() for _, _, _, line in _lines(directory)]


def _lines(directory: Path | None) -> Iterator[tuple[str, Path, int, str]]:
    """The lines of synsets, each with its part of speech, its file and its number there."""
    for part, name in _FILES.items():
        path = (directory or default_directory()) / name
        with reading("WordNet", path, "install Debian's package wordnet-base, or set FOREBAY_WORDNET") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LINE_MAX), b""), 1):
                if not line.startswith(b" "):  # the licence
                    yield part, path, number, line.decode("latin-1")


def _parse_synset(line: str) -> tuple[str, str, list[str]]:
    fields = line.split(" | ", 1)[0].split()
    word_count = int(fields[3], 16)
    at = 4 + 2 * word_count
    pointer_count = int(fields[at])
    targets = []
    for i in range(pointer_count):
        _symbol, offset, part, _source_target = fields[at + 1 + 4 * i : at + 5 + 4 * i]
        targets.append({"s": "a"}.get(part, part) + offset)
    return fields[0], fields[4], targets
