# SPDX-License-Identifier: Apache-2.0
"""The neighbour lists of a graph in extents of a storage, where algorithms read them."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forebay._buffers import whole
from forebay.bench import MAX_IN_FLIGHT
from forebay.errors import RefusedInput
from forebay.graph.csr import Graph
from forebay.storage import Storage
from forebay.units import format_bytes

_CHUNK_BYTES = 8 << 20
_MEBIBYTE = 1 << 20  # extents begin at multiples of it, and the first is the catalogue's
ENTRY_BYTES = {"id": 4, "wide_id": 8, "weighted": 8}
"""The size of each kind of entry in bytes."""

Tell = Callable[[float], None]


def entries(graph: Graph, entry: str, first: int = 0, last: int | None = None) -> npt.NDArray[np.generic]:
    """Returns entries of the lists as the algorithms read them.

    Args:
        graph: The graph; with weights if the entries have them.
        entry: ``id``: little-endian ``int32``, of shape ``(arcs,)``. ``wide_id``: ``uint64`` of that shape.
            ``weighted``: pairs of vertex and weight, ``uint32`` of shape ``(arcs, 2)``.
        first: The first arc.
        last: The end of the arcs; None for all.
    """
    neighbours = graph.neighbours[first:last]
    if entry == "id":
        return neighbours.astype("<i4", copy=False)
    if entry == "wide_id":
        return neighbours.astype("<u8")
    if graph.weights is None:
        raise RefusedInput("graph", f"{graph.arcs} arcs", "has no weights; use graph.with_unit_weights()")
    return np.column_stack([neighbours, graph.weights[first:last]]).astype("<u4")


@dataclass(frozen=True)
class _Column:
    """What one extent holds, a piece at a time: no copy of all of it is made."""

    count: int
    item_bytes: int
    piece: Callable[[int, int], npt.NDArray[np.generic]]

    @property
    def size_bytes(self) -> int:
        return self.count * self.item_bytes

    def bytes_at(self, at: int) -> memoryview:
        first = at // self.item_bytes
        array = self.piece(first, min(first + _CHUNK_BYTES // self.item_bytes, self.count))
        return memoryview(np.ascontiguousarray(array)).cast("B")


def _of_entries(graph: Graph, entry: str) -> _Column:
    if not graph.arcs:
        raise RefusedInput("graph", f"{graph.vertices} vertices", "has no edge: there is nothing to read from a drive")
    return _Column(graph.arcs, ENTRY_BYTES[entry], lambda first, last: entries(graph, entry, first, last))


def _of_values(values: npt.NDArray[np.float32]) -> _Column:
    return _Column(len(values), 4, lambda first, last: values[first:last].astype("<f4", copy=False))


def write_edges(
    storage: Storage,
    graph: Graph,
    extent: str = "edges",
    tell: Tell | None = None,
    *,
    replace: bool = False,
    weighted: bool = False,
) -> None:
    """Writes the neighbours of a graph to a new extent, where the algorithms read them: little-endian ``int32``.

    Args:
        storage: Where to write.
        graph: The graph; it has at least one arc.
        extent: The name of the extent.
        tell: Called now and then with the share that is written, more than 0 and at most 1.
        replace: Allow a name that is in use, as ``Storage.new_extent`` does.
        weighted: Write pairs of a neighbour and the weight of the arc, 8 bytes each, as ``sssp`` needs them.

    Raises:
        RefusedInput: The graph has no arc, or no weights if they are wanted, or as ``Storage.new_extent``.
        OperationFailed: As ``Storage.new_extent``.
    """
    _write(storage, extent, _of_entries(graph, "weighted" if weighted else "id"), tell, replace=replace)


def write_values(
    storage: Storage, values: npt.NDArray[np.float32], extent: str, tell: Tell | None = None, *, replace: bool = False
) -> None:
    """Writes the values of a matrix to a new extent, little-endian ``float32``, as ``write_edges`` does."""
    _write(storage, extent, _of_values(values), tell, replace=replace)


def _write(storage: Storage, extent: str, data: _Column, tell: Tell | None, *, replace: bool) -> None:
    with storage.new_extent(extent, data.size_bytes, replace=replace) as write:
        for at in range(0, data.size_bytes, _CHUNK_BYTES):
            view = data.bytes_at(at)
            write(view, at)
            if tell:
                tell((at + len(view)) / data.size_bytes)


def require_edges(storage: Storage, graph: Graph, extent: str = "edges", *, weighted: bool = False) -> None:
    """Checks that an extent holds the neighbours of a graph, byte by byte.

    Args:
        storage: Where the extent is.
        graph: The graph; it has at least one arc.
        extent: The name of an extent that exists.
        weighted: Whether it must hold the weights too.

    Raises:
        RefusedInput: It holds something else, such as the neighbours of another graph.
        OperationFailed: As ``Storage.read_extent``.
    """
    _require(storage, extent, _of_entries(graph, "weighted" if weighted else "id"), "edges of another graph")


def require_values(storage: Storage, values: npt.NDArray[np.float32], extent: str) -> None:
    """Checks that an extent holds values, as ``require_edges`` does for neighbours."""
    _require(storage, extent, _of_values(values), "values of another matrix")


def _require(storage: Storage, extent: str, data: _Column, other: str) -> None:
    found = next(known for known in storage.extents() if known["name"] == extent)["bytes"]
    remedy = "search its own graph, write this one under another --extent, or free the name with `forebay drive rm`"
    if found != data.size_bytes:
        raise RefusedInput("--extent", extent, f"has {found} bytes, this graph's edge list {data.size_bytes}; {remedy}")
    chunk = bytearray(min(_CHUNK_BYTES, data.size_bytes))
    for at in range(0, data.size_bytes, _CHUNK_BYTES):
        expected = data.bytes_at(at)
        view = memoryview(chunk)[: len(expected)]
        storage.read_extent(extent, view, at)
        if view != expected:
            raise RefusedInput("--extent", extent, f"holds the {other}; {remedy}")


def place_on_drives(
    storage: Storage,
    graph: Graph,
    extent: str,
    values: npt.NDArray[np.float32] | None = None,
    *,
    weighted: bool = False,
    values_extent: str = "",
    tell: Tell | None = None,
) -> bool:
    """Writes what is not on the drives, and checks what is.

    Args:
        storage: Where the extents are, or will be.
        graph: The graph; it has at least one arc.
        extent: The name of the extent for the entries.
        values: The values of all arcs, ``float32`` of shape ``(arcs,)``; None for none.
        weighted: Whether entries have weights.
        values_extent: The name of the extent for the values.
        tell: As in ``write_edges``.

    Returns:
        Whether anything was written.

    Raises:
        RefusedInput: The drives have no room, or an extent holds something else. Nothing was written then.
        OperationFailed: A drive fails.
    """
    data = {extent: _of_entries(graph, "weighted" if weighted else "id")}
    there = {known["name"] for known in storage.extents()}
    if values is not None:
        data[values_extent] = _of_values(values)
    absent = [name for name in data if name not in there]
    _require_room(storage, [data[name].size_bytes for name in absent])
    if extent in there:
        require_edges(storage, graph, extent, weighted=weighted)
    if values is not None and values_extent in there:
        require_values(storage, values, values_extent)
    for name in absent:
        _write(storage, name, data[name], tell, replace=False)
    return bool(absent)


def _require_room(storage: Storage, sizes: list[int]) -> None:
    """Refuses drives that have no gap for extents of these sizes, before one of them is written."""
    gaps = []
    at = _MEBIBYTE
    for known in storage.extents():
        gaps.append(known["first_byte"] - at)
        at = _whole(known["first_byte"] + known["bytes"])
    gaps.append(storage.size_bytes // _MEBIBYTE * _MEBIBYTE - at)
    left = sorted(sizes, reverse=True)
    for i, size in enumerate(left):
        room = max(gaps)
        if size > room:
            missing = sum(map(_whole, left[i:])) - max(gaps[-1], 0)
            drives = len(storage._uris)
            enough = -(-(storage.size_bytes + missing) // (_MEBIBYTE * drives))
            found = f"has room for {format_bytes(max(room, 0))}, and the lists need {format_bytes(size)} in one piece"
            larger = f"give {'drives' if drives > 1 else 'a drive'} of size={enough}M"
            remedy = f"{larger}, or free names with `forebay drive rm`"
            raise RefusedInput("--drive", ", ".join(storage._uris), f"{found}; {remedy}")
        gaps[gaps.index(room)] -= _whole(size)


def _whole(size: int) -> int:
    return -(-size // _MEBIBYTE) * _MEBIBYTE


def default_drive(graph: Graph, *, weighted: bool = False, values: bool = False) -> str:
    """Returns the URI of an ideal drive with room for the lists of a graph and their catalogue.

    Args:
        graph: The graph.
        weighted: Whether entries have weights.
        values: Whether there are values too.
    """
    needed = _whole(graph.arcs * ENTRY_BYTES["weighted" if weighted else "id"]) + (
        _whole(graph.arcs * 4) if values else 0
    )
    return f"emulated:profile=ideal,size={needed // _MEBIBYTE + 2}M"


def default_iodepth(storage: Storage, iodepth: int | None = None) -> int:
    """Chooses how many reads an algorithm has in flight.

    Args:
        storage: The storage that is read.
        iodepth: The number; None for 16,384 on a GPU. On the CPU executor one core is left to the threads of emulated
            drives, and each other core gets 128 threads, which have a read in flight each.

    Returns:
        The number.

    Raises:
        RefusedInput: It is out of range.
        OperationFailed: The storage is closed, or this process is a fork.
    """
    if iodepth is None:
        cores = len(os.sched_getaffinity(0))
        on_cpu = storage.report()["device"] == "cpu"
        iodepth = min(128 * max(1, cores - 1), MAX_IN_FLIGHT) if on_cpu else 16384
    remedy = f"must be at least 1 and at most {MAX_IN_FLIGHT}"
    try:
        number = whole("--iodepth", iodepth, MAX_IN_FLIGHT)
    except RefusedInput:
        raise RefusedInput("--iodepth", iodepth, remedy) from None
    if not number:
        raise RefusedInput("--iodepth", iodepth, remedy)
    return number
