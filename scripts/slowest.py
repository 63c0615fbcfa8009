# SPDX-License-Identifier: Apache-2.0
"""Lists the twenty slowest tests of a JUnit file, and what share of all tests' time they take."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LISTED = 20


def main() -> int:
    """Prints the table for the file ``argv[1]``."""
    times = []
    for case in ElementTree.parse(Path(sys.argv[1])).iter("testcase"):  # noqa: S314 (our own runners wrote it)
        times.append((float(case.get("time", 0)), case.get("name", "")))
    times.sort(reverse=True)
    total = sum(seconds for seconds, _ in times)
    slowest = times[:LISTED]
    share = sum(seconds for seconds, _ in slowest) / total if total else 0.0
    print(f"{total:.0f} s of tests; the slowest {len(slowest)} take {share:.0%}:")
    for seconds, name in slowest:
        print(f"  {seconds:7.1f} s  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
