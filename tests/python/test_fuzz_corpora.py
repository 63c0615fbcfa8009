# SPDX-License-Identifier: Apache-2.0
"""Replays the corpora of the fuzz targets that are written in Python."""

import importlib.util
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
_spec = importlib.util.spec_from_file_location("readers", FUZZ / "readers.py")
readers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(readers)


@pytest.mark.parametrize("target", ["sg", "trace"])
def test_no_input_is_a_finding(target):
    inputs = sorted((FUZZ / "corpus" / target).iterdir())
    assert inputs
    for path in inputs:
        try:
            getattr(readers, target)(path.read_bytes())
        except Exception as found:
            raise AssertionError(f"{path}: {found}") from found
