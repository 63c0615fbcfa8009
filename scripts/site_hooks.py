# SPDX-License-Identifier: Apache-2.0
"""What MkDocs does for the site beside its own work (mkdocs.yml, ``hooks``).

The pages are written for GitHub. These hooks make the C++ reference from the public headers. They point links that
leave docs/ at what the site has instead, and write lists and tables in the way that Python-Markdown reads.
"""

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import headers
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
LOG = logging.getLogger("mkdocs.hooks.site")  # a warning of it ends the build
HEADERS_IN_NAV = "C++ headers"  # the entry of the navigation that the pages of headers fill

FENCE = re.compile(r"\s*(```|~~~)")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.M)
ROW = re.compile(r"^ *\|.*$", re.M)
SPAN = re.compile(r"`[^`\n]*`")
ITEM = re.compile(r"( *)([-*+]|\d+\.)( +)(?=\S)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
# Below docs/, but code and not pages.
NOT_PAGES = "docs/examples/"


def relinked(text: str, page: str, repository: str | None) -> str:
    """Returns the text of a page with links that leave docs/ as links that work in the site.

    A link to a public header leads to its page. One to another file leads to the repository if that has an address, and
    else is the file's path. ``page`` is the path of the page below docs/.
    """
    folder = posixpath.dirname(f"docs/{page}")

    def changed(link: re.Match[str]) -> str:
        words, target, fragment = link[1], link[2], link[3] or ""
        if "://" in target or target.startswith(("mailto:", "/")):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/") and not path.startswith(NOT_PAGES):
            return link[0]
        if posixpath.dirname(path) == str(headers.INCLUDE):
            place = posixpath.relpath(headers.page_of(Path(path)), posixpath.dirname(page) or ".")
            return f"[{words}]({place}{fragment})"
        if repository:
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"[{words}]({repository.rstrip('/')}/{kind}/main/{path}{fragment})"
        return f"`{path}`" if words.strip("`") in path else f"{words} (`{path}`)"

    parts = FENCED.split(text)
    return "".join(part if k % 2 else LINK.sub(changed, part) for k, part in enumerate(parts))


def indented(text: str) -> str:
    """Returns Markdown whose lists are indented by four columns each, after a blank line.

    GitHub indents by the width of an item's mark, and needs no blank line before a list.
    """
    lines: list[str] = []
    inside: list[int] = []  # the columns at which the text of the open items begins
    fenced = False
    for line in text.splitlines():
        item = None if fenced else ITEM.match(line)
        column = len(line) - len(line.lstrip())
        if line.strip() and not fenced and (item or not lines or not lines[-1].strip()):
            while inside and column < inside[-1]:
                inside.pop()
        if item:
            before = lines[-1] if lines else ""
            beside = len(before) - len(before.lstrip()) == 4 * len(inside)
            if before.strip() and beside and not ITEM.match(before):
                lines.append("")
            lines.append(" " * 4 * len(inside) + line[item.end(1) : item.end(2)] + " " + line[item.end() :])
            inside.append(item.end())
        else:
            base = inside[-1] if inside else 0
            rest = line[min(base, column) :]
            lines.append(" " * 4 * len(inside) + rest if rest.strip() else "")
        if FENCE.match(line):
            fenced = not fenced
    return "\n".join(lines) + "\n"


def unescaped(text: str) -> str:
    """Returns Markdown whose tables have no backslash before a bar in code, where Python-Markdown would show it."""

    def row(line: re.Match[str]) -> str:
        return SPAN.sub(lambda span: span[0].replace("\\|", "|"), line[0])

    return ROW.sub(row, text)


def misread(source: str, html: str) -> list[str]:
    """Lists what a page has less or more of in the site than on GitHub."""
    expected = MarkdownIt("commonmark").enable("table").render(source)
    return [
        f"{expected.count(tag)} of {tag}> in Markdown, {html.count(tag)} in the site"
        for tag in ("<li", "<pre", "<table", "<td", "<blockquote", "<img")
        if expected.count(tag) != html.count(tag)
    ]


def with_headers(entry: Any, pages: list[str]) -> Any:  # noqa: ANN401 (lists and dictionaries of strings)
    """Returns the navigation with the pages of the headers in their place."""
    if isinstance(entry, list):
        return [with_headers(part, pages) for part in entry]
    if isinstance(entry, dict):
        return {name: pages if name == HEADERS_IN_NAV else with_headers(part, pages) for name, part in entry.items()}
    return entry


def on_config(config: Any) -> None:  # noqa: ANN401 (types of MkDocs, which only `make docs` needs)
    """Lists the pages of the headers in the navigation."""
    config["nav"] = with_headers(config["nav"], [header.page for header in headers.read_all(ROOT)])


def on_files(files: Any, config: Any) -> None:  # noqa: ANN401
    """Adds the pages of the headers."""
    from mkdocs.structure.files import File

    public = headers.read_all(ROOT)
    pages = headers.Pages(public)
    for header in public:
        files.append(File.generated(config, header.page, content=pages.page(header)))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401, ARG001
    """Makes a page that is written for GitHub one for the site."""
    return indented(unescaped(relinked(markdown, page.file.src_uri, config["repo_url"])))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> None:  # noqa: ANN401, ARG001
    """Warns of a page that the site shows otherwise than GitHub; docstrings are only in the site."""
    source = page.file.content_string
    if "\n::: " not in source:
        for what in misread(source, html):
            LOG.warning("%s: %s", page.file.src_uri, what)
