# SPDX-License-Identifier: Apache-2.0
"""Checks what pages and public headers say of public names: each is explained, once, and pages name none that is gone.

``check`` yields ``file:line: what is wrong``; ``make lint`` runs it.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import headers
import prose

GUIDE = Path("docs/reference/library.md")
WORDS_MIN = 5  # shorter sentences may stand twice: "Thread-safe."

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.M)
SPAN = re.compile(r"`([^`\n]+)`")
NAME = r"[A-Za-z_]\w*"
QUALIFIED = re.compile(rf"(?<![\w:]){NAME}(?:<[^<>]*>)?(?:::{NAME})+")
DESIGNATED = re.compile(rf"[{{,]\s*\.({NAME}) *=")
INCLUDED = re.compile(r"#include [<\"]forebay/([\w./]+)[>\"]")
BASE = re.compile(rf"(?:class|struct) .*?\w+ *: *(?:public )?({NAME})")
COMMENT = re.compile(r"//[^\n]*")


def uncommented(header: headers.Header) -> Iterator[str]:
    """Yields the public names of a header that no comment explains."""
    for declaration in header.all():
        if not declaration.comment and not declaration.joins and declaration.kind != "alias":
            yield f"{header.path}:{declaration.line}: no comment says what {declaration.full_name} is"


def sentences(blocks: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the words of each sentence that is long enough, in lower case and without punctuation."""
    for number, block in blocks:
        for sentence in prose.SENTENCE_END.split(prose.LINK.sub(r"\1", block)):
            words = re.findall(r"\w+", sentence.lower())
            if len(words) >= WORDS_MIN:
                yield number, " ".join(words)


def said_twice(guide: str, sources: dict[Path, str]) -> Iterator[str]:
    """Yields the sentences of the guide that a header has too."""
    said: dict[str, Path] = {}
    for path, source in sources.items():
        for _, words in sentences(prose.blocks_of_source(source.splitlines(), "//")):
            said.setdefault(words, path)
    for number, words in sentences(prose.blocks_of_page(guide.splitlines())):
        if words in said:
            start = " ".join(words.split()[:6])
            yield f'{GUIDE}:{number}: {said[words]} says this too: keep it there: "{start} ..."'


class Names:
    """The names that pages may use in code."""

    def __init__(self, public: list[headers.Header], words: set[str]) -> None:
        self.words = words  # of all headers, the internal ones too: the machine's members are declared there
        self.files = {header.path.name for header in public}
        self.members: dict[str, set[str]] = {}
        bases: dict[str, str] = {}
        for header in public:
            for declaration in header.all():
                if declaration.kind == "type" and declaration.members:
                    members = self.members.setdefault(declaration.name, set())
                    members.update(member.name for member in declaration.members)
                    if base := BASE.search(declaration.code):
                        bases[declaration.name] = base[1]
        for name, base in bases.items():
            while base:
                self.members[name] |= self.members.get(base, set())
                base = bases.get(base, "")

    def missing(self, code: str) -> Iterator[str]:
        """Yields names of Forebay's in code that no header declares."""
        for qualified in QUALIFIED.findall(COMMENT.sub("", code)):
            parts = re.sub(r"<[^<>]*>", "", qualified).split("::")
            if parts[0] == "std":
                continue
            if parts[0] == "forebay":
                yield from (f"{qualified}: no header has {part}" for part in parts[1:] if part not in self.words)
            for owner, member in itertools.pairwise(parts):
                if owner in self.members and member not in self.members[owner] and member not in self.members:
                    yield f"{qualified}: {owner} has no member {member}"

    def missing_in_block(self, code: str) -> Iterator[str]:
        """The same for a whole block of C++, whose headers and designated members must exist too."""
        yield from self.missing(code)
        for member in DESIGNATED.findall(code):
            if member not in self.words:
                yield f".{member}: no header has such a member"
        for file in INCLUDED.findall(code):
            if file not in self.files:
                yield f"forebay/{file} is no public header"

    def check(self, page: Path, text: str) -> Iterator[str]:
        """Yields the names that a page uses and no header has."""
        for block in FENCE.finditer(text):
            if block[1] == "cpp":
                number = text.count("\n", 0, block.start()) + 1
                yield from (f"{page}:{number}: {what}" for what in self.missing_in_block(block[2]))
        blank = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        for span in SPAN.finditer(blank):
            number = blank.count("\n", 0, span.start()) + 1
            yield from (f"{page}:{number}: {what}" for what in self.missing(span[1]))


def words_of(sources: list[str]) -> set[str]:
    """Returns the words of sources that are not in comments."""
    return {word for source in sources for word in re.findall(NAME, COMMENT.sub("", source))}


def check(root: Path, pages: list[Path]) -> Iterator[str]:
    """Yields what is wrong in the public headers, in the guide, and in the code of these pages."""
    public = headers.read_all(root)
    guide = (root / GUIDE).read_text()
    for header in public:
        yield from uncommented(header)
        if f"(../../{header.path})" not in guide:
            yield f"{GUIDE}:1: no link leads to {header.path}"
    yield from said_twice(guide, {header.path: (root / header.path).read_text() for header in public})
    names = Names(public, words_of([path.read_text() for path in sorted((root / headers.INCLUDE).rglob("*.hpp"))]))
    for page in pages:
        yield from names.check(page, (root / page).read_text())
