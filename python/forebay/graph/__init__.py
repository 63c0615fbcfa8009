# SPDX-License-Identifier: Apache-2.0
"""Graphs, the files that hold them, and algorithms that read a graph's neighbour lists in memory or on a drive."""

from forebay.graph.bfs import bfs, reference_distances, verify_distances
from forebay.graph.components import components, reference_components, verify_components
from forebay.graph.csr import Graph
from forebay.graph.edge_list import read_el, write_el
from forebay.graph.extents import write_edges
from forebay.graph.formats import load, save
from forebay.graph.gap import read_sg, write_sg
from forebay.graph.pagerank import pagerank, reference_scores, verify_scores
from forebay.graph.placed import Placed
from forebay.graph.reorder import reorder
from forebay.graph.results import (
    UNREACHED,
    UNREACHED_WEIGHTED,
    BfsResult,
    ComponentsResult,
    PagerankResult,
    SpmvResult,
    SsspResult,
    TrianglesResult,
)
from forebay.graph.spmv import spmv, verify_product
from forebay.graph.sssp import reference_paths, sssp, verify_paths
from forebay.graph.triangles import reference_triangles, triangles, verify_triangles

__all__ = [
    "UNREACHED",
    "UNREACHED_WEIGHTED",
    "BfsResult",
    "ComponentsResult",
    "Graph",
    "PagerankResult",
    "Placed",
    "SpmvResult",
    "SsspResult",
    "TrianglesResult",
    "bfs",
    "components",
    "load",
    "pagerank",
    "read_el",
    "read_sg",
    "reference_components",
    "reference_distances",
    "reference_paths",
    "reference_scores",
    "reference_triangles",
    "reorder",
    "save",
    "spmv",
    "sssp",
    "triangles",
    "verify_components",
    "verify_distances",
    "verify_paths",
    "verify_product",
    "verify_scores",
    "verify_triangles",
    "write_edges",
    "write_el",
    "write_sg",
]
