# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from forebay.cli import main
from forebay.search import build_graph, exact_neighbours, gloss_vectors
from threadpoolctl import threadpool_limits


@dataclass(frozen=True)
class Outcome:
    """One run of the command."""

    status: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        document = json.loads(self.out)  # one document and nothing else
        assert document["schema_version"] == 1
        return document

    def refused(self, *parts: str) -> None:
        """Asserts the contract of refused input: status 2, nothing on stdout, one line that has the parts."""
        assert self.status == 2, self.err
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("forebay: ")
        for part in parts:
            assert part in self.err


@pytest.fixture
def forebay(capfd):
    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def vectors_of_glosses() -> npt.NDArray[np.float32]:
    """The vectors of WordNet's glosses, read-only. They take seconds to make, so all tests share them."""
    vectors = gloss_vectors()
    vectors.flags.writeable = False
    return vectors


@pytest.fixture(scope="session")
def one_thread_a_product():
    """For builds of graphs, which multiply many small matrices: threads that share one mostly wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def glosses(
    vectors_of_glosses: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
    """Vectors of real text, some 1,000 queries that are not among them, and the ten true neighbours of each."""
    order = np.random.default_rng(20_261_127).permutation(len(vectors_of_glosses))
    held_out, base = vectors_of_glosses[order[:1000]], vectors_of_glosses[order[1000:]]
    queries = held_out[np.linalg.norm(held_out, axis=1) > 0]
    return base, queries, exact_neighbours(base, queries, 10).ids


@pytest.fixture(scope="session")
def graph_of_glosses(glosses) -> npt.NDArray[np.uint32]:
    """A graph of the vectors, which takes half a minute to build, so all tests share it."""
    return build_graph(glosses[0], graph_degree=64, intermediate_degree=40)  # half the time
