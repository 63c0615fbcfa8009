# SPDX-License-Identifier: Apache-2.0
"""A study as one HTML page, which holds all that it shows and loads nothing."""

import shlex
from collections.abc import Sequence

from forebay.html_page import Cell, bullets, document, element, image, table
from forebay.study.drawing import draw_bytes
from forebay.study.runner import Point
from forebay.study.whole import Study
from forebay.study.words import failures, lines, verdict
from forebay.units import format_ns, format_rate

_HEADINGS = ("drive", "IOPS", "latency", "time", "fidelity", "runs", "p99", "model", "bound")


def page(study: Study) -> str:
    """Returns the text of the page."""
    built = study.document()["forebay"]
    settings = list(study.plan.grid.settings)
    rows = ((_cells(point, modelled, settings), point.good) for point, modelled in _with_model(study))
    return document(
        "forebay study",
        element("h1", "Which drive does this program need?"),
        f"<p>{element('code', shlex.join(study.plan.program.command))}</p>",
        element("p", verdict(study), **{"class": "verdict"}),
        bullets(lines(study)),
        _problems(failures(study)),
        image("The points of the study and its model", draw_bytes(study)),
        element("h2", "Points"),
        table((_HEADINGS[0], *settings, *_HEADINGS[1:]), rows),
        element(
            "p",
            f"Forebay {built['version']} ({built['commit']}) on {built['host']}, {built['processors']} processors; "
            f"threads on {_devices(study)}.",
        ),
    )


def _devices(study: Study) -> str:
    found = {point.figures.device for point in study.points if point.figures and point.figures.device}
    return ", ".join(sorted(found)) or "a device that the program does not name"


def _problems(sentences: Sequence[str]) -> str:
    return element("h2", "Points that say nothing of their drive") + bullets(sentences) if sentences else ""


def _with_model(study: Study) -> list[tuple[Point, dict[str, object] | None]]:
    told = study.document()["points"]
    return [(point, one["model"]) for point, one in zip(study.points, told, strict=True)]


def _cells(point: Point, modelled: dict[str, object] | None, settings: Sequence[str]) -> list[Cell]:
    found = point.figures
    rate, latency = point.drive.iops(point.request_bytes), point.drive.latency_us
    latencies = found.latency_ns if found is not None else None
    return [
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
