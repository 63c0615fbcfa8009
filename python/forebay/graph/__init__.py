# SPDX-License-Identifier: Apache-2.0
"""Graphs, files that hold them, and searches over a drive that holds a graph's edges."""

from forebay.graph.bfs import UNREACHED, BfsResult, bfs, reference_distances, verify_distances, write_edges
from forebay.graph.csr import Graph
from forebay.graph.edge_list import read_el, write_el
from forebay.graph.formats import load, save
from forebay.graph.gap import read_sg, write_sg
from forebay.graph.reorder import reorder

__all__ = [
    "UNREACHED",
    "BfsResult",
    "Graph",
    "bfs",
    "load",
    "read_el",
    "read_sg",
    "reference_distances",
    "reorder",
    "save",
    "verify_distances",
    "write_edges",
    "write_el",
    "write_sg",
]
