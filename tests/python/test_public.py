# SPDX-License-Identifier: Apache-2.0
"""What is public in the package: its names, their docstrings, the reference page, the stub and what a wheel holds."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import forebay
import forebay.graph
import forebay.search
import forebay.study
import numpy as np
import pytest
from forebay import storage
from forebay._native import core, graph_core, transfer_core
from forebay.graph import placed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/python.md"
STUB = ROOT / "python/forebay/_core.pyi"
STUBS = {"_core": core, "_graph": graph_core, "_transfer": transfer_core}
MODULES = (forebay, forebay.graph, forebay.search, forebay.study)
DEADLINE_S = 120


def resolve(name):
    """The object of a dotted name: what follows the longest part that is a module are attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"there is no {name}")


def functions(module):
    """The public functions of a module, and the methods of its public classes, by their names."""
    for name in module.__all__:
        member = getattr(module, name)
        if inspect.isfunction(member):
            yield name, member
        elif inspect.isclass(member):
            for inner, of_class in vars(member).items():
                function = getattr(of_class, "__func__", of_class)
                # A dataclass makes its constructor itself; the docstring of the class says what the fields are.
                shown = not inner.startswith("_") or (inner == "__init__" and not dataclasses.is_dataclass(member))
                if inspect.isfunction(function) and shown:
                    yield f"{name}.{inner}", inspect.unwrap(function)


FUNCTIONS = {f"{module.__name__}.{name}": function for module in MODULES for name, function in functions(module)}


# ---- names


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_public_names_are_those_in_all(module):
    own = {
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and not isinstance(member, types.ModuleType)
    }
    assert own == set(module.__all__)


def test_the_version_is_the_projects():
    assert f'\nversion = "{forebay.__version__}"\n' in (ROOT / "pyproject.toml").read_text()


# ---- docstrings


def sections(docstring):
    """The sections of a docstring in Google's style: the text of each by its title."""
    found = {}
    title = ""
    for line in inspect.cleandoc(docstring).splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            title = line[:-1]
        found[title] = found.get(title, "") + line + "\n"
    return found


def items(section):
    """The names that a section explains."""
    return re.findall(r"^    (\w+): ", section, re.MULTILINE)


def defects(function):
    """What the docstring of a function leaves out of its signature, and what it has that is not there."""
    if not function.__doc__:
        return ["no docstring"]
    found = sections(function.__doc__)
    signature = inspect.signature(function)
    parameters = [name for name in signature.parameters if name not in ("self", "cls")]
    wrong = []
    if items(found.get("Args", "")) != parameters:
        wrong.append(f"Args explains {items(found.get('Args', ''))}, the parameters are {parameters}")
    gives = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    says = "Returns" in found or "Yields" in found or found[""].startswith("Returns ")
    if gives != says:
        wrong.append("gives a result and has no section Returns" if gives else "says Returns and gives nothing")
    return wrong


def test_there_are_functions_to_look_at():
    assert {
        "forebay.Storage.__init__",
        "forebay.Storage.new_extent",
        "forebay.create_drive",
        "forebay.graph.bfs",
    } < set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_explains_each_parameter_and_the_result(name):
    assert defects(FUNCTIONS[name]) == []


def test_a_docstring_that_leaves_something_out_is_found():
    def none(a): ...

    def parameter(a: int, b: int) -> None:
        """Does it.

        Args:
            a: One.
        """

    def order(a: int, b: int) -> None:
        """Does it.

        Args:
            b: Two.
            a: One.
        """

    def result() -> int:
        """Does it."""

    def no_result() -> None:
        """Does it.

        Returns:
            It.
        """

    assert [len(defects(function)) for function in (none, parameter, order, result, no_result)] == [1] * 5


def test_public_classes_and_their_properties_have_docstrings():
    bare = []
    for module in MODULES:
        for name in module.__all__:
            member = getattr(module, name)
            if not inspect.isclass(member):
                continue
            bare += [] if "__doc__" in vars(member) and member.__doc__ else [name]
            bare += [
                f"{name}.{inner}"
                for inner, of_class in vars(member).items()
                if isinstance(of_class, property) and not inner.startswith("_") and not of_class.__doc__
            ]
    assert bare == []


@pytest.mark.parametrize("name", ["Graph", *(name for name in forebay.graph.__all__ if name.endswith("Result"))])
def test_the_docstring_of_a_dataclass_explains_each_field(name):
    made = getattr(forebay.graph, name)
    assert items(sections(made.__doc__)["Attributes"]) == list(made.__dataclass_fields__)


@pytest.mark.parametrize("module", [storage, placed], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    failed, attempted = doctest.testmod(module, extraglobs={"np": np})
    assert attempted > 0
    assert failed == 0


def test_modules_have_docstrings():
    assert all(module.__doc__ for module in MODULES)


# ---- the reference page


def directives():
    return re.findall(r"^::: (\S+)$", PAGE.read_text(), re.MULTILINE)


def test_the_page_has_each_public_name_once():
    on_page = [resolve(name) for name in directives()]
    public = [getattr(module, name) for module in MODULES for name in module.__all__]
    assert len({id(member) for member in on_page}) == len(on_page)
    assert {id(member) for member in public} <= {id(member) for member in on_page}


def test_the_page_has_only_names_that_are_public():
    others = [name for name in directives() if not name.startswith(("forebay.trace.", "forebay.replay."))]
    public = {id(getattr(module, name)) for module in MODULES for name in module.__all__}
    assert [name for name in others if id(resolve(name)) not in public] == []
    assert all(resolve(name).__doc__ for name in directives())


def test_the_page_repeats_no_sentence_of_a_docstring():
    def sentences(text):
        return {" ".join(re.findall(r"\w+", one)) for one in re.split(r"[.:;](?:\s|$)|\n\n|\|", text)}

    docstrings = [inspect.getdoc(resolve(name)) or "" for name in directives()]
    docstrings += [inspect.getdoc(member) or "" for _, member in inspect.getmembers(forebay.Storage)]
    page = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    repeated = sentences(page) & set().union(*map(sentences, docstrings))
    assert [one for one in repeated if len(one.split()) > 3] == []


# ---- the stub


def normalised(signature):
    """Names, kinds, defaults and types of a signature, as one text: `def f(...) -> T` or its node."""
    if isinstance(signature, str):
        signature = re.sub(r"(?:numpy\.)?ndarray\[dtype=(\w+)[^\]]*\]", r"NDArray[\1]", signature)
        signature = signature.replace("def (self)", "def get(self)")  # nanobind names no getter
        signature = ast.parse(f"{signature}: ...").body[0]

    class Last(ast.NodeTransformer):
        """Leaves the last part of dotted names: what is imported is a matter of the stub."""

        def visit_Attribute(self, node):
            return ast.Name(node.attr)

    signature = Last().visit(signature)
    return f"({ast.unparse(signature.args)}) -> {ast.unparse(signature.returns)}"


def in_stub(body, prefix=""):
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found |= in_stub(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            found[prefix + node.name] = normalised(node)
    return found


def in_module(namespace, prefix=""):
    found = {}
    for name, member in namespace.items():
        if inspect.isclass(member):
            found |= in_module(vars(member), f"{name}.")
            continue
        function = member.fget if isinstance(member, property) else member
        signatures = getattr(function, "__nb_signature__", None)
        if signatures is None:
            assert name.startswith("__"), name  # what every module and class has
            continue
        ((text, _, _),) = signatures  # none is overloaded
        found[prefix + name] = normalised(text)
    return found


@pytest.mark.parametrize(("name", "least"), [("_core", 30), ("_graph", 12)])
def test_the_stub_and_the_module_agree(name, least):
    stub = in_stub(ast.parse(STUB.with_name(f"{name}.pyi").read_text()).body)
    assert len(stub) > least
    assert stub == in_module(vars(STUBS[name]()))


def test_the_stub_and_the_module_agree_on_what_is_a_property():
    (declared,) = (node for node in ast.parse(STUB.read_text()).body if getattr(node, "name", "") == "Storage")
    properties = {node.name for node in declared.body if getattr(node, "decorator_list", [])}
    assert properties == {name for name, member in vars(core().Storage).items() if isinstance(member, property)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    def flush(self) -> None: ...\n", ""),
        ("address_of(buffer: Buffer)", "address_of(of: Buffer)"),
        ("address_of(buffer: Buffer)", "address_of(buffer: bytes)"),
        ("verify: bool,", "verify: bool = False,"),
        ("storage: Storage,\n    *,", "storage: Storage,"),
        ("NDArray[np.uint32]", "NDArray[np.uint64]"),
        ("def report(self) -> str", "def report(self) -> bytes"),
    ],
)
def test_a_stub_that_differs_is_found(before, after):
    text = STUB.read_text()
    assert before in text
    assert in_stub(ast.parse(text.replace(before, after)).body) != in_module(vars(core()))


# ---- what is installed


def build(kind, folder, settings):
    script = f"import sys; from scikit_build_core import build; print(build.build_{kind}(sys.argv[1], {settings!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


TYPES = {"py.typed", "_core.pyi", "_graph.pyi"}


def test_a_wheel_holds_the_marker_and_the_stub(tmp_path):
    # Without CMake: the sources in Python, which is what matters here.
    with zipfile.ZipFile(build("wheel", tmp_path, {"wheel.cmake": "false"})) as wheel:
        names = set(wheel.namelist())
    assert {f"forebay/{name}" for name in TYPES} <= names
    assert "forebay/graph/__init__.py" in names


def test_a_source_distribution_holds_the_marker_and_the_stub(tmp_path):
    with tarfile.open(build("sdist", tmp_path, {})) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {f"python/forebay/{name}" for name in TYPES} <= names
    assert "python/src/core.cpp" in names


@pytest.mark.parametrize("name", STUBS)
def test_an_extension_module_needs_no_static_tls(name):
    # A process that has loaded CUDA has little room left for it, and would refuse the module.
    module = STUBS[name]().__file__
    dynamic = subprocess.run(["readelf", "-dW", module], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in dynamic
    assert "STATIC_TLS" not in dynamic
