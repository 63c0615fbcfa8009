# SPDX-License-Identifier: Apache-2.0
"""Checks that the command lines of pages name subcommands and options that the ``forebay`` command has."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.M)
SHELL = {"", "bash", "console", "sh", "text"}
SPAN = re.compile(r"`(?:\.venv/bin/)?(forebay [^`]*)`")
SUBCOMMAND = re.compile(r"[a-z][a-z-]*")
OPTION = re.compile(r"--?[A-Za-z][\w-]*")
# What may stand before a program in a command line.
BEFORE = re.compile(r"\$|\w+=.*|time|sudo")


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yields the command lines in the blocks of a page and in its code spans, each with its number."""
    for block in FENCE.finditer(text):
        if block[1] in SHELL:
            first = text.count("\n", 0, block.start(2)) + 1
            joined = block[2].replace("\\\n", " \0")
            for line in joined.split("\n"):
                yield first, line.replace("\0", "")
                first += 1 + line.count("\0")
    blank = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for span in SPAN.finditer(blank):
        # Brackets are around what may be left out, and a table has a backslash before a bar.
        yield blank.count("\n", 0, span.start()) + 1, re.sub(r"[\[\]]|\.\.\.", " ", span[1].replace("\\|", "|"))


def calls_in(line: str) -> Iterator[list[str]]:
    """Yields the arguments of each call of ``forebay`` in a command line."""
    for part in re.split(r"&&|;|\s\|\s", line):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:  # a text and no command, such as one with an apostrophe
            continue
        # `forebay run` has another command behind its `--`.
        for k, word in enumerate(words):
            starts = all(BEFORE.fullmatch(before) for before in words[:k]) or words[k - 1] == "--"
            if word.split("/")[-1] == "forebay" and starts:
                arguments = words[k + 1 :]
                yield arguments[: arguments.index("--")] if "--" in arguments else arguments


def wrong_in(arguments: list[str], command: Any) -> Iterator[str]:  # noqa: ANN401 (a command of typer's own copy of click)
    """Yields the subcommands and options of one call that the command has not."""
    words = list(arguments)
    path = ["forebay"]
    while words and hasattr(command, "commands") and SUBCOMMAND.fullmatch(words[0].split("|")[0]):
        names = words.pop(0).split("|")
        unknown = [name for name in names if name not in command.commands]
        yield from (f"`{' '.join(path)}` has no subcommand {name}" for name in unknown)
        if unknown:
            return
        path.append(names[0])
        command = command.commands[names[0]]
    known = {"--help"}.union(*(set(option.opts) | set(option.secondary_opts) for option in command.params))
    for word in words:
        option = OPTION.match(word)
        if option and option[0] not in known:
            yield f"`{' '.join(path)}` has no option {option[0]}"


def check(page: str, text: str, command: Any) -> Iterator[str]:  # noqa: ANN401
    """Yields ``page:line: what is wrong`` for each call in a page."""
    for number, line in lines_of(text):
        for arguments in calls_in(line):
            yield from (f"{page}:{number}: {what}" for what in wrong_in(arguments, command))
