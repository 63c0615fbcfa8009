# SPDX-License-Identifier: Apache-2.0
"""Transfers in the background. The extension moves the bytes; a thread here tells the futures when it has."""

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING

from forebay._buffers import Memory
from forebay._native import core
from forebay.errors import OperationFailed, RefusedInput

if TYPE_CHECKING:
    from forebay._core import Storage as NativeStorage

CLOSED = "the storage is closed: open it again"

_PATIENCE_S = 1.0  # with what was interrupted
_LOOK_S = 0.1  # for signals
# The storage may not be written: the future says so, and not the call.
_NOT_WRITABLE = ("read_only", "allow_destroy")

Failure = tuple[str, str, str, str] | None


class Transfer(Future[int]):
    """The future of one transfer. It notes whether the program has asked for its outcome."""

    def __init__(self, what: str, size_bytes: int, *, writes: bool) -> None:
        super().__init__()
        self.what = what
        self.number = 0  # among those of its storage
        self.size_bytes = size_bytes
        self.writes = writes
        self.asked = False
        self.keeps: object = None  # alive: the buffer, and the storage
        self.books: _Books | None = None
        self._process = os.getpid()

    def result(self, timeout: float | None = None) -> int:
        """Does what ``Future.result`` does, and notes that the program asked."""
        self._prepare(timeout)
        try:
            return super().result(timeout)
        finally:
            self.asked |= self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Does what ``Future.exception`` does, and notes that the program asked."""
        self._prepare(timeout)
        try:
            return super().exception(timeout)
        finally:
            self.asked |= self.done()

    def _prepare(self, timeout: float | None) -> None:
        if self.done():
            return
        if self._process != os.getpid():
            raise OperationFailed(
                f"process {self._process} started this transfer, and process {os.getpid()} is a fork of it: "
                "ask the future in the process that started it"
            )
        if self.books and self.books.is_mine():  # a callback of another future asks, on the thread that tells
            self.books.tell_until(self.done)
        elif timeout is None:
            _wait_for([self])


def _wait_for(transfers: list[Transfer]) -> None:
    """Waits in short turns: a signal that comes just before a wait begins does not end that wait."""
    while wait(transfers, _LOOK_S).not_done:
        pass


class _Books:
    """The transfers that are under way, for the thread that tells their futures. It does not hold the storage."""

    def __init__(self) -> None:
        self.ended = core().EndedTransfers()
        self.lock = threading.Lock()  # guards what follows
        self.pending: dict[int, Transfer] = {}
        self.failed: list[Transfer] = []
        self.thread: threading.Thread | None = None
        self._arrived: deque[tuple[int, Failure]] = deque()

    def is_mine(self) -> bool:
        return threading.current_thread() is self.thread

    def run(self) -> None:
        with self.lock:  # which the thread that starts this one holds until it has
            if not self.is_mine():  # Ctrl-C interrupted the start, and another thread may have taken the place
                return
        self.tell_until(lambda: False)

    def tell_until(self, done: Callable[[], bool]) -> None:
        """Tells futures until ``done()``, or until no more can come. For one thread."""
        while not done():
            if not self._arrived:
                self._arrived.extend(self.ended.wait())
            if not self._arrived:
                return
            try:
                self._tell(*self._arrived.popleft())
            except BaseException:  # of a callback, such as SystemExit; the other transfers must be told all the same
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def _tell(self, number: int, failure: Failure) -> None:
        with self.lock:
            transfer = self.pending.pop(number, None)
        if transfer:
            self.settle(transfer, _error(failure) if failure else None)

    def drop(self, transfer: Transfer) -> None:
        """Takes a transfer out that was not started, and whose future the program does not get."""
        with self.lock:
            dropped = self.pending.pop(transfer.number, None)
        if dropped:
            transfer.keeps = transfer.books = None
            # For `end`. The caller's error would, with its traceback, keep the buffer alive.
            transfer.set_exception(OperationFailed("the transfer was not started"))

    def settle(self, transfer: Transfer, error: Exception | None) -> None:
        keeps, transfer.keeps, transfer.books = transfer.keeps, None, None
        if error is None:
            transfer.set_result(transfer.size_bytes)
        else:
            if transfer.writes and not isinstance(error, CancelledError):
                with self.lock:
                    self.failed = [failed for failed in self.failed if not failed.asked] + [transfer]
            transfer.set_exception(error)
        del keeps  # last: with it the storage may go


def _error(failure: tuple[str, str, str, str]) -> Exception:
    kind, *words = failure
    if kind == "refused":
        return RefusedInput(*words)
    if kind == "cancelled":
        return CancelledError("Ctrl-C closed the storage before this transfer ended")
    return OperationFailed(words[0])


class Transfers:
    """The transfers of one storage. Thread-safe."""

    def __init__(self, native: "NativeStorage") -> None:
        self._process = os.getpid()
        self._native = native
        self._books = _Books()
        self._numbers = 0
        self._ended = False
        _all.add(self)

    def __del__(self) -> None:
        if self._process == os.getpid():
            self._books.ended.stop()
            if failure := self.failure():  # of a storage that nobody closed; Python prints it
                raise failure

    def start(
        self,
        memory: Memory,
        offset: int,
        *,
        writes: bool,
        stream: int | None = None,
        extent: str | None = None,
        staged: tuple[int, int] | None = None,
    ) -> Transfer:
        """Starts a transfer.

        Args:
            memory: Where the bytes go, or come from. It is kept alive until the transfer has ended.
            offset: Where the first byte is, in the storage or in the extent.
            writes: The bytes go to the drives. ``failure`` reports the transfer if it fails and the program does not
                ask its future.
            stream: The CUDA stream that the transfer is ordered with.
            extent: The name of an extent.
            staged: The first byte and the size of that extent, if it has no name yet.

        Returns:
            The future of the transfer. It fails if the storage may not be written.

        Raises:
            RefusedInput: The range, the memory or the stream is wrong.
            OperationFailed: ``end`` was called before, or the operating system gives no thread.
            CancelledError: Ctrl-C closed the storage while the call waited for other streams.
        """
        if self._process != os.getpid():
            _ = self._native.size_bytes  # which says so; a thread of the parent may hold the lock below for ever
        books = self._books
        transfer = Transfer(f"{memory.size_bytes} bytes at byte {offset}", memory.size_bytes, writes=writes)
        transfer.keeps = (memory, self)
        transfer.books = books
        transfer.set_running_or_notify_cancel()
        with books.lock:
            if self._ended:
                raise OperationFailed(CLOSED)
            self._start_thread()
            self._numbers += 1
            transfer.number = number = self._numbers
            books.pending[number] = transfer
        # Without the lock: the call may wait for other streams, and meanwhile other futures must be told.
        try:
            self._native.start_transfer(
                books.ended, number, writes, memory.address, memory.size_bytes, memory.on_gpu, offset,
                stream, extent, staged,
            )  # fmt: skip
        except RefusedInput as error:
            if error.field not in _NOT_WRITABLE:
                books.drop(transfer)
                raise
            with books.lock:
                del books.pending[number]
            books.settle(transfer, error)
        except BaseException:  # Ctrl-C: `end` must not wait for a transfer that was not started
            if not books.ended.has(number):
                books.drop(transfer)
            raise
        return transfer

    def move(
        self,
        memory: Memory,
        offset: int,
        *,
        writes: bool,
        extent: str | None = None,
    ) -> None:
        """Does what ``start`` does, and returns when the transfer has ended.

        Raises:
            RefusedInput: As ``start``, and if the storage may not be written.
            OperationFailed: As ``start``, and if a drive fails.
            CancelledError: Ctrl-C closed the storage meanwhile.
        """
        self.wait_for(self.start(memory, offset, writes=writes, extent=extent))

    def wait_for(self, transfer: Transfer) -> None:
        """Waits until a transfer has ended, and raises what its future raises. Ctrl-C ends it early."""
        try:
            transfer.result()
        except KeyboardInterrupt:
            self.cancel([transfer])
            raise

    def cancel(self, transfers: "list[Transfer]") -> None:
        """Ends transfers early, and waits about a second for that."""
        for transfer in transfers:
            transfer.asked = True  # its failure is of no use to the program
            self._books.ended.cancel(transfer.number)
        wait(transfers, _PATIENCE_S)

    def _start_thread(self) -> None:
        books = self._books
        if books.thread:
            return
        thread = threading.Thread(target=books.run, name="forebay-io", daemon=True)
        try:
            books.thread = thread
            thread.start()
        except BaseException as error:
            books.thread = None  # after Ctrl-C the thread may begin to run even so
            if not isinstance(error, RuntimeError):
                raise
            raise OperationFailed(  # the operating system gives no thread
                f"no thread can be started for a transfer ({error}): raise the limit of processes (ulimit -u)"
            ) from error

    def end(self, *, cancel: bool) -> None:
        """Takes no more transfers, and waits for those that were begun.

        Args:
            cancel: End them after the pieces that the drives have, and wait about a second for that.
        """
        if self._process != os.getpid():
            return
        books = self._books
        with books.lock:
            self._ended = True
            pending = list(books.pending.values())
        if cancel and pending:
            with contextlib.suppress(OperationFailed):  # another thread has closed it
                self._native.cancel_transfers()
        patience_s = _PATIENCE_S if cancel else None
        if books.is_mine():  # a callback of a future closes the storage
            books.tell_until(lambda: not books.pending)
        elif cancel:
            wait(pending, patience_s)
        else:
            _wait_for(pending)
        books.ended.stop()
        if books.thread and not books.is_mine():
            books.thread.join(patience_s)

    def failure(self) -> OperationFailed | None:
        """Returns the error of failed writes whose futures the program never asked, or None. It names each once."""
        if self._process != os.getpid():
            return None
        with self._books.lock:
            unseen = [failed for failed in self._books.failed if not failed.asked]
            self._books.failed = []
        if not unseen:
            return None
        others = f", and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        cause = unseen[0].exception()
        error = OperationFailed(
            f"a write of {unseen[0].what} failed{others}, and the program did not ask its future: {cause}; "
            "call result() on the future of each pwrite"
        )
        error.__cause__ = cause
        return error


_all: "weakref.WeakSet[Transfers]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Ends the transfers of storages that are still open. After Ctrl-C it cancels them, so that the process can end."""
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
    failures = []
    for transfers in list(_all):
        transfers.end(cancel=interrupted)
        failures.append(transfers.failure())
    for failure in filter(None, failures):
        raise failure
