# SPDX-License-Identifier: Apache-2.0
"""The rule of what a sector holds, which the writer in C++ and the check share."""

import json
import subprocess

import numpy as np
import power_cuts
import pytest
import sectors
from checking import Journal

SEED = 5


def row(number: int, generation: int) -> np.ndarray:
    return sectors.fill(np.array([number]), np.array([generation]), SEED)


def generation(content: np.ndarray, number: int, seed: int = SEED) -> int:
    return int(sectors.generations_of(content, np.array([number]), seed)[0])


def test_a_whole_sector_says_its_generation():
    assert generation(row(7, 3), 7) == 3


def test_a_sector_of_another_place_or_run_is_not_whole():
    assert generation(row(7, 3), 8) == sectors.MIXED
    assert generation(row(7, 3), 7, SEED + 1) == sectors.MIXED
    assert generation(np.zeros((1, sectors.BYTES), np.uint8), 0) == sectors.MIXED


def test_no_mixture_of_two_generations_is_whole():
    old, new = row(7, 1), row(7, 2)
    differs = np.flatnonzero(old[0] != new[0])
    for at in range(1, sectors.BYTES):
        for first, second in ((old, new), (new, old)):
            mixture = np.concatenate([first[:, :at], second[:, at:]], axis=1)
            if differs[0] < at <= differs[-1]:
                assert generation(mixture, 7) == sectors.MIXED


def test_the_writer_writes_what_its_journal_says(tmp_path):
    writer = power_cuts.writer()
    if not writer.is_file():
        pytest.skip(f"there is no {writer} here: make test builds it")
    count = 1024
    drive, journal = tmp_path / "drive.img", tmp_path / "journal.json"
    sectors.fill(np.arange(count), np.zeros(count), SEED).tofile(drive)
    arguments = ["--drive", f"file:{drive}", "--seed", SEED, "--writes", 300, "--json", journal]
    subprocess.run([writer, *map(str, arguments)], check=True, capture_output=True)
    events = json.loads(journal.read_text())["events"]
    held = sectors.generations_of(np.fromfile(drive, np.uint8).reshape(-1, 512), np.arange(count), SEED)
    seen = Journal.of(events, count)
    assert (held == seen.flushed[-1]).all()
    assert (held == seen.begun[-1]).all()
    assert len(np.unique(held)) > 50
