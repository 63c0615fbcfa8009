# SPDX-License-Identifier: Apache-2.0
"""`forebay search import`: takes over an index that DiskANN built."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from forebay.cli.contract import DeviceOption, JsonOption, SeedOption, check_json_target, write_json
from forebay.cli.search_build import (
    RECALL_MIN,
    CapacityOption,
    DrivesOption,
    IndexNameOption,
    ReplaceOption,
    end_of_build,
    named_as_options,
    sample_of,
    show_built,
    timed_steps,
)
from forebay.graph.memory import resolve_device
from forebay.search.diskann import import_diskann
from forebay.search.diskann_files import DISK_FILE, DTYPES, Nodes
from forebay.search.index import Index
from forebay.storage import Storage


def import_index(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="How the names of DiskANN's files begin, such as FOLDER/ann.")
    ],
    drive: DrivesOption,
    dtype: Annotated[
        str,
        typer.Option("--dtype", metavar="|".join(DTYPES), help="The type of a component, which the files do not tell."),
    ],
    name: IndexNameOption = "index",
    capacity: CapacityOption = None,
    replace: ReplaceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Take over a disk index of DiskANN, and search it for some of its own vectors to check it.

    Vectors, graph and codes are those of PREFIX_disk.index, PREFIX_pq_pivots.bin and PREFIX_pq_compressed.bin.
    """
    check_json_target(json_target)
    on = resolve_device(device, "--device")
    with Storage(*drive, device=on) as storage:
        before = time.perf_counter()
        with timed_steps("importing the index") as (steps, tell), named_as_options():
            imported = import_diskann(
                storage,
                prefix,
                name,
                dtype=dtype,
                capacity=capacity,
                seed=seed,
                device=on,
                replace=replace,
                progress=tell,
            )
        storage.flush()
        seconds = time.perf_counter() - before
        with imported as index:
            sample, recall = _recall(index, prefix, seed)
            report = storage.report()
            document = {
                "prefix": prefix,
                "drives": drive,
                "index": index.info(),
                "seconds": seconds,
                "steps": steps,
                "verified": recall >= RECALL_MIN,
                "verified_vectors": sample,
                "recall": recall,
                "device": report["device"],
                "fidelity": report["fidelity"],
                "forebay": report,
            }
    write_json(json_target, document)
    show_built(document, json_target)
    end_of_build(document, "have DiskANN build it with a larger graph_degree, complexity or more bytes of a code")


def _recall(index: Index, prefix: str, seed: int) -> tuple[int, float]:
    """Searches an index for vectors of DiskANN's file: how many, and for which part the nearest is an equal one."""
    nodes = Nodes(Path(prefix + DISK_FILE), index.dtype)
    rows = sample_of(nodes.count, seed)
    asked: Any = nodes.vectors(rows)
    found = index.search(asked, 1).ids[:, 0]
    there = found < nodes.count
    equal = (nodes.vectors(np.where(there, found, 0)) == asked).all(1)
    return len(rows), float((there & equal).mean())
