# SPDX-License-Identifier: Apache-2.0
"""How long a graph search takes whose edge list lies in external memory: a drive, or memory behind a link.

The model has one bottleneck at a time: the device's rate of requests, the latency with a bounded number of requests in
flight, or the link. The equations and their numbers are on the page docs/reference/graph-model.md.
"""

import math
from dataclasses import dataclass

from forebay.errors import RefusedInput

UNBOUNDED = math.inf
"""A rate or a number of requests that has no bound."""


@dataclass(frozen=True)
class ExternalMemory:
    """External memory, as the model sees it. A report makes one of what it measured.

    Attributes:
        bytes_per_second: What the link carries towards the reader (W); ``UNBOUNDED`` only where something else is a
            bound.
        iops: How many requests a second the devices complete together (S); ``UNBOUNDED`` where nothing but the
            link and the latency bounds them.
        outstanding: How many requests may be in flight (N_max); ``UNBOUNDED`` where the reader always has enough.
        latency_s: How long one request takes when the memory is not busy (L), in seconds. 0 takes no time.
    """

    bytes_per_second: float
    iops: float = UNBOUNDED
    outstanding: float = UNBOUNDED
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuses numbers that no memory has."""
        require_positive("bytes_per_second", self.bytes_per_second, or_unbounded=True)
        require_positive("iops", self.iops, or_unbounded=True)
        require_positive("outstanding", self.outstanding, or_unbounded=True)
        if not 0 <= self.latency_s < math.inf:  # NaN is not
            raise RefusedInput("latency_s", self.latency_s, "must be a time of 0 or more")
        if math.isinf(self.bytes_per_second) and math.isinf(self.requests_per_second):
            remedy = "must be a number greater than 0: nothing else bounds this memory"
            raise RefusedInput("bytes_per_second", self.bytes_per_second, remedy)

    @property
    def requests_per_second(self) -> float:
        """How many requests a second complete while the link has room: s = min(S, N_max / L), equation 5."""
        by_latency = self.outstanding / self.latency_s if self.latency_s else UNBOUNDED
        return min(self.iops, by_latency)

    @property
    def best_request_bytes(self) -> float:
        """The shortest request that fills the link: d* = W / s, equation 5.

        0 where requests have no bound, and ``UNBOUNDED`` where the link has none.
        """
        return self.bytes_per_second / self.requests_per_second

    def throughput(self, request_bytes: float) -> float:
        """The bytes a second that requests of this mean size move: T = min(S d, N_max d / L, W), equation 2."""
        require_positive("request_bytes", request_bytes)
        return min(self.requests_per_second * request_bytes, self.bytes_per_second)

    def bound(self, request_bytes: float) -> str:
        """What bounds the throughput: ``link``, ``iops`` or ``latency``. Of equals, the first of them."""
        if self.throughput(request_bytes) >= self.bytes_per_second:
            return "link"
        return "iops" if self.requests_per_second >= self.iops else "latency"

    def seconds(self, bytes_read: float, request_bytes: float) -> float:
        """How long it takes to read so many bytes, read amplification included: t = D / T, equation 1."""
        return bytes_read / self.throughput(request_bytes)

    def required_iops(self, request_bytes: float) -> float:
        """The least rate of requests that fills the link: S >= W / d, equation 6."""
        require_positive("request_bytes", request_bytes)
        return self.bytes_per_second / request_bytes

    def allowed_latency_s(self, request_bytes: float) -> float:
        """The longest latency that still fills the link: L <= N_max d / W, equation 6."""
        return self.outstanding / self.required_iops(request_bytes)

    def knee_latency_s(self, request_bytes: float) -> float:
        """The latency from which on the run gets slower.

        It is the allowed latency where the devices could fill the link. Where they cannot, they leave more time to a
        request, because fewer are needed in flight.
        """
        return self.outstanding / min(self.iops, self.required_iops(request_bytes))


def outstanding_requests(bytes_per_second: float, latency_s: float, request_bytes: float) -> float:
    """How many requests were in flight, from what was measured: N = T L / d, equation 3."""
    for field, value in (("bytes_per_second", bytes_per_second), ("latency_s", latency_s)):
        require_positive(field, value)
    require_positive("request_bytes", request_bytes)
    return bytes_per_second * latency_s / request_bytes


def latency_in_flight_s(bytes_per_second: float, outstanding: float, request_bytes: float) -> float:
    """How long a request took, from the throughput and the number in flight: L = N d / T, equation 3."""
    for field, value in (("bytes_per_second", bytes_per_second), ("outstanding", outstanding)):
        require_positive(field, value)
    require_positive("request_bytes", request_bytes)
    return outstanding * request_bytes / bytes_per_second


def amplification_at_random(alignment: int, entry_bytes: int, list_bytes: float) -> float:
    """The read amplification of lists that begin anywhere, without a cache: RAF = 1 + (a - e) / l.

    Here a is the alignment, e the bytes of an entry, and l the mean bytes of the lists that have an entry.
    """
    require_positive("list_bytes", list_bytes)
    return 1 + max(0, alignment - entry_bytes) / list_bytes


def require_positive(field: str, value: float, *, or_unbounded: bool = False) -> None:
    """Refuses what is not more than 0, which includes NaN, and infinity unless it stands for no bound."""
    if not value > 0 or (math.isinf(value) and not or_unbounded):
        raise RefusedInput(field, value, "must be a number greater than 0")
