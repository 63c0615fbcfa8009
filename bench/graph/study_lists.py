# SPDX-License-Identifier: Apache-2.0
"""The lists of a generated graph, in every place where a device can read them."""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from forebay import Storage
from forebay._native import graph_core

if TYPE_CHECKING:
    from forebay._graph import Lists

# The host memory of the paper on external graph memory (arXiv 2312.03113): PCI Express 4, lines of 128 bytes.
HOST_GEN4 = "alignment=32,request_max=128,lines=on,link=24G,outstanding=768"
HOST_GEN4_LATENCY_US = 1.2
KINDS = ("uniform", "kronecker")
_SOURCES = 8
_MEMORY_MAX_BYTES = 40 << 30


def tell(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)


def external(latency_us: float, rest: str) -> str:
    """The keys of external memory."""
    return f"latency_us={latency_us:g},{rest}"


class GraphLists:
    """The lists of one generated graph in memory of the host, to be put into places.

    Attributes:
        name: The kind and the scale.
        entry: What an entry is: ``id``, ``wide_id`` or ``weighted``.
        device: Whose threads read: ``cuda:N`` or ``cpu``.
        row_begin: Where each list begins.
        arcs: How many entries there are.
        sources: Vertices with neighbours, to search from.
        generated_s: How long it took to generate the lists, in seconds.
    """

    def __init__(self, kind: str, scale: int, entry: str, device: str) -> None:
        """Generates the graph, with GAP's distributions."""
        begin = time.monotonic()
        self.name, self.entry, self.device = f"{kind}{scale}", entry, device
        self.row_begin, self._entries = graph_core().generate(
            kind, scale, 16, generator="gap", seed=1, entry=entry, device=device, memory_max_bytes=_MEMORY_MAX_BYTES
        )
        self.arcs = int(self.row_begin[-1])
        candidates = np.flatnonzero(np.diff(self.row_begin))
        self.sources = [int(v) for v in np.random.default_rng(1).choice(candidates, _SOURCES)]
        self.generated_s = time.monotonic() - begin
        tell(f"{self.name} of {entry}: {self.arcs} entries, generated in {self.generated_s:.1f} s")

    @property
    def has_gpu(self) -> bool:
        """Whether the threads are those of a GPU."""
        return self.device != "cpu"

    @property
    def bytes(self) -> int:
        """The bytes of all entries."""
        return len(self._entries)

    @property
    def ids(self) -> np.ndarray:
        """The entries as ids of 4 bytes."""
        ids: np.ndarray = self._entries.view(np.int32)
        return ids

    @property
    def quarter_bytes(self) -> int:
        """The size of a cache that holds a quarter of the lists: whole MiB, and one at least."""
        return max(1, self.bytes // 4 >> 20) << 20

    @property
    def nearest(self) -> str:
        """The place that is read fastest."""
        return "hbm" if self.has_gpu else "host"

    @property
    def memories(self) -> tuple[str, ...]:
        """The kinds of memory that the device has."""
        return ("hbm", "host", "uvm") if self.has_gpu else ("host",)

    def in_memory(self, kind: str, keys: str = "") -> "Lists":
        """Copies the lists to a kind of memory; `keys` are those of external memory."""
        lists: Lists = graph_core().Lists(
            self.row_begin, self._entries, None, entry=self.entry, kind=kind, device=self.device, node=-1, external=keys
        )
        return lists

    @contextlib.contextmanager
    def on_drive(self, drive: str, cache_bytes: int = 0, page_bytes: int = 4096) -> "Iterator[tuple[Lists, Storage]]":
        """Writes the lists to an emulated drive with the keys `drive`, which lies in the device's memory."""
        size_mib = (self.bytes >> 20) + 16
        if self.has_gpu:
            uri = f"emulated:backing=hbm,size={size_mib}M,{drive}"
        else:  # which has no multiprocessors to serve a drive with
            keys = ",".join(key for key in drive.split(",") if not key.startswith("sms="))
            uri = f"emulated:size={size_mib}M,{keys}"
        pages = page_bytes if cache_bytes else 0
        with Storage(uri, device=self.device, cache_bytes=cache_bytes, page_bytes=pages) as drives:
            drives.create_extent("lists", self.bytes)
            drives.write_extent("lists", self._entries)
            drives.reset_statistics()
            lists = graph_core().Lists.on_drives(
                drives._native,
                self.row_begin,
                entry=self.entry,
                entries="lists",
                values=None,
                iodepth=65536 if self.has_gpu else 64,
                request_bytes=page_bytes,
            )
            yield lists, drives
            del lists
