# SPDX-License-Identifier: Apache-2.0
"""The extension module, which python/src/core.cpp defines. Structured results are JSON text.

Functions raise the errors of forebay.errors. tests/python/test_public.py compares this stub with the module.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from forebay._buffers import Buffer

def build_info() -> str: ...
def create_drive(uri: str, resize: bool) -> None: ...
def profile_folders() -> list[str]: ...
def daemon_socket() -> str: ...
def placement_of(file: str) -> str: ...
def inspect_real_drive(uri: str) -> str: ...
def inspect_real_drives(root: str) -> str: ...
def attach_real_drive(uri: str, dry_run: bool, tell: Callable[[str, str], None]) -> str: ...
def detach_real_drive(uri: str, dry_run: bool, tell: Callable[[str, str], None]) -> str: ...
def multiprocessors(ordinal: int) -> int: ...
def serve(
    socket: str,
    drives: Sequence[str],
    lifeline: int,
    ready: Callable[[], None],
    notice: Callable[[str], None],
) -> str: ...

class StopSource:
    def __init__(self) -> None: ...
    def request_stop(self) -> None: ...

class StorageOptions:
    def __init__(
        self,
        *,
        queues_per_drive: int,
        queue_depth: int,
        requests: int,
        prp_list_pages: int,
        stripe_bytes: int,
        timeout_ns: int,
        flush_timeout_ns: int,
        cache_bytes: int,
        page_bytes: int,
        overflow_frames: int,
        cache_policy: str,
        cache_host_bytes: int,
        cache_staging_pages: int,
        cache_statistics: bool,
    ) -> None: ...

def address_of(buffer: Buffer) -> int: ...
def facts_of_dlpack(capsule: object) -> tuple[int, int, int, int, int, bool, bool]: ...

class EndedTransfers:
    def __init__(self) -> None: ...
    def has(self, number: int) -> bool: ...
    def cancel(self, number: int) -> None: ...
    def wait(self) -> list[tuple[int, tuple[str, str, str, str] | None]]: ...
    def stop(self) -> None: ...

class Storage:
    def __init__(
        self,
        drives: Sequence[str],
        device: str,
        read_only: bool,
        allow_destroy: bool,
        options: StorageOptions,
        cancel: StopSource,
    ) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def raw_writable(self) -> bool: ...
    def start_transfer(
        self,
        ended: EndedTransfers,
        number: int,
        writes: bool,
        address: int,
        size_bytes: int,
        on_gpu: bool,
        offset_bytes: int,
        stream: int | None,
        extent: str | None,
        staged: tuple[int, int] | None,
    ) -> None: ...
    def cancel_transfers(self) -> None: ...
    def flush(self) -> None: ...
    def extents(self) -> str: ...
    def create_extent(self, name: str, size_bytes: int) -> str: ...
    def stage_extent(self, name: str, size_bytes: int) -> tuple[int, int]: ...
    def publish_extent(self, name: str, first_byte: int, size_bytes: int, replace: bool) -> None: ...
    def discard_extent(self, name: str, first_byte: int, size_bytes: int) -> None: ...
    def remove_extent(self, name: str) -> None: ...
    def reset_statistics(self) -> None: ...
    def report(self) -> str: ...
    def close(self) -> None: ...

def run_block_io(
    storage: Storage,
    *,
    random: bool,
    read_percent: int,
    block_bytes: int,
    iodepth: int,
    gpu_threads: int,
    size_bytes: int,
    runtime_s: float,
    ramp_time_s: float,
    seed: int,
    verify: bool,
    lay_down: bool,
    tell: Callable[[str, float], None] | None,
) -> str: ...
def run_file_io(
    path: str,
    engine: str,
    gpu: int,
    *,
    random: bool,
    read_percent: int,
    block_bytes: int,
    iodepth: int,
    gpu_threads: int,
    size_bytes: int,
    runtime_s: float,
    ramp_time_s: float,
    seed: int,
    verify: bool,
    lay_down: bool,
    tell: Callable[[str, float], None] | None,
) -> str: ...
def run_replay(
    storage: Storage,
    operations: Buffer,
    *,
    trace_name: str,
    open_loop: bool,
    iodepth: int,
    gpu_threads: int,
    wrap: bool,
    verify: bool,
    seed: int,
) -> str: ...
def run_bfs(
    storage: Storage,
    edges: str,
    row_begin: npt.NDArray[np.uint64],
    source: int,
    *,
    iodepth: int,
    request_bytes: int,
    tell: Callable[[int, int], None] | None,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], str]: ...
