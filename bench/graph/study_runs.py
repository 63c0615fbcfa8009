# SPDX-License-Identifier: Apache-2.0
"""One row of the study: a search of lists in one place, made several times, and what it took."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from forebay import Storage
from study_lists import GraphLists, tell

if TYPE_CHECKING:
    from forebay._graph import Lists

Row = dict[str, Any]
DELTA = 16
PAGERANK_RESIDUAL_MAX = 1e-4
_COUNTED = ("reads", "bytes_read", "bytes_needed", "loads", "late", "latency_us")


def figures_of(text: str) -> Row:
    """What a run says of itself; of the latency, the mean in microseconds."""
    figures: Row = json.loads(text)
    latency = figures.pop("clat_ns", None)
    figures["latency_us"] = latency["mean"] / 1e3 if latency else None
    return figures


def fidelity_of(drives: Storage) -> str:
    """Whether the emulated drive kept its times."""
    return str(drives.report()["fidelity"])


def timed(
    lists: "Lists", graph: GraphLists, trials: int = 3, checker: "Lists | None" = None, *, cold: bool = False
) -> Row:
    """Searches from several sources; from the first once more before, since the first launch of a kernel loads it."""
    _search(lists, graph, graph.sources[0])
    rows = []
    for source in graph.sources[:trials]:
        if cold:
            lists.make_cold()
        found, figures = _search(lists, graph, source)
        if checker is not None:
            check = checker.check_sssp if graph.entry == "weighted" else checker.check_bfs
            figures["wrong"] = check(source, *found)
        rows.append(figures)
    middle = sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2]
    return {
        "seconds": [row["seconds"] for row in rows],
        "wrong": sum(row.get("wrong", 0) for row in rows),
        **{key: middle[key] for key in _COUNTED if key in middle},
        "levels": middle.get("levels"),
        "median_s": middle["seconds"],
    }


def describe(name: str, row: Row) -> None:
    """Prints a row."""
    line = f"  {name:60s} {1e3 * row['median_s']:10.2f} ms"
    if read := row.get("bytes_read"):
        line += f"  {row['reads'] / row['median_s'] / 1e6:8.1f} M/s, {read / row['median_s'] / 1e9:6.2f} GB/s, "
        line += f"RAF {read / row['bytes_needed']:.3f}"
    if row.get("loads"):
        line += f", late {100 * row['late'] / row['loads']:.3f} %"
    if row.get("fidelity"):
        line += f", {row['fidelity']}"
    if row.get("wrong"):
        line += f", WRONG {row['wrong']}"
    tell(line)


def _search(lists: "Lists", graph: GraphLists, source: int) -> tuple[tuple[Any, Any], Row]:
    if graph.entry == "weighted":
        distances, before, text = lists.sssp(source, delta=DELTA)
        return (distances, before), figures_of(text)
    near, before, text = lists.bfs(source, direction="above", tell=None)
    return (near, before), figures_of(text)


class EveryAlgorithm:
    """Runs all six algorithms over a graph, and checks what they find."""

    def __init__(self, graph: GraphLists, weighted: GraphLists) -> None:
        """Takes the same graph twice: without weights, and with them."""
        self._graph = graph
        self._near, self._near_weighted = graph.in_memory(graph.nearest), weighted.in_memory(graph.nearest)
        self._degrees = np.diff(graph.row_begin).astype(np.float32)
        self._triangles: int | None = None  # which all places must agree on

    def over(self, place: str, lists: "Lists", arcs: "Lists") -> list[Row]:
        """Runs each algorithm once; `arcs` are the lists with weights."""
        runs: dict[str, Callable[[], tuple[str, int]]] = {
            "bfs": lambda: self._bfs(lists),
            "sssp": lambda: self._sssp(arcs),
            "pr": lambda: self._pagerank(lists),
            "cc": lambda: self._components(lists),
            "tc": lambda: self._count(lists),
            "spmv": lambda: self._multiply(lists),
        }
        rows = []
        for name, run in runs.items():
            text, wrong = run()
            figures = figures_of(text)
            figures.pop("levels", None)
            rows.append({"graph": self._graph.name, "place": place, "algorithm": name, "wrong": wrong, **figures})
            tell(f"  {self._graph.name} {place:44s} {name:5s} {1e3 * figures['seconds']:10.2f} ms  wrong {wrong}")
        return rows

    def _bfs(self, lists: "Lists") -> tuple[str, int]:
        source = self._graph.sources[0]
        distances, before, text = lists.bfs(source, direction="above", tell=None)
        return text, self._near.check_bfs(source, distances, before)

    def _sssp(self, arcs: "Lists") -> tuple[str, int]:
        source = self._graph.sources[0]
        distances, before, text = arcs.sssp(source, delta=DELTA)
        return text, self._near_weighted.check_sssp(source, distances, before)

    def _pagerank(self, lists: "Lists") -> tuple[str, int]:
        scores, text = lists.pagerank(None, damping=0.85, tolerance=1e-4, iterations=20, share_dangling=False)
        residual = self._near.check_pagerank(None, scores, damping=0.85, share_dangling=False)
        return text, int(not residual < PAGERANK_RESIDUAL_MAX)

    def _components(self, lists: "Lists") -> tuple[str, int]:
        labels, text = lists.components()
        return text, self._near.check_components(labels)

    def _count(self, lists: "Lists") -> tuple[str, int]:
        found, text = lists.triangles()
        if self._triangles is None:
            self._triangles = found
        return text, int(found != self._triangles)

    def _multiply(self, lists: "Lists") -> tuple[str, int]:
        y, text = lists.spmv(np.ones(len(self._degrees), np.float32))
        return text, int(np.count_nonzero(y != self._degrees))
