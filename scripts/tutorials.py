# SPDX-License-Identifier: Apache-2.0
"""Follows the tutorials: does what a page says, in order, and compares what the page shows with what came.

``python scripts/tutorials.py`` follows all pages; with ``--update`` it writes what came into the pages. The first line
of a fenced block decides what is done with it:

* ``title="FILE"`` after the language: the block is written as that file.
* ``bash``: commands, whose output the page does not show. Each must succeed.
* ``console``: ``$ COMMAND`` lines, with the output below each. A command that fails is followed by ``$ echo $?``.
* ``pycon``: input of a Python that lives as long as the page, with the output below each.
* Any other block must be lines of a file that the page has written.

A comment on the line above a block changes that:

* ``<!-- varies: REGEX -->``: parts of the output that match may differ, such as times.
* ``<!-- needs a GPU -->``: the block is skipped where there is none.
* ``<!-- not run: REASON -->``: the block is skipped everywhere.
"""

import argparse
import contextlib
import doctest
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "docs/tutorial.md",
    ROOT / "docs/tutorial-python.md",
    ROOT / "docs/how-to/which-drive.md",
    ROOT / "docs/how-to/vector-search.md",
    ROOT / "docs/how-to/move-data.md",
)
LIMIT_S = 120  # for one command or statement, so that one without an end fails

FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\s*$")
COMMENT = re.compile(r"^<!-- (.*) -->$")
STACK = "  ...\n"  # stands for the frames of a traceback, as in doctests


class WrongPageError(Exception):
    """A page that cannot be followed: the message has the line."""


@dataclass
class Step:
    """A command or a statement, as the page has it, with the output that the page shows."""

    lines: list[str]  # of the page, with prompts
    source: str
    shown: str


@dataclass
class Block:
    """A fenced block: the text between the fences begins in line `first` of the page, counted from 0."""

    language: str
    title: str | None
    first: int
    lines: list[str]
    comments: list[str]

    @property
    def text(self) -> str:
        """The lines, each with its end."""
        return "".join(line + "\n" for line in self.lines)

    def comment(self, start: str) -> str | None:
        """Returns the rest of the comment that starts so, if there is one."""
        return next((c[len(start) :].strip() for c in self.comments if c.startswith(start)), None)


def blocks_of(text: str) -> Iterator[Block]:
    """Yields the fenced blocks of a page."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if not fence:
            if lines[number].lstrip().startswith("```"):
                raise WrongPageError(f'line {number + 1}: a fence is ```LANGUAGE, or ```LANGUAGE title="FILE"')
            number += 1
            continue
        comments: list[str] = []
        above = number - 1
        while above >= 0 and (comment := COMMENT.match(lines[above])):
            comments.append(comment[1])
            above -= 1
        try:
            end = lines.index("```", number + 1)
        except ValueError:
            raise WrongPageError(f"line {number + 1}: the block has no end") from None
        yield Block(fence[1], fence[2], number + 1, lines[number + 1 : end], comments)
        number = end + 1


def console_steps(block: Block) -> list[Step]:
    """Splits a block into its commands. A command may go on in lines that start with '> '."""
    steps: list[Step] = []
    for line in block.lines:
        if line.startswith("$ "):
            steps.append(Step([line], line[2:], ""))
        elif steps and line.startswith("> ") and not steps[-1].shown:
            steps[-1].lines.append(line)
            steps[-1].source += "\n" + line[2:]
        elif steps:
            steps[-1].shown += line + "\n"
        else:
            raise WrongPageError(f"line {block.first + 1}: a console block begins with '$ COMMAND'")
    return steps


def python_steps(block: Block) -> list[Step]:
    """Splits a block into its statements."""
    steps = []
    examples = doctest.DocTestParser().get_examples(block.text)
    if not examples or examples[0].lineno > 0:
        raise WrongPageError(f"line {block.first + 1}: a pycon block begins with '>>> STATEMENT'")
    ends = [example.lineno for example in examples[1:]] + [len(block.lines)]
    for example, end in zip(examples, ends, strict=True):
        lines = block.lines[example.lineno : end]
        inputs = len([line for line in lines if line.startswith((">>> ", "... ")) or line == "..."])
        shown = "".join(line + "\n" for line in lines[inputs:])
        steps.append(Step(lines[:inputs], example.source, shown))
    return steps


class Shell:
    """Runs commands, each in a bash of its own that starts where the last one ended: folder, environment and `$?`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = str(folder)
        self.environment = environment
        self.status = 0

    def run(self, command: str, *, every: bool = False) -> tuple[int, str]:
        """Runs a command, or every one of several as long as they succeed; returns status and output."""
        with tempfile.NamedTemporaryFile() as state:
            script = "trap '{ pwd; env -0; } >\"$FOREBAY_TUTORIAL_STATE\"' EXIT\n"
            script += "set -a\n"  # variables of the shell stay too
            script += f"set -e\n{command}" if every else f"(exit {self.status})\n{command}"
            with subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self.environment | {"FOREBAY_TUTORIAL_STATE": state.name},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="backslashreplace",
                start_new_session=True,
            ) as ran:
                try:
                    output, _ = ran.communicate(timeout=LIMIT_S)
                except subprocess.TimeoutExpired:
                    raise WrongPageError(f"no end after {LIMIT_S} s: {command}") from None
                finally:  # what the command left in the background too
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(ran.pid, signal.SIGKILL)
            self.folder, _, variables = Path(state.name).read_text().partition("\n")
            if not self.folder:
                raise WrongPageError(f"the shell ended before its commands did: {command}")
            self.environment = dict(v.split("=", 1) for v in variables.split("\0") if "=" in v)
            self.status = ran.returncode
        return ran.returncode, output


class Python:
    """A Python that statements are typed into, in the folder and the environment that the shell then has."""

    def __init__(self, shell: Shell) -> None:
        self.process = subprocess.Popen(
            ["python", __file__, "--session"],
            cwd=shell.folder,
            env=shell.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, source: str) -> str:
        """Runs a statement and returns its output."""
        late = threading.Timer(LIMIT_S, os.killpg, (self.process.pid, signal.SIGKILL))
        late.start()
        try:
            self.process.stdin.write(json.dumps(source) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        finally:
            late.cancel()
        if not answer:
            raise WrongPageError(f"Python ended, or took more than {LIMIT_S} s: {source}")
        return json.loads(answer)

    def end(self) -> None:
        """Ends it, as the end of its input does."""
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LIMIT_S)
        with contextlib.suppress(ProcessLookupError):  # what it started too
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def run_statement(source: str, names: dict[str, Any]) -> None:
    """Does what Python's prompt does with a statement. The frames of a traceback are this file's: they are left out."""
    try:
        exec(compile(source, "<stdin>", "single"), names)  # noqa: S102 (that is what it is for)
    except Exception as error:
        print("Traceback (most recent call last):\n" + STACK, end="")
        print("".join(traceback.format_exception_only(error)), end="")


def serve_session() -> None:
    """Runs statements from standard input, and answers each with its output, that of C++ code included."""
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryFile("w+") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        names: dict[str, Any] = {"__name__": "__main__"}
        for line in sys.stdin:
            run_statement(json.loads(line), names)
            sys.stdout.flush()
            sys.stderr.flush()
            output.seek(0)
            print(json.dumps(output.read()), file=answers, flush=True)
            output.seek(0)
            output.truncate()


def alike(shown: str, came: str, varies: str | None) -> bool:
    """Whether two outputs are the same where they may not differ. Blanks at the ends of lines do not count."""

    def fixed(text: str) -> list[str]:
        lines = [line.rstrip() for line in text.rstrip().splitlines()]
        return [re.sub(varies, "#", line) for line in lines] if varies else lines

    return fixed(shown) == fixed(came)


@dataclass
class Walk:
    """One way through a page."""

    page: Path
    scratch: Path
    gpu: bool
    differences: list[str] = field(default_factory=list)
    new_text: list[str] = field(default_factory=list)  # the page's lines, with what came
    written: list[str] = field(default_factory=list)  # the files' texts
    python: Python | None = None

    def follow(self) -> None:
        """Does all of the page. Raises WrongPageError where it cannot go on."""
        text = self.page.read_text()
        lines = text.splitlines()
        self.shell = Shell(self.scratch, environment())
        done = 0
        try:
            for block in blocks_of(text):
                end = block.first + len(block.lines)
                self.new_text += [*lines[done : block.first], *self.lines_after(block)]
                done = end
        except WrongPageError as wrong:
            raise WrongPageError(f"{self.page.name}: {wrong}") from None
        finally:
            if self.python:
                self.python.end()
        self.new_text += lines[done:]

    def lines_after(self, block: Block) -> list[str]:
        """Does what the block says, and returns its lines with the output that came."""
        if block.comment("not run:") or (block.comment("needs a GPU") is not None and not self.gpu):
            return block.lines
        if block.title:
            (Path(self.shell.folder) / block.title).write_text(block.text)
            self.written.append(block.text)
        elif block.language == "bash":
            self.run_all(block)
        elif block.language == "console":
            return self.compare(block, console_steps(block), self.run_command)
        elif block.language == "pycon":
            return self.compare(block, python_steps(block), self.run_python)
        else:
            self.find_excerpt(block)
        return block.lines

    def run_all(self, block: Block) -> None:
        """Runs the commands of a block that shows no output."""
        status, output = self.shell.run(block.text, every=True)
        if status:
            raise WrongPageError(f"line {block.first + 1}: exit status {status}:\n{block.text}{output}")

    def run_command(self, step: Step, following: Step | None) -> str:
        """Runs a command in the shell, and returns its output."""
        status, output = self.shell.run(step.source)
        if status and not (following and following.source == "echo $?"):
            raise WrongPageError(f"exit status {status}, and no '$ echo $?' follows: {step.source}\n{output}")
        return output

    def run_python(self, step: Step, _: Step | None) -> str:
        """Runs a statement in Python, which the first one starts, and returns its output."""
        self.python = self.python or Python(self.shell)
        return self.python.run(step.source)

    def compare(self, block: Block, steps: list[Step], run: Callable[[Step, Step | None], str]) -> list[str]:
        """Runs the steps, notes where output differs, and returns the block's lines with the output that came."""
        lines: list[str] = []
        varies = block.comment("varies:")
        try:
            re.compile(varies or "")
        except re.error as error:
            raise WrongPageError(f"line {block.first + 1}: varies: {varies}: {error}") from None
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            try:
                came = run(step, following)
            except WrongPageError as wrong:
                raise WrongPageError(f"line {block.first + 1}: {wrong}") from None
            if not alike(step.shown, came, varies):
                self.differences.append(
                    f"{self.page.name}:{block.first + 1}: {step.source.strip()}\n"
                    f"the page shows:\n{step.shown}what came:\n{came}"
                )
            lines += [*step.lines, *(line.rstrip() for line in came.splitlines())]
        return lines

    def find_excerpt(self, block: Block) -> None:
        """Refuses a block that the reader can neither run nor find in a file. Indentation does not count."""
        wanted = [line.strip() for line in block.lines]
        for text in self.written:
            lines = [line.strip() for line in text.splitlines()]
            if any(lines[i : i + len(wanted)] == wanted for i in range(len(lines))):
                return
        raise WrongPageError(
            f"line {block.first + 1}: a block that is neither run nor a file, and no part of a file that the page has "
            "written: quote that file, or say why in <!-- not run: REASON -->"
        )


def has_gpu() -> bool:
    """Whether there is a GPU, as the scripts that build Forebay decide it."""
    if not shutil.which("nvidia-smi"):
        return False
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listing.stdout.startswith("GPU")


def build_folder() -> Path:
    """The build that `make build` makes here."""
    return ROOT / "build" / ("cuda" if has_gpu() else "cpu")


def environment() -> dict[str, str]:
    """A plain terminal of 80 columns, whatever this one is."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "USER", "TMPDIR", "CUDACXX") if name in os.environ}
    return kept | {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}


def prepare(scratch: Path) -> None:
    """Makes what the first commands of the pages make, which are not run: `forebay` and `prefix` in a folder."""
    (scratch / "forebay").symlink_to(ROOT)
    command = ["cmake", "--install", str(build_folder()), "--component", "development", "--prefix", "prefix"]
    installed = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if installed.returncode:
        raise WrongPageError(f"{shlex.join(command)}:\n{installed.stderr}")


def follow(page: Path, scratch: Path) -> Walk:
    """Follows a page in an empty folder, which is prepared."""
    prepare(scratch)
    walk = Walk(page, scratch, has_gpu())
    walk.follow()
    return walk


def main() -> int:
    """Follows the pages and returns the exit status."""
    parser = argparse.ArgumentParser(description="Follow the tutorials, and compare what they show with what comes.")
    parser.add_argument("--update", action="store_true", help="write what came into the pages")
    parser.add_argument("--session", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="all tutorials, unless given")
    arguments = parser.parse_args()
    if arguments.session:
        serve_session()
        return 0
    wrong = False
    for page in arguments.pages or PAGES:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                walk = follow(page, Path(scratch))
            except WrongPageError as error:
                print(error, file=sys.stderr)
                wrong = True
                continue
        if arguments.update:
            page.write_text("\n".join(walk.new_text) + "\n")
        else:
            print("\n".join(walk.differences), end="")
            wrong = wrong or bool(walk.differences)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
