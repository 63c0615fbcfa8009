# SPDX-License-Identifier: Apache-2.0
"""When a measured figure agrees with a published one. The limits were set before anything was measured.

All figures are ratios of two times, or of two counts: 0.57 is a saving of 43 %, and 4.96 is 4.96 times as much.
"""

import math
from dataclasses import dataclass
from typing import Protocol

FACTOR = 2.0
POINTS = 10.0


class Rule(Protocol):
    """Says whether a figure agrees with the published one, and in words when it does, and why so."""

    @property
    def words(self) -> str:
        """When the figure agrees."""

    @property
    def why(self) -> str:
        """Why this is the limit."""

    def holds(self, published: float, ours: float) -> bool:
        """Whether it agrees."""


@dataclass(frozen=True)
class Close:
    """The same direction, and an effect of half to twice the size."""

    words: str = (
        "the same direction; a logarithm of the ratio of half to twice the published one's; and ratios that differ by "
        "a factor of 2 at most"
    )
    why: str = (
        "our choice: the study's hosts C and D differ by a factor of 1.4 to 1.7 in A5, A8 and A9, though by 5.8 in A7, "
        "so another host may differ by 2; more is another effect"
    )

    def holds(self, published: float, ours: float) -> bool:
        """Whether it agrees."""
        if ours <= 0 or (published > 1) != (ours > 1) or ours == 1:
            return False
        share = math.log(ours) / math.log(published)
        return 1 / FACTOR <= share <= FACTOR and 1 / FACTOR <= ours / published <= FACTOR


@dataclass(frozen=True)
class Points:
    """The same direction, and not far off in percentage points."""

    words: str = f"the same direction, and at most {POINTS:g} percentage points from the published figure"
    why: str = (
        "effects of less than 10 % have no factor that says much; the study's hosts differ by 4 points where it "
        "calls an effect neutral (A1), and runs by some more"
    )

    def holds(self, published: float, ours: float) -> bool:
        """Whether it agrees."""
        return (published > 1) == (ours > 1) and ours != 1 and 100 * abs(ours - published) <= POINTS


@dataclass(frozen=True)
class Near:
    """Not far off in percentage points, in either direction."""

    words: str = f"at most {POINTS:g} percentage points from the published figure"
    why: str = (
        "the study calls the effect small, and names no direction; its hosts differ by 4 points where it calls an "
        "effect neutral (A1), and runs by some more"
    )

    def holds(self, published: float, ours: float) -> bool:
        """Whether it agrees."""
        return 100 * abs(ours - published) <= POINTS


@dataclass(frozen=True)
class Neutral:
    """Hardly a change, whatever its direction."""

    percent: float = POINTS
    why: str = "the study calls changes of up to 6.1 % neutral, and single workloads scatter by some more"

    @property
    def words(self) -> str:
        """When the figure agrees."""
        return f"a change of at most {self.percent:g} %, in either direction"

    def holds(self, published: float, ours: float) -> bool:
        """Whether it agrees."""
        del published
        return 100 * abs(ours - 1) <= self.percent


@dataclass(frozen=True)
class Within:
    """Between two bounds that the claim's own words set."""

    low: float
    high: float
    words: str
    why: str

    def holds(self, published: float, ours: float) -> bool:
        """Whether it agrees. The bounds themselves do not."""
        del published
        return self.low < ours < self.high
