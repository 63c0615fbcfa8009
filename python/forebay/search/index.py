# SPDX-License-Identifier: Apache-2.0
"""An index of vectors whose records lie on drives."""

import dataclasses
import os
import threading
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from forebay._buffers import nanoseconds, whole
from forebay._native import search_core
from forebay.errors import OperationFailed, RefusedInput
from forebay.search.build import write_index
from forebay.search.build_options import Progress
from forebay.search.exact import checked_vectors
from forebay.search.exact_mode import ExactSearcher
from forebay.search.index_file import extent_sizes, live_words, read_meta, read_part
from forebay.search.journal import Journal
from forebay.search.pq_mode import PqSearcher
from forebay.search.searching import SearchResult
from forebay.search.updates import Updates, checked_for_updates
from forebay.storage import Storage

MEMORIES = ("storage", "hbm", "host")
"""Where a search reads records: from the drives, from the GPU's memory, or from page-locked memory of the host."""


class Index:
    """An index of vectors, to find the nearest neighbours of a query.

    For each vector the drives hold a *record*: the vector itself and the numbers of some near vectors. A code of some
    bytes for each vector is in the device's memory. The codes lead a search: it reads the record of the vector whose
    code is nearest to the query, then adds the neighbours in that record to its candidates. So it reads one record for
    each step, and ranks what it finds by the exact distance.

    An index has a *name*. ``Index.build`` makes the extents ``NAME/nodes`` and others in a storage. ``Index(storage,
    NAME)`` opens them.

    **Threads.** Several threads may search and change the index at the same time; they take turns. While one ``Index``
    changes it, no other may have it open.

    Example:
        >>> import numpy as np
        >>> from forebay import Storage
        >>> from forebay.search import Index, synthetic_vectors
        >>> base, queries = synthetic_vectors(1000, 32), synthetic_vectors(2, 32, queries=True)
        >>> with Storage("emulated:size=64M", device="cpu") as storage:
        ...     with Index.build(storage, base, graph_degree=16) as index:
        ...         result = index.search(queries, k=3)
        >>> result.ids.shape
        (2, 3)
    """

    def __init__(self, storage: Storage, name: str = "index", *, memory: str = "storage") -> None:
        """Opens an index. Its codes are read, checked, and copied to the device of the storage.

        Args:
            storage: The storage that has it. It stays open for as long as the index is used.
            name: The name of the index.
            memory: One of ``MEMORIES``. In all but ``storage`` all records are copied: to compare drives with memory.

        Raises:
            RefusedInput: There is no such index, it was written by another version, a part of it was cut or changed,
                its records do not fit the blocks of the drives, or the device has no such memory.
            OperationFailed: A drive fails, or an extension module does not load.
        """
        if memory not in MEMORIES:
            raise RefusedInput("memory", memory, f"must be {', '.join(MEMORIES[:-1])} or {MEMORIES[-1]}")
        self._storage = storage
        self._name = name
        self._memory = memory
        self._lock = threading.RLock()
        self._meta = read_meta(storage, name)
        newer: dict[str, npt.NDArray[Any]] = {}
        if journal := Journal.read(storage, name):  # a flush was cut off
            self._meta = journal.meta
            if _is_writable(storage, name):
                journal.apply(storage, name)
            else:
                newer = journal.parts(storage, name)
        live = newer["live"] if "live" in newer else read_part(storage, name, self._meta, "live")
        self._live: npt.NDArray[np.bool_] = np.unpackbits(live.view("u1"), bitorder="little").astype(bool)
        self._searcher: PqSearcher | ExactSearcher | None
        self._updates: Updates | None = None
        if self._meta.mode == "exact":
            self._searcher = ExactSearcher(storage, name, self._meta, memory)
        else:
            self._searcher = PqSearcher(storage, name, self._meta, memory, newer)
            self._updates = Updates(storage, name, self._meta, self._live, self._searcher, self._candidates)

    @classmethod
    def build(
        cls,
        storage: Storage,
        vectors: npt.ArrayLike,
        name: str = "index",
        *,
        mode: str = "pq",
        metric: str = "l2",
        graph_degree: int | None = None,
        chunks: int | None = None,
        capacity: int | None = None,
        graph: npt.NDArray[np.uint32] | None = None,
        seed: int = 0,
        device: str = "cpu",
        replace: bool = False,
        checkpoints: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        memory: str = "storage",
    ) -> Self:
        """Builds an index, writes it to a storage, and opens it. The same arguments give the same index.

        Args:
            storage: Where the index goes.
            vectors: ``uint8``, ``int8``, ``float16`` or ``float32`` of shape ``(vectors, dimension)``. Their ids are
                their row numbers. It may be a ``numpy.memmap``.
            name: The name of the index.
            mode: ``pq``: codes lead a search, which reads one record a step. ``exact``: no codes; a search reads a
                list and the vectors of all its neighbours at each step. It needs hardly any of the device's memory, and
                some tens of times the reads.
            metric: One of ``METRICS``.
            graph_degree: How many neighbours a record has at most. None: 64.
            chunks: The bytes of a code, a multiple of 4. More of them need more of the device's memory, and fewer
                reads. None: one for each four components, but at most 64.
            capacity: How many vectors there is to be room for. None: for these.
            graph: The neighbours of each vector, if they are known: ids, ``uint32`` of shape ``(vectors, degree)``,
                with ``NO_NEIGHBOUR`` after the last of each. None: they are found.
            seed: What is drawn at random, is drawn from it.
            device: ``cpu``, or ``cuda:N``, where PyTorch computes.
            replace: Take the place of an index of that name.
            checkpoints: A folder for the steps that find the neighbours, which take most of the time. If a build ends
                early, the next one with the same vectors and options goes on from there. The folder takes a little more
                than twice the bytes of all neighbours, and stays when the build is done. None: nothing is kept.
            progress: Called now and then with the name of a step, and how much of how much of it is done.
            memory: As for ``Index``.

        Returns:
            The index, open.

        Raises:
            RefusedInput: An argument is wrong, the drives have no room, or the folder keeps the steps of another build.
                Nothing was written to the drives then.
            OperationFailed: A drive fails, the folder cannot be written to, or an extension module does not load.
        """
        write_index(
            storage,
            name,
            vectors,
            mode=mode,
            metric=metric,
            graph_degree=graph_degree,
            chunks=chunks,
            capacity=capacity,
            graph=graph,
            seed=seed,
            device=device,
            replace=replace,
            checkpoints=checkpoints,
            progress=progress,
        )
        return cls(storage, name, memory=memory)

    def __repr__(self) -> str:
        meta = self._meta
        return f"<forebay.search.Index {self._name!r} of {self.count} vectors, {meta.dtype} x {meta.dimension}>"

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """How many vectors can be found: those that were built or inserted, and not deleted."""
        return int(self._live.sum())

    @property
    def dimension(self) -> int:
        """How many components a vector has."""
        return self._meta.dimension

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a component."""
        return np.dtype(self._meta.dtype)

    @property
    def mode(self) -> str:
        """How it is searched, ``pq`` or ``exact``."""
        return self._meta.mode

    @property
    def metric(self) -> str:
        """How far two vectors are apart, one of ``METRICS``."""
        return self._meta.metric

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        itopk_size: int = 64,
        search_width: int | Literal["auto"] = 1,
        refill_size: int = 1,
        navigation_size: int = 32,
        max_iterations: int = 0,
        filter: npt.ArrayLike | None = None,  # noqa: A002 (cuVS's word)
        batch: int = 0,
        concurrency: int = 0,
        timeout_s: float = 10,
        partial: bool = False,
    ) -> SearchResult:
        """Finds the nearest neighbours of queries.

        Args:
            queries: Of shape ``(queries, dimension)`` and the type of the index: NumPy, or any array with
                ``__dlpack__``, on the CPU or a GPU.
            k: How many neighbours each gets, 1 to ``itopk_size``.
            itopk_size: How many candidates a search keeps. It reads the records of all of them, so more of them find
                more of the true neighbours, and cost more reads. At most 4096.
            search_width: How many reads of a query are in flight at most, 1 to 32. With 1 a search always reads its
                best candidate. More hide the latency of the drives, and some reads are in vain. ``auto``: as many as
                pay off. In the mode ``exact``: how many lists are read in a step, 1 to 8.
            refill_size: How many reads of a query have to end before it begins others, 1 to ``search_width``. With 1
                it begins the next read at once. More begin reads together, which costs the queues less: take half of
                the width for drives of tens of millions of reads a second. Of the mode ``pq`` only.
            navigation_size: How many candidates it keeps in the graph of the sample, where it begins. In the mode
                ``exact``: how many vectors of the sample it reads first.
            max_iterations: Of the mode ``exact``: a search ends after so many steps. 0: when it has read the lists of
                all its candidates.
            filter: Which ids may be found: ``bool`` of shape ``(ids,)``, or the same as bits, ``uint8`` as
                ``numpy.packbits`` makes it with ``bitorder="little"``. The search goes through other vectors too, so
                take a larger ``itopk_size`` if few are allowed.
            batch: So many queries are begun, and all of them end, before others begin. 0: all.
            concurrency: How many queries run at a time. 0: as many as the device has room for.
            timeout_s: How long a read may take. In the mode ``exact``: all vectors of a step together.
            partial: Return what was found if some queries fail, in place of raising an error.

        Returns:
            The neighbours, and what it took.

        Raises:
            RefusedInput: An argument is wrong. Nothing was read then.
            OperationFailed: A read failed or took too long, or a record is not what was written: it names the query.
                Also if the index or the storage is closed.
        """
        rows = self._checked_rows("queries", queries)
        if not len(rows):
            raise RefusedInput("queries", "0 queries", "must have at least one")
        width = 0 if search_width == "auto" else whole("search_width", search_width, 2**32 - 1)
        if search_width != "auto" and not width:
            raise RefusedInput("search_width", 0, "must be 1 to 32, or auto")
        with self._lock:
            found = self._open_searcher().search(
                rows,
                filter_bits=self._allowed(filter),
                k=whole("k", k, 2**32 - 1),
                list_size=whole("itopk_size", itopk_size, 2**32 - 1),
                width=width,
                refill=whole("refill_size", refill_size, 2**32 - 1),
                begin_with=whole("navigation_size", navigation_size, 2**32 - 1),
                iterations=whole("max_iterations", max_iterations, 2**32 - 1),
                batch=whole("batch", batch, 2**32 - 1),
                concurrency=whole("concurrency", concurrency, 2**32 - 1),
                timeout_s=nanoseconds("timeout_s", timeout_s) / 1e9,
            )
        errors = self._errors(found)
        if errors and not partial:
            first = min(errors)
            others = f", and {len(errors) - 1} other queries failed" if len(errors) > 1 else ""
            raise OperationFailed(f"query {first}: {errors[first]}{others}")
        ids = self._meta.map.ids_of_lists(found["slots"].reshape(len(rows), -1))
        return SearchResult(
            ids=ids,
            distances=found["distances"].reshape(ids.shape),
            reads=found["reads"],
            unused_reads=found["unused_reads"],
            latency_ns=found["latency_ns"],
            errors=errors,
            seconds=found["seconds"],
            concurrency=found["concurrency"],
        )

    def insert(self, vectors: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """Inserts vectors. Searches find them when the call has returned; ``flush`` makes them durable.

        It looks for the neighbours of each as a search does, writes the records of up to 512 vectors, and adds these to
        the lists of their neighbours. Where a list is full, it compares vectors by their codes.

        **Without a flush** the next ``Index(...)`` does not find what was inserted since the last one, and gives out
        the same ids again. The lists on the drives may then name such a vector. Its record is whole, and opening gives
        it its code again, so a search goes through it as through a deleted vector. Some older vectors may have lost
        their places in lists to it.

        Args:
            vectors: Of shape ``(vectors, dimension)`` and the type of the index: NumPy, or any array with
                ``__dlpack__``, on the CPU or a GPU.

        Returns:
            Their ids, ``uint32`` of shape ``(vectors,)``: the next ones that were never given out.

        Raises:
            RefusedInput: A shape, the type or a number is wrong, there is no room, the mode is ``exact``, the records
                are in memory, or the storage is read-only. Nothing was changed then.
            OperationFailed: A drive fails, or a record is not what was written. Vectors of whole batches of 512 before
                that are in the index. Also if the index or the storage is closed.
        """
        with self._lock:
            updates = self._changing()
            rows = self._checked_rows("vectors", vectors)
            try:
                return updates.insert(rows)
            finally:
                self._meta = updates.meta

    def delete(self, ids: npt.ArrayLike) -> None:
        """Deletes vectors: searches find them no more, but still go through them. ``flush`` makes it durable.

        Without a flush they are there again when the index is opened the next time. Deleted vectors take places among
        the candidates of a search. After many deletes, ``consolidate`` makes room for live ones.

        Args:
            ids: Whole numbers, of shape ``(ids,)``, or one of them. Each is deleted once.

        Raises:
            RefusedInput: An id was never given out, is deleted already, or stands there twice; the mode is ``exact``,
                the records are in memory, or the storage is read-only. Nothing was changed then.
            OperationFailed: The index is closed.
        """
        with self._lock:
            updates = self._changing()
            updates.delete(np.atleast_1d(to_host("ids", ids)))

    def consolidate(self, progress: Progress | None = None) -> None:
        """Takes deleted vectors out of the lists of all others, so that searches no longer read their records.

        A list that names a deleted vertex gets that vertex's neighbours as candidates. The sample where searches begin
        gets others in place of deleted ones. The call flushes before and after. It reads all records, some MiB at a
        time. The ids and the room of deleted vectors are not used again: build the index again to win the room back.

        Args:
            progress: Called now and then with the name of a step, and how much of how much of it is done.

        Raises:
            RefusedInput: As ``delete``, and as ``flush``.
            OperationFailed: A drive fails, or a record is not what was written. The index is whole even then; call it
                again to go on. Also if the index or the storage is closed.
        """
        with self._lock:
            updates = self._changing()
            try:
                updates.consolidate(progress)
            finally:
                self._meta = updates.meta

    def flush(self) -> None:
        """Makes all inserts and deletes before the call durable, all of them or none.

        It writes what changes to the extent ``NAME/journal`` first, then to its places, and removes the journal. If the
        program is killed meanwhile, the next ``Index(...)`` finds the index as it was before the flush, or finds the
        journal and ends the flush. If a flush fails, the changes stay in memory; call it again.

        A record is written in place. If the machine loses its power in the middle of such a write, and the record is
        larger than a block of the drive, a part of the record may be old; a search that reads it fails, and says so.

        Raises:
            RefusedInput: As ``delete``, or the drives have no room for the journal.
            OperationFailed: A drive fails, or the index or the storage is closed.
        """
        with self._lock:
            updates = self._changing()
            try:
                updates.flush()
            finally:
                self._meta = updates.meta

    def info(self) -> dict[str, Any]:
        """Describes the index.

        Returns:
            What its meta says, how many vectors it has, and how many bytes are on the drives and in the device's
            memory.

        Raises:
            OperationFailed: The index or the storage is closed.
        """
        meta = self._meta
        described = dataclasses.asdict(meta)
        del described["checksums"], described["chunk_offsets"]
        return described | {
            "name": self._name,
            "live": self.count,
            "deleted": meta.count - self.count,
            "chunks": meta.chunks,
            "record_bytes": 4 * meta.record_words,
            "drive_bytes": sum(size for each, size in extent_sizes(self._storage).items() if each in self._extents()),
            "device_bytes": self._open_searcher().device_bytes,
            "memory": self._memory,
        }

    def close(self) -> None:
        """Frees the device's memory. The storage stays open. A second call does nothing.

        It does not flush: changes since the last ``flush`` are lost.
        """
        with self._lock:
            self._searcher = self._updates = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_searcher(self) -> PqSearcher | ExactSearcher:
        if self._searcher is None:
            raise OperationFailed("the index is closed: open it again")
        return self._searcher

    def _extents(self) -> set[str]:
        parts = {"meta", *self._meta.part_shapes(), *(("nodes",) if self.mode == "pq" else ("lists", "vectors"))}
        return {f"{self._name}/{part}" for part in parts}

    def _changing(self) -> Updates:
        checked_for_updates(self.mode, self._memory)
        if self._updates is None:
            raise OperationFailed("the index is closed: open it again")
        if not _is_writable(self._storage, self._name):
            raise RefusedInput("storage", "read_only", "cannot be written: open the storage for writing")
        return self._updates

    def _candidates(
        self, rows: npt.NDArray[Any], filter_bits: npt.NDArray[np.uint32], wanted: int
    ) -> npt.NDArray[np.uint32]:
        found = self._open_searcher().search(
            rows,
            filter_bits=filter_bits,
            k=wanted,
            list_size=wanted,
            width=8,
            refill=1,
            begin_with=32,
            iterations=0,
            batch=0,
            concurrency=0,
            timeout_s=10.0,
        )
        if errors := self._errors(found):
            first = min(errors)
            raise OperationFailed(f"the search for neighbours of vector {first} of a batch: {errors[first]}")
        slots: npt.NDArray[np.uint32] = found["slots"].reshape(len(rows), -1)
        return slots

    def _checked_rows(self, field: str, given: npt.ArrayLike) -> npt.NDArray[Any]:
        rows = checked_vectors(field, to_host(field, given), self._meta.metric)
        if rows.shape[1] != self._meta.dimension:
            raise RefusedInput(
                field, f"dimension {rows.shape[1]}", f"must have that of the index, {self._meta.dimension}"
            )
        if rows.dtype != self.dtype:
            raise RefusedInput(
                field, rows.dtype, f"must have the type of the index: convert them with .astype('{self.dtype}')"
            )
        return rows

    def _allowed(self, given: npt.ArrayLike | None) -> npt.NDArray[np.uint32]:
        """A bit for each slot that may be found; none if that is each slot."""
        meta = self._meta
        # A slot that no id has yet may have a record all the same: of an insert that was never flushed.
        if given is None:
            return np.zeros(0, np.uint32) if self.count == meta.slots else live_words(self._live)
        bits = np.zeros(len(self._live), bool)
        bits[meta.map.of(np.flatnonzero(_checked_filter(given, meta.count)))] = True
        return live_words(bits & self._live)

    def _errors(self, found: dict[str, Any]) -> dict[int, str]:
        status = found["status"]
        errors = {}
        for query in np.flatnonzero(status).tolist():
            what = search_core().status_text(int(status[query]))
            slot = int(found["failed_slot"][query])
            if found["reads"][query]:
                vector = int(self._meta.map.ids(np.array([slot]))[0])
                errors[query] = f"the read of record {slot}, of vector {vector}, ended with: {what}"
            else:
                errors[query] = f"it was not begun, since reads before it did not end in time: {what}"
        return errors


def to_host(field: str, given: Any) -> npt.NDArray[Any]:  # noqa: ANN401 (any array)
    """Returns an array in host memory.

    Args:
        field: The name of the argument.
        given: An array of NumPy, PyTorch, CuPy or any other library with DLPack, on the CPU or a GPU, or a list.

    Raises:
        RefusedInput: It is no such array.
    """
    if hasattr(given, "detach") and hasattr(given, "cpu"):  # PyTorch, whose tensors may need a gradient
        given = given.detach().cpu()
    elif hasattr(given, "get") and hasattr(given, "__cuda_array_interface__"):  # CuPy
        given = given.get()
    if hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
        try:
            return np.from_dlpack(given)
        except (BufferError, RuntimeError, TypeError) as error:
            raise RefusedInput(field, type(given).__name__, f"is no array that NumPy can read ({error})") from None
    return np.asarray(given)


def _is_writable(storage: Storage, name: str) -> bool:
    try:
        storage.write_extent(
            f"{name}/meta", b""
        )  # no byte: it is refused if the storage is read-only, and else is none
    except RefusedInput:
        return False
    return True


def _checked_filter(given: npt.ArrayLike, count: int) -> npt.NDArray[np.bool_]:
    array = to_host("filter", given)
    if array.dtype == bool and array.shape == (count,):
        return array
    if array.dtype == np.uint8 and array.shape == (-(-count // 8),):
        return np.unpackbits(array, bitorder="little")[:count].astype(bool)
    raise RefusedInput(
        "filter",
        f"{array.dtype} of shape {array.shape}",
        f"must be bool of shape ({count},), or uint8 of shape ({-(-count // 8)},) with a bit for each id",
    )
