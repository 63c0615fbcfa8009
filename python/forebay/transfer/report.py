# SPDX-License-Identifier: Apache-2.0
"""The report of the transfer suite: a folder with a page, its charts as PNG files, and the verdicts on claims."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay.files import replacing
from forebay.provenance import build_and_host
from forebay.transfer.claims import VERDICTS, Verdict, all_commands
from forebay.transfer.measured import Results

PAGE, CLAIMS = "index.html", "claims.json"
_SCHEMA_VERSION = 1


def document(results: Results, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What `claims.json` holds: a verdict for each claim, and what it rests on."""
    return {
        "gpu": results.gpu,
        "files": [dict(source.__dict__) for source in results.sources],
        "counts": {name: sum(one.verdict == name for one in verdicts) for name in VERDICTS},
        "commands": all_commands(results),
        "claims": [one.document() for one in verdicts],
        "forebay": build_and_host(),
    }


def write(results: Results, verdicts: Sequence[Verdict], out: Path) -> list[Path]:
    """Writes the report into a folder that is there, each file whole or not at all. Returns the files."""
    # Only here, because it takes long to load.
    from forebay.plots import figure_bytes
    from forebay.transfer.drawing import charts
    from forebay.transfer.page import page

    drawn = {name: (shows, figure_bytes(figure)) for name, shows, figure in charts(results)}
    told = json.dumps({"schema_version": _SCHEMA_VERSION, **document(results, verdicts)}, indent=2, allow_nan=False)
    files = {name: png for name, (_, png) in drawn.items()}
    files[CLAIMS] = told.encode() + b"\n"
    files[PAGE] = page(results, verdicts, drawn).encode()  # last: where it is, the others are
    for name, data in files.items():
        with replacing("--out", out / name) as file:
            file.write(data)
    return [out / name for name in files]
