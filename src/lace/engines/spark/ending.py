"""How Spark's Java process ends: with its session, and when a signal cuts a call to it off."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["end_gateway", "held_signals", "own_interrupts", "stopped"]

_STOP_SECONDS: Final = 20
_MOST_CONTEXTS: Final = 100


@contextmanager
def stopped(context: Any) -> Iterator[None]:  # noqa: ANN401 - PySpark has no types here
    """Stop Spark at the end of the block.

    A signal may cut off a call to Java. What PySpark calls behind it, to tidy up, then gets
    answers to other calls and fails in whatever way: the signal is what has happened.
    """
    cut: BaseException | None = None
    outside = sys.exception()  # what the caller is handling has nothing to do with this
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        cut = _signal_behind(error, outside)
        if cut is None or cut is error:
            raise
        raise cut from None
    finally:
        _stop(context, is_cut_off=cut is not None)


def _signal_behind(
    error: BaseException, outside: BaseException | None = None
) -> BaseException | None:
    """Return what a signal raised, be it this or what this came up in; None for anything else."""
    found: BaseException | None = error
    for _ in range(_MOST_CONTEXTS):
        if found is outside:
            return None
        if found is None or not isinstance(found, (Exception, GeneratorExit)):
            return found
        found = found.__cause__ or found.__context__
    return None


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Have Ctrl-C mean what it meant before, whatever is started inside of the block.

    PySpark would call Java from its handler, in the midst of another call, and print how that
    fails. Stopping the context ends its jobs as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def held_signals() -> Iterator[None]:
    """Keep a first signal until the end of the block; a second one counts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    kept: list[int] = []

    def release() -> None:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)

    def keep(number: int, _frame: FrameType | None) -> None:
        kept.append(number)
        if len(kept) > 1:
            release()
            signal.raise_signal(number)

    for number, handler in before.items():
        if handler is not None and handler is not signal.SIG_IGN:
            signal.signal(number, keep)
    try:
        yield
    finally:
        release()
        if kept:
            signal.raise_signal(kept[0])


def _stop(context: Any, *, is_cut_off: bool) -> None:  # noqa: ANN401 - PySpark has no types here
    from pyspark.sql import SparkSession

    gateway = context._gateway
    with suppress(Exception):  # the Java process may be gone, and is ended below in any case
        if is_cut_off:  # the next call would wait for what the one before is at
            _end_process(gateway.proc)
            context._accumulatorServer.shutdown()
        else:
            session = SparkSession.getActiveSession()
            (session or context).stop()
    end_gateway(gateway)


def end_gateway(gateway: Any) -> None:  # noqa: ANN401 - Py4J has no types
    """End what speaks with Java, and the Java process; the next session begins again."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    with suppress(Exception):
        gateway.shutdown()
    _end_process(gateway.proc)


def _end_process(process: Any) -> None:  # noqa: ANN401 - PySpark has no types here
    """End the Java process: it goes when its input does, and is made to if it does not.

    Going, it stops Spark and removes the files that Spark had for a while.
    """
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except Exception:  # noqa: BLE001 - whatever it is that it waits for
        process.kill()
        process.wait()
