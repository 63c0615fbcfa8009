# SPDX-License-Identifier: Apache-2.0
"""Measures faiss's HNSW graph on the CPU, over the vectors of the study of vector search.

faiss_cpu.py VECTORS OUT.json draws the first VECTORS of the study's vectors, builds the graph in memory, and searches
it with lists of several lengths, on all threads. faiss is no dependency of Forebay: `pip install faiss-cpu` brings it.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from forebay.search.exact import recall
from forebay.search.synthetic import synthetic_vectors

ROOT = Path(__file__).resolve().parents[2]
DIMENSION, K = 128, 10
QUERIES, CHECKED = 10_000, 2000  # asked, and with known true neighbours, as in study.py
RUNS = 20  # of which the fastest counts: other programs may share the processors


def tell(text: str) -> None:
    """Says what goes on, on standard error."""
    print(text, file=sys.stderr, flush=True)


def processor() -> dict[str, Any]:
    """What /proc/cpuinfo says."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"model": models[0] if models else "unknown", "logical_processors": max(1, len(models))}


def commit() -> str | None:
    """The commit of the working tree; None outside of one."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip() or None


def built_graph(base: npt.NDArray[np.uint8], degree: int, construction: int) -> tuple[Any, float]:
    """A graph of vectors, and the seconds that it took."""
    index = faiss.IndexHNSWFlat(DIMENSION, degree)
    index.hnsw.efConstruction = construction
    begin = time.monotonic()
    for first in range(0, len(base), 100_000):
        index.add(base[first : first + 100_000].astype(np.float32))
        tell(f"  {min(first + 100_000, len(base)):,} vectors after {time.monotonic() - begin:.0f} s")
    return index, time.monotonic() - begin


def measure(count: int, degree: int, construction: int, sizes: list[int], kept: Path | None) -> dict[str, Any]:
    """Builds a graph, or reads it, and searches it; what both took, and the recall."""
    base = synthetic_vectors(count, DIMENSION)
    queries = synthetic_vectors(QUERIES, DIMENSION, queries=True)
    as_floats = queries.astype(np.float32)
    flat = faiss.IndexFlatL2(DIMENSION)
    flat.add(base.astype(np.float32))
    true = flat.search(as_floats[:CHECKED], K)[1].astype(np.uint32)
    del flat
    tell("  true neighbours found")
    seconds_file = kept.with_suffix(".seconds") if kept else None
    if kept and seconds_file and kept.exists():
        index, built = faiss.read_index(str(kept)), float(seconds_file.read_text())
    else:
        index, built = built_graph(base, degree, construction)
        if kept and seconds_file:
            faiss.write_index(index, str(kept))
            seconds_file.write_text(str(built))
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    recalls: dict[int, float] = {}
    # The lists take turns, so that what else runs on the machine disturbs all of them alike.
    for _ in range(RUNS):
        for size in sizes:
            index.hnsw.efSearch = size
            begin = time.monotonic()
            ids = index.search(as_floats, K)[1]
            seconds[size].append(time.monotonic() - begin)
            if size not in recalls:
                recalls[size] = recall(base, queries[:CHECKED], ids[:CHECKED].astype(np.uint32), true)
    rows = [
        {"ef_search": size, "recall": recalls[size], "qps": QUERIES / min(took), "seconds": took}
        for size, took in seconds.items()
    ]
    for row in rows:
        tell(f"  efSearch {row['ef_search']}: recall {row['recall']:.4f}, {row['qps']:,.0f} QPS")
    return {
        "faiss": faiss.__version__,
        "threads": faiss.omp_get_max_threads(),
        "build_seconds": built,
        "vectors": count,
        "dimension": DIMENSION,
        "queries": QUERIES,
        "checked": CHECKED,
        "k": K,
        "degree": degree,
        "ef_construction": construction,
        "rows": rows,
    }


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--degree", type=int, default=32, help="M: half of the edges that a vector has at most")
    parser.add_argument("--ef-construction", type=int, default=100)
    parser.add_argument("--ef-search", type=int, nargs="+", default=[10, 12, 14, 16, 24, 32, 48, 64, 96, 128])
    parser.add_argument("--index", type=Path, help="keeps the graph: read if it is there, else written")
    parser.add_argument("--commit", help="what the result names; without, git's answer")
    given = parser.parse_args()
    document = {
        "command": " ".join(["bench/search/faiss_cpu.py", str(given.vectors), "OUT"]),
        "commit": given.commit or commit(),
        "gpu": None,
        "cpu": processor(),
        **measure(given.vectors, given.degree, given.ef_construction, given.ef_search, given.index),
    }
    given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
