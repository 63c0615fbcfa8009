# SPDX-License-Identifier: Apache-2.0
"""The study of graphs in every place, as far as it runs without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

STUDY = Path(__file__).resolve().parents[2] / "bench" / "graph" / "study.py"


def study(*arguments):
    return subprocess.run([sys.executable, STUDY, *arguments], capture_output=True, text=True, check=False, timeout=300)


def test_all_that_needs_no_gpu_runs_and_finds_what_is_right(tmp_path):
    done = study(tmp_path, "small", "--device", "cpu", "--commit", "abc")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "small.json").read_text())
    about = {key: document[key] for key in ("command", "commit", "device", "gpu")}
    assert about == {"command": "bench/graph/study.py OUT small", "commit": "abc", "device": "cpu", "gpu": None}
    rows = document["rows"]
    checked = [row["wrong"] for row in rows if "wrong" in row]
    assert len(checked) > 50
    assert not any(checked)
    assert {row["algorithm"] for row in rows if "algorithm" in row} == {"bfs", "sssp", "pr", "cc", "tc", "spmv"}
    assert {row["search"] for row in rows if "search" in row} == {"tuned", "plain"}
    past_the_cache = [row for row in rows if row.get("place", "").startswith("storage_direct")]
    assert len(past_the_cache) > 10
    assert all(row["reads"] > 0 and row["bytes_read"] >= row["reads"] * 512 for row in past_the_cache)
    again = study(tmp_path, "small", "--device", "cpu")
    assert (again.returncode, again.stdout) == (0, ""), "what is there is not made again"


def test_a_step_that_there_is_not_is_refused(tmp_path):
    done = study(tmp_path, "large")
    assert done.returncode == 2
    assert "no step 'large'" in done.stderr
