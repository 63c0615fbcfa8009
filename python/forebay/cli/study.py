# SPDX-License-Identifier: Apache-2.0
"""`forebay study`: a program over a grid of drives, what bounds it, and which drive it needs."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from forebay import bench, replay
from forebay import trace as traces
from forebay.cli.contract import (
    DeviceOption,
    JsonOption,
    NotVerifiedError,
    check_json_target,
    missing,
    plain_console,
    progress,
    terminal,
    write_json,
)
from forebay.errors import RefusedInput
from forebay.files import check_file_to_write, make_folder, writing
from forebay.study.advice import TOLERANCE_DEFAULT
from forebay.study.grid import DRIVE_AXES, DRIVE_DEFAULT, Grid, differences
from forebay.study.program import OWN_COMMAND, TIMEOUT_DEFAULT_S, VALUES_ARE, Plan, Program, load_plan
from forebay.study.runner import ATTEMPTS_DEFAULT
from forebay.study.whole import Study
from forebay.study.whole import study as run_study
from forebay.study.words import failures, lines, verdict
from forebay.units import format_ns, format_rate, parse_duration, parse_size

_RUNTIME_DEFAULT = "1s"
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in ("p99_us", "tolerance", "repeat", "attempts", "value_is")}
_OPTIONS |= {"value": "--value", "fidelity": "--fidelity", "folder": "--out"}
_OUT_FILES = ("study.json", "study.png", "study.html")


def _list(metavar: str, words: str, *names: str) -> object:
    return typer.Option(*names, metavar=metavar, help=words)


def study(
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROGRAM.toml|-- COMMAND...",
            help="A TOML file with the command and the grid, or the command behind --, {drive} where the URI goes.",
        ),
    ] = None,
    drive: Annotated[
        list[str] | None,
        typer.Option(
            "--drive",
            metavar="URI",
            help="The drive that the grid changes. Repeat it to compare several.",
            show_default=DRIVE_DEFAULT,
        ),
    ] = None,
    iops: Annotated[str, _list("RATE,...", "Rates of the drive, such as 20k,2.5M.", "--iops")] = "",
    latency_us: Annotated[str, _list("US,...", "Least latencies of the drive in microseconds.", "--latency-us")] = "",
    link: Annotated[str, _list("LINK,...", "Links of the drive, such as gen4x4,gen5x16.", "--link")] = "",
    channels: Annotated[str, _list("N,...", "Numbers of channels of the drive.", "--channels")] = "",
    profile: Annotated[str, _list("NAME,...", "Profiles of the drive, such as p5800x.", "--profile")] = "",
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="NAME=V,...", help="Values of a {NAME} in COMMAND. Repeat it for several."),
    ] = None,
    value: Annotated[
        str,
        typer.Option(
            "--value",
            metavar="PLACE",
            help="Where the value is in the JSON that COMMAND prints, as in trials.0.seconds.",
            show_default="seconds; of our own commands what they measure",
        ),
    ] = "",
    value_is: Annotated[
        str | None,
        typer.Option("--value-is", metavar="|".join(VALUES_ARE), help="What the value is.", show_default=VALUES_ARE[0]),
    ] = None,
    fidelity: Annotated[
        str,
        typer.Option("--fidelity", metavar="PLACE", help="Where the fidelity is, likewise.", show_default="fidelity"),
    ] = "",
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            metavar="TIME",
            help="Time after which a run is ended, and has failed.",
            show_default=f"{TIMEOUT_DEFAULT_S:g}s",
        ),
    ] = "",
    workload: Annotated[
        str,
        typer.Option("--bench", metavar="WORKLOAD", help="In place of COMMAND: forebay bench WORKLOAD on each drive."),
    ] = "",
    trace: Annotated[
        str, typer.Option("--trace", metavar="FILE", help="In place of COMMAND: forebay replay FILE on each drive.")
    ] = "",
    iodepth: Annotated[str, _list("N,...", "Of --bench and --trace: commands in flight.", "--iodepth")] = "",
    bs: Annotated[str, _list("SIZE,...", "Of --bench: bytes of a command.", "--bs")] = "",
    runtime: Annotated[
        str,
        typer.Option(
            "--runtime", metavar="TIME", help="Of --bench: time to measure a point.", show_default=_RUNTIME_DEFAULT
        ),
    ] = "",
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="closed|open", help="Of --trace: as of replay.", show_default="closed"),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", metavar="X", help="Of --trace in an open loop: as of replay.", show_default="1"),
    ] = None,
    wrap: Annotated[bool, typer.Option("--wrap", help="Of --trace: fit operations to the drive.")] = False,
    p99_us: Annotated[
        float | None,
        typer.Option(
            "--p99-us",
            metavar="US",
            help="Name the least drive whose 99th percentile of the latency is at most US microseconds.",
            show_default="no such drive is looked for",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="PART", help="A drive suffices if it is slower than the best by at most this part."
        ),
    ] = TOLERANCE_DEFAULT,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", help="Runs that a point is the median of.")] = 1,
    attempts: Annotated[
        int,
        typer.Option(
            "--attempts", metavar="N", help="How often a run is made at most, until its drive keeps its times."
        ),
    ] = ATTEMPTS_DEFAULT,
    tax: Annotated[
        bool, typer.Option("--tax", help="Also measure what the emulation costs the program, on its fastest drive.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write study.json, study.png and study.html there, and keep the points, so that a study that was "
            "interrupted goes on.",
            show_default="nothing is kept",
        ),
    ] = None,
    device: DeviceOption = "auto",
    json_target: JsonOption = None,
) -> None:
    """Find out which drive a program needs: run it on a grid of drives, and say what bounds it.

    The program takes a drive URI and prints a JSON document. The study fits a model to its times.
    It says where the knee is, which drive suffices, and what the next faster one brings.
    The last line is "study: PASS" if every drive kept its times, else "study: FAIL".

    Example: forebay study --iops 20k,50k,100k --out bfs -- forebay demo --drive {drive} --json -
    """
    check_json_target(json_target)
    texts = (iops, latency_us, link, channels, profile)
    by_name = dict(zip(("iops", "latency_us", "link", "channels", "profile"), texts, strict=True))
    axes = {name: by_name[name].split(",") for name in DRIVE_AXES if by_name[name]}
    settings = {"iodepth": iodepth, "bs": bs}
    for option, given in (("--iodepth", iodepth), ("--bs", bs), ("--runtime", runtime)):
        if given and not workload and not (trace and option == "--iodepth"):
            raise RefusedInput(option, given, "is of --bench and --trace; write it into COMMAND")
    for option, chosen in (("--mode", mode), ("--speed", speed), ("--wrap", wrap or None)):
        if chosen is not None and not trace:
            raise RefusedInput(option, chosen, "is of --trace; write it into COMMAND, or use --trace")
    given_twice = [name for name, there in (("COMMAND", program), ("--bench", workload), ("--trace", trace)) if there]
    if len(given_twice) > 1:
        raise RefusedInput(given_twice[1], workload or trace, f"takes the place of {given_twice[0]}; give one of them")
    if not given_twice:
        raise missing("COMMAND", "a study needs a program: PROGRAM.toml, -- COMMAND, --bench or --trace")
    if device != "auto" and program:
        raise RefusedInput("--device", device, "is of --bench and --trace; write it into COMMAND")
    if workload:
        plan = _bench(workload, settings, runtime or _RUNTIME_DEFAULT, device)
    elif trace:
        plan = _trace(trace, iodepth, mode or replay.MODES[0], speed, device, wrap=wrap)
    else:
        plan = _plan(program or [])
    plan = _changed(plan, drive, axes, vary or [], {"value": value, "fidelity": fidelity}, value_is, timeout)
    with _named_as_options():
        plan.program.check(plan.grid)
    plan.grid.check("--")
    if out is not None:
        _prepare(out)
    count = len(plan.grid.uris()) * len(plan.grid.combinations())
    with progress(f"studying {count} points", float(count)) as set_done, _named_as_options():
        found = run_study(
            plan,
            folder=None if out is None else out / "points",
            repeat=repeat,
            attempts=attempts,
            tolerance=tolerance,
            p99_us=p99_us,
            tax=tax,
            trace=trace or None,
            tell=lambda _what, done, _all: set_done(float(done)),
        )
    write_json(json_target, found.document())
    if out is not None:
        with progress("drawing", None):
            _write(found, out)
    # The document has standard output to itself; a person still sees the result.
    console = plain_console(stderr=True) if json_target == "-" and found.verified else terminal(json_target)
    _show(found, console, out)
    _judge(found)


@contextlib.contextmanager
def _named_as_options() -> Iterator[None]:
    """Names options in refusals of arguments that have other names in Python."""
    try:
        yield
    except RefusedInput as refused:
        raise RefusedInput(_OPTIONS.get(refused.field, refused.field), refused.value, refused.remedy) from None


def _plan(words: list[str]) -> Plan:
    if len(words) == 1 and words[0].endswith(".toml"):
        return load_plan(words[0])
    return Plan(Program(words), Grid())


def _changed(
    plan: Plan,
    drive: list[str] | None,
    axes: dict[str, list[str]],
    vary: list[str],
    places: dict[str, str],
    value_is: str | None,
    timeout: str,
) -> Plan:
    """The plan with what the options say in place of what the file says."""
    settings = dict(plan.grid.settings)
    for text in vary:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or name == "drive":
            raise RefusedInput("--vary", text, "must be NAME=VALUE,VALUE,..., where COMMAND has {NAME}")
        settings[name] = values.split(",")
    grid = Grid(drive or plan.grid.drives, {**plan.grid.axes, **axes}, settings)
    changes: dict[str, Any] = {name: place for name, place in places.items() if place}
    changes |= {"value_is": value_is} if value_is else {}
    program = dataclasses.replace(plan.program, **changes)
    if timeout:
        program = dataclasses.replace(program, timeout_s=parse_duration("--timeout", timeout))
    if program.timeout_s <= 0:
        raise RefusedInput("--timeout", timeout or program.timeout_s, "must be more than 0")
    return Plan(program, grid)


def _bench(workload: str, texts: dict[str, str], runtime: str, device: str) -> Plan:
    if workload not in bench.WORKLOADS:
        raise RefusedInput("--bench", workload, f"must be one of {', '.join(bench.WORKLOADS)}")
    settings = {name: (texts[name] or default).split(",") for name, default in (("iodepth", "1"), ("bs", "512"))}
    for depth in settings["iodepth"]:
        for size in settings["bs"]:
            bench.Job(workload, bs=parse_size("--bs", size), iodepth=_depth(depth)).validate()
    if parse_duration("--runtime", runtime) == 0:
        raise RefusedInput("--runtime", runtime, "must be more than 0")
    words = [OWN_COMMAND, "bench", workload, "--drive", "{drive}", "--iodepth", "{iodepth}", "--bs", "{bs}"]
    words += ["--runtime", runtime, "--allow-destroy", "--device", device, "--json", "-"]
    return Plan(Program(words), Grid(settings=settings))


def _depth(text: str) -> int:
    if not text.isdecimal():
        raise RefusedInput("--iodepth", text, "must be a whole number of at least 1, or several with commas between")
    return int(text)


def _trace(file: str, iodepth: str, mode: str, speed: float | None, device: str, *, wrap: bool) -> Plan:
    depths = iodepth.split(",") if iodepth else []
    in_flights: list[int | None] = [_depth(depth) for depth in depths]
    for in_flight in in_flights or [None]:
        replay.Job(mode=mode, iodepth=in_flight, speed=speed).validate()
    with progress(f"reading {file}", None):
        traces.load(file, "auto")
    words = [OWN_COMMAND, "replay", file, "--drive", "{drive}", "--mode", mode]
    words += ["--iodepth", "{iodepth}"] if depths else []
    words += ["--speed", str(speed)] if speed is not None else []
    words += ["--wrap"] if wrap else []
    return Plan(
        Program([*words, "--allow-destroy", "--device", device, "--json", "-"]),
        Grid(settings={"iodepth": depths} if depths else {}),
    )


def _prepare(out: Path) -> None:
    make_folder("--out", out)
    for name in _OUT_FILES:
        check_file_to_write("--out", out / name)


def _write(found: Study, out: Path) -> None:
    from forebay.study.drawing import draw_file
    from forebay.study.page import page

    write_json(str(out / _OUT_FILES[0]), found.document())
    draw_file(found, out / _OUT_FILES[1])
    with writing("--out", out / _OUT_FILES[2]) as file:
        file.write(page(found).encode())


def _show(found: Study, out: Console, folder: Path | None) -> None:
    settings = list(found.plan.grid.settings)
    has_latency = any(point.figures and point.figures.latency_ns for point in found.points)
    shared, own = differences([point.drive.uri for point in found.points])
    rates = all(point.figures is None or point.figures.reads == 1 for point in found.points)  # a time of one operation
    measured = "IOPS reached" if rates else "time"
    table = Table(
        *(["drive"] if any(own) else []),
        *settings,
        "IOPS",
        measured,
        *(["p99"] if has_latency else []),
        "fidelity",
        "runs",
    )
    table.title = shared or None
    for column in table.columns[1 if any(own) else 0 : len(table.columns) - 2]:
        column.justify = "right"
    for point, name in zip(found.points, own, strict=True):
        figures, rate = point.figures, point.drive.iops(point.request_bytes)
        latencies = None if figures is None else figures.latency_ns
        table.add_row(
            *([name] if any(own) else []),
            *(point.settings[name] for name in settings),
            "-" if rate is None else format_rate(rate),
            "-" if figures is None else format_rate(1 / figures.seconds) if rates else format_ns(figures.seconds * 1e9),
            *(["-" if latencies is None else format_ns(latencies["p99"])] if has_latency else []),
            point.fidelity if point.error is None else "failed",
            str(point.attempts),
        )
    out.print(table)
    if kept := sum(point.kept for point in found.points):
        out.print(f"kept: {kept} of {len(found.points)} points, which an earlier study measured", highlight=False)
    for line in [*failures(found), *lines(found)]:
        out.print(line, highlight=False, soft_wrap=True)
    if folder is not None:
        out.print(f"results: {', '.join(str(folder / name) for name in _OUT_FILES)}", highlight=False, soft_wrap=True)
    out.print(verdict(found), highlight=False)


def _judge(found: Study) -> None:
    if found.verified:
        return
    wrong = failures(found)
    if wrong:
        raise NotVerifiedError(f"{len(wrong)} of {len(found.points)} points say nothing of their drive: {wrong[0]}")
    raise NotVerifiedError(f"no drive of the grid has a p99 of at most {found.p99_us:g} us")
