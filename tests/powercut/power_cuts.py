# SPDX-License-Identifier: Apache-2.0
"""Cuts the power of drives again and again, and checks what is left: docs/internals/power-cuts.md.

``python tests/powercut/power_cuts.py`` records logs and checks crash images of each. A run that was interrupted goes on
when it is started again. Recordings with a wrong image stay; ``--replay FOLDER --image N`` checks that image again.
"""

import argparse
import itertools
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

# pytest has this folder from pyproject.toml.
sys.path.append(str(Path(__file__).resolve().parents[1] / "guest"))

import guest
from checking import Check, Verdict
from recording import Case, Recording, record

KINDS = ("raw", "ext4")
IOS = ("mmap", "uring")
PYTHON = ".venv/bin/python"
SHOWN = 5  # wrong images of a recording, in words


def writer() -> Path:
    """The program whose drive loses power, in the build that `make test` makes."""
    return guest.built("powercut_writer")


def missing() -> str | None:
    """Says what there is not to record and check with; None where all is there."""
    return guest.missing("mkfs.ext4", "e2fsck", "debugfs")


@dataclass(frozen=True)
class Summary:
    """What the images of one recording have shown."""

    case: Case
    images: int
    flushes: int
    entries: int
    direct: bool  # the drive does not go through the page cache
    wrong: int
    torn: int  # images with a sector that is mixed and may be
    seconds: float


def summarise(recording: Recording, images: int, say: Callable[[str], None]) -> Summary:
    """Checks images of a recording, and says which are wrong and how to see it again."""
    began = time.monotonic()
    check = Check(recording)
    wrong: list[Verdict] = []
    torn = 0
    for verdict in check.verdicts(check.plan(images)):
        torn += len(verdict.torn) > 0
        if not verdict.right:
            wrong.append(verdict)
            if len(wrong) <= SHOWN:
                say(str(verdict))
                say(f"  again: {replay(recording, verdict)}")
    seconds = time.monotonic() - began
    return Summary(
        recording.case, images, check.flushes, check.entries, check.direct, len(wrong), torn, round(seconds, 2)
    )


def replay(recording: Recording, verdict: Verdict) -> str:
    """Returns the command that makes an image of a recording again and checks it."""
    return f"{PYTHON} tests/powercut/power_cuts.py --replay {recording.folder} --image {verdict.cut.number}"


def _say(line: str) -> None:
    print(line, flush=True)


def _replay(folder: Path, number: int) -> int:
    check = Check(Recording.load(folder))
    (verdict,) = check.verdicts(check.plan(1, number))
    _say(str(verdict))
    return 0 if verdict.right else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=20, help="recordings of each kind (20)")
    parser.add_argument("--images", type=int, default=1000, help="crash images of each recording (1000)")
    parser.add_argument("--writes", type=int, default=1000, help="writes in each recording (1000)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what the drive lies in (all)")
    parser.add_argument("--io", nargs="+", choices=IOS, default=IOS, help="how the drive reaches its bytes (all)")
    parser.add_argument("--options", default="", metavar=",KEY=VALUE", help="more of the drive's URI")
    parser.add_argument("--seed", type=int, default=1, help="of the first recording (1); each further one adds 1")
    parser.add_argument(
        "--out", type=Path, default=guest.ROOT / "build/powercut", help="folder for results (build/powercut)"
    )
    parser.add_argument(
        "--writer", type=Path, default=writer(), help="the program that writes (that of the last build)"
    )
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="checks an image of a recording again")
    parser.add_argument("--image", type=int, default=0, help="which image of --replay (0)")
    return parser.parse_args()


def main() -> int:
    """Does what the arguments say; 1: an image was wrong, 2: it cannot start."""
    given = _arguments()
    if given.replay:
        return _replay(given.replay, given.image)
    if reason := missing():
        _say(f"power_cuts: {reason}")
        return 2
    if not given.writer.is_file():
        _say(f"power_cuts: there is no {given.writer}: `scripts/build cpu powercut_writer` builds it")
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    results = given.out / "results.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    _say(f"guests run under {guest.accelerator()}; results in {results}")

    for seed in range(given.seed, given.seed + given.logs):
        cases = [
            Case(f"{kind}-{io}-{seed}", kind, io, seed, given.writes, given.options)
            for kind in given.kinds
            for io in given.io
        ]
        left = [c for c in cases if not any(r["case"] == asdict(c) and r["images"] == given.images for r in done)]
        if not left:
            continue
        for name, recording in record(left, given.writer, given.out).items():
            summary = summarise(recording, given.images, _say)
            _say(
                f"{name}: {summary.images} images of {summary.entries} entries and {summary.flushes} flushes: "
                f"{summary.wrong} wrong, {summary.torn} torn; {summary.images / summary.seconds:.0f} images/s"
            )
            done.append(asdict(summary))
            with results.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            if not summary.wrong:
                shutil.rmtree(recording.folder)
    for kind, io in itertools.product(given.kinds, given.io):
        of_both = [result for result in done if (result["case"]["kind"], result["case"]["io"]) == (kind, io)]
        images, wrong, torn = (sum(result[key] for result in of_both) for key in ("images", "wrong", "torn"))
        _say(f"{kind}, io={io}: {len(of_both)} recordings, {images} images: {wrong} wrong, {torn} torn")
    wrong = sum(result["wrong"] for result in done)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
