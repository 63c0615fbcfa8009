# SPDX-License-Identifier: Apache-2.0
"""The program: `forebay`, and `python -m forebay`."""

import os
import sys


def main() -> int:
    """Runs the command line, whose own modules take the longest to load."""
    try:
        from forebay.cli import main as run
    except KeyboardInterrupt:
        if sys.stderr:
            print("forebay: interrupted", file=sys.stderr)
        os._exit(130)
    return run()


if __name__ == "__main__":
    sys.exit(main())
