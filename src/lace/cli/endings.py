"""How signals end the process: none is lost, and the exit code says which it was."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final

from lace.cli.failures import Terminated

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["forget_interrupt", "heed_signals"]

_AGAIN_SECONDS: Final = 0.01
"""How long after it was lost a signal comes again."""


def heed_signals() -> None:
    """Have SIGTERM raise `Terminated`, as SIGINT raises KeyboardInterrupt, and lose neither.

    Python drops what is raised while it calls back for an object that is gone, as it does for
    the lock of every module that it loads. The signal of which that came is then sent again.
    """
    signal.signal(signal.SIGTERM, _terminate)
    lost: list[signal.Signals] = []
    tell = sys.unraisablehook

    def note(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            lost.append(signal.SIGINT)
        elif isinstance(dropped.exc_value, Terminated):
            lost.append(signal.SIGTERM)
        else:
            tell(dropped)
            return
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def send_again(_number: int, _frame: FrameType | None) -> None:
        while lost:
            signal.raise_signal(lost.pop())

    signal.signal(signal.SIGALRM, send_again)
    sys.unraisablehook = note


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def forget_interrupt() -> None:
    """Have `python -m lace` end with the exit code that it was given.

    Python notes every KeyboardInterrupt that leaves the code of a string, such as the one from
    which `dataclass` makes methods, and ends by SIGINT after all, though it was caught further
    out. Running another string takes the note back.
    """
    exec("")  # noqa: S102 - empty
