# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, heard although the main thread is in a library that does not look for signals."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
_PATIENCE_S = 1.0  # Python looks for signals far more often


@contextlib.contextmanager
def interrupts_heard(say: Callable[[], object]) -> Iterator[None]:
    """Within the block Ctrl-C raises KeyboardInterrupt; where that is not soon, calls `say` and ends the process."""
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # it is ignored, or the caller's
        return
    heard = threading.Event()

    def hear(_number: int, _frame: FrameType | None) -> NoReturn:
        heard.set()
        raise KeyboardInterrupt

    def watch() -> None:
        while numbers := os.read(inlet, 64):
            if signal.SIGINT in numbers and not heard.wait(_PATIENCE_S) and signal.getsignal(signal.SIGINT) is hear:
                say()
                os._exit(INTERRUPTED)

    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    watcher = threading.Thread(target=watch, name="forebay-interrupts", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        os.close(outlet)
        watcher.join()
        os.close(inlet)
