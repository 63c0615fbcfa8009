# SPDX-License-Identifier: Apache-2.0
"""A graph whose neighbour lists have been put where algorithms read them: into memory, or on drives."""

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, SupportsFloat

import numpy as np
import numpy.typing as npt

from forebay._buffers import text, whole
from forebay._native import graph_core, interruptible
from forebay.errors import OperationFailed, RefusedInput
from forebay.graph.csr import Graph
from forebay.graph.extents import default_drive, default_iodepth, entries, place_on_drives
from forebay.graph.memory import Memory, parse_memory, require_device, resolve_device
from forebay.graph.results import (
    BfsResult,
    ComponentsResult,
    PagerankResult,
    SpmvResult,
    SsspResult,
    TrianglesResult,
)
from forebay.provenance import build_and_host, provenance
from forebay.storage import Storage

DIRECTIONS = ("auto", "above", "below")
DELTA_MAX = 1 << 31
ITERATIONS_MAX = 1_000_000
_WIDE_KINDS = ("hbm", "host", "external")
_LATE_SHARE = 0.01  # of the loads of a modelled memory: beyond it, a result says nothing about that memory


class Placed:
    """The neighbour lists of a graph in one of the places where they can lie, and the algorithms that read them there.

    Row pointers and results are in the device's memory, whichever place the lists have. The place is one of these:

    - ``hbm``: the GPU's own memory.
    - ``host``: page-locked host memory, which a GPU reads across its link; on the CPU, memory. ``host:node=N`` takes
      memory of NUMA node N.
    - ``uvm``: managed memory, whose pages move to the GPU.
    - ``storage``: drives, read through a cache in the device's memory:
      ``storage:page_bytes=4096,cache_bytes=64M``, which are the defaults.
    - ``storage_direct``: drives, read past any cache.
    - ``external:KEY=VALUE,...``: memory that takes the time that a model says, such as
      ``external:latency_us=2,alignment=32``.

    Each place is used by one algorithm at a time: calls from several threads take turns. Ctrl-C ends a call, but not
    what the device does, which goes on in the background; drives are shut down after it has ended.

    Use it in a ``with`` block: the end of the block frees the memory and closes the drives that this object opened.

    Example:
        >>> from forebay.graph import Graph, Placed
        >>> graph = Graph.from_arcs([0, 1, 2], [1, 2, 3], 4, directed=False)
        >>> with Placed(graph, "host", device="cpu") as placed:
        ...     placed.bfs(0).distance.tolist(), placed.components().components
        ([0, 1, 2, 3], 1)
    """

    def __init__(
        self,
        graph: Graph,
        memory: str | Storage = "host",
        *,
        device: str = "auto",
        drives: Sequence[str] = (),
        extent: str = "edges",
        iodepth: int | None = None,
        request_bytes: int = 0,
        weighted: bool = False,
        wide_ids: bool = False,
        incoming: bool = False,
        values: npt.ArrayLike | None = None,
        tell: Callable[[float], None] | None = None,
    ) -> None:
        """Copies the lists to their place.

        On drives they go to extents, unless they are there. Then they are compared with the graph's, byte by byte.

        Args:
            graph: The graph; it has a vertex at least, and an arc at least if its lists go to drives.
            memory: The place; or an open storage, which is used and not closed. With a cache it is read through that,
                and else past it.
            device: The device whose threads read: ``cpu``, ``cuda:N``, or ``auto``, which is GPU 0 if there is one and
                else the CPU. An open storage has its own.
            drives: Drive URIs for ``storage`` and ``storage_direct``, striped. None: an ideal emulated drive that is
                large enough.
            extent: The name of the extent. Those of weighted lists end with ``_weighted``, those of incoming lists with
                ``_incoming``, and those of values with ``_values``.
            iodepth: Past the cache: how many reads are in flight at most, 1 to 1,048,576, each of a thread of its own.
                None for 16,384 on a GPU, and on the CPU for 128 on each core but one.
            request_bytes: Past the cache: the length of the longest read, the drives' block times a power of two, at
                most 131,072. 0 means one block. Longer reads suit graphs in which vertices have many neighbours.
            weighted: Place pairs of a neighbour and a weight, as ``sssp`` needs them. The other algorithms need lists
                without weights.
            wide_ids: Place neighbours as numbers of 8 bytes in place of 4, which only ``bfs`` reads, in ``hbm``,
                ``host`` and ``external``.
            incoming: Place the lists of arcs that lead to each vertex, as ``pagerank`` needs them of a directed graph.
            values: A number for each arc, which is taken as ``float32``, for ``spmv``; None: all are 1.
            tell: Called now and then with the share of an extent that is written, more than 0 and at most 1.

        Raises:
            RefusedInput: An argument is wrong, the place has no room, an extent holds other lists, or the device has no
                such memory. Nothing was written then.
            OperationFailed: A drive does not start or fails, or an extension module does not load.
        """
        self._storage: Storage | None = None
        self._own_storage = False
        self._lists: Any = None
        if not isinstance(graph, Graph):
            raise RefusedInput("graph", type(graph).__name__, "must be a Graph; make one with Graph.from_arcs or load")
        if isinstance(drives, str) or not isinstance(drives, Sequence):
            raise RefusedInput("drives", drives, "must be a list of drive URIs, which may be empty")
        if not graph.vertices:
            raise RefusedInput("graph", "0 vertices", "has no vertex; there is nothing to place or to search")
        self.graph = graph
        self._turned = bool(incoming) and graph.directed
        self._lists_of = graph.inverse() if self._turned else graph
        self._entry = "weighted" if weighted else "wide_id" if wide_ids else "id"
        self._values = _checked_values(graph, values, self._entry)
        if weighted and graph.weights is None:
            remedy = "has no weights; use graph.with_unit_weights(), or generate it with weights"
            raise RefusedInput("graph", f"{graph.arcs} arcs", remedy)
        if isinstance(memory, Storage):
            self._memory, self.device = _of_storage(memory, device, drives)
        else:
            self._memory = parse_memory(memory)
            self.device = resolve_device(device)
            require_device(self._memory, self.device)
        self._check_options(drives, iodepth, request_bytes)
        self._iodepth: int | None = None
        self._request_bytes: int | None = None
        self._loads = self._late = 0
        if self._memory.on_drives:
            self._place_on_drives(memory, drives, extent, iodepth, request_bytes, tell)
        else:
            self._lists = _in_memory(self._lists_of, self._entry, self._values, self._memory, self.device)

    def __repr__(self) -> str:
        state = "closed" if self._lists is None else f"in {self._memory.kind} of {self.device}"
        return f"<forebay.graph.Placed of {self.graph.vertices} vertices and {self.graph.arcs} arcs, {state}>"

    @property
    def kind(self) -> str:
        """The place, without its keys: ``hbm``, ``host``, ``uvm``, ``storage``, ``storage_direct`` or ``external``."""
        return self._memory.kind

    @property
    def entry(self) -> str:
        """What an entry of a list is: ``id`` (4 bytes), ``wide_id`` (8 bytes) or ``weighted`` (8 bytes)."""
        return self._entry

    @property
    def drives(self) -> list[str]:
        """The URIs of the drives; none for lists in memory."""
        return list(self._storage._uris) if self._storage else []

    def make_cold(self) -> None:
        """Takes the lists out of the cache of a storage, so that the next run reads them from the drives.

        Where there is no cache it does nothing.

        Raises:
            OperationFailed: A page is in use, or this object or the storage is closed.
        """
        self._call("make_cold")

    def bfs(self, source: int, *, direction: str = "auto", tell: Callable[[int, int], None] | None = None) -> BfsResult:
        """Finds the distance of each vertex from a source, breadth first.

        Args:
            source: The vertex to start from.
            direction: ``above``: the lists of a level's vertices are read, for neighbours that are not reached yet.
                ``below``: the lists of vertices that are not reached yet are read, for a neighbour in the level; only
                of undirected graphs. ``auto``: whichever of the two promises to read less in each level of an
                undirected graph; ``above`` of a directed one.
            tell: Called before each level with its number and the number of vertices in its frontier, on another thread
                than the caller's.

        Returns:
            What the search found, and what it took.

        Raises:
            RefusedInput: The source is not a vertex, or the lists or the graph do not suit.
            OperationFailed: A read fails, a list names a vertex that the graph does not have, or this object is closed.
        """
        self._require("bfs", "id", "wide_id")
        source = self._vertex(source)
        direction = resolve_direction(self.graph, direction)
        (distance, predecessor), figures = self._run("bfs", source, direction=direction, tell=tell)
        return BfsResult(distance=distance, predecessor=predecessor, **figures)

    def sssp(self, source: int, *, delta: int = 1) -> SsspResult:
        """Finds the shortest paths from a source to all vertices, by delta-stepping. The lists have weights.

        Args:
            source: The vertex to start from.
            delta: The width of a bucket, 1 to 2^31: vertices whose distances are in the same bucket are visited
                together. A large one visits more vertices at a time, and more of them several times.

        Returns:
            What the search found, and what it took.

        Raises:
            RefusedInput: The source is not a vertex, the delta is out of range, or the lists have no weights.
            OperationFailed: As ``bfs``.
        """
        self._require("sssp", "weighted")
        source = self._vertex(source)
        if not 1 <= (delta := whole("delta", delta)) <= DELTA_MAX:
            raise RefusedInput("delta", delta, f"must be 1 to {DELTA_MAX}")
        (distance, predecessor), figures = self._run("sssp", source, delta=delta)
        return SsspResult(distance=distance, predecessor=predecessor, **figures)

    def pagerank(
        self,
        *,
        damping: float = 0.85,
        tolerance: float = 1e-4,
        iterations: int = 20,
        share_dangling: bool = False,
    ) -> PagerankResult:
        """Computes the score of each vertex, as the GAP Benchmark Suite does. It reads all lists in each iteration.

        Args:
            damping: What part of its score a vertex hands on to its neighbours, 0 to 1.
            tolerance: It ends when the scores have changed by less than this, all together; 0 or more.
            iterations: It also ends after so many iterations, 1 to 1,000,000.
            share_dangling: Whether vertices without outgoing arcs give their score to all vertices in equal parts. Else
                it is lost, as in GAP, and the sum of the scores is less than 1.

        Returns:
            The scores, and what they took.

        Raises:
            RefusedInput: A number is out of range, or the lists are not the incoming ones.
            OperationFailed: As ``bfs``.
        """
        self._require("pagerank", "id")
        damping = _number("damping", damping, 1, "must be 0 to 1")
        tolerance = _number("tolerance", tolerance, math.inf, "must be 0 or more")
        if not 1 <= (iterations := whole("iterations", iterations)) <= ITERATIONS_MAX:
            raise RefusedInput("iterations", iterations, f"must be 1 to {ITERATIONS_MAX}")
        (score,), figures = self._run(
            "pagerank",
            outgoing(self.graph),
            damping=damping,
            tolerance=tolerance,
            iterations=iterations,
            share_dangling=bool(share_dangling),
        )
        return PagerankResult(score=score, damping=damping, share_dangling=bool(share_dangling), **figures)

    def components(self) -> ComponentsResult:
        """Finds the connected components; of a directed graph the weakly connected ones. It reads all lists once.

        Returns:
            The component of each vertex, and what it took to find them.

        Raises:
            RefusedInput: The lists have weights or wide ids.
            OperationFailed: As ``bfs``.
        """
        self._require("components", "id")
        (label,), figures = self._run("components")
        return ComponentsResult(label=label, **figures)

    def triangles(self) -> TrianglesResult:
        """Counts the triangles of an undirected graph.

        Returns:
            The number of triangles, and what it took to count them.

        Raises:
            RefusedInput: The graph is directed, or the lists have weights or wide ids.
            OperationFailed: As ``bfs``; or a list does not ascend.
        """
        self._require("triangles", "id")
        require_undirected(self.graph)
        (count,), figures = self._run("triangles")
        return TrianglesResult(triangles=int(count), **figures)

    def spmv(self, x: npt.ArrayLike) -> SpmvResult:
        """Multiplies the matrix of the graph by a vector. Row ``v`` has the value of each arc from ``v`` in its column.

        Args:
            x: The vector, which is taken as ``float32``, of shape ``(vertices,)``.

        Returns:
            The product, and what it took.

        Raises:
            RefusedInput: The vector has another shape, or the lists have weights or wide ids.
            OperationFailed: As ``bfs``.
        """
        self._require("spmv", "id")
        vector = _floats("x", x, self.graph.vertices, "vertex")
        (y,), figures = self._run("spmv", vector)
        return SpmvResult(y=y, **figures)

    def report(self) -> dict[str, Any]:
        """Says on what results were measured.

        Returns:
            For lists on drives what ``Storage.report`` returns, and else the device. In both cases also the place
            (``path``), ``fidelity``, the build and the host. ``fidelity`` is ``exceeded`` if a modelled drive did not
            keep its times, or if more than one load in a hundred of modelled memory took longer than the model says.

        Raises:
            OperationFailed: The storage is closed.
        """
        if self._storage is not None:
            return provenance(self._storage, self.kind)
        fits = self._late <= _LATE_SHARE * self._loads
        return {
            "device": self.device,
            "path": self.kind,
            "fidelity": "ok" if fits else "exceeded",
            "numa_node": self._memory.node if self._memory.node >= 0 else None,
            "external": self._memory.external if self.kind == "external" else None,
            **build_and_host(),
        }

    def close(self) -> None:
        """Frees the memory, and closes the drives that this object opened. A second call does nothing.

        Raises:
            OperationFailed: As ``Storage.close``.
        """
        self._lists = None
        if self._own_storage and self._storage is not None:
            self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lists = None
        if self._own_storage and self._storage is not None:
            self._storage.__exit__(kind, error, trace)

    def _check_options(self, drives: Sequence[str], iodepth: int | None, request_bytes: int) -> None:
        kind = self._memory.kind
        if drives and not self._memory.on_drives:
            remedy = f"the lists lie in {kind}; leave it out, or use storage or storage_direct"
            raise RefusedInput("--drive", drives[0], remedy)
        for field, value in (("--iodepth", iodepth), ("--bs", request_bytes or None)):
            if value is not None and kind != "storage_direct":
                raise RefusedInput(field, value, f"is of reads past the cache, and not of {kind}; leave it out")
        if self._entry == "wide_id" and kind not in _WIDE_KINDS:
            remedy = f"lists in {kind} have ids of 4 bytes; use {', '.join(_WIDE_KINDS)}, or leave wide ids out"
            raise RefusedInput("--wide-ids", kind, remedy)

    def _place_on_drives(
        self,
        memory: str | Storage,
        drives: Sequence[str],
        extent: str,
        iodepth: int | None,
        request_bytes: int,
        tell: Callable[[float], None] | None,
    ) -> None:
        graph, weighted = self._lists_of, self._entry == "weighted"
        if not graph.arcs:
            what = "has no edge: there is nothing to read from a drive; use host"
            raise RefusedInput("graph", f"{graph.vertices} vertices", what)
        name = text("extent", extent) + ("_incoming" if self._turned else "") + ("_weighted" if weighted else "")
        values_name = f"{name}_values"
        if isinstance(memory, Storage):
            self._storage = memory
        else:
            uris = list(drives) or [default_drive(graph, weighted=weighted, values=self._values is not None)]
            self._storage = Storage(
                *uris, device=self.device, cache_bytes=self._memory.cache_bytes, page_bytes=self._memory.page_bytes
            )
            self._own_storage = True
        storage = self._storage
        with contextlib.ExitStack() as unless_placed:
            unless_placed.push(self.__exit__)
            place_on_drives(storage, graph, name, self._values, weighted=weighted, values_extent=values_name, tell=tell)
            if self._own_storage:
                storage.reset_statistics()
            if self.kind == "storage_direct":
                self._iodepth = default_iodepth(storage, iodepth)
                self._request_bytes = request_bytes or storage.block_bytes
            self._lists = interruptible(
                graph_core().Lists.on_drives,
                storage._native,
                _row_begin(graph),
                entry=self._entry,
                entries=name,
                values=None if self._values is None else values_name,
                iodepth=self._iodepth or 1,
                request_bytes=whole("request_bytes", request_bytes),
            )
            unless_placed.pop_all()

    def _require(self, algorithm: str, *known: str) -> None:
        if self._lists is None:
            raise OperationFailed("the placed graph is closed: place it again")
        if self._entry not in known:
            names = {"id": "without weights", "wide_id": "with wide_ids=True", "weighted": "with weighted=True"}
            remedy = f"{algorithm} needs lists of another kind; place the graph {' or '.join(names[k] for k in known)}"
            raise RefusedInput("entry", self._entry, remedy)
        needs_incoming = algorithm == "pagerank" and self.graph.directed
        if needs_incoming != self._turned and algorithm in ("pagerank", "bfs", "sssp", "spmv"):
            remedy = f"{algorithm} of a directed graph needs the other lists; place it with incoming={needs_incoming}"
            raise RefusedInput("incoming", self._turned, remedy)

    def _vertex(self, source: int) -> int:
        most = self.graph.vertices - 1
        try:
            return whole("source", source, most)
        except RefusedInput:
            raise RefusedInput("source", source, f"must be a vertex, 0 to {most}") from None

    def _call(self, name: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 (what the algorithm returns)
        if self._lists is None:
            raise OperationFailed("the placed graph is closed: place it again")
        return interruptible(getattr(self._lists, name), *arguments, **named)

    def _run(self, name: str, *arguments: object, **named: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Runs an algorithm; returns its arrays, and its figures by the names that results have."""
        before = self._drive_reads()
        *found, raw = self._call(name, *arguments, **named)
        figures = {"iodepth": self._iodepth, "request_bytes": self._request_bytes, **json.loads(raw)}
        if figures["request_bytes"] is None:  # which only some algorithms say
            figures["request_bytes"] = self._request_bytes
        if before is not None and figures["reads"] is None and (after := self._drive_reads()) is not None:
            figures["reads"], figures["bytes_read"] = (b - a for a, b in zip(before, after, strict=True))
        self._loads += figures["loads"] or 0
        self._late += figures["late"] or 0
        return tuple(found), figures

    def _drive_reads(self) -> tuple[int, int] | None:
        """How many reads a cached storage's drives have served, and of how many bytes: the cache counts neither."""
        if self.kind != "storage" or self._storage is None:
            return None
        counted = [drive.get("statistics") for drive in self._storage.report()["drives"]]
        if any(one is None for one in counted):  # a drive that does not count
            return None
        return sum(one["read_commands"] for one in counted), sum(one["bytes_read"] for one in counted)


def outgoing(graph: Graph) -> npt.NDArray[np.uint32] | None:
    """Returns how many arcs leave each vertex of a directed graph; None for an undirected one, whose lists say it."""
    return graph.degrees.astype(np.uint32) if graph.directed else None


def resolve_direction(graph: Graph, direction: str) -> str:
    """Returns the direction in which to search a graph: `auto` stands for `above` where the graph is directed.

    Args:
        graph: The graph.
        direction: One of ``DIRECTIONS``.

    Raises:
        RefusedInput: It is none of them, or ``below`` for a directed graph.
    """
    if direction not in DIRECTIONS:
        raise RefusedInput("--direction", direction, f"must be {', '.join(DIRECTIONS[:-1])} or {DIRECTIONS[-1]}")
    if not graph.directed:
        return direction
    if direction == "below":
        remedy = "a search from below needs an undirected graph; make it one with -s (graph.symmetrized())"
        raise RefusedInput("--direction", direction, remedy)
    return "above"


def require_undirected(graph: Graph) -> None:
    """Refuses a directed graph, in which triangles are not defined."""
    if graph.directed:
        remedy = "triangles are of undirected graphs; make it one with -s (graph.symmetrized())"
        raise RefusedInput("graph", "directed", remedy)


def in_plain_memory(graph: Graph, device: str, *, weighted: bool = False, incoming: bool = False) -> Any:  # noqa: ANN401
    """Returns the lists of a graph in memory that a device reads with plain loads, for a check there.

    On a GPU that is its own memory, or page-locked host memory if they do not fit.

    Args:
        graph: The graph.
        device: ``cpu`` or ``cuda:N``.
        weighted: Whether entries have weights.
        incoming: Whether to take the incoming lists.

    Raises:
        RefusedInput: The memory has no room.
    """
    lists_of, entry = graph.inverse() if incoming else graph, "weighted" if weighted else "id"
    if device != "cpu":
        with contextlib.suppress(RefusedInput):  # for want of room
            return _in_memory(lists_of, entry, None, Memory("hbm"), device)
    return _in_memory(lists_of, entry, None, Memory("host"), device)


def _in_memory(graph: Graph, entry: str, values: npt.NDArray[np.float32] | None, memory: Memory, device: str) -> Any:  # noqa: ANN401 (of the extension)
    return interruptible(
        graph_core().Lists,
        _row_begin(graph),
        np.ascontiguousarray(entries(graph, entry)),
        values,
        entry=entry,
        kind=memory.kind,
        device=device,
        node=memory.node,
        external=memory.external,
    )


def _row_begin(graph: Graph) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(graph.row_begin).view(np.uint64)  # none is negative


def _checked_values(graph: Graph, values: npt.ArrayLike | None, entry: str) -> npt.NDArray[np.float32] | None:
    if values is None:
        return None
    if entry != "id":
        raise RefusedInput("values", entry, "only lists of ids of 4 bytes have values; leave them out")
    return _floats("values", values, graph.arcs, "arc")


def _floats(field: str, given: npt.ArrayLike, count: int, of: str) -> npt.NDArray[np.float32]:
    """Returns numbers of 4 bytes, one for each vertex or arc."""
    remedy = f"must be numbers and must have the shape ({count},): one for each {of}"
    try:
        array = np.ascontiguousarray(given, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise RefusedInput(field, type(given).__name__, f"{remedy} ({error})") from None
    if array.shape != (count,):
        raise RefusedInput(field, f"shape {array.shape}", remedy)
    return array


def _number(field: str, given: SupportsFloat, most: float, remedy: str) -> float:
    """Returns a number from 0 to ``most``."""
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        raise RefusedInput(field, given, remedy) from None
    if isinstance(given, str) or not 0 <= number <= most:
        raise RefusedInput(field, given, remedy)
    return number


def _of_storage(storage: Storage, device: str, drives: Sequence[str]) -> tuple[Memory, str]:
    """What an open storage is as a place."""
    report = storage.report()
    if drives:
        raise RefusedInput("drives", drives[0], "the storage that is given has drives of its own; leave them out")
    if device not in ("auto", report["device"]):
        raise RefusedInput("device", device, f"the storage that is given has {report['device']}; leave it out")
    cache = report["cache"]
    if cache is None:
        return Memory("storage_direct"), report["device"]
    return Memory("storage", page_bytes=cache["page_bytes"], cache_bytes=cache["bytes"]), report["device"]
