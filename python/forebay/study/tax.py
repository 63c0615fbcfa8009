# SPDX-License-Identifier: Apache-2.0
"""The emulation tax: what a program pays because the machine that runs it emulates its drive too.

A drive of the program's own process takes processors, or multiprocessors, from the program. The same drive elsewhere,
and an idle drive beside it, show how much that matters. What a machine cannot measure is named with the reason.
"""

import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay import daemon
from forebay.errors import OperationFailed
from forebay.storage import build_info
from forebay.study.grid import Drive, with_keys
from forebay.study.program import OWN_COMMAND, NoFigureError, Program
from forebay.study.runner import ATTEMPTS_DEFAULT, run_once

RUNS = 3

_IDLE_SEED = 0x1D1E  # another URI, and so another drive
_GPU_BACKINGS = ("backing=hbm", "backing=host", "backing=peer:")


@dataclass(frozen=True)
class Variant:
    """One way to have the drive.

    Attributes:
        name: ``as_studied``, ``served``, ``beside_idle`` or ``peer``.
        how: What was measured, in words.
        drive: The URI that the program got; None if it was not run.
        seconds: The median time; None likewise.
        fidelity: ``ok`` if the drive kept its times in each run, else what one of them said; None likewise.
        error: Why it was not measured, or failed.
    """

    name: str
    how: str
    drive: str | None = None
    seconds: float | None = None
    fidelity: str | None = None
    error: str | None = None


def measure_tax(program: Program, drive: Drive, settings: Mapping[str, str]) -> dict[str, Any]:
    """Runs a program on a drive in several places.

    Args:
        program: The program.
        drive: The drive.
        settings: The values of the program's settings.

    Returns:
        What a JSON document says of it: ``drive``, ``runs`` (each time is the median of so many) and ``variants[]``,
        which have ``name``, ``how``, ``drive``, ``seconds``, ``fidelity``, ``tax`` and ``error``. ``tax`` is by which
        part the drive as studied is slower than elsewhere, or by which part an idle drive makes the program slower;
        None unless both drives kept their times.

    Raises:
        RefusedInput: The program cannot be started.
    """
    served = with_keys(drive.uri, {"residency": "served"})
    variants = [_measure("as_studied", "the drive as studied", program, drive.uri, settings, {})]
    variants += _beside_daemon(program, drive.uri, served, settings)
    variants.append(_on_peer(program, drive.uri, settings))
    return {
        "drive": drive.uri,
        "runs": RUNS,
        "variants": [{**vars(variant), "tax": _tax(variant, variants[0])} for variant in variants],
    }


def _tax(variant: Variant, base: Variant) -> float | None:
    """The tax; None if a drive did not keep its times: a time is then the machine's, and not the drive's."""
    if variant is base or base.seconds is None or variant.seconds is None:
        return None
    if base.fidelity != "ok" or variant.fidelity != "ok":
        return None
    if variant.name == "beside_idle":
        return variant.seconds / base.seconds - 1
    return base.seconds / variant.seconds - 1


def _measure(
    name: str, how: str, program: Program, uri: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Variant:
    seconds, fidelities = [], []
    command = program.words(uri, settings)
    try:
        for _ in range(RUNS):
            for _ in range(ATTEMPTS_DEFAULT):
                found = program.figures(run_once(command, program.timeout_s, {**os.environ, **environment}))
                if found.fidelity != "exceeded":
                    break
            seconds.append(found.seconds)
            fidelities.append(found.fidelity)
    except (OperationFailed, NoFigureError) as failed:
        return Variant(name, how, uri, error=str(failed))
    fidelity = next((one for one in fidelities if one != "ok"), "ok")
    return Variant(name, how, uri, statistics.median(seconds), fidelity)


def _beside_daemon(program: Program, uri: str, served: str, settings: Mapping[str, str]) -> list[Variant]:
    hows = {
        "served": "the same drive, in a process of its own (residency=served)",
        "beside_idle": "the drive as studied, and an idle one like it in a process of its own",
    }
    if not uri.startswith("emulated:") or "backing=file" in uri or "residency=served" in uri:
        why = "only for emulated drives that are neither in a file nor served already"
        return [Variant(name, how, error=why) for name, how in hows.items()]
    try:
        with _daemon() as environment:
            first = _measure("served", hows["served"], program, served, settings, environment)
        with _daemon() as environment:
            _open_idle(with_keys(served, {"seed": str(_IDLE_SEED)}), environment, program.timeout_s)
            second = _measure("beside_idle", hows["beside_idle"], program, uri, settings, environment)
    except OperationFailed as failed:
        return [Variant(name, how, error=str(failed)) for name, how in hows.items()]
    return [first, second]


@contextlib.contextmanager
def _daemon() -> Iterator[dict[str, str]]:
    """A daemon of this study's own; yields what its clients need in their environment."""
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder, daemon.shared_gpu() as variables:
        path = str(Path(folder, "daemon.sock"))
        environment = {**variables, daemon.VARIABLE: path}
        with daemon.running(path, {**os.environ, **environment}):
            yield environment


def _open_idle(uri: str, environment: Mapping[str, str], timeout_s: float) -> None:
    """Has the daemon open a drive, which it then keeps, although it has nothing to do."""
    client = [OWN_COMMAND, "bench", "randread", "--drive", uri, "--bs", "4k", "--size", "4k", "--json", "-"]
    run_once(client, timeout_s, {**os.environ, **environment})


def _on_peer(program: Program, uri: str, settings: Mapping[str, str]) -> Variant:
    how = "the same drive, on another GPU (backing=peer:1)"
    gpus = len(build_info()["gpus"])
    if gpus < 2:
        return Variant("peer", how, error=f"needs two GPUs; this machine has {gpus}")
    if not any(backing in uri for backing in _GPU_BACKINGS):
        return Variant("peer", how, error="only for drives on a GPU")
    elsewhere = with_keys(uri, {"backing": "peer:1", "residency": "peer"})
    return _measure("peer", how, program, elsewhere, settings, {})
