# SPDX-License-Identifier: Apache-2.0
"""The runs of a study: what is kept, what is run again, and what is said of a run that fails."""

import os
import select
import sys
from pathlib import Path

import pytest
from forebay import OperationFailed, RefusedInput
from forebay.study import Drive, Program
from forebay.study.runner import Runner, run_once

PROGRAM = [sys.executable, str(Path(__file__).with_name("study_program.py")), "{drive}"]
DRIVE = Drive("emulated:iops=1k")


def shell(script):
    return ["bash", "-c", script, "{drive}"]


def measure(command, drive=DRIVE, **options):
    return Runner(Program(command, timeout_s=options.pop("timeout_s", 60)), **options).measure(drive, {})


def test_a_point_has_what_the_program_says():
    point = measure([*PROGRAM, "--reads", "500"])
    assert (point.good, point.figures.seconds, point.figures.reads, point.attempts) == (True, 0.5, 500, 1)
    assert point.command[-3:] == ["emulated:iops=1k", "--reads", "500"]


@pytest.mark.parametrize(
    ("exceeded", "attempts", "good", "runs"), [(2, 3, True, 3), (3, 3, False, 3), (9, 1, False, 1)]
)
def test_a_run_whose_drive_was_late_is_made_again(tmp_path, exceeded, attempts, good, runs):
    log = tmp_path / "log"
    command = [*PROGRAM, "--compute", "1", "--log", log, "--exceeded", exceeded]
    point = measure([str(word) for word in command], attempts=attempts)
    assert (point.good, point.attempts, len(log.read_text().splitlines())) == (good, runs, runs)
    assert point.fidelity == ("ok" if good else "exceeded")


def test_a_point_is_the_median_of_its_runs(tmp_path):
    count = tmp_path / "count"
    script = f"""echo >>{count}; case $(wc -l <{count}) in 1) t=3;; 2) t=1;; *) t=2;; esac
    echo '{{"fidelity": "ok", "seconds": '$t'}}'"""
    point = measure(shell(script), repeat=3)
    assert (point.values, point.figures.seconds, point.attempts) == ([3, 1, 2], 2, 3)


@pytest.mark.parametrize(
    ("more", "good", "fidelity"),
    [
        (["verified=false"], False, "ok"),
        (["verified=null"], True, "ok"),
        (["fidelity=null"], False, "unknown"),
        (['fidelity="exceeded"'], False, "exceeded"),
    ],
)
def test_a_point_is_good_if_nothing_is_said_against_it(more, good, fidelity):
    point = measure([*PROGRAM, "--compute", "1", *more])
    assert (point.good, point.fidelity) == (good, fidelity)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo one >&2; echo two >&2; echo >&2; exit 3", "exit status 3: two"),
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "signal 9"),
        ("echo text", "standard output is not JSON"),
        ("true", "standard output is not JSON"),
        ("echo '{}'", "no key seconds"),
        ("echo '[1]'", "is no object"),
    ],
)
def test_a_run_that_fails_is_a_point_with_an_error(script, said):
    point = measure(shell(script))
    assert (point.good, point.figures, point.fidelity) == (False, None, "unknown")
    assert said in point.error


def test_lines_above_the_document_are_left_out():
    assert measure(shell("""echo begins; echo '{"seconds": 2, "fidelity": "ok"}'""")).figures.seconds == 2


def test_a_run_without_an_end_is_ended_with_all_that_it_started(tmp_path):
    file = tmp_path / "pid"
    point = measure(shell(f"tail -f /dev/null & echo $! >{file}; wait"), timeout_s=0.5)
    assert "did not end within 0.5 s" in point.error
    try:
        left = os.pidfd_open(int(file.read_text()))
    except ProcessLookupError:
        return
    ended, _, _ = select.select([left], [], [], 60)  # also once it has ended and nothing has waited for it yet
    os.close(left)
    assert ended


def test_a_program_that_cannot_be_started_is_refused():
    with pytest.raises(RefusedInput, match="command: '/no/program'"):
        run_once(["/no/program"], 1, {})


def test_points_are_kept_and_measured_once(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "a" / "points"
    command = [*PROGRAM, "--compute", "1", "--log", str(log)]
    first, second = (measure(command, folder=folder) for _ in range(2))
    assert (first.kept, second.kept) == (False, True)
    assert (first.figures, first.values, first.attempts) == (second.figures, second.values, second.attempts)
    assert len(log.read_text().splitlines()) == 1
    others = [
        measure(command, Drive("emulated:iops=2k"), folder=folder),
        measure([*command, "a=1"], folder=folder),
        measure(command, folder=folder, repeat=2),
    ]
    assert not any(point.kept for point in others)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"figures": {}, "values": [], "attempts": 1}'])
def test_a_file_that_is_not_whole_is_measured_again(tmp_path, text):
    command = [*PROGRAM, "--compute", "1"]
    measure(command, folder=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    point = measure(command, folder=tmp_path)
    assert (point.good, point.kept) == (True, False)
    assert measure(command, folder=tmp_path).kept


def test_points_that_say_nothing_are_not_kept(tmp_path):
    for command in ([*PROGRAM, "--compute", "1", 'fidelity="exceeded"'], shell("exit 1")):
        measure(command, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("field", "value"), [("repeat", 0), ("attempts", 0), ("attempts", 1001)])
def test_numbers_out_of_range_are_refused(field, value):
    with pytest.raises(RefusedInput, match=f"{field}: '{value}'"):
        Runner(Program(PROGRAM), **{field: value})


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedInput, match=r"folder: .* is no folder to write to"):
        Runner(Program(PROGRAM), folder=tmp_path / "file" / "points")


def test_a_full_disk_is_a_failure(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OperationFailed, match="No space left"):
        measure([*PROGRAM, "--compute", "1"], folder=tmp_path)
