# SPDX-License-Identifier: Apache-2.0
"""The extension module of the graph algorithms, which python/src/graph.cpp defines. Figures are JSON text.

Functions raise the errors of forebay.errors. tests/python/test_public.py compares this stub with the module.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from forebay._buffers import Buffer
from forebay._core import Storage

class Lists:
    def __init__(
        self,
        row_begin: npt.NDArray[np.uint64],
        entries: Buffer,
        values: Buffer | None,
        *,
        entry: str,
        kind: str,
        device: str,
        node: int,
        external: str,
    ) -> None: ...
    @staticmethod
    def on_drives(
        storage: Storage,
        row_begin: npt.NDArray[np.uint64],
        *,
        entry: str,
        entries: str,
        values: str | None,
        iodepth: int,
        request_bytes: int,
    ) -> Lists: ...
    def make_cold(self) -> None: ...
    def bfs(
        self, source: int, *, direction: str, tell: Callable[[int, int], None] | None
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], str]: ...
    def plain_bfs(self, source: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], str]: ...
    def sssp(self, source: int, *, delta: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], str]: ...
    def pagerank(
        self,
        outgoing: npt.NDArray[np.uint32] | None,
        *,
        damping: float,
        tolerance: float,
        iterations: int,
        share_dangling: bool,
    ) -> tuple[npt.NDArray[np.float32], str]: ...
    def components(self) -> tuple[npt.NDArray[np.uint32], str]: ...
    def triangles(self) -> tuple[int, str]: ...
    def spmv(self, x: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], str]: ...
    def check_bfs(
        self, source: int, distances: npt.NDArray[np.uint32], predecessors: npt.NDArray[np.uint32]
    ) -> int: ...
    def check_sssp(
        self, source: int, distances: npt.NDArray[np.uint64], predecessors: npt.NDArray[np.uint32]
    ) -> int: ...
    def check_components(self, labels: npt.NDArray[np.uint32]) -> int: ...
    def check_pagerank(
        self,
        outgoing: npt.NDArray[np.uint32] | None,
        scores: npt.NDArray[np.float32],
        *,
        damping: float,
        share_dangling: bool,
    ) -> float: ...

def external_options(text: str) -> str: ...
def generate(
    kind: str,
    scale: int,
    degree: int,
    *,
    generator: str,
    seed: int,
    entry: str,
    device: str,
    memory_max_bytes: int,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]: ...
