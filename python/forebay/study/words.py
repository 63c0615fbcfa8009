# SPDX-License-Identifier: Apache-2.0
"""What a study found, in sentences."""

from forebay.study.advice import MODEL_ERROR_MAX, knee_lines
from forebay.study.grid import differences
from forebay.study.model import COMPUTE, Model
from forebay.study.runner import Point
from forebay.study.whole import Curve, Study
from forebay.units import format_bytes, format_count, format_ns

_PASS, _FAIL = "study: PASS", "study: FAIL"


def verdict(study: Study) -> str:
    """The last line: whether each point says something of its drive."""
    return _PASS if study.verified else _FAIL


def failures(study: Study) -> list[str]:
    """What is wrong with each point that is not good, with its drive."""
    found = []
    for point in study.points:
        named = ", ".join([point.drive.uri, *(f"{name}={value}" for name, value in point.settings.items())])
        if point.error is not None:
            found.append(f"{named}: {point.error}")
        elif point.figures is not None and point.figures.verified is False:
            found.append(f"{named}: the program says that its result is wrong")
        elif point.fidelity == "exceeded":
            tries = format_count(point.attempts, "run")
            found.append(
                f"{named}: the drive did not keep its times in {tries}; use slower drives or a machine at rest"
            )
        elif point.fidelity == "unknown":
            found.append(f"{named}: the program does not say its fidelity; add what the storage reports, or --fidelity")
    return found


def lines(study: Study) -> list[str]:
    """The model, the knee, the drives that matter and the tax, a sentence each."""
    found = []
    _, drives = differences([curve.drive or "" for curve in study.curves])
    for curve, drive in zip(study.curves, drives, strict=True):
        named = _named(curve, drive) if len(study.curves) > 1 else ""
        if curve.model is not None:
            found.append(f"{named}{_model(curve.model)}")
            found += [f"{named}{line}" for line in knee_lines(curve.knee())]
    found += _advice(study) + _meets(study) + _tax(study)
    return found


def _named(curve: Curve, drive: str) -> str:
    parts = [*([drive] if drive else []), *(f"{name}={value}" for name, value in curve.settings.items())]
    return f"{', '.join(parts)}: "


def _model(model: Model) -> str:
    shows = {
        COMPUTE: lambda value: format_ns(value * 1e9),
        "iops": lambda value: f"{value:.4g} reads / IOPS",
        "link": lambda value: f"{format_bytes(value)} / link",
        "latency": lambda value: f"{value:.4g} x latency",
    }
    terms = [shows[term.name](term.coefficient) for term in model.terms if term.found]
    shape = f"max({', '.join(terms)})" if len(terms) > 1 else terms[0]
    doubt = "; the program is not of this form" if model.error_max > MODEL_ERROR_MAX else ""
    return f"model: {shape}, off by {100 * model.error_max:.2g} % at most{doubt}"


def _advice(study: Study) -> list[str]:
    advice = study.advice
    if advice is None:
        return []
    within = f"within {100 * advice.tolerance:g} % of the best"
    found = [f"suffices: {advice.suffices.drive.uri}, {_time(advice.suffices)}, {within}"]
    if advice.following is not None and advice.gain is not None:
        percent = 100 * (advice.gain - 1)
        change = f"the program is {abs(percent):.1f} % {'faster' if percent >= 0 else 'slower'}"
        found.append(f"next faster: {advice.following.drive.uri}, {_time(advice.following)}; {change}")
    else:
        found.append("next faster: none in the grid; add a faster drive to see whether it brings anything")
    return found


def _time(point: Point) -> str:
    return "-" if point.figures is None else format_ns(point.figures.seconds * 1e9)


def _meets(study: Study) -> list[str]:
    if study.p99_us is None:
        return []
    limit = f"p99 of at most {format_ns(study.p99_us * 1000)}"
    if study.meets_p99 is None or study.meets_p99.figures is None or study.meets_p99.figures.latency_ns is None:
        return [f"no drive of the grid has a {limit}"]
    return [f"{limit}: {study.meets_p99.drive.uri}, {format_ns(study.meets_p99.figures.latency_ns['p99'])}"]


def _tax(study: Study) -> list[str]:
    found = []
    for variant in (study.tax or {}).get("variants", ()):
        if variant["error"] is not None:
            found.append(f"tax: {variant['how']}: not measured: {variant['error']}")
        elif variant["fidelity"] != "ok":
            found.append(f"tax: {variant['how']}: no figure: the drive did not keep its times")
        elif variant["tax"] is None:
            found.append(f"tax: {variant['how']}: {format_ns(variant['seconds'] * 1e9)}")
        else:
            time = format_ns(variant["seconds"] * 1e9)
            found.append(f"tax: {variant['how']}: {time}, tax {100 * variant['tax']:+.1f} %")
    return found
