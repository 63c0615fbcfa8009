# SPDX-License-Identifier: Apache-2.0
"""A study as one HTML page, which holds all that it shows and loads nothing."""

import base64
import html
import shlex
from collections.abc import Sequence

from forebay.study.drawing import draw_bytes
from forebay.study.runner import Point
from forebay.study.whole import Study
from forebay.study.words import failures, lines, verdict
from forebay.units import format_ns, format_rate

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
code, td { font-family: ui-monospace, monospace; font-size: 0.85rem; }
table { border-collapse: collapse; } th, td { border: 1px solid #d5dae0; padding: 0.25rem 0.6rem; text-align: left; }
td.number { text-align: right; } tr.bad td { background: #fdf0e2; } img { max-width: 100%; }
.verdict { font-weight: bold; }
"""
_HEADINGS = ("drive", "IOPS", "latency", "time", "fidelity", "runs", "p99", "model", "bound")


def page(study: Study) -> str:
    """Returns the text of the page."""
    image = base64.b64encode(draw_bytes(study)).decode()
    command = shlex.join(study.plan.program.command)
    built = study.document()["forebay"]
    settings = list(study.plan.grid.settings)
    rows = "\n".join(_row(point, modelled, settings) for point, modelled in _with_model(study))
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in (_HEADINGS[0], *settings, *_HEADINGS[1:]))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>forebay study</title><style>{_STYLE}</style></head>
<body>
<h1>Which drive does this program need?</h1>
<p><code>{html.escape(command)}</code></p>
<p class="verdict">{html.escape(verdict(study))}</p>
{_list(lines(study))}
{_problems(failures(study))}
<p><img alt="The points of the study and its model" src="data:image/png;base64,{image}"></p>
<h2>Points</h2>
<table>
<tr>{heads}</tr>
{rows}
</table>
<p>Forebay {html.escape(built["version"])} ({html.escape(built["commit"])}) on {html.escape(built["host"])},
{built["processors"]} processors; threads on {html.escape(_devices(study))}.</p>
</body>
</html>
"""


def _devices(study: Study) -> str:
    found = {point.figures.device for point in study.points if point.figures and point.figures.device}
    return ", ".join(sorted(found)) or "a device that the program does not name"


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(one)}</li>" for one in sentences) + "</ul>" if sentences else ""


def _problems(sentences: Sequence[str]) -> str:
    return f"<h2>Points that say nothing of their drive</h2>{_list(sentences)}" if sentences else ""


def _with_model(study: Study) -> list[tuple[Point, dict[str, object] | None]]:
    told = study.document()["points"]
    return [(point, one["model"]) for point, one in zip(study.points, told, strict=True)]


def _row(point: Point, modelled: dict[str, object] | None, settings: Sequence[str]) -> str:
    found = point.figures
    rate, latency = point.drive.iops(point.request_bytes), point.drive.latency_us
    latencies = found.latency_ns if found is not None else None
    cells = [
        (point.drive.uri, ""),
        *((point.settings.get(name, ""), "number") for name in settings),
        ("-" if rate is None else format_rate(rate), "number"),
        ("-" if latency is None else format_ns(latency * 1000), "number"),
        ("-" if found is None else format_ns(found.seconds * 1e9), "number"),
        (point.fidelity if point.error is None else "failed", ""),
        (str(point.attempts), "number"),
        ("-" if latencies is None else format_ns(latencies["p99"]), "number"),
        ("-" if modelled is None else format_ns(float(str(modelled["seconds"])) * 1e9), "number"),
        ("-" if modelled is None else str(modelled["bound"]), ""),
    ]
    shown = "".join(
        f'<td class="{kind}">{html.escape(text)}</td>' if kind else f"<td>{html.escape(text)}</td>"
        for text, kind in cells
    )
    return f"<tr>{shown}</tr>" if point.good else f'<tr class="bad">{shown}</tr>'
