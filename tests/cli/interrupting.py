"""Ctrl-C at a chosen moment of a command that runs in this process."""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from typing import TYPE_CHECKING, Any

from tests.cli.running import Result, call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["interrupted"]


class Interrupter:
    """Counts the calls of functions of Lace in this thread, and presses Ctrl-C at one of them."""

    def __init__(self, at: int | None) -> None:
        self.count = 0
        self._at = at

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if code.co_flags & inspect.CO_GENERATOR:
            return  # it may be closed just now, as garbage, where what is raised is lost
        if event == "call" and "/src/lace/" in code.co_filename:
            self.count += 1
            if self.count == self._at:
                signal.raise_signal(signal.SIGINT)


def interrupted(words: Sequence[str], given: bytes, at: int | None) -> tuple[Result, int]:
    """Run a command with a Ctrl-C at that call, if any; returns how it ended, and the calls."""
    watching = Interrupter(at)
    gc.collect()
    gc.disable()  # garbage that others have left is closed now, and not meanwhile
    sys.setprofile(watching)
    try:
        return call(*words, given=given), watching.count
    finally:
        sys.setprofile(None)
        gc.enable()
