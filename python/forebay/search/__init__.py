# SPDX-License-Identifier: Apache-2.0
"""Nearest-neighbour search over an index on drives, the files of vectors, and the exact neighbours to measure it by."""

from forebay.search.diskann import build_with_diskann, import_diskann
from forebay.search.exact import METRICS, NO_NEIGHBOUR, Neighbours, exact_neighbours, recall
from forebay.search.glosses import gloss_vectors
from forebay.search.index import MEMORIES, Index
from forebay.search.index_file import MODES
from forebay.search.proximity_graph import build_graph
from forebay.search.searching import SearchResult
from forebay.search.synthetic import local_intrinsic_dimension, synthetic_vectors
from forebay.search.vectors import read_vectors, write_vectors

__all__ = [
    "MEMORIES",
    "METRICS",
    "MODES",
    "NO_NEIGHBOUR",
    "Index",
    "Neighbours",
    "SearchResult",
    "build_graph",
    "build_with_diskann",
    "exact_neighbours",
    "gloss_vectors",
    "import_diskann",
    "local_intrinsic_dimension",
    "read_vectors",
    "recall",
    "synthetic_vectors",
    "write_vectors",
]
