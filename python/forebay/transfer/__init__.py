# SPDX-License-Identifier: Apache-2.0
"""The transfer suite: workloads under every way of moving data, verified, and what the results say."""

from forebay.transfer.pipeline import Pipeline
from forebay.transfer.runs import (
    RUN_KEY,
    STUDY_MODES,
    Plan,
    document,
    mode_parts,
    names,
    read_results,
    run,
    typical_seconds,
    workload_list,
)
from forebay.transfer.sweep import PARAMETERS, STUDY_WORKLOAD, Sweep

__all__ = [
    "PARAMETERS",
    "RUN_KEY",
    "STUDY_MODES",
    "STUDY_WORKLOAD",
    "Pipeline",
    "Plan",
    "Sweep",
    "document",
    "mode_parts",
    "names",
    "read_results",
    "run",
    "typical_seconds",
    "workload_list",
]
