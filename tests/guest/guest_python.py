# SPDX-License-Identifier: Apache-2.0
"""Commands, `forebay` among them, in a guest: this interpreter, its library, and the packages that it loads."""

import compileall
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import guest

# As large as the rest together, and never loaded by the command.
UNUSED = ("test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "site-packages", "dist-packages")
UNUSED_PATTERNS = ("config-*", "*.a", "*.pyi", "*.opt-*.pyc")

# Says where the modules are that the command loads for a run and for a table. Those that Python itself loads at its
# start are not among them.
TRACE = """
import sys
at_start = set(sys.modules)
import contextlib, io, json
from forebay.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["bench", "randread", "--drive", "emulated:size=1M", "--size", "64K", "--verify"]) == 0
    assert main(["drive", "info", "emulated:size=1M"]) == 0
tops = {name.partition(".")[0] for name in set(sys.modules) - at_start}
files = {name: getattr(sys.modules.get(name), "__file__", None) for name in tops}
json.dump({name: file for name, file in files.items() if file}, sys.stdout)
"""

# Runs each of the /commands, one after the other, and leaves what it prints and its exit status in /results. A child
# of this process runs the command `forebay`, which takes seconds to load on an emulated processor.
RUNNER = """
import json, os, shlex, subprocess, sys
from forebay.cli import main

for number, command in enumerate(json.load(open("/commands"))):
    child = os.fork()
    if child == 0:
        output = os.open(f"/results/{number}.output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        words = shlex.split(command)
        if words[0] == "forebay":
            sys.exit(main(words[1:]))
        os.execv("/bin/sh", ["sh", "-c", command])
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    open(f"/results/{number}.status", "w").write(str(status))
    subprocess.run(["sh", "/after"], stdout=open(f"/results/{number}.after", "w"))
"""


def install(root: Path) -> None:
    """Puts into a folder what `guest.boot` takes as its root, so that the guest can run the command `forebay`."""
    library = Path(sysconfig.get_path("stdlib"))
    ignore = shutil.ignore_patterns(*UNUSED, *UNUSED_PATTERNS)
    its_library, packages = _within(root, library), root / "packages"
    shutil.copytree(library, its_library, ignore=ignore)
    packages.mkdir()
    for name, module in _loaded(library).items():
        if module.name != "__init__.py":
            shutil.copy2(module, packages)
            continue
        shutil.copytree(module.parent, packages / name, ignore=ignore)
        beside = module.parent.with_name(f"{name}.libs")  # libraries that a wheel brings
        if beside.is_dir():
            shutil.copytree(beside, packages / beside.name)
    # On an emulated processor, to compile a module takes longer than to run it.
    for folder in (packages, its_library):
        compileall.compile_dir(str(folder), stripdir=str(root), quiet=2, workers=os.cpu_count() or 1)
    python = Path(sys.executable).resolve()
    for file in (python, *_libraries_of([python, *root.rglob("*.so*")], root)):
        there = _within(root, file)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, there)


def run_commands(root: Path, commands: list[str], after: str) -> str:
    """Puts commands into the root; returns the script of a guest that runs them, and then `after` each of them."""
    (root / "commands").write_text(json.dumps(commands))
    (root / "after").write_text(after)
    (root / "runner.py").write_text(RUNNER)
    environment = (
        "PYTHONPATH=/packages PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 TERM=dumb NO_COLOR=1 COLUMNS=200"
    )
    return f"{environment} {Path(sys.executable).resolve()} /runner.py"


def _within(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _loaded(library: Path) -> dict[str, Path]:
    """The packages and modules that the command loads from elsewhere than Python's library, by name."""
    trace = subprocess.run([sys.executable, "-c", TRACE], check=True, capture_output=True, text=True)
    files = {name: Path(file) for name, file in json.loads(trace.stdout).items()}
    outside = {"site-packages", "dist-packages"}
    return {
        name: file
        for name, file in files.items()
        if not file.is_relative_to(library) or outside.intersection(file.relative_to(library).parts)
    }


def _libraries_of(files: list[Path], root: Path) -> set[Path]:
    """The libraries of the system that these need."""
    needed = {library for file in files for library in guest.libraries(file)}
    return {library for library in needed if not library.is_relative_to(root)}
