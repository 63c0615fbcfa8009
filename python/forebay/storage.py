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

from forebay._buffers import flat, text, whole, within
from forebay._native import core, interruptible
from forebay._transfers import Transfers
from forebay.errors import OperationFailed, RefusedInput

_CLOSE_PATIENCE_S = 1.0  # with drives that an interrupted run still uses

Buffer = Any  # collections.abc.Buffer is Python 3.12's


def build_info() -> dict[str, Any]:
    """Version and commit, whether CUDA is built in, and what GPUs this process can use."""
    return json.loads(core().build_info())


def create_drive(uri: str) -> None:
    """Makes the file that a drive URI names, sparse and zeroed."""
    core().create_drive(text("drive", uri))


def profile_folders() -> list[str]:
    """Where drive profiles are looked for, in order."""
    return core().profile_folders()


class Storage:
    """One range of bytes over the drives that `uris` name. Safe to use from several threads.

    Raises RefusedInput for an URI or an option that cannot be, OperationFailed when a drive does not come up, and for
    every use after `close`, or in a process that was forked from the one that opened it.
    """

    def __init__(
        self,
        *uris: str,
        device: str = "auto",
        read_only: bool = False,
        allow_destroy: bool = False,
        queue_depth: int = 0,
    ) -> None:
        """Opens the drives.

        Args:
            uris: what to open, such as "emulated:size=64M".
            device: where the threads run that drive the drives: auto, cpu or cuda:N.
            read_only: refuse every write; a file that is not served need not be writable then, and several may read it.
            allow_destroy: write anywhere on drives that carry a catalogue, not only in its extents.
            queue_depth: entries of each queue; 0 for the default.
        """
        for uri in uris:
            text("uris", uri, "must be strings: write Storage(*uris) to open several")
        self._process = os.getpid()
        opening = core().StopSource()
        self.native = interruptible(
            core().Storage,
            list(uris),
            text("device", device),
            bool(read_only),
            bool(allow_destroy),
            whole("queue_depth", queue_depth, 2**32 - 1),
            opening,
            on_interrupt=opening.request_stop,
        )
        self._transfers = Transfers()

    @property
    def size_bytes(self) -> int:
        """Bytes of all drives together."""
        return self.native.size_bytes

    @property
    def block_bytes(self) -> int:
        """What every offset and length is a multiple of."""
        return self.native.block_bytes

    @property
    def raw_writable(self) -> bool:
        """Whether writes may go anywhere: not where drives forbid it, or carry a catalogue without allow_destroy."""
        return self.native.raw_writable

    def pread(self, buffer: Buffer, file_offset: int = 0) -> "Future[int]":
        """Starts filling `buffer` from `file_offset`; the future gives the number of bytes.

        Raises RefusedInput at once for a buffer that cannot be filled, and for a range that is not in the storage.
        """
        return self._submit(self.native.pread, flat(buffer, writable=True), file_offset, writes=False)

    def pwrite(self, buffer: Buffer, file_offset: int = 0) -> "Future[int]":
        """Starts writing `buffer` at `file_offset`; the future gives the number of bytes.

        Raises RefusedInput as `pread` does. Where it fails later and nobody asks the future, `close` raises it.
        """
        return self._submit(self.native.pwrite, flat(buffer, writable=False), file_offset, writes=True)

    def _submit(
        self, function: Callable[[Buffer, int], None], view: memoryview, offset: int, *, writes: bool
    ) -> "Future[int]":
        offset = within("file_offset", offset, len(view), self.native.size_bytes)
        return self._transfers.submit(function, view, offset, writes=writes)

    def read_extent(self, name: str, buffer: Buffer, offset: int = 0) -> None:
        """Fills `buffer` from `offset` of an extent."""
        self._move(self.native.pread_extent, name, flat(buffer, writable=True), offset)

    def write_extent(self, name: str, buffer: Buffer, offset: int = 0) -> None:
        """Writes `buffer` at `offset` of an extent."""
        self._move(self.native.pwrite_extent, name, flat(buffer, writable=False), offset)

    def _move(self, function: Callable[[Buffer, int, str], None], name: str, view: memoryview, offset: int) -> None:
        text("name", name)
        offset = whole("offset", offset)
        for extent in self.extents():  # what is not there, the extension refuses
            if extent["name"] == name:
                within("offset", offset, len(view), extent["bytes"])
        self._transfers.move(lambda piece, at: function(piece, at, name), view, offset)

    def flush(self) -> None:
        """Makes everything written before durable."""
        interruptible(self.native.flush)

    def extents(self) -> list[dict[str, Any]]:
        """The catalogue: name, first_byte and bytes of each extent; empty where there is no catalogue."""
        return json.loads(self.native.extents())

    def create_extent(self, name: str, size_bytes: int) -> dict[str, Any]:
        """Claims `size_bytes` bytes under a name; makes the catalogue if there is none."""
        return json.loads(self.native.create_extent(text("name", name), whole("size_bytes", size_bytes)))

    @contextlib.contextmanager
    def new_extent(
        self, name: str, size_bytes: int, *, replace: bool = False
    ) -> "Iterator[Callable[[Buffer, int], None]]":
        """An extent that nobody sees before the block has ended: yields the function that writes a buffer at an offset.

        Where the block ends well, what was written is made durable and the extent gets its name, in one step. Where it
        does not, or the program is killed at any point, all is as before. With `replace`, it takes the place of one of
        that name, and needs room beside it.
        """
        text("name", name)
        if not replace and any(extent["name"] == name for extent in self.extents()):
            raise RefusedInput("name", name, "in use; remove that extent first or choose another")
        first_byte, size = self.native.stage_extent(name, whole("size_bytes", size_bytes))

        ended = threading.Event()

        def write_piece(piece: Buffer, at: int) -> None:
            if ended.is_set():
                raise OperationFailed(
                    f"extent '{name}': was published or given up: nothing more can be written to it here"
                )
            self.native.write_staged(piece, at, name, first_byte, size)

        def write(buffer: Buffer, offset: int) -> None:
            view = flat(buffer, writable=False)
            offset = within("offset", offset, len(view), size)
            self._transfers.move(write_piece, view, offset)

        try:
            yield write
            ended.set()
            interruptible(self.native.publish_extent, name, first_byte, size, bool(replace))
        except BaseException:
            ended.set()
            with contextlib.suppress(OperationFailed, RefusedInput):  # closed, or published after all
                self.native.discard_extent(name, first_byte, size)
            raise

    def remove_extent(self, name: str) -> None:
        """Frees the bytes of a name."""
        self.native.remove_extent(text("name", name))

    def reset_statistics(self) -> None:
        """Forgets what `report` has counted."""
        self.native.reset_statistics()

    def report(self) -> dict[str, Any]:
        """What this storage is and how it fared: device, placement, profile, fidelity, lateness, statistics."""
        return json.loads(self.native.report())

    def close(self) -> None:
        """Ends the transfers that were begun and shuts the drives down.

        On the way out of Ctrl-C it cancels them instead. Raises OperationFailed for writes that failed and whose
        futures nobody asked. In a process that was forked from the one that opened the storage it does nothing.
        """
        self._shut(cancel=isinstance(sys.exc_info()[1], KeyboardInterrupt))
        if failure := self._transfers.failure():
            raise failure

    def _shut(self, *, cancel: bool) -> None:
        if self._process != os.getpid():
            return
        try:
            self._transfers.end(cancel=cancel)
            if not cancel:
                interruptible(self.native.close)
        except KeyboardInterrupt:
            self._shut(cancel=True)
            raise
        if cancel:
            # An interrupted run uses the drives until it ends. Only then are they shut down.
            closing = threading.Thread(target=self.native.close, name="forebay-close", daemon=True)
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
