# SPDX-License-Identifier: Apache-2.0
"""Checks the crash images of a recording against what its writer had been told.

A sector must hold the generation of the last write that was flushed, or a later one. The writer had seen the Flush
complete before the power failed. The sector must hold that generation whole. Only a drive that goes through the
page cache may tear a sector, and only one with a write that was not flushed.
"""

import os
import subprocess
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sectors
from crash_images import CrashImages, Cut, plan
from guest import program
from recording import DATA_SECTOR, DRIVE_SECTORS, FILE, MARK_SECTOR, Recording
from write_log import WriteLog, read

# ext4 writes its superblock of 1 KiB in place, with one checksum. Where a disk tears it, nothing mounts any more. So no
# crash image has it torn.
SUPERBLOCK = range(DATA_SECTOR + 2, DATA_SECTOR + 4)


class FileSystemError(Exception):
    """A file system that a crash has destroyed, or whose file it has cut."""


@dataclass(frozen=True)
class Journal:
    """What a writer did and saw. Mark 0 is the start, and a mark follows each Flush that it saw complete."""

    first: np.ndarray  # by generation: its first sector
    sectors: np.ndarray  # by generation: how many it has
    flushed: list[np.ndarray]  # by mark: the generation that each sector has at least
    begun: list[np.ndarray]  # by mark: the generation that each sector has at most until then

    @classmethod
    def of(cls, events: list[list], count: int) -> "Journal":
        """Follows the events of a journal, on a drive of `count` sectors."""
        extents = {0: (0, count)} | {event[1]: tuple(event[2:]) for event in events if event[0] == "write"}
        written, begun = np.zeros((2, count), np.int64)
        journal = cls(*np.array(list(extents.values()), np.int64).T, [written.copy()], [begun.copy()])
        asked = {}
        for kind, number, *_ in events:
            if kind == "flush":
                asked[number] = written.copy()
            elif kind == "flushed":
                journal.flushed.append(asked.pop(number))
                journal.begun.append(begun.copy())
            else:
                first, sectors_of = extents[number]
                (begun if kind == "write" else written)[first : first + sectors_of] = number
        journal.begun.append(begun)  # until the end
        return journal

    def wrote(self, generations: np.ndarray, numbers: np.ndarray | np.integer) -> np.ndarray:
        """Says for each sector whether it is one of those that were written with this generation."""
        known = (generations >= 0) & (generations < len(self.first))
        generations = np.where(known, generations, 0)
        first = self.first[generations]
        return known & (first <= numbers) & (numbers < first + self.sectors[generations])


@dataclass(frozen=True)
class Verdict:
    """What is wrong with one image: numbers of sectors of the drive."""

    cut: Cut
    lost: np.ndarray  # that are older than what was flushed
    mixed: np.ndarray  # that hold no whole generation
    strange: np.ndarray  # that hold a generation that was not written to them, or not yet
    torn: np.ndarray  # that hold parts of generations that they may have, and may be torn
    broken: str = ""  # why there is no drive in the image

    @property
    def right(self) -> bool:
        """Whether the image is as it may be."""
        return not (self.broken or len(self.lost) or len(self.mixed) or len(self.strange))

    def __str__(self) -> str:
        found = {"lost": self.lost, "mixed": self.mixed, "strange": self.strange}
        counts = [f"{len(numbers)} {what} (first: {numbers[0]})" for what, numbers in found.items() if len(numbers)]
        found_all = self.broken or ", ".join(counts) or "right"
        return f"image {self.cut.number}, cut after {self.cut.entries} entries: {found_all}"


class FileSystem:
    """Takes the drive's file out of images of one ext4 file system. A context: its scratch files go with it."""

    def __init__(self) -> None:
        memory = "/dev/shm"  # noqa: S108
        self._folder = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
        self._image, self._file = Path(self._folder.name, "ext4.img"), Path(self._folder.name, FILE)
        self._image.touch()

    def __enter__(self) -> "FileSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def drive(self, data: np.ndarray) -> np.ndarray:
        """Plays the journal of the file system in `data`, and returns the drive, one sector a row."""
        # The same file each time: its pages are there already.
        with self._image.open("r+b") as image:
            image.write(data.data)
        played = subprocess.run([program("e2fsck"), "-fy", self._image], capture_output=True, text=True, check=False)
        if played.returncode != 0:  # there was more to mend than a journal to play
            said = " / ".join([*played.stdout.splitlines(), *played.stderr.splitlines()])
            raise FileSystemError(f"e2fsck ended with {played.returncode}: {said}")
        # debugfs ends with 0 also where there is no such file, and then writes none.
        self._file.unlink(missing_ok=True)
        dump = [program("debugfs"), "-R", f"dump /{FILE} {self._file}", self._image]
        dumped = subprocess.run(dump, capture_output=True, text=True, check=True)
        if not self._file.exists():
            raise FileSystemError(f"there is no file with the drive after the crash: {dumped.stderr}")
        rows = np.fromfile(self._file, np.uint8)
        if len(rows) != DRIVE_SECTORS * sectors.BYTES:
            raise FileSystemError(f"the drive's file has {len(rows)} bytes after the crash")
        return rows.reshape(-1, sectors.BYTES)


def marks_in(log: WriteLog, seed: int) -> list[tuple[int, int]]:
    """Lists the entries that are marks, and the number of each mark."""
    number = np.array([sectors.MARK_NUMBER], np.uint64)
    found = []
    for index, entry in enumerate(log.entries):
        if entry.sector == MARK_SECTOR and len(entry.rows) == 1:
            found.append((index, int(sectors.generations_of(entry.rows, number, seed)[0])))
    return found


class Check:
    """The check of one recording."""

    def __init__(self, recording: Recording) -> None:
        """Reads the recording, whose seed is that of the cuts too."""
        self.recording = recording
        log = read(recording.log)
        self.entries = len(log.entries)
        together = SUPERBLOCK if recording.case.kind == "ext4" else range(0)
        self._images = CrashImages(recording.first, log, recording.case.seed, together)
        journal = recording.journal
        self.direct: bool = journal["file"]["direct"]
        self._journal = Journal.of(journal["events"], DRIVE_SECTORS)
        self._marks = marks_in(log, recording.case.seed)
        if [mark for _, mark in self._marks] != list(range(len(self._journal.flushed))):
            raise ValueError(f"{recording.folder}: the marks in the record are not those of the journal")

    @property
    def flushes(self) -> int:
        """How many Flush commands the writer saw complete."""
        return len(self._marks) - 1

    def plan(self, count: int, first: int = 0) -> list[Cut]:
        """Chooses cuts, in the order in which their images are made fastest."""
        cuts = plan(count, [index for index, _ in self._marks], self.recording.case.seed, first)
        return sorted(cuts, key=lambda cut: cut.entries)

    def verdicts(self, cuts: list[Cut]) -> Iterator[Verdict]:
        """Makes the image of each cut and checks it."""
        with FileSystem() as files:
            for cut in cuts:
                data = self._images.image(cut)[DATA_SECTOR:]
                try:
                    yield self._judge(cut, files.drive(data) if self.recording.case.kind == "ext4" else data)
                except FileSystemError as broken:
                    none = np.zeros(0, np.int64)
                    yield Verdict(cut, none, none, none, none, str(broken))

    def _judge(self, cut: Cut, rows: np.ndarray) -> Verdict:
        numbers = np.arange(DRIVE_SECTORS)
        found = sectors.generations_of(rows, numbers, self.recording.case.seed)
        mark = bisect_left(self._marks, (cut.entries, 0)) - 1  # the last one that the disk had
        least, most = self._journal.flushed[mark], self._journal.begun[mark + 1]
        whole = found != sectors.MIXED
        may_be_torn = ~whole & (least < most) & (not self.direct)
        for number in numbers[may_be_torn]:
            between = np.arange(least[number], most[number] + 1)
            between = between[self._journal.wrote(between, number)]
            parts = sectors.fill(np.full(len(between), number), between, self.recording.case.seed)
            may_be_torn[number] = (parts == rows[number]).any(axis=0).all()
        return Verdict(
            cut,
            lost=numbers[whole & (found < least)],
            mixed=numbers[~whole & ~may_be_torn],
            strange=numbers[whole & ((found > most) | ~self._journal.wrote(found, numbers))],
            torn=numbers[may_be_torn],
        )
