# SPDX-License-Identifier: Apache-2.0
"""The tutorials, followed to the letter; and what the follower finds in pages that are wrong."""

import os
import select
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import tutorials  # noqa: E402


@pytest.mark.parametrize("page", tutorials.PAGES, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says_and_prints_what_it_shows(page, tmp_path):
    if not (tutorials.build_folder() / "cmake_install.cmake").is_file():
        pytest.skip("`make build` has built nothing to install here")
    walk = tutorials.follow(page, tmp_path)
    renew = "\n`python scripts/tutorials.py --update` in .venv writes what came into the pages"
    assert not walk.differences, "\n".join(walk.differences) + renew


def follow(tmp_path: Path, text: str, *, gpu: bool = False) -> tutorials.Walk:
    """Follows a page of a test in a folder without a build."""
    page = tmp_path / "page.md"
    page.write_text(text)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    walk = tutorials.Walk(page, scratch, gpu)
    walk.follow()
    return walk


CONSOLE = """
```console
$ printf 'a\\nb\\n'
a
b
$ echo last
last
```
"""
PYCON = """
```pycon
>>> x = 20
>>> for i in range(2):
...     print(x + i)
...
20
21
>>> x
20
>>> 1 / 0
Traceback (most recent call last):
  ...
ZeroDivisionError: division by zero
```
"""


@pytest.mark.parametrize("page", [CONSOLE, PYCON])
def test_a_page_that_shows_what_comes_has_no_differences(tmp_path, page):
    assert follow(tmp_path, page).differences == []


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        (CONSOLE, "b\n$", "c\n$"),
        (CONSOLE, "b\n$", "$"),
        (CONSOLE, "last\n```", "last\nmore\n```"),
        (PYCON, "21\n", "22\n"),
        (PYCON, "21\n", ""),
        (PYCON, "by zero", "by nothing"),
    ],
)
def test_output_that_differs_is_found_and_update_mends_it(tmp_path, page, old, new):
    assert page.count(old) == 1
    walk = follow(tmp_path, page.replace(old, new))
    assert len(walk.differences) == 1
    assert "\n".join(walk.new_text) + "\n" == page


def test_what_varies_may_differ_and_nothing_else(tmp_path):
    page = "<!-- varies: \\d+ ms -->\n```console\n$ echo sum 7 in 12 ms\nsum {} in 900 ms\n```\n"
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    assert follow(tmp_path / "right", page.format(7)).differences == []
    assert len(follow(tmp_path / "wrong", page.format(8)).differences) == 1


def test_folder_variables_status_and_files_last_from_block_to_block(tmp_path):
    page = """
```bash
mkdir inner
cd inner
export EXPORTED=1
plain=2
```
```text title="file.txt"
some text
```
```console
$ echo $EXPORTED $plain; cat file.txt
1 2
some text
$ (exit 3)
$ echo $?
3
```
```pycon
>>> open("file.txt").read()
'some text\\n'
```
"""
    assert follow(tmp_path, page).differences == []


def test_an_excerpt_is_of_a_file_that_the_page_has_written(tmp_path):
    page = '```cpp title="a.cpp"\nint f() {\n  int x;\n  return x;\n}\n```\n```cpp\nint x;\nreturn x;\n```\n'
    assert follow(tmp_path, page).differences == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("text\n```cpp\nint x;\n```\n", "line 3: a block that is neither run nor a file"),
        ("```\nls\n```\n", "neither run nor a file"),
        ("```console\nls\n```\n", "begins with '[$] COMMAND'"),
        ("```pycon\nx = 1\n```\n", "begins with '>>> STATEMENT'"),
        ("```bash\nfalse\ntrue\n```\n", "exit status 1"),
        ("```console\n$ false\n```\n", "exit status 1, and no '[$] echo [$][?]' follows"),
        ("```console\n$ ls\n", "the block has no end"),
        ("```cpp linenums\nint x;\n```\n", "a fence is"),
        ("- item\n  ```bash\n  ls\n  ```\n", "a fence is"),
        ("```pycon\n>>> import os; os._exit(1)\n```\n", "Python ended"),
        ("<!-- varies: ( -->\n```console\n$ echo 1\n1\n```\n", "varies"),
    ],
)
def test_a_page_that_cannot_be_followed_is_refused(tmp_path, page, said):
    with pytest.raises(tutorials.WrongPageError, match=said):
        follow(tmp_path, page)


def test_a_command_without_an_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tutorials, "LIMIT_S", 0.1)
    with pytest.raises(tutorials.WrongPageError, match=r"no end after 0[.]1 s"):
        follow(tmp_path, "```console\n$ tail -f /dev/null\n```\n")


def test_blocks_that_are_not_for_here_are_skipped(tmp_path):
    for gpu in (False, True):
        folder = tmp_path / str(gpu)
        folder.mkdir()
        walk = follow(
            folder,
            "<!-- not run: it would take long -->\n```bash\ntouch never\n```\n"
            "<!-- needs a GPU -->\n```bash\ntouch on_gpu\n```\n",
            gpu=gpu,
        )
        assert [path.name for path in walk.scratch.iterdir()] == (["on_gpu"] if gpu else [])


@pytest.mark.parametrize(
    "block",
    [
        "```bash\nsleep 600 >/dev/null 2>&1 & echo $! >../pid\n```\n",
        "```pycon\n"
        ">>> import subprocess\n"
        '>>> started = subprocess.Popen(["sleep", "600"])\n'
        '>>> written = open("../pid", "w").write(str(started.pid))\n'
        "```\n",
    ],
)
def test_what_a_page_leaves_in_the_background_is_ended(tmp_path, block):
    follow(tmp_path, block)
    try:
        left = os.pidfd_open(int((tmp_path / "pid").read_text()))
    except ProcessLookupError:
        return
    ended, _, _ = select.select([left], [], [], 60)
    os.close(left)
    assert ended


def test_a_shell_that_ends_before_its_commands_is_said(tmp_path):
    with pytest.raises(tutorials.WrongPageError, match="the shell ended before its commands did"):
        follow(tmp_path, "```console\n$ kill -9 $$\n```\n")


def test_output_that_is_not_text_is_a_difference(tmp_path):
    assert len(follow(tmp_path, "```console\n$ printf '\\xff\\n'\ntext\n```\n").differences) == 1
