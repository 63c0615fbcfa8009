# SPDX-License-Identifier: Apache-2.0
"""Records what reaches a disk while a writer works on a drive there.

The disk has two partitions. The first takes the writer's marks. The second is the drive, or has a file system with the
drive in a file. Before the writer starts, each sector of the drive has generation 0.
"""

import json
import shutil
import struct
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import guest
import numpy as np
import sectors

DRIVE_SECTORS = 8192
FILE_SYSTEM_SECTORS = 3 * DRIVE_SECTORS  # with a journal of 4 MiB
MARK_SECTOR = 2048  # the first one of the first partition
DATA_SECTOR = 4096  # of the second
FILE = "drive.img"  # in a file system


@dataclass(frozen=True)
class Case:
    """A drive that a writer works on."""

    name: str  # a word
    kind: str  # "raw": the partition is the drive; "ext4": it has a file system with the drive
    io: str  # of the drive's URI: "uring", "mmap"
    seed: int
    writes: int = 1000
    options: str = ""  # more of the URI: ",key=value"
    drop_flushes: bool = False


@dataclass(frozen=True)
class Recording:
    """What a case has left in a folder."""

    case: Case
    folder: Path

    @property
    def first(self) -> np.ndarray:
        """What the disk held when the writer started, one sector a row."""
        return np.fromfile(self.folder / "first.img", np.uint8).reshape(-1, sectors.BYTES)

    @property
    def last(self) -> np.ndarray:
        """What it held in the end."""
        return np.fromfile(self.folder / "last.img", np.uint8).reshape(-1, sectors.BYTES)

    @property
    def log(self) -> Path:
        """Where its writes are recorded."""
        return self.folder / "writes.log"

    @property
    def journal(self) -> dict:
        """The writer's journal: `events`, and `file`, how the drive says that it reaches its bytes."""
        return json.loads((self.folder / "journal.json").read_text())

    def save(self) -> None:
        """Writes down what the case was; ``load`` finds a recording only after that."""
        (self.folder / "case.json").write_text(json.dumps(asdict(self.case)))

    @classmethod
    def load(cls, folder: Path) -> "Recording":
        """Finds a recording of an earlier run."""
        return cls(Case(**json.loads((folder / "case.json").read_text())), folder)


def file_system(drive: np.ndarray, folder: Path, name: str = FILE) -> np.ndarray:
    """Returns an ext4 file system with the drive in a file, one sector a row. The file has all its blocks."""
    tree, image = folder / "tree", folder / "ext4.img"
    tree.mkdir()
    drive.tofile(tree / name)
    size = f"{FILE_SYSTEM_SECTORS // 2}k"
    make = [guest.program("mkfs.ext4"), "-q", "-F", "-b", "4096", "-d", tree, image, size]
    subprocess.run(make, check=True, capture_output=True)
    rows = np.fromfile(image, np.uint8).reshape(-1, sectors.BYTES)
    shutil.rmtree(tree)
    image.unlink()
    return rows


def _make_disk(case: Case, folder: Path) -> None:
    drive = sectors.fill(np.arange(DRIVE_SECTORS), np.zeros(DRIVE_SECTORS), case.seed)
    data = drive if case.kind == "raw" else file_system(drive, folder)
    disk = np.zeros((DATA_SECTOR + len(data), sectors.BYTES), np.uint8)
    partition = struct.Struct("<B3xB3xII")
    table = partition.pack(0, 0x83, MARK_SECTOR, DATA_SECTOR - MARK_SECTOR) + partition.pack(
        0, 0x83, DATA_SECTOR, len(data)
    )
    disk[0, 446 : 446 + len(table)] = np.frombuffer(table, np.uint8)
    disk[0, 510:] = 0x55, 0xAA
    disk[DATA_SECTOR:] = data
    disk.tofile(folder / "first.img")
    disk.tofile(folder / "last.img")


def _script(cases: list[Case], writer: str) -> str:
    """What the guest does, one case after the other."""
    # The system writes what is dirty at once and all the time, so that a Flush finds some of it written, and some of
    # what is on the disk was never flushed.
    lines = ["cd /proc/sys/vm && echo 1 > dirty_writeback_centisecs && echo 1 > dirty_expire_centisecs"]
    for case in cases:
        here = f"/results/{case.name}"
        marks, drive = (f"/disks/{case.name}.{partition}" for partition in (1, 2))
        lines.append(f"mkdir -p {here} /mnt")
        if case.kind == "ext4":
            lines.append(f"mount -t ext4 {drive} /mnt")
            drive = f"/mnt/{FILE}"
        fault = " --drop-flushes" if case.drop_flushes else ""
        lines.append(
            f"{writer} --drive file:{drive},io={case.io}{case.options} --marks {marks} --seed {case.seed} "
            f"--writes {case.writes} --json {here}/journal.json{fault} > {here}/output 2>&1; echo $? > {here}/status"
        )
        if case.kind == "ext4":
            lines.append("umount /mnt")
    return "\n".join(lines) + "\n"


def record(cases: list[Case], writer: Path, folder: Path) -> dict[str, Recording]:
    """Runs all cases in one guest; each leaves a recording in a folder of its name."""
    recordings = {}
    disks = []
    for case in cases:
        there = folder / case.name
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        _make_disk(case, there)
        recordings[case.name] = Recording(case, there)
        disks.append(guest.Disk(case.name, there / "last.img", there / "writes.log"))
    console = guest.boot(_script(cases, writer.name), [writer], disks, folder)
    for case in cases:
        status, said = ((folder / case.name / name).read_text().strip() for name in ("status", "output"))
        if status != "0":
            raise guest.GuestError(f"the writer of {case.name} ended with {status}: {said}\n{console}")
        recordings[case.name].save()
    return recordings
