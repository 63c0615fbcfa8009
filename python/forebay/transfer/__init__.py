# SPDX-License-Identifier: Apache-2.0
"""The transfer suite: workloads under every way of moving data, verified, and what the results say."""

from forebay.transfer.runs import (
    STUDY_MODES,
    Plan,
    document,
    mode_parts,
    names,
    read_results,
    run,
    workload_list,
)

__all__ = [
    "STUDY_MODES",
    "Plan",
    "document",
    "mode_parts",
    "names",
    "read_results",
    "run",
    "workload_list",
]
