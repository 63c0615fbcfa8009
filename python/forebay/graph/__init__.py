# SPDX-License-Identifier: Apache-2.0
"""Graphs: compressed sparse rows, the file formats of GAP, WordNet, and searches over a drive."""

from forebay.graph.bfs import BfsResult, bfs, reference_distances, verify_distances
from forebay.graph.csr import Graph
from forebay.graph.gap import load, read_el, read_sg, write_el, write_sg

__all__ = [
    "BfsResult",
    "Graph",
    "bfs",
    "load",
    "read_el",
    "read_sg",
    "reference_distances",
    "verify_distances",
    "write_el",
    "write_sg",
]
