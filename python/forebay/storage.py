# SPDX-License-Identifier: Apache-2.0
"""Storage over one or more drives, as Python sees it."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from forebay._buffers import Tensor, memory_of, nanoseconds, stream_handle, text, whole, within
from forebay._native import core, interruptible
from forebay._transfers import Transfer, Transfers
from forebay.errors import OperationFailed, RefusedInput

_WORD_MAX = 2**32 - 1
_CLOSE_PATIENCE_S = 1.0  # with drives that an interrupted run still uses


def build_info() -> dict[str, Any]:
    """Describes this build of Forebay.

    Returns:
        A dictionary: ``version`` and ``commit`` are strings; ``cuda`` says whether CUDA is built in; ``gpus`` lists
        the devices that this process can use, such as ``["cuda:0"]``.

    Raises:
        OperationFailed: The extension module does not load.
    """
    return json.loads(core().build_info())


def create_drive(uri: str, *, resize: bool = False) -> None:
    """Makes the file that a drive URI names, so that ``Storage(uri)`` can open it, or makes that file longer.

    The file reads as zeros. It is sparse: the file system finds room on the disk as the file is written.

    A file that grows keeps its bytes and its extents. The new bytes read as zeros, and new extents may lie there. If
    several drives make one storage, its size follows the smallest of them: make all of them longer.

    Args:
        uri: A URI with a file and a size: ``"file:a.img,size=1G"`` or ``"emulated:backing=file,path=a.img,size=1G"``.
        resize: Make a file that exists longer, up to the size in the URI. A file is never made shorter.

    Raises:
        RefusedInput: The URI is wrong, names no file or has no size. Without ``resize``: the file exists; the folder
            does not exist or cannot be written; the disk has no room. With it: the file does not exist, is longer
            already, is open in another drive, or cannot be written.
        OperationFailed: The operating system cannot make the file, or make it longer, for another reason.
    """
    core().create_drive(text("uri", uri), bool(resize))


def profile_folders() -> list[str]:
    """Returns the folders in which drive profiles are looked for, in order."""
    return core().profile_folders()


class Storage:
    """One range of bytes over one or more drives, real or emulated.

    With several drives, each piece of 64 KiB lies on the next drive in turn. The catalogue, a table on the drives, can
    give names to parts of the range; such a part is an extent.

    **Transfers.** ``pread`` and ``pwrite`` start a transfer and return a future. ``read_extent`` and ``write_extent``
    return when their transfer is done. All four move any number of bytes from or to any offset. Transfers run side by
    side and in no order: ask the future of a write before you read what it wrote. Up to 255 requests of at most 1 MiB
    are in flight at a time, so 40 small reads take about as long as one.

    **Buffers.** A buffer is any contiguous object that shares its memory by Python's buffer protocol (a NumPy array of
    any shape, a ``bytearray``, a ``memoryview``), by DLPack (a tensor of PyTorch, JAX or CuPy) or by
    ``__cuda_array_interface__``. Its bytes are moved as they lie in memory; shape and dtype are not stored. A read
    needs a buffer that can be written. Arrays of objects, and structures with pointers, are refused, because a pointer
    means nothing on a drive. For an array of ``datetime64`` or ``timedelta64``, which has no buffer, pass
    ``array.view("i8")``. The storage keeps the buffer alive until the transfer has ended; do not write to it, and do
    not read what a read fills, before that.

    **Memory of a GPU.** If every drive reaches the GPU's memory, the drives move the bytes themselves. The first
    transfer of an allocation registers all of it, and later ones use that. Otherwise the bytes pass through page-locked
    memory of the host, or, over drives that a daemon serves from a GPU, through other memory of that GPU.
    ``report()["transfers"]`` says how many bytes went which way. No call waits for the GPU.

    **Streams.** With ``stream``, a transfer begins after what the CUDA stream has queued before the call, and what the
    stream gets after the call waits for the end of the transfer, on the GPU. The end of a transfer that fails lets the
    stream go on too, so ask the future. Without ``stream``, the transfer is in no order with work of the GPU: let that
    end first, and ask the future before a kernel uses what was read. An object that has only
    ``__cuda_array_interface__`` may name a stream there, which counts then.

    **Freeing memory of a GPU.** ``cudaFree`` waits for all that the GPU does, and other calls to CUDA wait for it. If
    it waits for a stream that waits for a transfer, neither goes on. After ten seconds or more the stream goes on, and
    the transfer fails. Ask the futures before ``torch.cuda.empty_cache()``, and leave PyTorch so much memory that it
    need not free what it keeps.

    **Offsets.** Offsets and sizes are whole numbers of bytes; ``bool`` and ``float`` are refused. The whole transfer
    must lie in the storage, or in its extent.

    **Threads.** Several threads may use one storage at the same time, whichever methods they call.

    **Errors.** ``RefusedInput`` comes from the call itself, before any byte moves. Only a ``pwrite`` that the storage
    does not allow is refused by its future. ``OperationFailed`` says that a drive failed. After ``close`` every use
    raises ``OperationFailed``, and so does every use in a process that was forked from the one that opened the
    storage. ``close`` and ``repr`` work in both cases.

    Use the storage in a ``with`` block: the end of the block closes it. If an exception ends the block and a write had
    failed unseen, that failure is a note of the exception.

    Example:
        >>> import numpy as np
        >>> from forebay import Storage
        >>> with Storage("emulated:size=64M") as storage:
        ...     written = storage.pwrite(np.arange(1024, dtype="f4"), 4096).result()
        ...     back = np.empty(1024, "f4")
        ...     read = storage.pread(back, 4096).result()
        >>> written, read, float(back[-1])
        (4096, 4096, 1023.0)
    """

    def __init__(
        self,
        *uris: str,
        device: str = "auto",
        read_only: bool = False,
        allow_destroy: bool = False,
        queues_per_drive: int = 0,
        queue_depth: int = 0,
        requests: int = 0,
        prp_list_pages: int = 1024,
        stripe_bytes: int = 65_536,
        timeout_s: float = 10.0,
        flush_timeout_s: float = 60.0,
        cache_bytes: int = 0,
        page_bytes: int = 0,
        cache_policy: str = "clock",
        cache_overflow_frames: int = 256,
        cache_host_bytes: int = 0,
        cache_staging_pages: int = 0,
        cache_statistics: bool = False,
    ) -> None:
        """Opens the drives. Ctrl-C ends the opening, which may take minutes for a drive that is written full first.

        Args:
            uris: Drive URIs, 1 to 64 of them, each an argument of its own, such as ``"emulated:size=64M"``: strings
                without NUL characters. All drives must have blocks of the same size. Give the drives of a catalogue in
                the order in which it was made.
            device: The device whose threads submit to the drives: ``"cpu"``, ``"cuda:N"``, or ``"auto"``, which is GPU
                0 if there is one and else the CPU.
            read_only: Refuse every write. A file that is not served need not be writable then, and several
                storages may have it open.
            allow_destroy: Allow writes anywhere on drives that carry a catalogue, and not only in its extents. Also
                allow a catalogue on drives that hold other data.
            queues_per_drive: Queue pairs of each drive that kernels share. 0 is the default: 4 for the CPU, 64 for a
                GPU, or as many as the drive grants.
            queue_depth: Entries of each queue of the kernels, 2 to 65,536. 0 is the default: 1024, or as many as the
                drives allow.
            requests: Requests of kernels that may be open at once, 2^28 at most, 8 bytes of the device's memory each.
                0 is the default: 65,536 for the CPU, 2^20 for a GPU.
            prp_list_pages: Commands of more than two pages that may be in flight at a time, at least 1.
            stripe_bytes: Consecutive bytes on one drive, a multiple of the block and of the cache's page; not used with
                one drive. 0: the drives lie one after the other.
            timeout_s: The time in seconds after which a wait of a kernel gives up, and after which a command that is in
                flight is aborted.
            flush_timeout_s: The same for a flush.
            cache_bytes: Bytes of the device's memory that cache pages of the drives for kernels that read through the
                cache, such as those of ``forebay.graph``. 0: there is no cache. The methods of this class move bytes
                between the drives and buffers, and need none.
            page_bytes: The size of a page of the cache: a power of two, at least a block of the drives. 0 is the
                default, 4096.
            cache_policy: How the cache chooses the page to evict: ``"clock"`` or ``"s3_fifo"``. This option, the next
                but one, ``cache_staging_pages`` and ``cache_statistics`` are for kernels that are compiled for them;
                those of ``forebay.graph`` take the defaults alone.
            cache_overflow_frames: Additional pages, for accesses that find all pages of their set in use.
            cache_host_bytes: Bytes of page-locked host memory for pages that have left the cache: a multiple of
                ``cache_bytes``.
            cache_staging_pages: Not 0: the cache lies in the GPU's own memory even if a drive does not reach it, and so
                many page-locked pages of the host serve the commands in flight.
            cache_statistics: Count what the cache does; ``report`` has the counts.

        Raises:
            RefusedInput: A URI or an option is wrong, or the drives do not fit together. Nothing was started.
            OperationFailed: A drive does not start, or the extension module does not load.
        """
        self._process = os.getpid()
        self._uris = uris
        self._state = "not open"  # or its size, or "closed": for repr, which must not ask the drives
        for uri in uris:
            text("uris", uri, "must be strings: write Storage(*uris) to open several drives")
        if page_bytes and not cache_bytes:
            raise RefusedInput("page_bytes", page_bytes, "is of a cache, and there is none; give cache_bytes too")
        options = core().StorageOptions(
            queues_per_drive=whole("queues_per_drive", queues_per_drive, _WORD_MAX),
            queue_depth=whole("queue_depth", queue_depth, _WORD_MAX),
            requests=whole("requests", requests, _WORD_MAX),
            prp_list_pages=whole("prp_list_pages", prp_list_pages, _WORD_MAX),
            stripe_bytes=whole("stripe_bytes", stripe_bytes),
            timeout_ns=nanoseconds("timeout_s", timeout_s),
            flush_timeout_ns=nanoseconds("flush_timeout_s", flush_timeout_s),
            cache_bytes=whole("cache_bytes", cache_bytes),
            page_bytes=whole("page_bytes", page_bytes, _WORD_MAX),
            cache_policy=text("cache_policy", cache_policy),
            overflow_frames=whole("cache_overflow_frames", cache_overflow_frames, _WORD_MAX),
            cache_host_bytes=whole("cache_host_bytes", cache_host_bytes),
            cache_staging_pages=whole("cache_staging_pages", cache_staging_pages, _WORD_MAX),
            cache_statistics=bool(cache_statistics),
        )
        opening = core().StopSource()
        self._native = interruptible(
            core().Storage,
            list(uris),
            text("device", device),
            bool(read_only),
            bool(allow_destroy),
            options,
            opening,
            on_interrupt=opening.request_stop,
        )
        self._transfers = Transfers(self._native)
        self._state = f"{self.size_bytes} bytes in blocks of {self.block_bytes}, device {self._native.device}"

    def __repr__(self) -> str:
        forked = f", opened by process {self._process} and not usable in this fork of it"
        state = self._state + (forked if self._process != os.getpid() else "")
        return f"<forebay.Storage on {', '.join(map(repr, self._uris))}: {state}>"

    @property
    def size_bytes(self) -> int:
        """The number of bytes of all drives together; each of several drives counts with the size of the smallest."""
        return self._native.size_bytes

    @property
    def block_bytes(self) -> int:
        """The number of bytes in a block of the drives.

        Kernels read and write whole blocks. The methods of this class take any offset; if a write covers a part of a
        block, it reads the block first.
        """
        return self._native.block_bytes

    @property
    def raw_writable(self) -> bool:
        """Whether ``pwrite`` is allowed.

        It is not if the storage was opened with ``read_only``, if a drive is write-protected, or if the drives carry a
        catalogue and ``allow_destroy`` is not set. In the last case extents can still be written.
        """
        return self._native.raw_writable

    def pread(self, buffer: "Tensor", file_offset: int = 0, *, stream: object = None) -> "Future[int]":
        """Starts to fill a buffer with bytes of the storage.

        Args:
            buffer: Where the bytes go; it must be writable. Its size is the number of bytes to read.
            file_offset: Where in the storage the first byte is, in bytes.
            stream: The CUDA stream that the read is ordered with: a stream of PyTorch or CuPy, an object with
                ``__cuda_stream__``, or the handle as a number. None: there is none. Two streams of a GPU may wait for
                transfers at a time. If a third comes, the call returns once one of them goes on. More may wait if
                CUDA_DEVICE_MAX_CONNECTIONS is set before the program starts: a quarter of that number, which is at
                most 32. Under MPS it must be set, to 8 at least.

        Returns:
            A future whose result is the number of bytes, that of the buffer. It raises ``OperationFailed`` if a drive
            fails; the buffer then holds old bytes, new bytes or both. It raises ``CancelledError`` if Ctrl-C closed the
            storage. Ask it in the process that started the transfer.

        Raises:
            RefusedInput: The buffer cannot be filled, the range is not in the storage, the stream is none, or one of
                another GPU than the buffer, it is being captured into a graph, or CUDA_DEVICE_MAX_CONNECTIONS is less
                than 8.
            CancelledError: Ctrl-C closed the storage while the call waited for other streams.
            OperationFailed: The storage is closed, this process is a fork, or the operating system gives no thread.
        """
        return self._submit(buffer, file_offset, stream, writes=False)

    def pwrite(self, buffer: "Tensor", file_offset: int = 0, *, stream: object = None) -> "Future[int]":
        """Starts to write a buffer to the storage.

        The write is durable after a ``flush`` that comes after it. **If a write fails and the program asks its future
        for neither result nor exception, ``close`` raises the failure.** If the program ends with the storage open, the
        failure is printed on standard error.

        Args:
            buffer: The bytes to write.
            file_offset: Where in the storage the first byte goes, in bytes.
            stream: As for ``pread``. The buffer may be written again by what the stream gets after the call.

        Returns:
            A future whose result is the number of bytes, that of the buffer. It raises ``RefusedInput`` if
            ``raw_writable`` is false, ``OperationFailed`` if a drive fails, and ``CancelledError`` if Ctrl-C closed
            the storage. What was written before an error stays written. Ask it in the process that started the
            transfer.

        Raises:
            RefusedInput: The buffer cannot be written to a drive, the range is not in the storage, or the stream is
                wrong, as for ``pread``.
            OperationFailed: The storage is closed, this process is a fork, or the operating system gives no thread.
        """
        return self._submit(buffer, file_offset, stream, writes=True)

    def _submit(self, buffer: object, offset: int, stream: object, *, writes: bool) -> "Future[int]":
        memory = memory_of(buffer, writable=not writes)
        handle = stream_handle(stream)
        offset = within("file_offset", offset, memory.size_bytes, "the storage", self._native.size_bytes)
        ordered_with = memory.stream if handle is None else handle
        return self._transfers.start(memory, offset, writes=writes, stream=ordered_with)

    def read_extent(self, name: str, buffer: "Tensor", offset: int = 0) -> None:
        """Fills a buffer with bytes of an extent, and returns when that is done.

        Args:
            name: The name of the extent.
            buffer: Where the bytes go; it must be writable. Its size is the number of bytes to read.
            offset: Where in the extent the first byte is, in bytes.

        Raises:
            RefusedInput: There is no such extent, the buffer cannot be filled, or the range is not in the extent.
            OperationFailed: A drive fails, the storage is closed or another thread closes it meanwhile, or this
                process is a fork.
            CancelledError: Ctrl-C closed the storage meanwhile.
        """
        self._move(name, buffer, offset, writes=False)

    def write_extent(self, name: str, buffer: "Tensor", offset: int = 0) -> None:
        """Writes a buffer to an extent, and returns when the drives have it. ``flush`` makes it durable.

        Args:
            name: The name of the extent.
            buffer: The bytes to write.
            offset: Where in the extent the first byte goes, in bytes.

        Raises:
            RefusedInput: There is no such extent, the storage is read-only, the buffer cannot be written to a drive,
                or the range is not in the extent.
            OperationFailed: A drive fails, the storage is closed or another thread closes it meanwhile, or this
                process is a fork.
            CancelledError: Ctrl-C closed the storage meanwhile.
        """
        self._move(name, buffer, offset, writes=True)

    def _move(self, name: str, buffer: object, offset: int, *, writes: bool) -> None:
        memory = memory_of(buffer, writable=not writes)
        text("name", name)
        offset = whole("offset", offset)
        for extent in self.extents():  # the extension refuses a name that is not there
            if extent["name"] == name:
                within("offset", offset, memory.size_bytes, f"extent '{name}'", extent["bytes"])
        self._transfers.move(memory, offset, writes=writes, extent=name)

    def flush(self) -> None:
        """Makes durable every write that was done before the call.

        A ``pwrite`` is done when its future is. ``flush`` does not wait for those that are still under way.

        Raises:
            OperationFailed: A drive cannot make its data durable, the storage is closed, or this process is a fork.
                The other drives are flushed even then.
        """
        interruptible(self._native.flush)

    def extents(self) -> list[dict[str, Any]]:
        """Lists the extents of the catalogue, as this storage last read it.

        The storage reads the catalogue when it opens, and again when it changes it. Another program that uses the same
        served drive may have changed it since.

        Returns:
            A dictionary for each extent, in the order of their places: ``name``, ``first_byte`` (its offset in the
            storage) and ``bytes`` (its size). The list is empty if there is no catalogue.

        Raises:
            OperationFailed: The storage is closed, or this process is a fork.
        """
        return json.loads(self._native.extents())

    def create_extent(self, name: str, size_bytes: int) -> dict[str, Any]:
        """Gives a name to bytes that no other extent has, and makes the catalogue if there is none.

        The bytes keep what they held before. ``new_extent`` also writes them, before anyone sees the name.

        Args:
            name: 1 to 255 bytes of UTF-8 without control characters, and not in use.
            size_bytes: The size of the extent, at least 1 byte.

        Returns:
            The new extent, as ``extents`` lists it.

        Raises:
            RefusedInput: The name or the size is wrong or there is no room; the storage is read-only; or the drives
                hold data but no catalogue, and ``allow_destroy`` is not set.
            OperationFailed: A drive does not take the catalogue, another program is changing it for more than 10
                seconds, the storage is closed, or this process is a fork.
        """
        return json.loads(self._native.create_extent(text("name", name), whole("size_bytes", size_bytes)))

    @contextlib.contextmanager
    def new_extent(
        self, name: str, size_bytes: int, *, replace: bool = False
    ) -> "Iterator[Callable[[Tensor, int], None]]":
        """Makes an extent that nobody sees until all of it is written. Use it in a ``with`` block.

        If the block ends without an exception, what was written becomes durable and then the extent gets its name, in
        one step. If an exception ends the block, or the program is killed at any point, the catalogue is as before.

        Args:
            name: 1 to 255 bytes of UTF-8 without control characters.
            size_bytes: The size of the extent, at least 1 byte.
            replace: Allow a name that is in use. The new extent then takes the place of the old one; until that the
                drives must have room for both.

        Yields:
            A function ``write(buffer, offset)``, which writes a buffer at an offset of the extent and returns when the
            drives have it. It raises as ``write_extent`` does, and ``OperationFailed`` after the block has ended.

        Raises:
            RefusedInput: As ``create_extent``, at the start of the block; at its end, if the name has come into use.
            OperationFailed: As ``create_extent``, and if the data cannot be made durable.

        Example:
            >>> with Storage("emulated:size=64M") as storage:
            ...     with storage.new_extent("numbers", 8000) as write:
            ...         write(np.arange(1000), 0)
            ...     storage.extents()
            [{'bytes': 8000, 'first_byte': 1048576, 'name': 'numbers'}]
        """
        text("name", name)
        if not replace and any(extent["name"] == name for extent in self.extents()):
            raise RefusedInput("name", name, "in use; remove that extent first or choose another")
        first_byte, size = self._native.stage_extent(name, whole("size_bytes", size_bytes))

        new = _NewExtent(self._transfers, name, first_byte, size)
        try:
            yield new.write
            new.end()
            interruptible(self._native.publish_extent, name, first_byte, size, bool(replace))
        except BaseException:
            new.end()
            with contextlib.suppress(OperationFailed, RefusedInput):  # closed, or published after all
                self._native.discard_extent(name, first_byte, size)
            raise

    def remove_extent(self, name: str) -> None:
        """Takes a name out of the catalogue. Its bytes are free for the next extent.

        No program may still use the extent.

        Args:
            name: The name of the extent.

        Raises:
            RefusedInput: There is no such extent, or the storage is read-only.
            OperationFailed: As ``create_extent``.
        """
        self._native.remove_extent(text("name", name))

    def reset_statistics(self) -> None:
        """Makes the statistics in ``report`` count from zero again.

        Raises:
            OperationFailed: The storage is closed, this process is a fork, or a daemon has gone.
        """
        self._native.reset_statistics()

    def report(self) -> dict[str, Any]:
        """Describes the storage and what its drives did.

        Returns:
            A dictionary with the device, the placement, sizes and queues, ``fidelity``, and for each drive its profile,
            its timing, its lateness and its statistics. The JSON reference describes each key, under
            ``storage::report()``.

        Raises:
            OperationFailed: The storage is closed, this process is a fork, or a daemon has gone.
        """
        return json.loads(self._native.report())

    def close(self) -> None:
        """Waits for the transfers that were started, and shuts the drives down.

        It waits as long as the drives take. After Ctrl-C, that is while a ``KeyboardInterrupt`` is handled, it cancels
        the transfers instead. A second call does nothing, and neither does a call in a forked process.

        Raises:
            OperationFailed: A write failed, and the program did not ask its future. The storage is closed even then.
        """
        self._shut(cancel=isinstance(sys.exc_info()[1], KeyboardInterrupt))
        if failure := self._transfers.failure():
            raise failure

    def _shut(self, *, cancel: bool) -> None:
        if self._process != os.getpid():
            return
        self._state = "closed"
        try:
            self._transfers.end(cancel=cancel)
            if not cancel:
                interruptible(self._native.close)
        except KeyboardInterrupt:
            self._shut(cancel=True)
            raise
        if cancel:
            # An interrupted run uses the drives until it ends. Only then are they shut down.
            closing = threading.Thread(target=self._native.close, name="forebay-close", daemon=True)
            closing.start()
            closing.join(_CLOSE_PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shut(cancel=isinstance(error, KeyboardInterrupt))
        failure = self._transfers.failure()
        if failure and error:
            error.add_note(str(failure))
        elif failure:
            raise failure


class _NewExtent:
    """An extent while its `with` block writes it. Thread-safe."""

    def __init__(self, transfers: Transfers, name: str, first_byte: int, size_bytes: int) -> None:
        self._transfers = transfers
        self._name = name
        self._place = (first_byte, size_bytes)
        self._lock = threading.Lock()
        self._ended = False
        self._writes: set[Transfer] = set()

    def write(self, buffer: "Tensor", offset: int) -> None:
        memory = memory_of(buffer, writable=False)
        offset = within("offset", offset, memory.size_bytes, f"extent '{self._name}'", self._place[1])
        with self._lock:
            if self._ended:
                raise OperationFailed(
                    f"extent '{self._name}': the `with` block of new_extent has ended, so its function writes no more: "
                    "write inside the block, or use write_extent after it"
                )
            write = self._transfers.start(memory, offset, writes=True, extent=self._name, staged=self._place)
            self._writes.add(write)
        try:
            self._transfers.wait_for(write)
        finally:
            self._writes.discard(write)

    def end(self) -> None:
        """Ends writes that other threads have under way: others may get the bytes next."""
        with self._lock:
            self._ended = True
        self._transfers.cancel(list(self._writes))
