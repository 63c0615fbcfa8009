# SPDX-License-Identifier: Apache-2.0
"""Vectors, the files that hold them, and the exact nearest neighbours that a search is measured by."""

from forebay.search.exact import METRICS, NO_NEIGHBOUR, Neighbours, exact_neighbours, recall
from forebay.search.synthetic import local_intrinsic_dimension, synthetic_vectors
from forebay.search.vectors import read_vectors, write_vectors

__all__ = [
    "METRICS",
    "NO_NEIGHBOUR",
    "Neighbours",
    "exact_neighbours",
    "local_intrinsic_dimension",
    "read_vectors",
    "recall",
    "synthetic_vectors",
    "write_vectors",
]
