# SPDX-License-Identifier: Apache-2.0
"""What the checker of prose finds in pages and in comments, and what it leaves alone."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import prose  # noqa: E402

LONG = "Word" + " word" * prose.WORDS_MAX + "."


def found(text: str, name: str = "page.md") -> list[str]:
    """Lists what is wrong, without the name of the file."""
    return [breach.removeprefix(f"{name}:") for breach in prose.check(Path(name), text)]


@pytest.mark.parametrize(
    "sentence",
    [
        "The warp that waits looks again, and he finds it.",
        "Whoever holds the lock goes on.",
        "A thread who waits looks again.",
        "It says for whom it waits.",
        "| cell | A lane and his page |",
        "- An item: who comes last rings.",
    ],
)
def test_a_thread_is_no_person(sentence: str):
    assert len(found(f"# Title\n\n{sentence}\n")) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "A thread that waits looks again.",
        "People who know CUDA start here.",
        "A page whose frame is pinned stays.",
        "The option `who` and `his_name` are code.",
        "[Threads](who.md) are its.",
    ],
)
def test_people_and_code_may_be_named(sentence: str):
    assert found(f"{sentence}\n") == []


def test_a_sentence_is_short_and_its_line_is_told():
    assert found(f"Short.\n\nAlso short.\n{LONG}\n") == [
        f'3: a sentence of {prose.WORDS_MAX + 1} words, {prose.WORDS_MAX} at most: "Word word word word word word ..."'
    ]
    assert found("Word" + " word" * (prose.WORDS_MAX - 1) + ".\n") == []


def test_each_cell_item_and_paragraph_ends_its_sentence():
    half = " ".join(["word"] * (prose.WORDS_MAX - 1))
    assert found(f"| {half} | {half} |\n\n{half}\n\n{half}\n- {half}\n- {half}\n") == []


def test_code_blocks_are_no_prose():
    assert found(f"```\nwho is he? {LONG}\n```\n") == []


@pytest.mark.parametrize(
    ("name", "text", "breaches"),
    [
        ("a.hpp", "/// Who waits looks again.\nint who;\n", 1),
        ("a.cpp", "int a;  // his own\nint his;\n", 1),
        ("a.cu", "int who = 0;\n", 0),
        ("a.py", "# He waits.\nhe = 1\n", 1),
        ("a.json", "who", 0),
    ],
)
def test_comments_of_sources_are_read_too(name: str, text: str, breaches: int):
    assert len(found(text, name)) == breaches
