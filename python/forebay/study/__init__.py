# SPDX-License-Identifier: Apache-2.0
"""Studies: a program run over a grid of drives, what bounds it, and which drive it needs."""

from forebay.study.advice import Advice
from forebay.study.grid import Drive, Grid
from forebay.study.model import Knee, Model, Term, fit
from forebay.study.program import Figures, Plan, Program, load_plan
from forebay.study.runner import Point
from forebay.study.whole import Curve, Study, study

__all__ = [
    "Advice",
    "Curve",
    "Drive",
    "Figures",
    "Grid",
    "Knee",
    "Model",
    "Plan",
    "Point",
    "Program",
    "Study",
    "Term",
    "fit",
    "load_plan",
    "study",
]
