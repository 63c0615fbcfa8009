# SPDX-License-Identifier: Apache-2.0
"""Tables of the transfer suite beside the claims: what was verified, and how good kernels, traces and advice are.

Each is made from a folder `bench/results/<gpu>-transfer`, or from the folders of that name and `-kernels` or `-modes`.
"""

import json
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import study_pages
from results import ROOT

sys.path += [str(ROOT / "python"), str(ROOT / "bench" / "transfer")]

import advice_check
from forebay.transfer import STUDY_MODES
from forebay.transfer.cost_model import Constants
from forebay.transfer.fitting import read_measured
from forebay.transfer.loading import load
from forebay.transfer.measured import Results, Row
from forebay.transfer.page import CHANGE_LEAST, COVERED_LEAST

LARGE = "large"
_RUNS = (1, 4, 8, 16, 32, 1_000_000)


def beside(folder: Path, name: str) -> list[Path]:
    """The documents of a folder that belongs to another."""
    return sorted((folder.parent / f"{folder.name}-{name}").glob("*.json"))


def _of_pairs(results: Results) -> list[Row]:
    """A row for each workload, mode and size, by size: that of the latest document, whatever its launch."""
    rows = {(row.workload, row.mode, row.size): row for row in results.rows.values()}
    return sorted(rows.values(), key=lambda row: results.sizes.index(row.size))


def _verified(about: str, rows: Iterable[Row]) -> list[list[str]]:
    lines = []
    for size, some in groupby(rows, lambda row: row.size):
        found = list(some)
        ran = [row for row in found if not row.refused]
        runs = " or ".join(str(count) for count in sorted({len(row.warm) for row in ran}))
        refused = ", ".join(f"`{mode}`" for mode in sorted({row.mode for row in found if row.refused}))
        workloads, right = len({row.workload for row in ran}), sum(row.timed for row in ran)
        lines.append([size, about, str(workloads), f"{right} of {len(ran)}", runs, refused])
    return lines


def verified(results: Results, folder: Path) -> str:
    """How many results were verified, by size."""
    of_study = [row for row in _of_pairs(results) if row.mode in STUDY_MODES]
    others = _of_pairs(load(beside(folder, "modes")))
    lines = [
        *_verified("the study's six", of_study),
        *_verified("other transfers, allocations and stage policies", others),
    ]
    heads = ["size", "modes", "workloads", "verified", "timed runs of each", "the GPU refuses"]
    return study_pages.table(heads, lines)


def kernels(folder: Path) -> str:
    """The best stage policy of each workload's kernels, beside a copy and beside multiplications with additions."""
    files = [(path, json.loads(path.read_text())) for path in beside(folder, "kernels")]
    about, lines = [], []
    for path, document in files:
        if document.get("benchmark") != "transfer_kernels":
            continue
        machine, cublas = document["machine"], document["cublas_operations_per_second"]
        about.append(
            f"{machine['device']}, driver {machine['driver']}, {machine['commit']}: "
            f"[{path.name}](../bench/results/{path.parent.name}/{path.name}), by `{document['command']}`. "
            f"The copy moves {document['copy_bytes_per_second'] / 1e9:,.0f} GB/s, reads and writes together. "
            f"Multiplications with additions alone make {document['fma_operations_per_second'] / 1e12:.1f} TFLOP/s, "
            f"and cuBLAS {cublas / 1e12:.1f}."
        )
        for workload, some in groupby(document["results"], lambda row: row["workload"]):
            best = max((row for row in some if row["verified"]), key=lambda row: row["part_of_bound"], default=None)
            if best is not None:
                seconds = sorted(best["kernel_seconds"])[len(best["kernel_seconds"]) // 2]
                lines.append(
                    [
                        workload,
                        f"`{best['stage']}`",
                        f"{seconds * 1e3:.3g}",
                        f"{best['device_bytes_per_second'] / 1e9:,.0f}",
                        f"{best['operations_per_second'] / 1e12:.1f}",
                        f"{best['part_of_bound']:.0%}".replace("%", " %"),
                    ]
                )
    heads = ["kernels of", "best policy", "ms", "GB/s", "TFLOP/s", "of the bound"]
    return "\n\n".join([*about, study_pages.table(heads, lines)])


def traces(results: Results) -> str:
    """What traces cover, and what tracing changes, by size."""
    rows = []
    for size, some in groupby((row for row in _of_pairs(results) if row.traced), lambda row: row.size):
        traced = list(some)
        covered = [row.covered or 0.0 for row in traced]
        changed = sum(abs(row.traced_change or 0.0) >= CHANGE_LEAST for row in traced)
        rows.append(
            [
                size,
                str(len(traced)),
                f"{min(covered) * 100:.1f} %",
                str(sum(part < COVERED_LEAST for part in covered)),
                str(changed),
            ]
        )
    heads = ["size", "traced", "least covered", "covered less than 95 %", "total changed by at least 5 %"]
    return study_pages.table(heads, rows)


def advice(folder: Path) -> str:
    """How often advice is right at `large` and `super`, and the best constant answer, by runs that share buffers."""
    lines = []
    for size in (LARGE, "super"):
        files = [path for path in sorted(folder.glob("run-*.json")) if path.stem.split("-")[1] == size]
        rows = advice_check.latest(read_measured("FILE", *files)) if files else []
        models: dict[str, Constants] = {}
        for runs in _RUNS if rows else ():
            for verdict in advice_check.verdicts(advice_check.cases(rows, runs, models=models)):
                right, gain = f"{verdict.right} of {verdict.workloads}", verdict.right - verdict.constant_right
                constant = [f"`{verdict.constant}`", str(verdict.constant_right)]
                lines.append([size, f"{runs:,}", right, *constant, f"{gain:+d}"])
    heads = [
        "size",
        "runs that share buffers",
        "advice is right for",
        "best constant answer",
        "right for",
        "advice gains",
    ]
    return study_pages.table(heads, lines)
