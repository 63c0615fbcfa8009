# SPDX-License-Identifier: Apache-2.0
"""The extension module of the transfer suite, which python/src/transfer/transfer.cpp defines.

Functions raise the errors of forebay.errors. tests/python/test_public.py compares this stub with the module.
"""

from typing import Any

SIZES: list[str]
STAGES: list[str]
TRANSFERS: list[str]
ALLOCATIONS: list[str]

def workloads() -> list[dict[str, str]]: ...
def gpu(*, ordinal: int) -> dict[str, str]: ...

class Workload:
    def __init__(self, name: str, *, size: str, blocks: int, threads: int, tile: int, stages: int) -> None: ...
    def shape(self) -> dict[str, int]: ...
    def buffers(self) -> list[dict[str, Any]]: ...
    def costs(self) -> dict[str, float]: ...
    def run_on_cpu(self, *, stage: str, seed: int) -> dict[str, Any]: ...
    def run_on_gpu(
        self,
        *,
        transfer: str,
        allocation: str,
        stage: str,
        seed: int,
        repetitions: int,
        traced: int,
        cupti_folders: list[str],
        ordinal: int,
    ) -> dict[str, Any]: ...

def pipeline_arms() -> list[dict[str, Any]]: ...

class Pipeline:
    def __init__(self, workload: str, *, size: str, jobs: int, allocation: str, seed: int, ordinal: int) -> None: ...
    def run(self, *, arm: str, repetitions: int) -> dict[str, Any]: ...
