# SPDX-License-Identifier: Apache-2.0
"""The trace that apps/recommender/obp.py makes, of a small package of the same form as `obp`."""

import io
import itertools
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "apps" / "recommender" / "obp.py"
LOG = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,user_feature_3,"
    "user-item_affinity_0,user-item_affinity_1\n"
    "0,2019-11-24 00:00:{second:02}.5+00:00,{item},2,0,0.25,a,b,c,d,0.0,3.0\n"
    "1,2019-11-24 00:01:{second:02}.5+00:00,1,1,0,0.5,a,b,c,e,0.0,1.0\n"
)
ITEMS = ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n0,0,-0.5,x,y,z\n1,1,0.75,x,v,z\n"


def files() -> dict[str, str]:
    found = {}
    for n, (policy, campaign) in enumerate(itertools.product(("random", "bts"), ("all", "men", "women"))):
        folder = f"obp/dataset/obd/{policy}/{campaign}"
        found[f"{folder}/{campaign}.csv"] = LOG.format(second=n, item=n % 2)
        found[f"{folder}/item_context.csv"] = ITEMS
    return found


def wheel(path: Path, names: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in names.items():
            archive.writestr(name, text)
    return path


def run(package: Path, trace: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, package, trace], capture_output=True, text=True, check=False)


@pytest.fixture
def trace(tmp_path: Path) -> bytes:
    out = tmp_path / "x.trace"
    done = run(wheel(tmp_path / "obp.whl", files()), out)
    assert done.returncode == 0, done.stderr
    assert "12 samples, 26 tables" in done.stdout
    return out.read_bytes()


def parts(trace: bytes):
    dense, tables, samples = struct.unpack_from("<IIQ", trace, 8)
    table_rows = struct.unpack_from(f"<{tables}I", trace, 24)
    values = struct.unpack_from(f"<{samples * dense}f", trace, 24 + 4 * tables)
    rows = struct.unpack_from(f"<{samples * tables}I", trace, 24 + 4 * (tables + samples * dense))
    return dense, tables, samples, table_rows, values, rows


def test_header_and_sizes(trace):
    dense, tables, samples, table_rows, _, _ = parts(trace)
    assert trace[:8] == b"FBDLRM01"
    assert (dense, tables, samples) == (13, 26, 12)
    assert len(trace) == 24 + 4 * (tables + samples * (dense + tables))
    assert table_rows[0] == 6, "items of three campaigns are not the same"
    assert table_rows[1] == 2
    assert table_rows[2:6] == (1, 1, 1, 2)


def test_rows_are_numbered_as_they_come_and_samples_are_in_order_of_time(trace):
    _, tables, samples, table_rows, _, rows = parts(trace)
    for table in range(tables):
        seen = [rows[s * tables + table] for s in range(samples)]
        assert set(seen) == set(range(table_rows[table]))
        assert list(dict.fromkeys(seen)) == sorted(set(seen))
    # The first minute has all first impressions, the second all second ones.
    assert [rows[s * tables + 1] for s in range(samples)] == [0] * 6 + [1] * 6


def test_dense_features(trace):
    _, _, _, _, values, _ = parts(trace)
    assert values[0] == 0.25
    assert values[1] == -0.5
    assert values[8] == pytest.approx(0.6931, abs=1e-4), "one affinity is not 0"
    assert values[9] == 0, "the affinity of item 0"
    assert values[13 + 9] == pytest.approx(1.3863, abs=1e-4), "the affinity of item 1"
    assert values[13 + 10] == pytest.approx(0.6931, abs=1e-4), "a second after the sample before"
    assert values[12] == 0
    assert values[13 * 4] == 0.25
    assert values[13 * 4 + 12] == 1


def test_a_source_archive_gives_the_same(trace, tmp_path):
    package = tmp_path / "obp.tar.gz"
    with tarfile.open(package, "w:gz") as archive:
        for name, text in files().items():
            entry = tarfile.TarInfo(f"obp-0.5.7/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    out = tmp_path / "y.trace"
    assert run(package, out).returncode == 0
    assert out.read_bytes() == trace


def test_a_package_without_logs_is_refused(tmp_path):
    out = tmp_path / "z.trace"
    done = run(wheel(tmp_path / "other.whl", {"other/file.txt": "x"}), out)
    assert done.returncode == 2
    assert "has no random/all/all.csv" in done.stderr
    assert not out.exists()
