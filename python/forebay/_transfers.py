# SPDX-License-Identifier: Apache-2.0
"""Transfers in the background, in pieces, so that Ctrl-C waits for a piece and not for the whole transfer."""

import atexit
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait

from forebay.errors import OperationFailed

CLOSED = "the storage is closed: open it again"

_THREADS = 4
_PIECE_MIN, _PIECE_FIRST, _PIECE_MAX = 64 << 10, 1 << 20, 8 << 20
_PIECE_SHORT_S, _PIECE_LONG_S = 0.05, 0.2
_PATIENCE_S = 1.0  # with what was interrupted

Function = Callable[[memoryview, int], object]
Work = tuple["Transfer", Callable[["Transfer"], None]]


class Transfer(Future[int]):
    """The future of one transfer. It notes whether the program has asked for its outcome."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.asked = False
        self._process = os.getpid()

    def result(self, timeout: float | None = None) -> int:
        """Does what ``Future.result`` does, and notes that the program asked."""
        self._require_process()
        try:
            return super().result(timeout)
        finally:
            self.asked |= self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Does what ``Future.exception`` does, and notes that the program asked."""
        self._require_process()
        try:
            return super().exception(timeout)
        finally:
            self.asked |= self.done()

    def _require_process(self) -> None:
        if self._process != os.getpid() and not self.done():
            raise OperationFailed(
                f"process {self._process} started this transfer, and process {os.getpid()} is a fork of it: "
                "ask the future in the process that started it"
            )


class Transfers:
    """The threads that move bytes for one storage. Thread-safe."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._pending: set[Transfer] = set()
        self._failed: list[Transfer] = []
        self._cancelled = threading.Event()
        self._ended = False
        self._piece_bytes = _PIECE_FIRST
        _all.add(self)

    def __del__(self) -> None:
        if self._process == os.getpid():
            for _ in self._threads:
                self._queue.put(None)
            if failure := self.failure():  # of a storage that nobody closed; Python prints it
                raise failure

    def move(self, function: Function, view: memoryview, offset: int) -> int:
        """Moves a buffer piece by piece, on the caller's thread.

        Args:
            function: Moves one piece; it gets the piece and its offset.
            view: The buffer, as bytes.
            offset: Where its first byte goes.

        Returns:
            The number of bytes.

        Raises:
            CancelledError: An interrupt closed the storage meanwhile.
        """
        at = 0
        while True:
            if self._cancelled.is_set():
                raise CancelledError("Ctrl-C closed the storage before this transfer ended")
            # Pieces end at multiples of their size: none is then a block that two of them write.
            end = min(len(view), at + self._piece_bytes - (offset + at) % self._piece_bytes)
            began = time.monotonic()
            function(view[at:end], offset + at)
            self._adapt(time.monotonic() - began)
            at = end
            if at == len(view):
                return at

    def _adapt(self, took_s: float) -> None:
        if took_s < _PIECE_SHORT_S:
            self._piece_bytes = min(2 * self._piece_bytes, _PIECE_MAX)
        elif took_s > _PIECE_LONG_S:
            self._piece_bytes = max(self._piece_bytes // 2, _PIECE_MIN)

    def submit(self, function: Function, view: memoryview, offset: int, *, writes: bool) -> Transfer:
        """Starts ``move`` on a thread of the storage.

        Args:
            function: As for ``move``.
            view: As for ``move``.
            offset: As for ``move``.
            writes: Whether ``failure`` reports the transfer if it fails and the program does not ask its future.

        Returns:
            The future of the transfer.

        Raises:
            OperationFailed: ``end`` was called before, or the operating system gives no thread.
        """
        transfer = Transfer(f"{len(view)} bytes at byte {offset}")

        def run(transfer: Transfer) -> None:
            try:
                moved = self.move(function, view, offset)
            except BaseException as error:  # the future's
                if writes and not isinstance(error, CancelledError):
                    with self._lock:
                        self._failed = [failed for failed in self._failed if not failed.asked] + [transfer]
                transfer.set_exception(error)
            else:
                transfer.set_result(moved)

        with self._lock:
            if self._ended:
                raise OperationFailed(CLOSED)
            self._start_thread()
            try:
                self._pending.add(transfer)
                transfer.add_done_callback(self._pending.discard)
                self._queue.put((transfer, run))
            except BaseException:  # Ctrl-C: `end` must not wait for a transfer that no thread will get
                transfer.cancel()
                raise
        return transfer

    def _start_thread(self) -> None:
        """Starts one more thread, up to the limit. One is enough to go on."""
        if len(self._threads) == _THREADS:
            return
        thread = threading.Thread(target=_work, args=(self._queue,), name="forebay-io", daemon=True)
        self._threads.append(thread)  # first: after Ctrl-C in `start` the thread runs, and `end` must end it
        try:
            thread.start()
        except RuntimeError as error:  # the operating system gives no thread
            self._threads.remove(thread)
            if not self._threads:
                raise OperationFailed(
                    f"no thread can be started for a transfer ({error}): raise the limit of processes (ulimit -u)"
                ) from error

    def end(self, *, cancel: bool) -> None:
        """Takes no more transfers, and waits for those that were begun.

        Args:
            cancel: End them after the piece that each is at, and wait about a second for that.
        """
        if self._process != os.getpid():
            return
        with self._lock:
            self._ended = True
            pending = list(self._pending)
        if cancel:
            self._cancelled.set()
            for transfer in pending:
                transfer.cancel()
        patience_s = _PATIENCE_S if cancel else None
        wait(pending, patience_s)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # a callback of a future may close the storage
                thread.join(patience_s)

    def failure(self) -> OperationFailed | None:
        """Returns the error of failed writes whose futures the program never asked, or None. It names each once."""
        if self._process != os.getpid():
            return None
        with self._lock:
            unseen = [failed for failed in self._failed if not failed.asked]
            self._failed = []
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


def _work(work: "queue.SimpleQueue[Work | None]") -> None:
    while item := work.get():
        transfer, run = item
        if transfer.set_running_or_notify_cancel():
            run(transfer)
        del item, transfer, run  # they hold the storage


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
