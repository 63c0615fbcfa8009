# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/reference/library.md names every public name of the library, and none that is gone.

A header directly in include/forebay is public, and all that it declares; what lies deeper is not.
What a header declares is found by looking at its words, not by compiling it: good enough for code in one style.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REFERENCE = Path("docs/reference/library.md")
INCLUDE = Path("include/forebay")

# Types whose members are internal, or are explained elsewhere: the members of a policy are those of its concept.
WITHOUT_MEMBERS = {"clock", "s3_fifo", "set_state", "empty_set", "parked"}
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.M
)
CODE_SPAN = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
OPENS = {"(": ")", "[": "]", "{": "}"}


class Name(NamedTuple):
    """A public name, and the type that it is a member of; empty for one of the namespace."""

    owner: str
    name: str
    line: int


def _closing(text: str, at: int) -> int:
    """Returns where the bracket that opens at ``at`` closes."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in OPENS) - (text[i] in OPENS.values())
        if depth == 0:
            return i
    raise ValueError("a bracket is not closed")


def _past_angles(text: str) -> str:
    """Returns what follows the ``<...>`` that the text begins with."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "<") - (c == ">" and text[i - 1] != "-")
        if depth == 0:
            return text[i + 1 :]
    return ""


def _declared(statement: str) -> tuple[str, str]:
    """Returns what a statement declares: its kind (type, enum, other) and its name; both empty where it is none."""
    s = statement.strip()
    while match := re.match(r"template\s*(?=<)|requires\s*(?=\()", s):
        rest = s[match.end() :]
        s = (_past_angles(rest) if rest.startswith("<") else rest[_closing(rest, 0) + 1 :]).strip()
    if (
        not s
        or re.match(r"(friend|static_assert|extern)\b", s)
        or "operator" in s
        or re.match(r"(\w+\s+)*~", s)
        or s[0] in "&|"
    ):
        return "", ""
    if match := re.match(r"enum\s+(?:class\s+)?(\w+)", s):
        return "enum", match[1]
    if match := re.match(r"(?:class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*)?(\w+)\s*(?:final\s*)?(?::[^:]|$)", s):
        return "type", match[1]
    if match := re.match(r"(?:using|concept)\s+(\w+)\s*=", s):
        return "other", match[1]
    if re.match(r"(using|class|struct|union)\b", s) and "(" not in s and "=" not in s and len(s.split()) < 3:
        return "", ""
    head = re.split(r"=|\(|\[|\{", re.sub(r"alignas\s*\([^)]*\)|\[\[.*?\]\]", "", s), maxsplit=1)[0]
    words = WORD.findall(head)
    return ("other", words[-1]) if words else ("", "")


def names_in(source: str) -> list[Name]:
    """Lists the public names of a header: those of namespace forebay and its parts but ``detail``, and members."""
    text = NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0][0] in "/ #\t" else " ", source)
    names: list[Name] = []

    def scan(begin: int, end: int, owner: str, is_public: bool) -> None:
        start = i = begin
        while i < end:
            c = text[i]
            if c in "([":
                i = _closing(text, i)
            elif c == ";":
                add(start, i, owner, is_public)
                start = i + 1
            elif c == ":" and owner and (label := re.fullmatch(r"\s*(public|private|protected)\s*", text[start:i])):
                is_public = label[1] == "public"
                start = i + 1
            elif c == "{":
                close = _closing(text, i)
                statement = text[start:i]
                space = re.match(r"\s*namespace\s+([\w:]+)\s*$", statement)
                kind, name = ("", "") if space else _declared(statement)
                if space and space[1] != "detail":
                    scan(i + 1, close, "", True)
                elif kind and is_public:
                    add(start, i, owner, is_public)
                    if kind == "type":
                        is_class = re.search(r"\bclass\s+" + name, statement) is not None
                        scan(i + 1, close, name, not is_class)
                    elif kind == "enum":
                        for part in text[i + 1 : close].split(","):
                            if word := WORD.search(part):
                                names.append(Name(name, word[0], 0))
                # A brace that initialises a variable is followed by its semicolon.
                start = close + 1
                if text[start : start + 1] == ";":
                    start += 1
                i = start - 1
            i += 1

    def add(begin: int, end: int, owner: str, is_public: bool) -> None:
        kind, name = _declared(text[begin:end])
        announced = kind == "type" and text[end] == ";"
        if is_public and name and name != owner and not announced:
            line = text.count("\n", 0, begin + len(text[begin:end]) - len(text[begin:end].lstrip())) + 1
            names.append(Name(owner, name, line))

    scan(0, len(text), "", True)
    return names


def check(root: Path) -> Iterator[str]:
    """Yields what is missing in the reference, and what it names that is not there."""
    page = (root / REFERENCE).read_text()
    sections = [
        {word for span in CODE_SPAN.findall(section) for word in WORD.findall(span)}
        for section in re.split(r"^## ", page, flags=re.M)
    ]
    words_of_headers: set[str] = set()
    for header in sorted((root / INCLUDE).glob("*.hpp")):
        source = header.read_text()
        words_of_headers.update(WORD.findall(NOT_CODE.sub(" ", source)))
        for owner, name, line in names_in(source):
            if owner in WITHOUT_MEMBERS:
                continue
            # A member stands where its type does, since many types have members of the same name.
            if not any(name in words and (not owner or owner in words) for words in sections):
                full = f"{owner}::{name}" if owner else name
                yield f"{header.relative_to(root)}:{line or 1}: {REFERENCE} does not tell of {full}"
    for number, line in enumerate(page.splitlines(), 1):
        if cell := re.match(r"\| (`[^|]*`) \|", line):
            for span in CODE_SPAN.findall(cell[1]):
                if (word := WORD.search(span)) and word[0] not in words_of_headers:
                    yield f"{REFERENCE}:{number}: no public header has {word[0]}"
