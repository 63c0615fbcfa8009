# SPDX-License-Identifier: Apache-2.0
"""The claims A1 to A21 of the published study of ways to move data, and what results say of each.

A claim is a list of figures, each with a rule that says when ours agrees. It is refuted if one of them does not agree,
confirmed if all do, and else not measured.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forebay.transfer.measured import Results
from forebay.transfer.measures import (
    LARGEST,
    BestSpeedup,
    Counted,
    JobsSpeedup,
    Measure,
    Measurement,
    NotMeasuredError,
    OverStandard,
    Swept,
)
from forebay.transfer.rules import Close, Near, Neutral, Points, Rule, Within
from forebay.transfer.shapes import Need, commands

CONFIRMED, REFUTED = "confirmed", "refuted"
NOT_TESTABLE, NOT_MEASURED = "not testable here", "not measured"
VERDICTS = (CONFIRMED, REFUTED, NOT_TESTABLE, NOT_MEASURED)


def saving(percent: float) -> float:
    """The ratio of times that a published saving is: 43.43 % saved is 0.5657, and -196.43 % is 2.9643."""
    return 1 - percent / 100


def change(percent: float) -> float:
    """The ratio that a published change is: -42.42 % is 0.5758."""
    return 1 + percent / 100


def show_saving(ratio: float) -> str:
    """A ratio of times as a saving."""
    return f"{100 * (1 - ratio):+.2f} %"


def show_change(ratio: float) -> str:
    """A ratio as a change."""
    return f"{100 * (ratio - 1):+.2f} %"


def show_factor(ratio: float) -> str:
    """A ratio as a factor."""
    return f"{ratio:.2f} x"


def show_share(ratio: float) -> str:
    """A part of a whole."""
    return f"{100 * ratio:.1f} %"


@dataclass(frozen=True)
class Figure:
    """One figure of a claim. Without a rule it is shown and not judged; without a published ratio none is known."""

    name: str
    measure: Measure
    rule: Rule | None = None
    published: float = math.nan
    shown: Any = show_saving


@dataclass(frozen=True)
class Claim:
    """A claim of the study in words, with what it published and how it is tested."""

    id: str
    says: str
    published: str
    host: str
    figures: tuple[Figure, ...]
    note: str = ""

    @property
    def testable(self) -> bool:
        """Whether a host like ours has a figure to compare with."""
        return any(figure.rule is not None for figure in self.figures)


@dataclass(frozen=True)
class Found:
    """What results say of one figure: `agrees` is None if it was not measured or is not judged."""

    figure: Figure
    measurement: Measurement | None
    agrees: bool | None
    lacks: str = ""
    needs: tuple[Need, ...] = ()

    @property
    def text(self) -> str:
        """Our figure in words, or why there is none."""
        if self.measurement is None:
            return f"{self.figure.name}: {self.lacks}"
        return f"{self.figure.name}: {self.figure.shown(self.measurement.ratio)}"


@dataclass(frozen=True)
class Verdict:
    """What results say of a claim."""

    claim: Claim
    found: tuple[Found, ...]
    needs: tuple[Need, ...] = field(default=())  # all that the claim needs

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if not self.claim.testable:
            return NOT_TESTABLE
        judged = [found.agrees for found in self.found if found.figure.rule is not None]
        if False in judged:
            return REFUTED
        return CONFIRMED if all(judged) else NOT_MEASURED

    @property
    def differs_in(self) -> str:
        """Of a refuted claim: `direction` if a figure that does not agree points the other way, else `size`."""
        if self.verdict != REFUTED:
            return ""
        wrong = [found for found in self.found if found.agrees is False]
        return "direction" if any(_points_away(found) for found in wrong) else "size"

    @property
    def shown(self) -> str:
        """The verdict for a reader."""
        return f"{self.verdict} in {self.differs_in}" if self.differs_in else self.verdict

    @property
    def remarks(self) -> list[str]:
        """What is to be said about the measurements, each once."""
        said = (remark for found in self.found if found.measurement for remark in found.measurement.remarks)
        return list(dict.fromkeys(said))

    @property
    def lacking(self) -> list[str]:
        """The commands that give what lacks."""
        judged = [found for found in self.found if found.measurement is None]
        return commands(dict.fromkeys(need for found in judged for need in found.needs))

    def document(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        claim = self.claim
        return {
            "id": claim.id,
            "says": claim.says,
            "published": claim.published,
            "host": claim.host,
            "verdict": self.verdict,
            "differs_in": self.differs_in or None,
            "note": claim.note,
            "remarks": self.remarks,
            "figures": [_figure(found) for found in self.found],
            "commands": commands(self.needs),
            "missing_commands": self.lacking,
        }


def _points_away(found: Found) -> bool:
    if isinstance(found.figure.rule, Neutral | Near):
        return False  # the rule takes either direction
    if math.isnan(found.figure.published):
        return True  # the claim has no size, so what does not agree is its direction
    return found.measurement is not None and (found.measurement.ratio > 1) != (found.figure.published > 1)


def _figure(found: Found) -> dict[str, Any]:
    figure, measured = found.figure, found.measurement
    return {
        "name": figure.name,
        "measures": figure.measure.words,
        "published_ratio": None if math.isnan(figure.published) else figure.published,
        "published": "" if math.isnan(figure.published) else figure.shown(figure.published),
        "ratio": None if measured is None else measured.ratio,
        "ours": None if measured is None else figure.shown(measured.ratio),
        "agrees": found.agrees,
        "agrees_if": figure.rule.words if figure.rule else "shown, not judged",
        "why": figure.rule.why if figure.rule else "",
        "missing": found.lacks,
        "remarks": list(measured.remarks) if measured else [],
    }


def judge(results: Results) -> list[Verdict]:
    """What the results say of each claim, in the order of the claims."""
    return [
        Verdict(claim, tuple(_found(figure, results) for figure in claim.figures), tuple(_needs(claim, results)))
        for claim in CLAIMS
    ]


def all_commands(results: Results) -> list[str]:
    """The commands that measure all that the claims rest on."""
    return commands(dict.fromkeys(need for claim in CLAIMS for need in _needs(claim, results)))


def _needs(claim: Claim, results: Results) -> Iterator[Need]:
    yield from dict.fromkeys(need for figure in claim.figures for need in figure.measure.needs(results))


def _found(figure: Figure, results: Results) -> Found:
    try:
        measured = figure.measure(results)
    except NotMeasuredError as lacks:
        return Found(figure, None, None, lacks.why, lacks.needs)
    agrees = None if figure.rule is None else figure.rule.holds(figure.published, measured.ratio)
    return Found(figure, measured, agrees)


def _both_sizes(
    of: str, mode: str, percents: tuple[float, float], rule: Rule | None, what: str = "total", name: str = ""
) -> tuple[Figure, ...]:
    """A figure for super and one for mega."""
    sizes = zip(("super", "mega"), percents, strict=True)
    return tuple(
        Figure(f"{name}{size}", OverStandard(of, mode, (size,), what), rule, saving(percent)) for size, percent in sizes
    )


_UNKNOWN = (math.nan, math.nan)
_LOCKED_APART = (
    "Our totals leave out page-locking, because a program may lock its memory once for many uses. What it costs "
    "stands beside."
)

_SWEPT_TOTALS = "What lies outside kernels is the same work, so its mean counts."

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "A1",
        "Asynchronous copies to shared memory alone hardly change the total time of the micro workloads.",
        "-2.05 % / -1.72 % saved (super/mega, host C), -6.12 % / -4.91 % (D)",
        "C, D",
        _both_sizes("micro", "async", (-6.12, -4.91), Neutral()),
    ),
    Claim(
        "A2",
        "Asynchronous copies to shared memory shorten the kernel of vector_seq by much, its total time by little.",
        "kernel -42.42 %, total +7.37 % saved (mega)",
        "D",
        (
            Figure(
                "kernel",
                OverStandard(("vector_seq",), "async", LARGEST, "kernels", "mega", "mega"),
                Close(),
                change(-42.42),
                show_change,
            ),
            Figure(
                "total",
                OverStandard(("vector_seq",), "async", LARGEST, published_at="mega", asked="mega"),
                Points(),
                saving(7.37),
            ),
        ),
    ),
    Claim(
        "A3",
        "Asynchronous copies to shared memory make the kernel of the stencil in a cube (conv3d) much longer.",
        "kernel +143.37 % (mega)",
        "D",
        (
            Figure(
                "kernel",
                OverStandard(("conv3d",), "async", LARGEST, "kernels", "mega", "mega"),
                Close(),
                change(143.37),
                show_change,
            ),
        ),
        note="In the published kernel every thread loads the whole border of its tile. That may explain its time.",
    ),
    Claim(
        "A4",
        "Managed memory halves the time of the micro workloads on one host, and nearly doubles it on another.",
        "+48.13 % / +50.53 % saved (super/mega, host C); -93.43 % / -84.67 % (B)",
        "B, C",
        _both_sizes("micro", "uvm", _UNKNOWN, None),
        note="The study has no figure of host D.",
    ),
    Claim(
        "A5",
        "Page-locked host memory makes the micro workloads much faster.",
        "+57.82 % / +56.63 % saved (super/mega, host C), +16.99 % / +18.56 % (B), +43.43 % / +45.02 % (D)",
        "B, C, D",
        (
            *_both_sizes("micro", "pm", (43.43, 45.02), Close()),
            *_both_sizes("micro", "pm", _UNKNOWN, None, "locked", "with page-locking, "),
        ),
        note=_LOCKED_APART,
    ),
    Claim(
        "A6",
        "Asynchronous copies on top of managed or page-locked memory keep the gain of that memory.",
        "uvm_async +49.21 %, pm_async +55.28 % saved (micro workloads, mega)",
        "C",
        (
            Figure("uvm_async", OverStandard("micro", "uvm_async", LARGEST)),
            Figure("pm_async", OverStandard("micro", "pm_async", LARGEST)),
        ),
        note="The study has no figure of host D.",
    ),
    Claim(
        "A7",
        "Managed memory brings applications little on host D, while it helps on C and hurts on B.",
        "+23.99 % saved (host C), +4.61 % (D), -41.68 % (B); mega",
        "B, C, D",
        (Figure("uvm", OverStandard("application", "uvm", LARGEST, published_at="mega"), Near(), saving(4.61)),),
    ),
    Claim(
        "A8",
        "Page-locked host memory makes applications faster.",
        "+33.90 % saved (host C), +22.80 % (D)",
        "C, D",
        (
            Figure("pm", OverStandard("application", "pm", LARGEST), Close(), saving(22.80)),
            Figure("with page-locking", OverStandard("application", "pm", LARGEST, "locked")),
        ),
        note=_LOCKED_APART,
    ),
    Claim(
        "A9",
        "Managed and page-locked memory save about half of the applications' copy time or more.",
        "copies: uvm +67.35 % saved (host C), +48.03 % (D); pm +71.39 % (C), +58.04 % (D)",
        "C, D",
        (
            Figure("uvm", OverStandard("application", "uvm", LARGEST, "copies"), Close(), saving(48.03)),
            Figure("pm", OverStandard("application", "pm", LARGEST, "copies"), Close(), saving(58.04)),
        ),
    ),
    Claim(
        "A10",
        "Asynchronous copies to shared memory alone hardly change the total time of applications.",
        "-0.35 % saved (host C), +0.43 % (D)",
        "C, D",
        (Figure("async", OverStandard("application", "async", LARGEST), Neutral(), saving(0.43)),),
    ),
    Claim(
        "A11",
        "Asynchronous copies make LU decomposition (lud) faster, and the search for nearest neighbours (knn) slower.",
        "lud +20.03 %, knn -25.22 % saved",
        "D",
        (
            Figure("lud", OverStandard(("lud",), "async", LARGEST), Close(), saving(20.03)),
            Figure("knn", OverStandard(("knn",), "async", LARGEST), Close(), saving(-25.22)),
        ),
        note="The published asynchronous kernels of both leave out work or use stale data. Ours compute the same as "
        "the others, and are verified.",
    ),
    Claim(
        "A12",
        "Managed memory makes the kernels of kmeans longer; with asynchronous copies they are shorter.",
        "kernels: uvm_async -8.38 %, uvm +9.94 %",
        "D",
        tuple(
            Figure(mode, OverStandard(("kmeans",), mode, LARGEST, "kernels"), Points(), change(percent), show_change)
            for mode, percent in (("uvm_async", -8.38), ("uvm", 9.94))
        ),
    ),
    Claim(
        "A13",
        "The gain is greatest where access is predictable and copies dominate, as in the stencil in an image (conv2d).",
        "up to 4.96 x",
        "not stated",
        (
            Figure("best", BestSpeedup(), Close(), 4.96, show_factor),
            Figure(
                "not in kernels",
                BestSpeedup(share=True),
                Within(0.5, 1.01, "more than half of the time", "what takes half of the time dominates it"),
                shown=show_share,
            ),
        ),
        note="Whether access is predictable is not tested.",
    ),
    Claim(
        "A14",
        "Page-locked memory makes networks slower, inference most of all, though it saves copy time.",
        "inference -196.43 %, training -25.30 % saved; copies 29.75 % / 49.14 % saved",
        "D",
        (
            Figure("inference", OverStandard("inference", "pm", LARGEST, "locked"), Close(), saving(-196.43)),
            Figure("training", OverStandard("training", "pm", LARGEST, "locked"), Close(), saving(-25.30)),
            Figure("copies of inference", OverStandard("inference", "pm", LARGEST, "copies"), Close(), saving(29.75)),
            Figure("copies of training", OverStandard("training", "pm", LARGEST, "copies"), Close(), saving(49.14)),
            Figure("inference without page-locking", OverStandard("inference", "pm", LARGEST)),
            Figure("training without page-locking", OverStandard("training", "pm", LARGEST)),
        ),
        note="The study's reason is that networks lock memory again and again, so here page-locking counts.",
    ),
    Claim(
        "A15",
        "Asynchronous copies change how many instructions kernels execute, up or down with the workload.",
        "control: knn +66.62 %; memory: vector_seq -15.62 %, conv3d +107.82 %, lud +17.49 %, knn +43.40 %",
        "not stated",
        tuple(
            Figure(f"{counter}, {name}", Counted(counter, (name,)), Close(), change(percent), show_change)
            for counter, name, percent in (
                ("control", "knn", 66.62),
                ("memory", "vector_seq", -15.62),
                ("memory", "conv3d", 107.82),
                ("memory", "lud", 17.49),
                ("memory", "knn", 43.40),
            )
        ),
    ),
    Claim(
        "A16",
        "Asynchronous copies change how fast kernels read global memory, up or down with the workload.",
        "vector_seq +73.55 %, lud +26.58 %, conv3d -59.44 %, knn -11.07 %",
        "not stated",
        tuple(
            Figure(name, Counted("bytes", (name,), rate=True), Close(), change(percent), show_change)
            for name, percent in (("vector_seq", 73.55), ("lud", 26.58), ("conv3d", -59.44), ("knn", -11.07))
        ),
        note="Bytes that come from the L2 cache count, by whichever kind of load.",
    ),
    Claim(
        "A17",
        "With managed memory kernels read global memory more slowly.",
        "-68.28 % (host B), -38.90 % (D)",
        "B, D",
        (
            Figure("by ncu", Counted("bytes", (), mode="uvm", rate=True), Close(), change(-38.90), show_change),
            Figure("timed", OverStandard("micro", "uvm", LARGEST, "rate"), None, change(-38.90), show_change),
        ),
        note="The profiler ncu runs a kernel of managed memory once before it counts, so it sees no faults of pages. "
        "Timed kernels see them. They are shown and not judged, because they write as well as read.",
    ),
    Claim(
        "A18",
        "How many blocks a launch has hardly matters.",
        "about 2 %",
        "D",
        tuple(
            Figure(
                mode,
                Swept("blocks", "total", mode, spread=True),
                Neutral(5.0, "twice the published 2 % is still little, and runs scatter by a percent"),
                change(2),
                show_change,
            )
            for mode in ("standard", "async")
        ),
        note=_SWEPT_TOTALS,
    ),
    Claim(
        "A19",
        "How many threads a block has matters much, and asynchronous copies help most where there are few.",
        "kernel 17.79 x with 32 threads over 1024; async saves 28.58 % of it with 32, 4.67 % with 1024",
        "D",
        (
            Figure("32 over 1024", Swept("threads", "kernels", value=32, base=1024), Close(), 17.79, show_factor),
            Figure(
                "async at 32",
                Swept("threads", "kernels", "async", value=32, over_standard=True),
                Close(),
                saving(28.58),
            ),
            Figure(
                "async at 1024",
                Swept("threads", "kernels", "async", value=1024, over_standard=True),
                Points(),
                saving(4.67),
            ),
        ),
    ),
    Claim(
        "A20",
        "More shared memory helps a little up to 64 KB. At 128 KB asynchronous copies save more, but all is slower.",
        "+1.4 % to +3.5 % saved from 2 to 64 KB; async saves 4.84 % at 2 KB, 9.13 % at 128 KB, total worse",
        "D",
        (
            *(
                Figure(
                    f"2 to 64 KB, {mode}",
                    Swept("tile", "total", mode, value=64, base=2),
                    Points(),
                    saving(2.45),
                )
                for mode in ("standard", "async")
            ),
            *(
                Figure(
                    f"async at {kib} KB",
                    Swept("tile", "kernels", "async", value=kib, over_standard=True),
                    Points(),
                    saving(percent),
                )
                for kib, percent in ((2, 4.84), (128, 9.13))
            ),
            Figure(
                "async, 128 over 2 KB",
                Swept("tile", "kernels", "async", value=128, base=2, over_standard=True),
                Within(0, 1, "less time at 128 KB than at 2 KB", "the claim is that async saves more"),
                saving(9.13) / saving(4.84),
            ),
            Figure(
                "64 to 128 KB",
                Swept("tile", "total", "async", value=128, base=64),
                Within(1, math.inf, "more time at 128 KB than at 64 KB", "the claim is that all is slower"),
            ),
        ),
        note=f"{_SWEPT_TOTALS} The middle of the published 1.4 % and 3.5 % stands for both.",
    ),
    Claim(
        "A21",
        "Allocating the memory of the next job while one runs makes a series of jobs faster, but not of tiny ones.",
        "up to 1.44 x; tiny loses; mega ran out of memory",
        "D",
        (
            Figure("best", JobsSpeedup(), Close(), 1.44, show_factor),
            Figure(
                "tiny",
                JobsSpeedup(tiny=True),
                Within(0, 1, "slower than without", "the claim is that tiny jobs lose"),
                shown=show_factor,
            ),
        ),
        note="The study compares with cudaMalloc, so this mixes a memory pool with overlap. The other arms tell them "
        "apart.",
    ),
)
