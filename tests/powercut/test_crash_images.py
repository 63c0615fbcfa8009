# SPDX-License-Identifier: Apache-2.0
"""The images that a cut may leave, of records made by hand."""

import hand_made
import write_log
from crash_images import SURVIVAL, CrashImages, Cut, plan
from hand_made import FLUSH, disk, rows
from write_log import Flag

OLD = disk(0, 0, 0, 0)


def images(tmp_path, entries: list[tuple], together: range = range(0)) -> CrashImages:
    path = tmp_path / "log"
    hand_made.write(path, entries)
    return CrashImages(OLD, write_log.read(path), 1, together)


def possible(made: CrashImages, entries: int, survival: float = 0.5, count: int = 200) -> set[tuple[int, ...]]:
    """Which images come: the first byte of each sector."""
    found = (made.image(Cut(number, entries, survival)) for number in range(count))
    return {tuple(int(row[0]) for row in image) for image in found}


def test_what_was_flushed_is_there_and_each_other_sector_is_there_or_not(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1)), FLUSH, (1, rows(2, 2))])
    assert possible(made, 3) == {(1, a, b, 0) for a in (1, 2) for b in (0, 2)}


def test_before_the_flush_nothing_needs_to_be_there(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1)), FLUSH])
    assert possible(made, 1) == {(a, b, 0, 0) for a in (0, 1) for b in (0, 1)}
    assert possible(made, 2) == {(1, 1, 0, 0)}


def test_a_flush_that_is_lost_leaves_images_without_the_data(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1)), (2, rows(3))])
    assert (0, 0, 0, 0) in possible(made, 2)


def test_nothing_is_there_that_was_written_after_the_cut(tmp_path):
    made = images(tmp_path, [(0, rows(1)), (0, rows(2)), FLUSH])
    assert possible(made, 1) == {(0, 0, 0, 0), (1, 0, 0, 0)}


def test_of_two_writes_of_a_sector_either_may_be_the_one_that_is_there(tmp_path):
    made = images(tmp_path, [(0, rows(1)), (0, rows(2))])
    assert possible(made, 2) == {(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)}


def test_what_was_written_with_fua_is_there_and_nothing_older(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1)), (0, rows(2), Flag.FUA)])
    assert possible(made, 2) == {(2, 0, 0, 0), (2, 1, 0, 0)}


def test_a_flush_that_comes_with_a_write_does_not_cover_that_write(tmp_path):
    made = images(tmp_path, [(0, rows(1)), (1, rows(2), Flag.FLUSH)])
    assert possible(made, 2) == {(1, 0, 0, 0), (1, 2, 0, 0)}


def test_what_was_discarded_reads_as_before_or_as_zeros(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1)), FLUSH, (0, 2, Flag.DISCARD)])
    assert possible(made, 3) == {(a, b, 0, 0) for a in (0, 1) for b in (0, 1)}


def test_all_or_nothing_survives_where_the_plan_says_so(tmp_path):
    made = images(tmp_path, [(0, rows(1)), FLUSH, (1, rows(2, 2, 2)), (0, rows(3))])
    assert possible(made, 4, survival=0.0) == {(1, 0, 0, 0)}
    assert possible(made, 4, survival=1.0) == {(3, 2, 2, 2)}


def test_sectors_that_must_survive_together_do_where_one_write_has_both(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1, 1, 1))], together=range(1, 3))
    assert possible(made, 1) == {(a, b, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)}
    made = images(tmp_path, [(0, rows(1, 1)), (2, rows(2))], together=range(1, 3))
    assert possible(made, 2) == {(a, b, c, 0) for a in (0, 1) for b in (0, 1) for c in (0, 2)}


def test_an_image_follows_from_its_number_and_not_from_those_before(tmp_path):
    made = images(tmp_path, [(0, rows(1, 1)), FLUSH, (1, rows(2, 2)), FLUSH, (2, rows(3, 3))])
    cut = Cut(5, 3, 0.5)
    alone = made.image(cut)
    made.image(Cut(6, 5, 0.5))
    assert (made.image(cut) == alone).all()
    assert any((made.image(Cut(number, 3, 0.5)) != alone).any() for number in range(20))


def test_a_plan_cuts_anywhere_from_the_first_mark_on_and_behind_marks():
    marks = [10, 40, 99]
    cuts = plan(600, marks, seed=3)
    assert [cut.number for cut in cuts] == list(range(600))
    assert {cut.entries for cut in cuts[1::2]} == {11, 12, 13, 41, 42, 43, 100}
    assert {cut.entries for cut in plan(4000, marks, seed=3)[::2]} == set(range(11, 101))
    assert {cut.survival for cut in cuts} == set(SURVIVAL)
    assert plan(3, marks, seed=3, first=7) == cuts[7:10]
