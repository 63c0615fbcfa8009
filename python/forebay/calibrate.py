# SPDX-License-Identifier: Apache-2.0
"""Fits a drive profile to what fio measured on a real drive.

The model (docs/reference/profiles.md): a saturated drive completes one command each
per_command + per_byte * round_up(bytes, granule), and a lone command of one granule takes latency_min.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from forebay.documents import read_json
from forebay.errors import RefusedInput
from forebay.units import format_bytes, parse_size

DIRECTIONS = ("read", "write")
GRANULES = (512, 1024, 2048, 4096)

# The mean latency of a saturated drive is at least this many times that of a lone command. Below it, commands did not
# queue.
_QUEUEING = 1.25
_FIO_DEFAULT_BS = 4096
_WRITE_AGAIN = "write it with fio --output-format=json --output=FILE"
# Options that hold a job below what the drive can do, or that make its commands differ in size.
_THROTTLES = ("rate", "rate_iops", "rate_min", "rate_iops_min", "thinktime", "latency_target")
_SIZES = ("bsrange", "blocksize_range", "bssplit", "blocksize_split")


@dataclass(frozen=True)
class Point:
    """What one group of fio's jobs measured of one direction at one block size."""

    file: str
    jobs: tuple[str, ...]
    direction: str
    bs: int
    in_flight: int
    random: bool
    iops: float
    mean_ns: float
    median_ns: float
    median_from: str

    @property
    def lone(self) -> bool:
        """Whether no command ever waited for another."""
        return self.in_flight == 1

    @property
    def busy(self) -> float:
        """Commands that were in flight on the average (Little's law), whatever was asked for."""
        return self.iops * self.mean_ns / 1e9


@dataclass(frozen=True)
class Unused:
    """A measurement that the fit could not use, and why."""

    file: str
    jobs: tuple[str, ...]
    reason: str


@dataclass
class Measurements:
    """All that the files hold."""

    points: list[Point] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)

    def of(self, direction: str) -> list[Point]:
        """The points of one direction."""
        return [point for point in self.points if point.direction == direction]


@dataclass(frozen=True)
class Number:
    """A number of a profile, and where it comes from."""

    value: float
    source: str


@dataclass
class Cost:
    """The fitted parameters of one direction; `points` are those that the rates were fitted to."""

    per_command_ns: Number
    per_byte_ns: Number
    granule_bytes: Number
    latency_min_us: Number
    points: list[Point]

    def cost_ns(self, size: int) -> float:
        """What a command of `size` bytes costs a saturated drive."""
        granule = round(self.granule_bytes.value)
        return self.per_command_ns.value + self.per_byte_ns.value * _round_up(size, granule)

    def residuals(self) -> list[dict[str, Any]]:
        """Of each point: measured, model, and the error of the model in percent of what was measured."""
        rows = []
        for point in sorted(self.points, key=lambda point: point.bs):
            model = 1e9 / self.cost_ns(point.bs)
            rows.append(
                {
                    "file": point.file,
                    "jobs": list(point.jobs),
                    "bs": point.bs,
                    "in_flight": point.in_flight,
                    "iops": point.iops,
                    "model_iops": model,
                    "error_percent": (model / point.iops - 1) * 100,
                }
            )
        return rows


@dataclass(frozen=True)
class _Rates:
    """What a saturated drive shows of one direction."""

    per_command_ns: Number
    per_byte_ns: Number
    granule_bytes: Number
    points: list[Point]

    def with_latency(self, latency_min_us: Number) -> Cost:
        return Cost(self.per_command_ns, self.per_byte_ns, self.granule_bytes, latency_min_us, self.points)


@dataclass
class Fit:
    """A profile, and what was left out or assumed on the way to it."""

    name: str
    read: Cost
    write: Cost
    lba_bytes: Number
    files: list[str]
    unused: list[Unused]
    assumed: list[str]

    def of(self, direction: str) -> Cost:
        """The parameters of one direction."""
        return self.read if direction == "read" else self.write


def calibrate(paths: Sequence[Path], name: str) -> Fit:
    """Fits the profile `name` to the JSON files that fio wrote.

    Raises RefusedInput for a file that is not fio's, for a job that failed, and where there is too little to fit.
    """
    measurements = Measurements()
    for path in paths:
        _read_file(path, measurements)
    files = [str(path) for path in paths]
    assumed: list[str] = []
    found = ", ".join(files)
    reads = measurements.of("read")
    if not reads:
        reason = f"; {measurements.unused[0].reason}" if measurements.unused else ""
        raise RefusedInput(
            "fio", found, f"has no job that only reads, which a profile is fitted to; add one with rw=randread{reason}"
        )
    rates = _fit_rates("read", reads, measurements, assumed)
    latency = _fit_latency(reads, rates, assumed)
    if latency is None:
        remedy = (
            "has no job with one read at a time, which shows the least latency; add one with iodepth=1 and numjobs=1"
        )
        raise RefusedInput("fio", found, remedy)
    read = rates.with_latency(latency)
    write = _fit_writes(measurements, read, files, assumed)
    return Fit(name, read, write, _lba(measurements.points, files), files, measurements.unused, assumed)


def _fit_writes(measurements: Measurements, read: Cost, files: list[str], assumed: list[str]) -> Cost:
    writes = measurements.of("write")
    equal = f"assumed equal to reads: no job of {', '.join(files)}"
    if any(not point.lone for point in writes):
        rates = _fit_rates("write", writes, measurements, assumed)
    else:
        assumed.append("writes: rates as of reads, since no job keeps several writes in flight")
        values = (read.per_command_ns.value, read.per_byte_ns.value, read.granule_bytes.value)
        rates = _Rates(*(Number(value, f"{equal} keeps several writes in flight") for value in values), points=[])
    latency = _fit_latency(writes, rates, assumed)
    if latency is None:
        assumed.append("writes: latency as of reads, since no job writes with iodepth=1 and numjobs=1")
        latency = Number(read.latency_min_us.value, f"{equal} writes with one command in flight")
    return rates.with_latency(latency)


def _fit_rates(direction: str, points: list[Point], measurements: Measurements, assumed: list[str]) -> _Rates:
    best = _saturated(points, measurements)
    if len(best) < 2:
        found = f"at only one block size, {format_bytes(best[0].bs)}," if best else "at no block size"
        remedy = (
            f"{found} the {direction}s of these jobs saturate the drive, and a fit needs two sizes; measure "
            f"{direction}s of two sizes, such as 4k and 128k, with a larger iodepth"
        )
        if measurements.unused:
            remedy += f"; not used: {measurements.unused[-1].reason}"
        raise RefusedInput("fio", ", ".join(dict.fromkeys(point.file for point in points)), remedy)
    costs = [1e9 / point.iops for point in best]
    lines: list[tuple[float, float, float, int]] = []
    for granule in GRANULES:
        sizes = [_round_up(point.bs, granule) for point in best]
        per_command, per_byte = fit_line(sizes, costs)
        off = sum(((per_command + per_byte * x) / cost - 1) ** 2 for x, cost in zip(sizes, costs, strict=True))
        lines.append((off, per_command, per_byte, granule))
    least = min(off for off, *_ in lines)
    _, per_command, per_byte, granule = next(line for line in lines if line[0] <= least + 1e-12)
    fitted = f"fit to saturated {direction}s of {_sizes(best)}: {_cite(best)}"
    why = f"least residual of {', '.join(map(str, GRANULES))}: {_cite(best)}"
    if all(point.bs % GRANULES[-1] == 0 for point in best):
        assumed.append(f"{direction}s: a granule of {granule} bytes, since no block that was measured tells")
        why = f"assumed: the blocks measured are multiples of {GRANULES[-1]}, so they do not tell: {_cite(best)}"
    return _Rates(Number(per_command, fitted), Number(per_byte, fitted), Number(granule, why), best)


def fit_line(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """The a, b >= 0 for which a + b * size is closest to the costs, by the squares of the relative errors."""
    u = [1 / cost for cost in costs]
    v = [size / cost for size, cost in zip(sizes, costs, strict=True)]
    uu, vv, uv = _dot(u, u), _dot(v, v), _dot(u, v)
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        a, b = (sum(u) * vv - sum(v) * uv) / determinant, (sum(v) * uu - sum(u) * uv) / determinant
        if a >= 0 and b >= 0:
            return a, b
    # The objective is convex: where its least value is out of bounds, the bounded one lies on a bound.
    flat, through_zero = (sum(u) / uu, 0.0), (0.0, sum(v) / vv)

    def off(a: float, b: float) -> float:
        return sum((a * x + b * y - 1) ** 2 for x, y in zip(u, v, strict=True))

    return min(flat, through_zero, key=lambda line: off(*line))


def _dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def _saturated(points: list[Point], measurements: Measurements) -> list[Point]:
    """The fastest point of each block size, random ones before sequential ones, of those that saturate the drive."""
    best = []
    lone_ns = 0.0  # of the nearest smaller block where none of this size was measured: at least that long
    for bs in sorted({point.bs for point in points}):
        lone_ns = min((point.mean_ns for point in points if point.lone and point.bs == bs), default=lone_ns)
        several = [point for point in points if point.bs == bs and not point.lone]
        queueing = [point for point in several if point.busy >= 1.5 and point.mean_ns >= _QUEUEING * lone_ns]
        if queueing:
            best.append(max(queueing, key=lambda point: (point.random, point.iops)))
        for point in several if not queueing else []:
            reason = (
                f"{format_bytes(bs)} {point.direction}s that hardly waited for each other; raise iodepth or numjobs"
            )
            measurements.unused.append(Unused(point.file, point.jobs, reason))
    return best


def _fit_latency(points: list[Point], rates: _Rates, assumed: list[str]) -> Number | None:
    lone = [point for point in points if point.lone]
    if not lone:
        return None
    least = min(lone, key=lambda point: (point.bs, not point.random, point.median_ns))
    # A block of several granules takes longer than a block of one granule by what its bytes cost.
    granule = round(rates.granule_bytes.value)
    beyond = rates.per_byte_ns.value * (_round_up(least.bs, granule) - granule)
    source = f"{least.median_from} of {format_bytes(least.bs)} {least.direction}s, one in flight: {_cite([least])}"
    if beyond > 0:
        source += f"; less {beyond:.4g} ns that its bytes cost beyond one granule"
    if beyond > least.median_ns:
        assumed.append(f"{least.direction}s: no least latency, since a lone one took less than its bytes cost")
    return Number(max(0.0, least.median_ns - beyond) / 1e3, source)


def _lba(points: list[Point], files: list[str]) -> Number:
    smallest = [point for point in points if point.bs == min(point.bs for point in points)]
    if smallest[0].bs == 512:
        return Number(512, f"the smallest block measured: {_cite(smallest)}")
    return Number(512, f"assumed: fio does not say, and no job of {', '.join(files)} has blocks of 512 bytes")


def _round_up(size: int, granule: int) -> int:
    return -(-size // granule) * granule


def _cite(points: Iterable[Point]) -> str:
    """The files and the jobs of some points: `a.json: rr-4k, rr-128k; b.json: rr-512`."""
    by_file: dict[str, dict[str, None]] = {}
    for point in points:
        by_file.setdefault(point.file, {}).update(dict.fromkeys(point.jobs))
    return "; ".join(f"{file}: {', '.join(jobs)}" for file, jobs in by_file.items())


def _sizes(points: list[Point]) -> str:
    return ", ".join(format_bytes(point.bs) for point in sorted(points, key=lambda point: point.bs))


# ---- fio's JSON


def _read_file(path: Path, measurements: Measurements) -> None:
    document = read_json("fio", path, _WRITE_AGAIN, _Object)
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise RefusedInput("fio", path, f"has no jobs; {_WRITE_AGAIN}")
    if document.twice:
        raise RefusedInput("fio", path, f"has the key {document.twice} twice; {_WRITE_AGAIN}")
    if _is_late(document):
        raise RefusedInput(
            "fio",
            path,
            "measured an emulated drive that missed its times (fidelity: exceeded): its figures are the machine's, not "
            "the drive's; measure again with a lower rate or on a faster machine",
        )
    shared = document.get("global options", {})
    groups: dict[str, list[_Job]] = {}
    for index, job in enumerate(jobs):
        entry = _Job(str(path), index, job, shared)
        # Jobs of a group ran side by side; without a number of its own each is a group.
        groups.setdefault(str(job.get("groupid", f"job {index}")), []).append(entry)
    for group in groups.values():
        _read_group(group, measurements)


def _is_late(document: dict[str, Any]) -> bool:
    """Whether `forebay bench` wrote it, and an emulated drive did not keep its times."""
    ours = document.get("forebay")
    drives = ours.get("drives") if isinstance(ours, dict) else None
    return isinstance(drives, list) and any(
        isinstance(drive, dict) and drive.get("fidelity") == "exceeded" for drive in drives
    )


class _Object(dict[str, Any]):
    """A JSON object that knows if a key was in it twice, of which Python takes the last.

    Options may be: fio takes the last one too.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = "" if len(self) == len(pairs) else Counter(key for key, _ in pairs).most_common(1)[0][0]


class _Job:
    """One entry of `jobs`, whose every refusal names the file and the key."""

    def __init__(self, file: str, index: int, job: _Object, shared: object) -> None:
        self.file, self.index, self.job = file, index, job
        own = job.get("job options")
        self.name = str(job.get("jobname", f"job {index}")).encode("utf-8", "replace").decode()
        if not isinstance(own, dict) or not isinstance(shared, dict):
            self.refuse(
                "job options", None, "is missing, so this is not the JSON of fio 3; run fio 3 with --output-format=json"
            )
        self.options: dict[str, Any] = {**shared, **own}
        if job.twice:
            self.refuse(job.twice, None, "is there twice, so the file is damaged; run the job again")
        error = job.get("error", 0)
        if error != 0:
            self.refuse("error", error, f"the job {self.name} failed; run it again")

    def refuse(self, key: str, value: object, remedy: str) -> NoReturn:
        where = f"jobs[{self.index}].{key}"
        raise RefusedInput("fio", self.file, f"{where}: {remedy}" if value is None else f"{where} = {value}: {remedy}")

    def at(self, key: str) -> object:
        """What is at a path such as `read/iops`; None where nothing is."""
        value: Any = self.job
        for part in key.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
            if isinstance(value, _Object) and value.twice:
                self.refuse(f"{part}.{value.twice}", None, "is there twice, so the file is damaged; run the job again")
        return value

    def number(self, key: str) -> float:
        """The number at a path, at least 0."""
        value, dotted = self.at(key), key.replace("/", ".")
        if value is None:
            self.refuse(
                dotted, None, "is missing, so this is not the JSON of fio 3; run fio 3 with --output-format=json"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
            self.refuse(dotted, value, "must be a number from 0 to 1e18")
        return float(value)

    def optional(self, key: str) -> float:
        """A number that fio leaves out, or leaves at 0, when it was told not to measure it."""
        return 0.0 if self.at(key) is None else self.number(key)

    def option(self, *names: str, default: str) -> str:
        for name in names:
            if name in self.options:
                return str(self.options[name])
        return default

    def count(self, name: str) -> int:
        text = self.option(name, default="1")
        if not re.fullmatch("[0-9]{1,7}", text) or not 1 <= int(text) <= 1 << 20:
            self.refuse(f"job options.{name}", text, "must be a whole number from 1 to 1048576")
        return int(text)

    def block_size(self, direction: str) -> int:
        """Bytes of each command: fio writes `bs` for all, or `read,write,trim`."""
        parts = self.option("bs", "blocksize", default=str(_FIO_DEFAULT_BS)).split(",")
        text = parts[min(DIRECTIONS.index(direction), len(parts) - 1)] or str(_FIO_DEFAULT_BS)
        try:
            size = parse_size("bs", text)
        except RefusedInput as refused:
            self.refuse("job options.bs", text, refused.remedy)
        if size == 0:
            self.refuse("job options.bs", text, "must be at least 1")
        return size

    def median(self, direction: str) -> tuple[float, str]:
        """Completion latency in ns, and which of fio's figures it is."""
        for latency, words in (("clat_ns", "median clat"), ("lat_ns", "median lat")):
            if median := self.optional(f"{direction}/{latency}/percentile/50.000000"):
                return median, words
        return self.number(f"{direction}/clat_ns/mean"), "mean clat (no percentiles)"


def _read_group(group: list[_Job], measurements: Measurements) -> None:
    file, names = group[0].file, tuple(dict.fromkeys(job.name for job in group))
    moving = {direction: [job for job in group if job.number(f"{direction}/iops") > 0] for direction in DIRECTIONS}
    directions = [direction for direction in DIRECTIONS if moving[direction]]
    if len(directions) == 1:
        (direction,) = directions
        reason = _why_unusable(moving[direction], direction)
    else:
        reason = "reads and writes ran at once: run them one after the other (stonewall)" if directions else "no I/O"
    if reason:
        measurements.unused.append(Unused(file, names, reason))
    else:
        measurements.points.append(_point(moving[direction], direction))


def _why_unusable(jobs: list[_Job], direction: str) -> str | None:
    for job in jobs:
        held = [option for option in (*_THROTTLES, *_SIZES) if option in job.options]
        if held:
            return f"the option {held[0]} keeps it from showing what commands of one size cost"
    if len({job.block_size(direction) for job in jobs}) > 1:
        return "jobs of several block sizes ran at once: run them one after the other (stonewall)"
    bs = jobs[0].block_size(direction)
    moved, commands = (sum(job.optional(f"{direction}/{key}") for job in jobs) for key in ("io_bytes", "total_ios"))
    if commands > 0 and abs(moved / commands / bs - 1) > 0.01:
        return f"its commands are of {moved / commands:.0f} bytes on the average, and not of bs={bs}"
    return None


def _point(jobs: list[_Job], direction: str) -> Point:
    """What jobs that ran side by side measured together."""
    names = Counter(job.name for job in jobs)
    in_flight = 0
    for job in jobs:
        # The only entry of its name stands for numjobs of them (group_reporting, which fio does not list).
        in_flight += job.count("iodepth") * (job.count("numjobs") if names[job.name] == 1 else 1)
    iops = [job.number(f"{direction}/iops") for job in jobs]
    means = [job.optional(f"{direction}/lat_ns/mean") or job.number(f"{direction}/clat_ns/mean") for job in jobs]
    medians = [job.median(direction) for job in jobs]
    return Point(
        file=jobs[0].file,
        jobs=tuple(names),
        direction=direction,
        bs=jobs[0].block_size(direction),
        in_flight=in_flight,
        random="rand" in jobs[0].option("rw", "readwrite", default="read"),
        iops=sum(iops),
        mean_ns=_dot(means, iops) / sum(iops),
        median_ns=_dot([value for value, _ in medians], iops) / sum(iops),
        median_from=medians[0][1],
    )


# ---- the profile


_KEYS = ("per_command_ns", "per_byte_ns", "granule_bytes", "latency_min_us")


def to_json(fit: Fit) -> dict[str, Any]:
    """The fit and its residuals, as a result."""
    return {
        "name": fit.name,
        "files": fit.files,
        **{
            direction: {
                **{key: getattr(fit.of(direction), key).value for key in _KEYS},
                "sources": {key: getattr(fit.of(direction), key).source for key in _KEYS},
                "points": fit.of(direction).residuals(),
            }
            for direction in DIRECTIONS
        },
        "unused": [asdict(unused) for unused in fit.unused],
        "assumed": fit.assumed,
    }


def to_toml(fit: Fit) -> str:
    """The profile file."""
    files = ", ".join(fit.files)
    lines = [
        "# Written by `forebay drive calibrate`.",
        f"name = {_text(fit.name)}",
        f"description = {_text('fitted to ' + files)}",
    ]
    for direction in DIRECTIONS:
        cost = fit.of(direction)
        lines += ["", f"[{direction}]"]
        lines += [_line(key, getattr(cost, key)) for key in _KEYS]
    tells = f"no job of {files} tells"
    writes = fit.write.latency_min_us.value
    lines += ["", "[other]", _line("per_command_ns", Number(0, f"assumed: {tells}"))]
    lines.append(_line("latency_min_us", Number(writes, f"assumed equal to writes: {tells}")))
    lines += ["", "[geometry]"]
    lines.append(_line("channels", Number(1, f"the jobs of {files} measured the whole drive")))
    lines.append(_line("channel_stride_bytes", Number(4096, f"without effect on one channel; {tells}")))
    lines.append(_line("lba_bytes", fit.lba_bytes))
    return "\n".join(lines) + "\n"


def _line(key: str, number: Number) -> str:
    value = f"{number.value:.6g}" if abs(number.value) < 1e6 else f"{number.value:.0f}"
    return f"{key} = {{ value = {value}, source = {_text(number.source)} }}"


def _text(text: str) -> str:
    # JSON's escapes are TOML's; TOML alone escapes DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
