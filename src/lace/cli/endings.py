"""How signals end the process: none is lost, and the exit code says which it was.

The first one ends a command in order. A second one ends the process at once: records that were
said to be stored are, and locks go with the process.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from lace.cli.failures import Terminated

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["end_at_once", "end_by_next_signal", "forget_interrupt", "heed_signals"]

_AGAIN_SECONDS: Final = 0.01
"""How long after it was lost a signal comes again."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BY_SIGNAL: Final = 128
"""What an exit code adds to the number of a signal."""


def end_at_once(number: int) -> NoReturn:
    """End the process with the exit code of a signal, whatever its threads do."""
    os._exit(_BY_SIGNAL + number)


def heed_signals() -> None:
    """Have SIGTERM raise `Terminated`, as SIGINT raises KeyboardInterrupt, and lose neither.

    Python drops what is raised while it calls back for an object that is gone, as it does for
    the lock of every module that it loads. The signal of which that came is then sent again.
    A second signal ends the process at once.
    """
    raised: list[int] = []
    lost: list[signal.Signals] = []
    tell = sys.unraisablehook

    def end(number: int, _frame: FrameType | None) -> None:
        if raised:
            end_at_once(number)
        raised.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def note(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            lost.append(signal.SIGINT)
        elif isinstance(dropped.exc_value, Terminated):
            lost.append(signal.SIGTERM)
        else:
            tell(dropped)
            return
        raised.clear()
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def send_again(_number: int, _frame: FrameType | None) -> None:
        while lost:
            signal.raise_signal(lost.pop())

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGALRM, send_again)
    sys.unraisablehook = note
    # At the very end handlers in Python cannot be called any more.
    atexit.register(_ignore_signals)


def end_by_next_signal() -> None:
    """Have a signal end the process at once from now on: its work is done, and its code known."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda found, _frame: end_at_once(found))


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def forget_interrupt() -> None:
    """Have `python -m lace` end with the exit code that it was given.

    Python notes every KeyboardInterrupt that leaves the code of a string, such as the one from
    which `dataclass` makes methods, and ends by SIGINT after all, though it was caught further
    out. Running another string takes the note back.
    """
    exec("")  # noqa: S102 - empty
