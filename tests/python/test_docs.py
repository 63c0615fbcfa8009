# SPDX-License-Identifier: Apache-2.0
"""What the checkers of the documentation find in pages and headers, and what the site makes of them."""

import sys
from pathlib import Path

import pytest
import typer
from forebay.cli import app

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import commands_in_pages  # noqa: E402
import headers  # noqa: E402
import public_names  # noqa: E402
import site_hooks  # noqa: E402
import tidy  # noqa: E402

HEADER = """\
//! \\file
//! A pool.
#pragma once

namespace forebay {

/// How to draw. docs/concepts/queue.md says more.
enum class draw : int {
  now = 0,  ///< at once
  /// When there is room,
  /// later.
  later,
};

enum class plain { one, two };

/// A pool of `T`.
template <class T>
class pool final : public base {
 public:
  using value_type = T;
  static constexpr int depth = 3;  ///< how deep
  pool() = default;
  /// Makes a pool. Throws nothing.
  explicit pool(int size) : size_(size) {}
  pool(pool const&) = delete;
  ~pool();

  /// Takes one, unlike `pool::give()`.
  FOREBAY_DEVICE T take() const
    requires(sizeof(T) > 2)
  {
    return {};
  }
  T take(int count) const;

  void give(T value);

 private:
  /// Hidden.
  int size_ = 0;
};

namespace detail {
/// Hidden too.
int inner();
}  // namespace detail

namespace memory {
/// Fills a `pool<T>` where a<b.
/// \\throws failure if it is full
template <class T>
void fill(pool<T>& p);
struct forward;
}  // namespace memory

}  // namespace forebay
"""


@pytest.fixture(scope="module")
def header():
    return headers.parse(headers.INCLUDE / "pool.hpp", HEADER)


@pytest.fixture(scope="module")
def page(header):
    return headers.Pages([header]).page(header)


def test_the_public_names_of_a_header_are_found(header):
    assert [(d.kind, d.full_name) for d in header.all()] == [
        ("type", "draw"),
        ("enumerator", "draw::now"),
        ("enumerator", "draw::later"),
        ("type", "plain"),
        ("type", "pool"),
        ("alias", "pool::value_type"),
        ("data", "pool::depth"),
        ("function", "pool::pool"),
        ("function", "pool::take"),
        ("function", "pool::take"),
        ("function", "pool::give"),
        ("function", "memory::fill"),
    ]


def test_comments_belong_to_what_follows_them_or_stands_before_them(header):
    comments = [(d.name, d.comment, d.joins) for d in header.all()]
    assert ("now", "at once", False) in comments
    assert ("later", "When there is room,\nlater.", False) in comments
    assert ("depth", "how deep", False) in comments
    assert ("take", "Takes one, unlike `pool::give()`.", False) in comments
    assert ("take", "", True) in comments
    assert ("give", "", False) in comments


def test_a_declaration_is_shown_without_its_body(header):
    code = {d.full_name: d.code for d in reversed(list(header.all()))}
    assert code["pool"] == "template <class T>\nclass pool final : public base"
    assert code["pool::take"] == "FOREBAY_DEVICE T take() const\n  requires(sizeof(T) > 2);"
    assert code["pool::pool"] == "explicit pool(int size);"
    assert code["memory::fill"] == "template <class T>\nvoid fill(pool<T>& p);"
    assert code["plain"] == "enum class plain { one, two }"


def test_the_page_of_a_header_has_its_names_with_anchors_and_links(page):
    assert page.startswith("# pool.hpp\n\nA pool.\n\n```cpp\n#include <forebay/pool.hpp>\n```\n")
    assert "## `pool` { #pool }" in page
    assert page.count("### `take` { #pool-take }") == 1
    assert "unlike [`pool::give()`](pool.md#pool-give)" in page
    assert "[docs/concepts/queue.md](../../concepts/queue.md)" in page
    assert "| `later` | When there is room, later. |" in page
    assert "| `static constexpr int depth = 3` | how deep |" in page
    assert "Fills a [`pool<T>`](pool.md#pool) where a&lt;b.\n\n\nThrows `failure` if it is full" in page
    assert "Hidden" not in page


def test_public_names_without_a_comment_are_found(header):
    assert [line.split(": ", 1)[1] for line in public_names.uncommented(header)] == [
        "no comment says what plain is",
        "no comment says what pool::give is",
    ]


def test_a_sentence_of_the_guide_that_a_header_has_is_found():
    guide = (
        "# Library\n\nThreads share it. A *pool* of elements,\nwhich [threads](a.md) share.\n\n"
        "| `x` | how deep it is, in all |\n"
    )
    source = "/// Short. A pool of elements, which\n/// threads share.\nint a;\nint b;  ///< how deep it is: in all\n"
    found = list(public_names.said_twice(guide, {Path("pool.hpp"): source}))
    assert [line.split(": ")[0] for line in found] == [f"{public_names.GUIDE}:3", f"{public_names.GUIDE}:6"]
    assert list(public_names.said_twice(guide, {Path("pool.hpp"): "/// Short.\n/// Threads share it.\n"})) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`pool::take()`, `forebay::pool<int>::depth` and `std::pool::x`", []),
        ("`pool::tke`", ["pool::tke: pool has no member tke"]),
        ("`forebay::pol`", ["forebay::pol: no header has pol"]),
        ("```cpp\n#include <forebay/pool.hpp>\nforebay::pool p({.depth = 3});  // pool::tke\n```", []),
        ("```cpp\nf({.dept = 3});\n```", [".dept: no header has such a member"]),
        ("```cpp\n#include <forebay/pol.hpp>\n```", ["forebay/pol.hpp is no public header"]),
        ("```python\npool::tke\n```", []),
    ],
)
def test_names_in_pages_that_no_header_has_are_found(header, text, missing):
    names = public_names.Names([header], public_names.words_of([HEADER]))
    assert [line.split(": ", 1)[1] for line in names.check(Path("a.md"), text)] == missing


COMMAND = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("forebay bench randread --drive a --iodepth=3  # --no", []),
        ("$ X=1 .venv/bin/forebay bench randred", ["1: `forebay bench` has no subcommand randred"]),
        ("forebay drive ls a \\\n  --no", ["1: `forebay drive ls` has no option --no"]),
        ("cd a && forebay --version; forebay --versions", ["1: `forebay` has no option --versions"]),
        ("text\nforebay run -- forebay drive lss", ["2: `forebay drive` has no subcommand lss"]),
        ("forebay run -- program --no", []),
        ("forebay: it's the output of --no", []),
        ("forebay graph bfs -f a -r 0 -z", ["1: `forebay graph bfs` has no option -z"]),
    ],
)
def test_command_lines_that_the_command_refuses_are_found(text, wrong):
    found = commands_in_pages.check("a.md", f"```bash\n{text}\n```\n", COMMAND)
    assert [line.removeprefix("a.md:") for line in found] == [f"{int(w[0]) + 1}{w[1:]}" for w in wrong]


def test_command_lines_in_code_spans_are_read_too():
    text = "| `forebay drive ls\\|lss URI [--no]` | `forebay` | `forebay drive serve --socket PATH` |\n"
    assert list(commands_in_pages.check("a.md", text, COMMAND)) == ["a.md:1: `forebay drive` has no subcommand lss"]
    assert len(list(commands_in_pages.check("a.md", "`forebay drive ls URI [--no]`\n", COMMAND))) == 1
    assert list(commands_in_pages.check("a.md", "```python\nforebay nothing\n```\n", COMMAND)) == []


def test_the_pages_name_commands_and_options_that_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in pages if page.name != "CHANGELOG.md"}
    assert [breach for page, text in texts.items() for breach in commands_in_pages.check(page, text, COMMAND)] == []
    assert any(list(commands_in_pages.calls_in(line)) for _, line in commands_in_pages.lines_of(texts["README.md"]))


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](../concepts/queue.md#x)", "[a](../concepts/queue.md#x)"),
        ("[a](https://a.org/b)", "[a](https://a.org/b)"),
        ("[a](#x)", "[a](#x)"),
        ("[a](/b.md)", "[a](/b.md)"),  # which MkDocs refuses
        ("[`storage`](../../include/forebay/storage.hpp#storage)", "[`storage`](../reference/cpp/storage.md#storage)"),
        ("[file](../../bench/results/a.json)", "file (`bench/results/a.json`)"),
        ("[`a.json`](../../bench/results/a.json)", "`bench/results/a.json`"),
        ("[the program](../examples/lru.hpp)", "the program (`docs/examples/lru.hpp`)"),
        ("```\n[a](../../b)\n```", "```\n[a](../../b)\n```"),
        ("![a](../figures/a.svg)", "![a](../figures/a.svg)"),
    ],
)
def test_links_that_leave_the_pages_are_replaced(link, expected):
    assert site_hooks.relinked(link, "how-to/a.md", None) == expected


def test_links_that_leave_the_pages_lead_to_the_repository_if_it_has_an_address():
    text = "[a](../scripts/docs) [b](../bench)"
    there = "https://example.org/forebay"
    assert site_hooks.relinked(text, "a.md", f"{there}/") == (
        f"[a]({there}/blob/main/scripts/docs) [b]({there}/tree/main/bench)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A list:\n- a\n- b\n", "A list:\n\n- a\n- b\n"),
        (
            "1. a:\n\n   | t |\n   |---|\n\n   - b\n     c\n2. d\n",
            "1. a:\n\n    | t |\n    |---|\n\n    - b\n        c\n2. d\n",
        ),
        ("- a\nlazy\n- b\n\ntext\n", "- a\n    lazy\n- b\n\ntext\n"),
        ("1. a\n   ```\n   - x\n\n     y\n   ```\n\ntext\n", "1. a\n    ```\n    - x\n\n      y\n    ```\n\ntext\n"),
        ("1. a\n\n   text:\n   - b\n", "1. a\n\n    text:\n\n    - b\n"),
        ("```\na\n- b\n```\n", "```\na\n- b\n```\n"),
    ],
)
def test_lists_are_indented_as_the_site_reads_them(text, expected):
    assert site_hooks.indented(text) == expected


def test_bars_in_code_of_tables_are_shown_without_a_backslash():
    assert site_hooks.unescaped("| `a\\|b` | c\\|d |\n`e\\|f`\n") == "| `a|b` | c\\|d |\n`e\\|f`\n"


def test_a_page_that_the_site_reads_otherwise_is_found():
    assert site_hooks.misread("text\n- a\n", "<p>text\n- a</p>") == ["1 of <li> in Markdown, 0 in the site"]
    assert site_hooks.misread("text\n- a\n", "<p>text</p><ul><li>a</li></ul>") == []


def test_files_that_no_page_leads_to_are_found(tmp_path, monkeypatch):
    files = {
        "README.md": "![a](docs/a.svg)",
        "docs/index.md": "[b](b.md#x)",
        "docs/b.md": "![c](figures/c.svg)",
        "docs/a.svg": "",
        "docs/figures/c.svg": "",
        "docs/examples/e.cpp": "",
        "docs/lost.md": "",
        "docs/figures/lost.svg": "",
        "src/lost.cpp": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(tidy, "ROOT", tmp_path)
    pages = {Path(name) for name in files if name.endswith(".md")}
    breaches = tidy.check_reachable(pages, [Path(name) for name in files])
    assert [breach.split(":")[0] for breach in breaches] == ["docs/lost.md", "docs/figures/lost.svg"]


def test_the_navigation_lists_the_headers():
    nav = [{"Home": "index.md"}, {"Reference": ["a.md", {site_hooks.HEADERS_IN_NAV: "x"}]}]
    assert site_hooks.with_headers(nav, ["b.md"]) == [
        {"Home": "index.md"},
        {"Reference": ["a.md", {site_hooks.HEADERS_IN_NAV: ["b.md"]}]},
    ]
