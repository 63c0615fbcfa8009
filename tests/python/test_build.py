# SPDX-License-Identifier: Apache-2.0
"""What compilers are told: the same in each clone and at each commit, so that ccache finds what others compiled."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Files whose object holds a path or the commit, each of few lines.
TOLD_OF_PATHS = {"profile_folders.cpp", "folders.cpp"}
TOLD_OF_THE_COMMIT = {"build_info.cpp"}


def definitions() -> list[tuple[str, str]]:
    """Lists the preprocessor definitions of every compilation in build/: the source's name and the definition.

    A preset that was configured by an older version of the project has no say.
    """
    found = []
    configured_by = (ROOT / "cmake/forebay_targets.cmake").stat().st_mtime
    for database in sorted(ROOT.glob("build/*/compile_commands.json")):
        if database.stat().st_mtime < configured_by:
            continue
        for entry in json.loads(database.read_text()):
            arguments = shlex.split(entry["command"])
            found += [(Path(entry["file"]).name, a) for a in arguments if a.startswith("-D")]
    if not found:
        pytest.skip("no build here wrote compile_commands.json")
    return found


def test_no_compiler_is_told_where_the_sources_are_but_for_the_files_that_need_it():
    told = {source for source, definition in definitions() if str(ROOT) in definition}
    assert told <= TOLD_OF_PATHS


def test_no_compiler_is_told_the_commit_but_for_the_file_that_needs_it():
    told = {source for source, definition in definitions() if "COMMIT" in definition}
    assert told <= TOLD_OF_THE_COMMIT


def test_the_table_of_phases_and_compilations_is_printed_when_a_phase_fails(tmp_path):
    script = (
        f"set -euo pipefail\nsource scripts/lib.bash\nroot={shlex.quote(str(tmp_path))}\nsource scripts/phases.bash\n"
        "phase first true\nprintf 'direct_cache_hit\\ncache_miss\\ncache_miss\\n' >\"$CCACHE_STATSLOG\"\n"
        "phase second false\nphase third true\n"
    )
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    phases = re.findall(r"^forebay: +\d+\.\d s  (.*)$", ran.stderr, re.MULTILINE)
    assert phases == ["first", "second", "in all"]
    assert ran.stderr.splitlines()[-1] in (
        "forebay: ccache: 1 hits, 2 misses",
        "forebay: ccache: not installed, so everything was compiled",
    )


def test_the_slowest_tests_are_listed_first(tmp_path):
    results = tmp_path / "results.xml"
    cases = "".join(f'<testcase name="t{i}" time="{i}"/>' for i in range(30))
    results.write_text(f"<testsuite>{cases}</testsuite>")
    printed = subprocess.run(
        ["python3", "scripts/slowest.py", str(results)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed[0] == "435 s of tests; the slowest 20 take 90%:"
    assert [line.split()[-1] for line in printed[1:]] == [f"t{i}" for i in range(29, 9, -1)]
