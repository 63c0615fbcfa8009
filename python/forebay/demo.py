# SPDX-License-Identifier: Apache-2.0
"""The main job on real input: breadth-first search over WordNet, read from a drive by the threads that search."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.errors import RefusedInput
from forebay.graph import wordnet
from forebay.graph.bfs import bfs, verify_distances
from forebay.graph.extents import write_edges
from forebay.provenance import provenance
from forebay.storage import Storage


@dataclass(frozen=True)
class _Start:
    synset: str
    word: str


START = _Start("n00001740", "entity")
EXTENT = "edges"


@dataclass(frozen=True)
class Demo:
    """WordNet, and the vertex that the search starts from."""

    wordnet: wordnet.WordNet
    source: int

    @classmethod
    def prepare(cls, directory: Path | None = None) -> "Demo":
        """Reads WordNet from `directory`, or from where the package put it."""
        loaded = wordnet.load(directory)
        if START.synset not in loaded.synsets:
            raise RefusedInput(
                "WordNet",
                START.synset,
                "is where the search starts, and data.noun does not have it; install WordNet 3.0 (wordnet-base)",
            )
        return cls(loaded, loaded.synsets[START.synset])

    def write(self, storage: Storage, tell: Callable[[float], None] | None = None) -> None:
        """Writes the edge list as an extent, in place of one that an earlier run left."""
        write_edges(storage, self.wordnet.graph, EXTENT, tell, replace=True)
        storage.reset_statistics()

    def search(
        self,
        storage: Storage,
        uris: list[str],
        iodepth: int | None = None,
        tell: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        """Searches, checks, and returns the JSON document, without its schema version."""
        graph = self.wordnet.graph
        result = bfs(graph, self.source, storage, extent=EXTENT, iodepth=iodepth, tell=tell)
        wrong = verify_distances(graph, self.source, result)
        report = provenance(storage)
        return {
            "verified": wrong == 0,
            "wrong_distances": wrong,
            "input": "WordNet 3.0",
            "source": START.synset,
            "vertices": graph.vertices,
            "pointers": self.wordnet.pointers,
            "edges": graph.arcs,
            **result.figures(),
            "fidelity": report["fidelity"],
            "device": report["device"],
            "drives": uris,
            "forebay": report,
        }
