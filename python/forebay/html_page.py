# SPDX-License-Identifier: Apache-2.0
"""Pages of HTML that hold all that they show and load nothing. All text is escaped here, and only here."""

import base64
import html
from collections.abc import Iterable, Sequence

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; }
code, td { font-family: ui-monospace, monospace; font-size: 0.85rem; }
table { border-collapse: collapse; } th, td { border: 1px solid #d5dae0; padding: 0.25rem 0.6rem; text-align: left; }
th { vertical-align: bottom; } td { vertical-align: top; } td.text { font: inherit; }
td.number { text-align: right; white-space: nowrap; } tr.bad td { background: #fdf0e2; } img { max-width: 100%; }
.verdict { font-weight: bold; } dt { font-weight: bold; } dd { margin: 0 0 0.4rem 1.5rem; } .wide { overflow-x: auto; }
"""

Cell = tuple[str, str]  # the text, and its class: "number", "text" or ""


def document(title: str, *parts: str) -> str:
    """A whole page of parts that are HTML."""
    body = "\n".join(part for part in parts if part)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style></head>
<body>
{body}
</body>
</html>
"""


def element(name: str, text: str, **attributes: str) -> str:
    """An element that holds text."""
    return f"<{name}{_attributes(attributes)}>{html.escape(text)}</{name}>"


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences; nothing if there are none."""
    items = "".join(element("li", one) for one in sentences)
    return f"<ul>{items}</ul>" if items else ""


def terms(of: Iterable[tuple[str, str]]) -> str:
    """Terms, each with what it means."""
    return f"<dl>{''.join(element('dt', name) + element('dd', meaning) for name, meaning in of)}</dl>"


def image(words: str, png: bytes) -> str:
    """A picture, within the page."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<p><img alt="{html.escape(words)}" src="{source}"></p>'


def table(heads: Sequence[str], rows: Iterable[tuple[Sequence[Cell], bool]]) -> str:
    """A table. A row is its cells, and whether it is as it should be."""
    head = "".join(element("th", name) for name in heads)
    body = "\n".join(_row(cells, good=good) for cells, good in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def folded(summary: str, *parts: str) -> str:
    """Parts that are HTML, below a line that opens them."""
    return f"<details>{element('summary', summary)}{''.join(parts)}</details>"


def _row(cells: Sequence[Cell], *, good: bool) -> str:
    shown = "".join(element("td", text, **({"class": kind} if kind else {})) for text, kind in cells)
    return f"<tr>{shown}</tr>" if good else f'<tr class="bad">{shown}</tr>'


def _attributes(attributes: dict[str, str]) -> str:
    return "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
