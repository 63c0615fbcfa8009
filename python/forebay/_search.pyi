# SPDX-License-Identifier: Apache-2.0
"""The extension module of the vector search, which python/src/search/search.cpp defines.

Functions raise the errors of forebay.errors. tests/python/test_public.py compares this stub with the module.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import Buffer
from forebay._core import Storage

class Shape:
    def __init__(
        self,
        *,
        dtype: str,
        metric: str,
        slots: int,
        record_words: int,
        vector_words: int,
        degree_max: int,
        chunks: int,
        chunk_dimension: int,
        navigation_degree: int,
    ) -> None: ...

class Index:
    @staticmethod
    def on_drives(
        storage: Storage,
        nodes: str,
        *,
        shape: Shape,
        codes: npt.NDArray[np.uint8],
        codebook: npt.NDArray[np.float32],
        navigation_slots: npt.NDArray[np.uint32],
        navigation_neighbours: npt.NDArray[np.uint32],
    ) -> Index: ...
    @staticmethod
    def in_memory(
        records: Buffer,
        place: str,
        *,
        device: str,
        shape: Shape,
        codes: npt.NDArray[np.uint8],
        codebook: npt.NDArray[np.float32],
        navigation_slots: npt.NDArray[np.uint32],
        navigation_neighbours: npt.NDArray[np.uint32],
    ) -> Index: ...
    def search(
        self,
        count: int,
        *,
        words: npt.NDArray[np.uint32],
        norms: npt.NDArray[np.float32],
        components: npt.NDArray[np.float32],
        offsets_and_scales: npt.NDArray[np.float32],
        filter_bits: npt.NDArray[np.uint32],
        k: int,
        list_size: int,
        width: int,
        navigation_size: int,
        batch: int,
        concurrency: int,
        timeout_s: float,
    ) -> dict[str, Any]: ...

class ExactShape:
    def __init__(
        self,
        *,
        dtype: str,
        metric: str,
        slots: int,
        list_words: int,
        vector_words: int,
        degree_max: int,
    ) -> None: ...

class ExactIndex:
    @staticmethod
    def on_drives(
        storage: Storage,
        lists: str,
        vectors: str,
        *,
        shape: ExactShape,
        entry_slots: npt.NDArray[np.uint32],
        entry_checksums: npt.NDArray[np.uint32],
    ) -> ExactIndex: ...
    @staticmethod
    def in_memory(
        lists: Buffer,
        vectors: Buffer,
        place: str,
        *,
        device: str,
        shape: ExactShape,
        entry_slots: npt.NDArray[np.uint32],
        entry_checksums: npt.NDArray[np.uint32],
    ) -> ExactIndex: ...
    def search(
        self,
        count: int,
        *,
        words: npt.NDArray[np.uint32],
        norms: npt.NDArray[np.float32],
        filter_bits: npt.NDArray[np.uint32],
        k: int,
        list_size: int,
        width: int,
        entries: int,
        iterations: int,
        batch: int,
        concurrency: int,
        timeout_s: float,
    ) -> dict[str, Any]: ...

def status_text(bits: int) -> str: ...
