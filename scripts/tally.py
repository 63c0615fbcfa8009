# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files and closes with one line: ``total: N passed, N failed, N skipped``."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def tally(file: Path) -> tuple[int, int, int]:
    """Counts the passed, failed and skipped test cases of one JUnit file."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(file).iter("testcase"):  # noqa: S314 (our own runners wrote it)
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main() -> int:
    """Prints a line for each file in the folder ``argv[1]`` and the total; fails if a test failed or none passed."""
    files = sorted(Path(sys.argv[1]).glob("*.xml"))
    counts = [tally(file) for file in files]
    for file, (passed, failed, skipped) in zip(files, counts, strict=True):
        print(f"{file.stem}: {passed} passed, {failed} failed, {skipped} skipped")
    passed, failed, skipped = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    print(f"total: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
