# SPDX-License-Identifier: Apache-2.0
"""The command contract, kept in one place.

Exit status 0: done and verified; 1: ran but failed or did not verify; 2: refused input, with one plain line on standard
error that names field, value and remedy, usage errors too. Data goes to standard output, notices to standard error.
"""

import contextlib
import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from forebay.cli.fio_options import instead_of
from forebay.cli.interrupts import INTERRUPTED, interrupts_heard
from forebay.errors import OperationFailed, RefusedInput
from forebay.files import check_file_to_write, replacing, writing
from forebay.storage import Storage

SCHEMA_VERSION = 1
DONE, FAILED, REFUSED = 0, 1, 2

_STDOUT = "standard output"
_NO_NAME = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP)  # what no file can be named
_UsageError = typer.BadParameter.__mro__[1]

Result = TypeVar("Result")


def _seed(value: int) -> int:
    if not 0 <= value < 2**63:
        raise RefusedInput("--seed", value, "must be a whole number from 0 to 2^63 - 1")
    return value


JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE|-", help="Also write the result as one JSON document. - is standard output."),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda:N",
        help="Where the threads run that submit to the drives. auto: on a GPU if there is one.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option("--seed", "--randseed", metavar="N", callback=_seed, help="Seed of everything that is random."),
]
AllowDestroyOption = Annotated[
    bool, typer.Option("--allow-destroy", help="Write even if that overwrites the drive's catalogue of named extents.")
]


class NotVerifiedError(Exception):
    """The command ran, and its result is not right."""


def missing(option: str, why: str) -> Exception:
    """A usage error: an option that another one makes necessary is not there."""
    return _UsageError(f"{option}: is missing, and {why}")


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Runs `app`; turns every outcome into an exit status and at most one line on standard error."""
    _replace_closed_streams()
    for argument in arguments:
        if not _is_utf8(argument):
            return _complain(f"argument: {argument!r}: must be UTF-8", REFUSED)
    with interrupts_heard(lambda: _complain("interrupted", INTERRUPTED)):
        return _run(app, arguments)


def _run(app: typer.Typer, arguments: list[str]) -> int:
    try:
        status = app(args=arguments, prog_name="forebay", standalone_mode=False)
        sys.stdout.flush()
    except RefusedInput as refused:
        return _complain(str(refused), REFUSED)
    except _UsageError as error:
        return _usage(error, app, arguments)
    except (NotVerifiedError, OperationFailed) as error:
        return _complain(str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        _interrupted()
    except MemoryError:
        return _complain("out of memory; use fewer or smaller commands in flight, or a smaller drive", FAILED)
    except OSError as error:
        return _operating_system(error)
    except Exception as error:
        if os.environ.get("FOREBAY_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        advice = "this is a defect of Forebay; run it again with FOREBAY_TRACEBACK=1 and report what it prints"
        return _complain(f"{what}: {advice}", FAILED)
    if status == INTERRUPTED:  # typer has made an exit status of Ctrl-C
        _interrupted()
    return status if isinstance(status, int) else DONE


class _StandardOutput(io.FileIO):
    """Standard output, whose errors say so."""

    def write(self, data: Any) -> int:  # noqa: ANN401 (any buffer)
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STDOUT
            raise


def _replace_closed_streams() -> None:
    """Puts something in the place of closed standard streams, lest a file that is opened later be taken for them."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number, which is this one; writes fail as before
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True)
    if sys.stdout is sys.__stdout__:
        raw = io.BufferedWriter(_StandardOutput(1, "w", closefd=False))
        encoding = "utf-8" if sys.stdout is None else sys.stdout.encoding
        # A character that the encoding does not have is no reason to fail.
        sys.stdout = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=raw.isatty())


def _is_utf8(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:  # the bytes of the command line that are none, as Python carries them
        return False
    return True


def _operating_system(error: OSError) -> int:
    if error.filename == _STDOUT:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing may be written there again, at exit either
    if isinstance(error, BrokenPipeError):  # its reader has what it wanted
        return FAILED
    if error.errno in _NO_NAME:
        refused = RefusedInput("path", error.filename, f"{error.strerror}; name another file")
        return _complain(str(refused), REFUSED)
    return _complain(f"{error.filename or 'operating system'}: {error.strerror or error}", FAILED)


def _interrupted() -> NoReturn:
    _complain("interrupted", INTERRUPTED)
    os._exit(INTERRUPTED)  # a thread may still be in the extension: not waited for


def _complain(message: str, status: int) -> int:
    notice(message)
    return status


def _usage(error: Exception, app: typer.Typer, arguments: list[str]) -> int:
    # typer carries its own copy of click's exceptions, of which only the names are known.
    kind = type(error).__name__
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if kind == "NoArgsIsHelpError":
        print(message)
        return DONE
    command = _command_path(app, arguments)
    option = getattr(error, "option_name", None)
    if kind == "NoSuchOption":
        message = f"option: '{option}': `{command}` has no such option{_alternative(error, command)}"
    elif kind == "MissingParameter":
        message = f"{_name(error)}: is missing, and `{command}` needs it"
    elif extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message.rstrip(".")):
        message = f"argument: '{extra[1]}': `{command}` takes no more arguments"
    elif option:  # its value is missing, or one too many
        value = next((text.partition("=")[2] for text in arguments if text.startswith(f"{option}=")), None)
        message = f"{option}: needs a value" if value is None else f"{option}: '{value}': the option takes no value"
    else:
        option, value = _offending(error, arguments)
        if value is not None:
            found = getattr(error, "message", message)
            message = f"{option}: '{value}': {_NOT_OF_TYPE.get(found.partition(',')[0], found)}"
    see = " See" if message.endswith("?") else "; see"
    return _complain(f"{message.rstrip('.')}{see} `{command} --help`", REFUSED)


# What typer says of a value of the wrong type, up to the first comma.
_NOT_OF_TYPE = {
    "Input should be a valid integer": "must be a whole number",
    "Input should be a valid number": "must be a number",
    "Input should be greater than or equal to 0": "must be at least 0",
}


def _command_path(app: typer.Typer, arguments: list[str]) -> str:
    """The command that was called, with the groups above it: `forebay bench randread`."""
    path, command = "forebay", typer.main.get_command(app)
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument)
        if command is None:
            break
        path += f" {argument}"
    return path


def _alternative(error: Any, command: str) -> str:  # noqa: ANN401 (a type that typer keeps to itself)
    """What to write in place of an option that a command does not have."""
    if command.startswith("forebay bench") and (instead := instead_of(error.option_name)):
        return f"; {instead}"
    dashed = error.option_name.replace("_", "-")
    near = [dashed] if dashed in (error.possibilities or ()) else error.possibilities
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _name(error: Any) -> str:  # noqa: ANN401 (a type that typer keeps to itself)
    """What help calls an option or an argument."""
    parameter = error.param
    return " or ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.display_name_raw


def _offending(error: Exception, arguments: list[str]) -> tuple[str, str | None]:
    """The option that has a bad value, and the value, which the exception does not say."""
    for option in getattr(getattr(error, "param", None), "opts", ()):
        for i, argument in enumerate(arguments):
            if argument == option and i + 1 < len(arguments):
                return option, arguments[i + 1]
            if argument.startswith(f"{option}="):
                return option, argument.removeprefix(f"{option}=")
    return "", None


def terminal(json_target: str | None) -> Console:
    """Where tables go: standard output, or nowhere when the JSON document goes there."""
    return plain_console(quiet=json_target == "-")


def plain_console(**options: Any) -> Console:  # noqa: ANN401
    """A console that prints names of files and extents as they are: they may look like Rich's markup."""
    return Console(markup=False, emoji=False, **options)


def notice(message: str) -> None:
    """One line for the person at the terminal."""
    try:
        print("forebay:", " ".join(message.split()), file=sys.stderr, flush=True)
    except OSError:  # the exit status is all that can be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def check_json_target(target: str | None) -> None:
    """Refuses a JSON file that cannot be written, before the work and not after it."""
    if target is None or target == "-":
        return
    if not target:
        raise RefusedInput("--json", target, "name a file, or - for standard output")
    check_file_to_write("--json", target)


def require_raw_writable(storage: Storage, uris: list[str]) -> None:
    """Refuses drives of which not every byte may be written."""
    if storage.raw_writable:
        return
    if storage.extents():
        raise RefusedInput(
            "--drive",
            uris[0],
            "the drive holds named extents, which this would overwrite; to lose them, add --allow-destroy",
        )
    raise RefusedInput(
        "--drive",
        uris[0],
        "the drive is write protected, or has a catalogue of extents, which this would overwrite; to overwrite the "
        "catalogue, add --allow-destroy",
    )


def write_json(target: str | None, document: dict[str, Any], *, keeps: bool = False) -> None:
    """Writes the one JSON document of a command, where one was asked for.

    With `keeps` a file has the old document until all of the new one is written: for files that a command continues.
    """
    if target is None:
        return
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    with (replacing if keeps else writing)("--json", target) as file:
        file.write(text.encode())


@contextlib.contextmanager
def progress(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error while a terminal looks at it; yields the function that sets how much is done."""
    console = plain_console(stderr=True)
    if not console.is_terminal:
        yield lambda _done: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextlib.contextmanager
def step_progress(description: str) -> Iterator[Callable[[str, int, int], None]]:
    """As `progress`, of work of several steps; yields the function that takes a step's name, and how much of how much.

    Where no terminal looks, standard error gets nothing.
    """
    console = plain_console(stderr=True)
    if not console.is_terminal:
        yield lambda _step, _done, _total: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda step, done, total: bar.update(
            task, description=f"{description}: {step}", completed=done, total=total
        )
