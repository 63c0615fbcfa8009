# SPDX-License-Identifier: Apache-2.0
"""What a build of an index is asked for, checked."""

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str, int, int], None]
"""Called now and then with the name of a step, and how much of how much of it is done."""


@dataclass(frozen=True)
class BuildOptions:
    """Options that were checked.

    Attributes:
        chunks: The bytes of a code.
        seed: What is drawn at random, is drawn from it.
        device: ``cpu``, or ``cuda:N``, where PyTorch computes.
        replace: Take the place of an index of that name.
        progress: Told of the progress; None: nobody is.
    """

    chunks: int
    seed: int
    device: str
    replace: bool
    progress: Progress | None

    def tell(self, step: str, done: int, total: int) -> None:
        """Tells of the progress."""
        if self.progress:
            self.progress(step, done, total)
