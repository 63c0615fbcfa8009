# SPDX-License-Identifier: Apache-2.0
"""What the public headers declare and say: for the reference pages of the site, and for the checks of lint.

A header directly in include/forebay is public, and all that it declares but namespace ``detail``; what lies deeper is
not. A comment stands for the declaration that follows it, and for those that follow that one without a blank line.
"""

import dataclasses
import functools
import html
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import tree_sitter
import tree_sitter_cpp

INCLUDE = Path("include/forebay")
PAGES = "reference/cpp"  # where the site has a page for each header, below docs/

# Words that tree-sitter's grammar takes for types; they mean nothing to a reader of a declaration.
NOT_GRAMMAR = re.compile(rb"\bFOREBAY_[A-Z_]+\b|\[\[\w+\]\]")
CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
PAGE_NAMED = re.compile(r"\bdocs/([\w/-]+\.md)")
DATA = {"data", "enumerator"}
# Parts of a declaration that have names of their own.
NOT_INSIDE = {"template_parameter_list", "compound_statement", "requires_clause", "parameter_list"}
# Types whose members are those of a concept, which explains them, or are internal.
WITHOUT_MEMBERS = {
    "replacement::clock",
    "replacement::s3_fifo",
    "replacement::empty_set",
    "no_sharing",
    "share_all",
    "share_overwrites",
    "token::parked",
    "token_array::parked",
    "token_pair::parked",
}


@dataclasses.dataclass
class Declaration:
    """One public name of a header."""

    kind: str  # type, function, data, enumerator, alias, concept
    owner: str  # the type or the namespace below forebay that it is in; empty for forebay itself
    name: str
    line: int
    code: str  # without bodies
    comment: str = ""  # in Markdown; of a group: that of its first declaration
    joins: bool = False  # the comment before it is that of the declaration before it
    members: list["Declaration"] = dataclasses.field(default_factory=list)
    is_specialisation: bool = False

    @property
    def full_name(self) -> str:
        """The name with that of its owner."""
        return f"{self.owner}::{self.name}" if self.owner else self.name

    @property
    def anchor(self) -> str:
        """The name of its place in a page."""
        return re.sub(r"[^a-z0-9_]+", "-", self.full_name.lower()).strip("-")


@dataclasses.dataclass
class Header:
    """One public header."""

    path: Path  # relative to the root
    comment: str
    declarations: list[Declaration]

    @property
    def page(self) -> str:
        """The page that the site has of it, below docs/."""
        return page_of(self.path)

    def all(self) -> Iterator[Declaration]:
        """All declarations, members too."""
        todo = list(self.declarations)
        while todo:
            declaration = todo.pop(0)
            yield declaration
            todo[:0] = declaration.members


@functools.cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def _descendant(node: tree_sitter.Node, *kinds: str) -> tree_sitter.Node | None:
    """Returns the first node of one of these kinds, outside of template parameters and bodies."""
    for child in node.children:
        if child.type in kinds:
            return child
        if child.type not in NOT_INSIDE and (found := _descendant(child, *kinds)):
            return found
    return None


def page_of(path: Path) -> str:
    """Returns the page that the site has of a public header, below docs/."""
    return f"{PAGES}/{path.stem}.md"


class _Reader:
    """Collects the declarations of one header."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        self.root = _parser().parse(NOT_GRAMMAR.sub(lambda m: b" " * len(m[0]), self.bytes)).root_node

    def text(self, begin: int, end: int) -> str:
        """Returns source text, with what the declaration is indented by taken from all its lines."""
        # What was taken out before the parse belongs to the declaration again.
        line = self.bytes.rfind(b"\n", 0, begin) + 1
        head = self.bytes[line:begin]
        if NOT_GRAMMAR.sub(b"", head).strip() == b"":
            begin = line + len(head) - len(head.lstrip())
        text = self.bytes[begin:end].decode().rstrip()
        indent = begin - line
        return re.sub(rf"\n {{0,{indent}}}", "\n", text)

    def file_comment(self) -> str:
        """Returns the text of the comment on the file."""
        lines = [m[1] for m in re.finditer(r"^//! ?(.*)$", self.bytes.decode(), re.M)]
        return "\n".join(line for line in lines if line.strip() != "\\file").strip()

    def scan(self, nodes: list[tree_sitter.Node], owner: str, is_public: bool) -> list[Declaration]:
        """Lists what these nodes declare."""
        found: list[Declaration] = []
        comment: list[str] = []
        end_line = -2  # of the last declaration
        continues = False  # its group goes on where the next declaration follows at once
        for node in nodes:
            first, last = node.start_point[0], node.end_point[0]
            if node.type == "comment":
                text = self.bytes[node.start_byte : node.end_byte].decode()
                if text.startswith("///<"):
                    if found and first == end_line:
                        found[-1].comment = text[4:].strip()
                        continues = False
                elif text.startswith("///"):
                    comment.append(text[3:].removeprefix(" "))
                continue
            if node.type == "access_specifier":
                is_public = node.text == b"public"
            elif node.type == "namespace_definition":
                name = node.child_by_field_name("name").text.decode()
                if name != "detail" and not name.endswith("::detail"):
                    inner = name.removeprefix("forebay").removeprefix("::")
                    found += self.scan(node.child_by_field_name("body").children, inner or owner, True)
                comment = []
            elif is_public and node.is_named:
                declaration = self.declaration(node, owner)
                if declaration and not (_is_special(declaration, node) and not comment):
                    declaration.comment = "\n".join(comment)
                    joins = not comment and continues and first == end_line + 1
                    declaration.joins = joins and declaration.kind not in DATA
                    found.append(declaration)
                    continues = bool(comment) or declaration.joins
                if declaration:
                    end_line = last
                comment = []
            elif node.is_named:
                comment = []
        return found

    def declaration(self, node: tree_sitter.Node, owner: str) -> Declaration | None:
        """Returns what a node declares; None for what is not a public name, such as a friend or a forward."""
        outer, line = node, node.start_point[0] + 1
        while node.type == "template_declaration":
            node = node.named_children[-1]
        inner = _direct(node, "class_specifier", "struct_specifier", "enum_specifier")
        if node.type in {"declaration", "field_declaration"} and inner and inner.child_by_field_name("body"):
            node = inner
        if node.type in {"class_specifier", "struct_specifier", "enum_specifier"}:
            return self.type(node, outer, owner, line)
        if node.type == "concept_definition":
            name = node.child_by_field_name("name").text.decode()
            return Declaration("concept", owner, name, line, self.text(outer.start_byte, outer.end_byte))
        if node.type == "alias_declaration":
            name = node.child_by_field_name("name").text.decode()
            return Declaration("alias", owner, name, line, self.text(outer.start_byte, outer.end_byte))
        if node.type not in {"function_definition", "declaration", "field_declaration"}:
            return None
        cast = _descendant(node, "operator_cast")
        function = cast or _descendant(node, "function_declarator")
        if function and not _inside_default(function, node):
            body = _direct(node, "compound_statement", "field_initializer_list", "default_method_clause")
            code = self.text(outer.start_byte, body.start_byte if body else outer.end_byte).rstrip(";")
            if cast:
                name = "operator " + cast.child_by_field_name("type").text.decode()
            else:
                name = function.child_by_field_name("declarator").text.decode()
            return Declaration("function", owner, name, line, code + ";")
        name = _descendant(node, "field_identifier", "identifier")
        if not name:
            return None
        return Declaration("data", owner, name.text.decode(), line, self.text(outer.start_byte, outer.end_byte))

    def type(self, node: tree_sitter.Node, outer: tree_sitter.Node, owner: str, line: int) -> Declaration | None:
        """Returns a class, a struct or an enumeration that is defined here."""
        body, name = node.child_by_field_name("body"), node.child_by_field_name("name")
        if not body or not name:
            return None
        special = name.type == "template_type"
        short = name.child_by_field_name("name").text.decode() if special else name.text.decode()
        declared = Declaration(
            "type", owner, short, line, self.text(outer.start_byte, body.start_byte), is_specialisation=special
        )
        if node.type == "enum_specifier":
            declared.members = self.enumerators(body, declared.full_name)
            if not any(value.comment for value in declared.members):
                declared.code = self.text(outer.start_byte, node.end_byte)
                declared.members = []
        elif declared.full_name not in WITHOUT_MEMBERS:
            declared.members = self.scan(body.children, declared.full_name, node.type == "struct_specifier")
        return declared

    def enumerators(self, body: tree_sitter.Node, owner: str) -> list[Declaration]:
        """Lists the values of an enumeration; a comma may stand between a value and its comment."""
        found: list[Declaration] = []
        comment: list[str] = []
        for node in body.named_children:
            text = node.text.decode()
            if node.type == "enumerator":
                found.append(Declaration("enumerator", owner, WORD.match(text)[0], node.start_point[0] + 1, text))
                found[-1].comment = "\n".join(comment)
                comment = []
            elif found and text.startswith("///<"):
                found[-1].comment = text[4:].strip()
            elif text.startswith("///"):
                comment.append(text[3:].removeprefix(" "))
        return found


WORD = re.compile(r"[A-Za-z_]\w*")


def _direct(node: tree_sitter.Node, *kinds: str) -> tree_sitter.Node | None:
    return next((child for child in node.children if child.type in kinds), None)


def _inside_default(function: tree_sitter.Node, node: tree_sitter.Node) -> bool:
    """Whether a function's declarator is part of the value or the type of what the node declares."""
    value = node.child_by_field_name("default_value") or node.child_by_field_name("value")
    kind = node.child_by_field_name("type")
    return any(part and part.start_byte <= function.start_byte < part.end_byte for part in (value, kind))


def _is_special(declaration: Declaration, node: tree_sitter.Node) -> bool:
    """Whether this is a member that every type has or lacks, of which a type's own comment tells enough."""
    short = declaration.owner.split("::")[-1]
    text = node.text.decode()
    return declaration.kind == "function" and (
        declaration.name.startswith("~")
        or "= delete" in text
        or "= default" in text
        or re.search(rf"\b{short}\({short} ?(const&|&&)", declaration.code) is not None
        or (declaration.name == "operator=" and re.search(rf"\({short} ?(const&|&&)", declaration.code) is not None)
        or re.search(rf"\b{short}\(\);", declaration.code) is not None
    )


def read(root: Path, path: Path) -> Header:
    """Reads one header."""
    return parse(path, (root / path).read_text())


def parse(path: Path, source: str) -> Header:
    """Reads the text of a header."""
    reader = _Reader(source)
    return Header(path, reader.file_comment(), reader.scan(reader.root.children, "", True))


def read_all(root: Path) -> list[Header]:
    """Reads all public headers."""
    return [read(root, path.relative_to(root)) for path in sorted((root / INCLUDE).glob("*.hpp"))]


class Pages:
    """The pages of the site for the public headers."""

    def __init__(self, public: list[Header]) -> None:
        self.places: dict[str, str] = {}  # of a name: its page and anchor
        self.used: set[str] = set()  # anchors of a page: overloads that stand apart have one name
        for header in public:
            for declaration in header.all():
                if declaration.kind not in DATA and not declaration.is_specialisation:
                    self.places.setdefault(declaration.full_name, f"{Path(header.page).name}#{declaration.anchor}")

    def page(self, header: Header) -> str:
        """Returns the page of a header."""
        self.used = set()
        name = header.path.name
        parts = [f"# {name}", self.prose(header.comment), f"```cpp\n#include <forebay/{name}>\n```"]
        parts += self.listing(header.declarations, 2)
        return "\n\n".join(part for part in parts if part) + "\n"

    def listing(self, declarations: list[Declaration], level: int) -> Iterator[str]:
        """Yields the parts of a page on these declarations."""
        last_name = ""
        groups: list[list[Declaration]] = []
        for declaration in declarations:
            if groups and (declaration.joins or _in_one_block(groups[-1][-1], declaration, level)):
                groups[-1].append(declaration)
            else:
                groups.append([declaration])
        for group in groups:
            first = group[0]
            if first.kind in DATA and level > 2:
                yield self.table(group)
                continue
            if first.kind != "alias" or first.comment:
                named = list({d.name: d for d in group}.values())
                if first.name != last_name or len(named) > 1:
                    title = ", ".join(f"`{_title(d)}`" for d in named)
                    anchors = list(dict.fromkeys(d.anchor for d in named))
                    again = (f"{first.anchor}-{n}" for n in itertools.count(2))
                    anchors = [a for a in anchors if a not in self.used] or [
                        next(a for a in again if a not in self.used)
                    ]
                    self.used.update(anchors)
                    yield f"{'#' * level} {title} {{ #{anchors[0]} }}"
                    if anchors[1:]:
                        yield "".join(f"[](){{ #{anchor} }}" for anchor in anchors[1:])
                last_name = first.name
            yield "```cpp\n" + "\n".join(d.code for d in group) + "\n```"
            yield self.prose(first.comment)
            for declaration in group:
                if declaration.members:
                    yield from self.listing(declaration.members, level + 1)

    def table(self, members: list[Declaration]) -> str:
        """Returns a table of data members, or of the values of an enumeration."""
        rows = ["| name | is |", "|---|---|"]
        for member in members:
            code = " ".join(member.code.rstrip(";").split()).replace("|", "\\|")
            rows.append(f"| `{code}` | {' '.join(self.prose(member.comment).split())} |")
        return "\n".join(rows)

    def prose(self, comment: str) -> str:
        """Returns a comment in Markdown: with names of types, and paths of pages, as links."""
        comment = re.sub(r"\\throws (\w+)", r"\n\nThrows `\1`", comment)
        comment = re.sub(r"\\param (\w+)", r"\n\n`\1`:", comment)
        parts = CODE.split(comment)
        for k, part in enumerate(parts):
            if k % 2 == 0:
                part = html.escape(part, quote=False)
                parts[k] = PAGE_NAMED.sub(lambda m: f"[{m[0]}](../../{m[1]})", part)
            elif not part.startswith("```"):
                name = re.sub(r"\(\)$|<.*>$", "", part.strip("`"))
                if place := self.places.get(name):
                    parts[k] = f"[{part}]({place})"
        return "".join(parts).strip()


def _title(declaration: Declaration) -> str:
    short = declaration.owner.split("::")[-1]
    if declaration.kind == "function" and declaration.name == short:
        return f"{short}: constructor"
    return declaration.full_name if declaration.kind in {"type", "concept"} else declaration.name


def _in_one_block(before: Declaration, declaration: Declaration, level: int) -> bool:
    """Whether two neighbours stand together: rows of one table, or names for types that need no words."""
    both = {before.kind, declaration.kind}
    if both <= DATA and level > 2:
        return True
    return both == {"alias"} and not before.comment and not declaration.comment
