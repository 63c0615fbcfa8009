# SPDX-License-Identifier: Apache-2.0
"""Vectors as a command line names them: a file, WordNet's glosses, or a number of synthetic ones."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.cli.contract import progress
from forebay.errors import RefusedInput
from forebay.search.glosses import gloss_vectors
from forebay.search.synthetic import synthetic_vectors
from forebay.search.vectors import DIMENSION_MAX, VECTORS_MAX, read_vectors

SOURCES = "FILE.fbin, .u8bin or .i8bin, glosses, or synthetic:N[xD]"
HELD_OUT = 1000
"""So many glosses are queries, and none of the vectors that are searched."""
_DIMENSION_DEFAULT = 128
_HELD_OUT_SEED = 1


@dataclass(frozen=True)
class VectorSource:
    """Where vectors come from.

    Attributes:
        field: What a refusal calls it.
        given: What the command line says.
        seed: Of synthetic vectors.
    """

    field: str
    given: str
    seed: int = 1

    def check(self) -> None:
        """Refuses what names no vectors.

        Raises:
            RefusedInput: The name is wrong, or the file cannot be read or is none of vectors.
        """
        if self.given.startswith("synthetic:"):
            self._size()
        elif self.given != "glosses":
            self._file()

    def vectors(self) -> npt.NDArray[Any]:
        """Returns the vectors to search, of shape ``(vectors, dimension)``.

        Raises:
            RefusedInput: As ``check``; or WordNet's files or scikit-learn are missing, or memory is.
        """
        if self.given == "glosses":
            return _glosses(queries=False)
        if self.given.startswith("synthetic:"):
            return self._synthetic(_DIMENSION_DEFAULT, queries=False)
        return self._file()

    def queries(self, dimension: int) -> npt.NDArray[Any]:
        """Returns vectors to look for: of glosses and synthetic ones some that ``vectors`` does not have.

        Args:
            dimension: Of synthetic vectors whose name does not say it.

        Raises:
            RefusedInput: As ``vectors``.
        """
        if self.given == "glosses":
            return _glosses(queries=True)
        if self.given.startswith("synthetic:"):
            return self._synthetic(dimension, queries=True)
        return self._file()

    def _synthetic(self, dimension: int, *, queries: bool) -> npt.NDArray[Any]:
        count, given = self._size()
        with progress("drawing vectors", None):
            return synthetic_vectors(count, given or dimension, seed=self.seed, queries=queries)

    def _size(self) -> tuple[int, int | None]:
        match = re.fullmatch(r"synthetic:([0-9]{1,12})(?:x([0-9]{1,12}))?", self.given)
        count, dimension = (int(match[1]), int(match[2]) if match[2] else None) if match else (0, None)
        if not 1 <= count <= VECTORS_MAX or (dimension is not None and not 1 <= dimension <= DIMENSION_MAX):
            remedy = f"give a number of vectors and a dimension of at most {DIMENSION_MAX}, as in synthetic:5000x32"
            raise RefusedInput(self.field, self.given, remedy)
        return count, dimension

    def _file(self) -> npt.NDArray[Any]:
        if not self.given.endswith((".fbin", ".u8bin", ".i8bin")):
            raise RefusedInput(self.field, self.given, f"must be {SOURCES}")
        vectors = read_vectors(self.given)
        if not len(vectors):
            raise RefusedInput(self.field, self.given, "has no vector; give a file that has some")
        return vectors


def read_ids(option: str, path: Path) -> npt.NDArray[np.int32]:
    """Reads a file of ids.

    Args:
        option: What a refusal calls the file.
        path: The file, ``.ibin``.

    Raises:
        RefusedInput: It cannot be read, or is no such file.
    """
    if path.suffix != ".ibin":
        raise RefusedInput(option, path, "the name must end in .ibin: a file of ids")
    return read_vectors(path)


def _glosses(*, queries: bool) -> npt.NDArray[np.float32]:
    with progress("reading WordNet's glosses", None):
        every = gloss_vectors()
    held_out = np.zeros(len(every), bool)
    held_out[np.random.default_rng(_HELD_OUT_SEED).permutation(len(every))[:HELD_OUT]] = True
    if len(every) <= HELD_OUT:
        remedy = f"has {len(every)} glosses, and {HELD_OUT} of them are queries; use all of WordNet"
        raise RefusedInput("WordNet", "glosses", remedy)
    return every[held_out if queries else ~held_out]
