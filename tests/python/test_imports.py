# SPDX-License-Identifier: Apache-2.0
"""The modules of the package stand in an order: none imports one that imports it, in functions neither."""

import ast
import graphlib
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "python"


def modules(sources):
    """The modules below a folder, by name: their files."""
    found = {}
    for path in sources.rglob("*.py"):
        parts = path.relative_to(sources).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name, path, known):
    """Which of the known modules a module names in its imports, wherever they stand in it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            names = [whole if (whole := f"{base}.{alias.name}") in known else base for alias in node.names]
        else:
            continue
        yield from (other for other in names if other in known and other != name)


def check_order(sources):
    known = modules(sources)
    graphlib.TopologicalSorter({name: set(imported(name, path, known)) for name, path in known.items()}).prepare()


def test_no_module_imports_one_that_imports_it():
    assert len(modules(SOURCES)) > 20
    try:
        check_order(SOURCES)
    except graphlib.CycleError as circle:
        pytest.fail("imports go in a circle: " + " is imported by ".join(circle.args[1]))


@pytest.mark.parametrize(
    "back",
    ["import p.a", "from p import a", "from p.a import x", "from . import a", "def f():\n    from .a import x"],
)
def test_a_circle_is_found(tmp_path, back):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from p.b import y\n")
    (package / "b.py").write_text("y = 1\n")
    check_order(tmp_path)
    (package / "b.py").write_text(back + "\ny = 1\n")
    with pytest.raises(graphlib.CycleError):
        check_order(tmp_path)
