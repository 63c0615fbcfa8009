# SPDX-License-Identifier: Apache-2.0
"""Files of results: each is recognised by what it holds, and refused as a whole if any of it is something else."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forebay._native import transfer_core
from forebay.documents import read_json
from forebay.errors import RefusedInput
from forebay.transfer import ncu
from forebay.transfer.measured import TRACED, Arm, Counters, Results, Row, Source, Times
from forebay.transfer.pipeline import ALLOCATIONS, arms
from forebay.transfer.runs import STUDY_MODES, mode_parts, usual_name

FIELD = "FILE"
_REMEDY = "give what `forebay transfer run`, `sweep` or `pipeline` wrote with --json, or what ncu did"
_SECONDS_MAX = 1e7
_LEAST = 1e-9  # of seconds that others are divided by, and of counters: a clock of nanoseconds has no less
_COUNT_MAX = 2**32
_COUNTED_MAX = 1e30
_WORDS_MAX = 120
_TEXT_MAX = 2000
_SHAPE = ("blocks", "threads", "tile", "stages")
_NAME = re.compile(r"[a-z0-9_]{1,40}")


class _WrongError(Exception):
    """What is wrong with a part of a document, and where it is."""


def load(files: Sequence[Path]) -> Results:
    """Reads files of results.

    Raises:
        RefusedInput: A file is none, is of the CPU executor, or was measured on another GPU than those before it.
    """
    core = transfer_core()
    results = Results(groups={work["name"]: work["group"] for work in core.workloads()}, sizes=tuple(core.SIZES))
    for file in files:
        try:
            _add(results, file)
        except _WrongError as wrong:
            raise RefusedInput(FIELD, file, f"{wrong}; {_REMEDY}") from None
    return results


def _add(results: Results, file: Path) -> None:
    if file.suffix == ".csv":
        workload, mode, size, sums = ncu.read_csv(FIELD, file)
        counted = _counters({"workload": workload, "mode": mode, "size": size, "metrics": sums}, results, file)
        _keep(results, results.counters, [counted], Source(_name(file), "counters of ncu", ""))
        return
    document = read_json(FIELD, file, _REMEDY)
    if not isinstance(document, dict):
        raise _WrongError("is no document of `forebay transfer`")
    if "counters" in document:
        source = Source(_name(file), "counters of ncu", "", gpu=_gpu(document)[0])
        found = [_counters(one, results, file) for one in _list(document, "counters", "the document")]
        _keep(results, results.counters, found, source)
        return
    _add_document(results, file, document)


def _add_document(results: Results, file: Path, document: dict[str, Any]) -> None:
    options, listed = document.get("options"), document.get("results")
    if not isinstance(options, dict) or not isinstance(listed, list):
        raise _WrongError("is no document of `forebay transfer`")
    kind = "pipeline" if "jobs" in options else "sweep" if "parameter" in options else "run"
    if document.get("fidelity") == "untimed" or options.get("device") == "cpu":
        raise _WrongError("has times of the CPU executor, which say nothing of a GPU")
    gpu, driver = _gpu(document)
    forebay = document.get("forebay") if isinstance(document.get("forebay"), dict) else {}
    source = Source(
        _name(file),
        kind,
        _command(kind, document, results),
        gpu=gpu,
        driver=driver,
        host=_text(forebay, "host"),
        commit=_text(forebay, "commit"),
    )
    if kind == "pipeline":
        allocation = _text(options, "allocation")
        _keep(results, results.arms, [_each(_arm, one, results, file, allocation) for one in listed], source)
    else:
        place = results.sweeps if kind == "sweep" else results.rows
        _keep(results, place, [_each(_row, one, results, file, kind) for one in listed], source)


def _keep(results: Results, place: dict[tuple[object, ...], Any], found: list[Any], source: Source) -> None:
    if source.gpu and results.gpu and source.gpu != results.gpu:
        raise _WrongError(f"was measured on {source.gpu}, and the files before it on {results.gpu}: a report is of one")
    replaced = len({one.key for one in found} & place.keys())
    place |= {one.key: one for one in found}
    results.sources.append(Source(**{**source.__dict__, "rows": len(found), "replaced": replaced}))


def _each(read: Callable[..., Any], one: object, *more: object) -> Any:  # noqa: ANN401 (what `read` returns)
    if not isinstance(one, dict):
        raise _WrongError("has a result that is no object")
    return read(one, *more)


def _row(one: dict[str, Any], results: Results, file: Path, kind: str) -> Row:
    where = _where(one)
    swept = {}
    if kind == "sweep":
        swept = {"parameter": _named(one, "parameter", _SHAPE, where), "value": _count(one, "value", where)}
    shape = one.get("shape")
    if not isinstance(shape, dict):
        raise _WrongError(f"has no shape for {where}")
    row = {
        **_identity(one, results, where),
        "shape": {name: _count(shape, name, where) for name in _SHAPE},
        "file": _name(file),
        **swept,
    }
    if not _is_right(one, where):
        return Row(**row, refused=_text(one, "refused"), mismatch=_text(one, "mismatch"))
    traced = one.get("traced")
    return Row(
        **row,
        cold=_times(one.get("cold"), where),
        warm=tuple(_times(times, where) for times in _list(one, "warm", where)),
        page_locking=_seconds(one, "page_locking_seconds", where, default=0.0),
        traced=None if traced is None else _traced(traced, where),
        traced_reason=_text(one, "traced_reason"),
    )


def _arm(one: dict[str, Any], results: Results, file: Path, allocation: str) -> Arm:
    where = f"{_text(one, 'arm')!r} of {_where(one)}"
    arm = {
        "arm": _text(one, "arm"),
        "workload": _named(one, "workload", list(results.groups), where),
        "size": _named(one, "size", results.sizes, where),
        "jobs": _count(one, "jobs", where),
        "allocation": allocation,
        "file": _name(file),
    }
    for name in ("arm", "allocation"):
        if not _NAME.fullmatch(str(arm[name])) and (arm[name] or name == "arm"):
            raise _WrongError(f"has the {name} {str(arm[name])[:60]!r}, which is no name, for {where}")
    if not _is_right(one, where):
        return Arm(**arm, refused=_text(one, "refused"), mismatch=_text(one, "mismatch"))
    seconds = tuple(_number(value, where) for value in _list(one, "seconds", where))
    if min(seconds) < _LEAST:
        raise _WrongError(f"has a time of less than a nanosecond for {where}")
    allocating = _list(one, "allocation_seconds", where) if "allocation_seconds" in one else []
    return Arm(
        **arm,
        seconds=seconds,
        allocation_seconds=tuple(_number(value, where) for value in allocating),
    )


def _counters(one: object, results: Results, file: Path) -> Counters:
    if not isinstance(one, dict):
        raise _WrongError("has counters that are no object")
    where = _where(one)
    sums = one.get("metrics")
    if not isinstance(sums, dict) or not sums:
        raise _WrongError(f"has no metrics for {where}")
    found = {str(name): _number(value, where, most=_COUNTED_MAX) for name, value in sums.items()}
    if any(0 < value < _LEAST for value in found.values()):
        raise _WrongError(f"has a number out of range for {where}")
    return Counters(**_identity(one, results, where), file=_name(file), sums=found)


def _identity(one: dict[str, Any], results: Results, where: str) -> dict[str, str]:
    return {
        "workload": _named(one, "workload", list(results.groups), where),
        "mode": _mode(one, where),
        "size": _named(one, "size", results.sizes, where),
    }


def _mode(one: dict[str, Any], where: str) -> str:
    mode, core = _text(one, "mode"), transfer_core()
    known = (core.TRANSFERS, core.ALLOCATIONS, core.STAGES)
    parts = zip(mode_parts(mode), known, strict=True)
    if mode.count("/") > 2 or not all(part in of for part, of in parts):
        raise _WrongError(f"has the mode {mode[:60]!r}, which is none, for {where}")
    return usual_name(mode)


def _is_right(one: dict[str, Any], where: str) -> bool:
    """Whether a result has times; false where it says why not."""
    verified = one.get("verified")
    if verified is True:
        return True
    if verified is None and isinstance(one.get("refused"), str):
        return False
    if verified is False:
        return False
    raise _WrongError(f"does not say whether {where} was verified")


def _times(one: object, where: str) -> Times:
    if not isinstance(one, dict):
        raise _WrongError(f"has no times for {where}")
    times = Times(*(_seconds(one, name, where) for name in ("total", "allocation", "release", "kernels")))
    if min(times.total, times.kernels) < _LEAST:
        raise _WrongError(f"has a time of less than a nanosecond for {where}")
    return times


def _traced(one: object, where: str) -> dict[str, float]:
    if not isinstance(one, dict):
        raise _WrongError(f"has a trace that is none for {where}")
    traced = {name: _seconds(one, name, where) for name in ("total", *TRACED)}
    if traced["total"] < _LEAST:
        raise _WrongError(f"has a trace of less than a nanosecond for {where}")
    return traced


def _seconds(one: dict[str, Any], name: str, where: str, default: float | None = None) -> float:
    if default is not None and name not in one:
        return default
    return _number(one.get(name), f"{name} of {where}")


def _number(value: object, where: str, most: float = _SECONDS_MAX) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongError(f"has no number for {where}")
    if not 0 <= value <= most:  # NaN neither
        raise _WrongError(f"has a number out of range for {where}")
    return float(value)


def _count(one: dict[str, Any], name: str, where: str) -> int:
    value = one.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _COUNT_MAX:
        raise _WrongError(f"has no whole number as {name} of {where}")
    return value


def _list(one: dict[str, Any], name: str, where: str) -> list[Any]:
    value = one.get(name)
    if not isinstance(value, list) or not value:
        raise _WrongError(f"has no {name} for {where}")
    return value


def _named(one: dict[str, Any], name: str, known: Sequence[str], where: str) -> str:
    value = _text(one, name)
    if value not in known:
        raise _WrongError(f"has the {name} {value[:60]!r}, which this build has not, for {where}")
    return value


def _text(one: dict[str, Any], name: str) -> str:
    value = one.get(name)
    return _sound(value[:_TEXT_MAX]) if isinstance(value, str) else ""


def _name(file: Path) -> str:
    """A file as a page can name it: what it is called need not be UTF-8."""
    return _sound(str(file))


def _sound(text: str) -> str:
    """Text without halves of surrogate pairs, which JSON can have and no page."""
    return text.encode(errors="replace").decode()


def _where(one: dict[str, Any]) -> str:
    return f"{_text(one, 'workload')[:60]!r} in mode {_text(one, 'mode')[:60]!r}" if "mode" in one else "a result"


def _gpu(document: dict[str, Any]) -> tuple[str, str]:
    """The name of the GPU and the version of its driver, where a document has them."""
    for part in ("options", "forebay"):
        of = document.get(part)
        gpu = of.get("gpu") if isinstance(of, dict) else None
        if isinstance(gpu, dict):
            return _text(gpu, "name"), _text(gpu, "driver")
    return "", ""


def _command(kind: str, document: dict[str, Any], results: Results) -> str:
    """The command that writes such a document, as far as options and results are what they should be.

    What was run is what there are results of: they may be of several commands, and the plan is only the last one's.
    """
    options = document["options"]
    words = ["forebay", "transfer", kind]
    if kind == "pipeline":
        parts = [("--arm", "arm", [name for name, facts in arms().items() if _has_arm(options, facts)])]
    else:
        default = list(results.groups) if kind == "run" else []
        parts = [("--workload", "workload", default), ("--mode", "mode", list(STUDY_MODES))]
    for option, part, default in parts:
        found = [one[part] for one in document["results"] if isinstance(one, dict) and isinstance(one.get(part), str)]
        if set(found) != set(default):
            words += [word for name in dict.fromkeys(found) for word in (option, name)]
    if isinstance(options.get("values"), list):
        words += ["--values", ",".join(map(str, options["values"]))]
    for name in ("workload", "size", "parameter", "jobs", "allocation", "seed", "repetitions", "device"):
        if isinstance(options.get(name), str | int) and not isinstance(options[name], bool):
            words += [f"--{name}", str(options[name])]
    shape = options.get("shape")
    for name in _SHAPE:
        if isinstance(shape, dict) and isinstance(shape.get(name), int):
            words += [f"--{name}", str(shape[name])]
    if kind == "run" and options.get("trace") is False:
        words.append("--no-trace")
    return shlex.join(_sound(word[:200]) for word in words[:_WORDS_MAX])


def _has_arm(options: dict[str, Any], facts: dict[str, Any]) -> bool:
    return options.get("allocation") == ALLOCATIONS[0] or not facts["is_pool"]
