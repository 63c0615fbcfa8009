# SPDX-License-Identifier: Apache-2.0
"""Storage over one or more drives, as Python sees it."""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from forebay._native import core

Buffer = Any  # collections.abc.Buffer is Python 3.12's


def build_info() -> dict[str, Any]:
    """Version and commit, whether CUDA is built in, and what GPUs this process can use."""
    return json.loads(core().build_info())


def create_drive(uri: str) -> None:
    """Makes the file that a drive URI names, sparse and zeroed."""
    core().create_drive(uri)


def profile_folders() -> list[str]:
    """Where drive profiles are looked for, in order."""
    return core().profile_folders()


class Storage:
    """One range of bytes over the drives that `uris` name. Safe to use from several threads.

    Raises RefusedInput for an URI or an option that cannot be, OperationFailed when a drive does not come up.
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
        self.native = core().Storage(list(uris), device, read_only, allow_destroy, queue_depth)
        self._host_io = ThreadPoolExecutor(max_workers=4, thread_name_prefix="forebay-io")

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
        """Starts filling `buffer` from `file_offset`; the future gives the number of bytes."""
        return self._host_io.submit(self._transfer, self.native.pread, buffer, file_offset)

    def pwrite(self, buffer: Buffer, file_offset: int = 0) -> "Future[int]":
        """Starts writing `buffer` at `file_offset`; the future gives the number of bytes."""
        return self._host_io.submit(self._transfer, self.native.pwrite, buffer, file_offset)

    @staticmethod
    def _transfer(function: Callable[[Buffer, int], None], buffer: Buffer, file_offset: int) -> int:
        size = memoryview(buffer).nbytes
        function(buffer, file_offset)
        return size

    def read_extent(self, name: str, buffer: Buffer, offset: int = 0) -> None:
        """Fills `buffer` from `offset` of an extent."""
        self.native.pread_extent(buffer, offset, name)

    def write_extent(self, name: str, buffer: Buffer, offset: int = 0) -> None:
        """Writes `buffer` at `offset` of an extent."""
        self.native.pwrite_extent(buffer, offset, name)

    def flush(self) -> None:
        """Makes everything written before durable."""
        self.native.flush()

    def extents(self) -> list[dict[str, Any]]:
        """The catalogue: name, first_byte and bytes of each extent; empty where there is no catalogue."""
        return json.loads(self.native.extents())

    def create_extent(self, name: str, size_bytes: int, *, replace: bool = False) -> dict[str, Any]:
        """Claims `size_bytes` bytes under a name; makes the catalogue if there is none.

        With `replace`, an extent of that name is freed in the same step; where the new one does not fit, it stays.
        """
        return json.loads(self.native.create_extent(name, size_bytes, replace))

    def remove_extent(self, name: str) -> None:
        """Frees the bytes of a name."""
        self.native.remove_extent(name)

    def reset_statistics(self) -> None:
        """Forgets what `report` has counted."""
        self.native.reset_statistics()

    def report(self) -> dict[str, Any]:
        """What this storage is and how it fared: device, placement, profile, fidelity, lateness, statistics."""
        return json.loads(self.native.report())

    def close(self) -> None:
        """Ends the transfers that were begun and shuts the drives down."""
        self._host_io.shutdown()
        self.native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt:
            return  # what was interrupted may still use the drives: closing them would wait for it
        self.close()
