# SPDX-License-Identifier: Apache-2.0
"""`python -m forebay`."""

import sys

from forebay.cli import main

sys.exit(main())
