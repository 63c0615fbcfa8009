# SPDX-License-Identifier: Apache-2.0
"""What the model of external memory says of a run that was made: the prediction that stands beside a measurement.

The model is fed with what the run read and with what its place can do. So what it leaves to explain is the time alone,
and not the number of reads.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from forebay._native import graph_core
from forebay.graph.external_model import UNBOUNDED, ExternalMemory
from forebay.graph.results import Run
from forebay.links import LINK_BYTES_PER_SECOND


@dataclass(frozen=True)
class Modelled:
    """A prediction.

    Attributes:
        seconds: How long the reads take, by equation 1 of the model.
        bound: What bounds them: ``iops``, ``latency`` or ``link``.
        request_bytes: The mean bytes of a read.
        memory: What the place can do.
    """

    seconds: float
    bound: str
    request_bytes: float
    memory: ExternalMemory

    def figures(self) -> dict[str, Any]:
        """Returns it as a dictionary for a JSON document, where None stands for no bound."""
        return {
            "seconds": self.seconds,
            "bound": self.bound,
            "request_bytes": self.request_bytes,
            "bytes_per_second": _finite(self.memory.bytes_per_second),
            "iops": _finite(self.memory.iops),
            "outstanding": _finite(self.memory.outstanding),
            "latency_ns": self.memory.latency_s * 1e9,
        }


def modelled(run: Run, report: dict[str, Any]) -> Modelled | None:
    """Predicts the time of a run.

    Args:
        run: What it read.
        report: What ``Placed.report`` says of the place.

    Returns:
        The prediction; None if the place counts no reads, if there were none, or if nothing is known that bounds it, as
        of an ideal drive or of a real one.
    """
    if not run.reads or not run.bytes_read:
        return None
    request_bytes = run.bytes_read / run.reads
    if report["path"] == "external":
        limits = _of_external_memory(report["external"])
    elif "drives" in report:
        limits = _of_drives(report["drives"], run, request_bytes)
    else:
        return None
    if limits is None or all(map(math.isinf, (limits["bytes_per_second"], _requests_per_second(limits)))):
        return None
    memory = ExternalMemory(**limits)
    return Modelled(memory.seconds(run.bytes_read, request_bytes), memory.bound(request_bytes), request_bytes, memory)


def _of_external_memory(external: str) -> dict[str, float]:
    options = json.loads(graph_core().external_options(external))
    return {
        "bytes_per_second": options["link_bytes_per_second"] or UNBOUNDED,
        "iops": options["iops"] * options["devices"] or UNBOUNDED,
        "outstanding": options["outstanding"] or UNBOUNDED,
        "latency_s": options["latency_us"] / 1e6,
    }


def _of_drives(drives: list[dict[str, Any]], run: Run, request_bytes: float) -> dict[str, float] | None:
    """All drives together: reads are spread over them evenly."""
    timings = [drive.get("timing") for drive in drives]
    if any(timing is None for timing in timings):
        return None
    links = [LINK_BYTES_PER_SECOND.get(drive["link"], UNBOUNDED) for drive in drives]
    return {
        "bytes_per_second": len(drives) * min(links),
        "iops": len(drives) * min(_reads_per_second(timing, request_bytes) for timing in timings if timing),
        "outstanding": run.iodepth or UNBOUNDED,
        "latency_s": max(timing["read"]["latency_min_us"] for timing in timings if timing) / 1e6,
    }


def _reads_per_second(timing: dict[str, Any], request_bytes: float) -> float:
    read = timing["read"]
    granules = math.ceil(request_bytes / read["granule_bytes"])
    busy_ns = read["per_command_ns"] + read["per_byte_ns"] * granules * read["granule_bytes"]
    return float(timing["channels"] * 1e9 / busy_ns) if busy_ns else UNBOUNDED


def _requests_per_second(limits: dict[str, float]) -> float:
    by_latency = limits["outstanding"] / limits["latency_s"] if limits["latency_s"] else UNBOUNDED
    return min(limits["iops"], by_latency)


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
