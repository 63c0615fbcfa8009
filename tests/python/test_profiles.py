# SPDX-License-Identifier: Apache-2.0
"""The profiles that are shipped, and the page that lists them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_lists_each_profile_once():
    page = (ROOT / "docs/reference/profiles.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \|", page.split("## Format")[0], re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "profiles").glob("*.toml"))
