# SPDX-License-Identifier: Apache-2.0
"""Plain English in pages and comments: sentences of a length that is read once, and programs that are no persons.

``python scripts/prose.py FILE...`` prints ``file:line: what is wrong``. ``make lint`` checks all pages and sources.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS_MAX = 40

# Words for people. One of them may follow a word that names people.
PERSONS = r"(?:people|persons?|users?|readers?|developers?|engineers?|newcomers?|anyone|everyone|someone|nobody|you)"
PERSONAL = re.compile(r"\b(?:he|him|his|himself|she|her|hers|herself|whoever|whom|who)\b", re.IGNORECASE)
OF_PEOPLE = re.compile(rf"\b{PERSONS},? (?:who|whom)\b", re.IGNORECASE)

FENCE = re.compile(r"^\s*(```|~~~)")
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"*_)]*\s+(?=[\"*_(\[]*[A-Z`])")

# What starts a comment; Python's and CMake's are alike.
COMMENT = {
    ".hpp": "//",
    ".cpp": "//",
    ".cu": "//",
    ".cuh": "//",
    ".py": "#",
    ".cmake": "#",
    ".bash": "#",
}


def blocks_of_page(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yields paragraphs, list items and cells of tables, each with the number of its first line."""
    first, block = 1, ""
    fenced = False
    for number, line in enumerate([*lines, ""], 1):
        if FENCE.match(line):
            fenced = not fenced
        cells = line.strip().startswith("|")
        if fenced or FENCE.match(line) or cells or not line.strip() or line.startswith("#") or ITEM.match(line):
            if block:
                yield first, block
            block = ""
        if fenced or FENCE.match(line) or not line.strip():
            continue
        if cells:
            # A bar within a code span starts no cell.
            whole = CODE.sub(lambda code: code[0].replace("|", "/"), line)
            yield from ((number, cell) for cell in whole.strip().strip("|").split("|"))
        elif line.startswith("#"):
            yield number, line.lstrip("# ")
        else:
            first = first if block else number
            block += " " + line.strip()


def blocks_of_source(lines: list[str], mark: str) -> Iterator[tuple[int, str]]:
    """Yields runs of lines that are comments from their first character on, and what ends other lines."""
    first, block = 1, ""
    for number, line in enumerate([*lines, ""], 1):
        own = re.match(rf"\s*{mark}[/!#]*<?\s?(.*)", line)
        if block and (not own or not own[1].strip() or ITEM.match(own[1])):
            yield first, block
            block = ""
        if own:
            first = first if block else number
            block += " " + own[1].strip()
        elif mark == "//" and (after := re.search(r"\s//[/!]*<?\s(.*)", line)):
            yield number, after[1]


def check(path: Path, text: str) -> Iterator[str]:
    """Checks a page or the comments of a source file: ``path`` says which of them it is."""
    lines = text.splitlines()
    page = path.suffix == ".md"
    mark = COMMENT.get(path.suffix)
    if not page and mark is None:
        return
    for number, raw in blocks_of_page(lines) if page else blocks_of_source(lines, mark):
        block = LINK.sub(r"\1", CODE.sub("Code", raw))
        for word in PERSONAL.findall(OF_PEOPLE.sub("", block)):
            yield f'{path}:{number}: "{word}" is a person: name the thread or the program, or say "it"'
        for sentence in SENTENCE_END.split(block) if page else []:
            words = len(sentence.split())
            if words > WORDS_MAX:
                start = " ".join(sentence.split()[:6])
                yield f'{path}:{number}: a sentence of {words} words, {WORDS_MAX} at most: "{start} ..."'


def main() -> int:
    """Checks the files that are named and returns the exit status."""
    breaches = [breach for name in sys.argv[1:] for breach in check(Path(name), Path(name).read_text())]
    print("\n".join(breaches), end="\n" if breaches else "")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
