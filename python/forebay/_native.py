# SPDX-License-Identifier: Apache-2.0
"""The extension module. It is loaded at its first use, so that `forebay doctor` can say what is wrong with it."""

import functools
import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from forebay.errors import OperationFailed

Result = TypeVar("Result")

_LOOK_S = 0.1  # for signals
_PATIENCE_S = 1.0  # with what was interrupted


@functools.cache
def core() -> ModuleType:
    """Returns the module `forebay._core`.

    Raises:
        OperationFailed: It does not load.
    """
    packaged = Path(__file__).parent / "profiles"
    if packaged.is_dir():  # in a wheel: the C++ library knows only the places of its own installation
        os.environ.setdefault("FOREBAY_PROFILE_DIR", str(packaged))
    return _load("forebay._core")


@functools.cache
def graph_core() -> ModuleType:
    """Returns the module `forebay._graph`, of the graph algorithms.

    Raises:
        OperationFailed: It does not load.
    """
    core()  # first: the other module is linked to it, and shares its types
    return _load("forebay._graph")


@functools.cache
def search_core() -> ModuleType:
    """Returns the module `forebay._search`, of the vector search.

    Raises:
        OperationFailed: It does not load.
    """
    core()
    return _load("forebay._search")


@functools.cache
def transfer_core() -> ModuleType:
    """Returns the module `forebay._transfer`, of the transfer suite.

    Raises:
        OperationFailed: It does not load.
    """
    core()
    return _load("forebay._transfer")


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OperationFailed(f"the extension module {name} does not load: {error}; build it with `make`") from error


def interruptible(
    function: Callable[..., Result],
    *arguments: object,
    on_interrupt: Callable[[], None] | None = None,
    **named: object,
) -> Result:
    """Calls a long function of the extension on a thread of its own, so that Ctrl-C works while it runs.

    Args:
        function: What to call.
        arguments: Its arguments by position.
        on_interrupt: Called at Ctrl-C to make the function end early. The function then has a second to end.
        named: Its arguments by name.

    Returns:
        What the function returns.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed. The function may still run.
        Exception: What the function raises.
    """
    ended = (
        threading.Event()
    )  # after an interrupted join(), Python 3.11 takes a thread that runs for one that has ended
    outcome: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            outcome.append(function(*arguments, **named))
        except BaseException as error:  # raised again by the caller's thread
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=call, name="forebay-call", daemon=True)
    try:
        thread.start()  # which waits for the thread's first sign, and may be interrupted there
        while not ended.wait(_LOOK_S):
            pass
    except KeyboardInterrupt:
        if on_interrupt:
            on_interrupt()
            ended.wait(_PATIENCE_S)
        raise
    if errors:
        raise errors[0]
    return outcome[0]
