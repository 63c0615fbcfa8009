# SPDX-License-Identifier: Apache-2.0
"""Graphs, files that hold them, and searches over a drive that holds a graph's edges."""

from forebay.graph.bfs import UNREACHED, BfsResult, bfs, reference_distances, verify_distances, write_edges
from forebay.graph.csr import Graph
from forebay.graph.gap import load, read_el, read_sg, save, write_el, write_sg

__all__ = [
    "UNREACHED",
    "BfsResult",
    "Graph",
    "bfs",
    "load",
    "read_el",
    "read_sg",
    "reference_distances",
    "save",
    "verify_distances",
    "write_edges",
    "write_el",
    "write_sg",
]
