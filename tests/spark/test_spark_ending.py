"""What a signal has cut off, apart from what the caller was handling before."""

from __future__ import annotations

from typing import Any

import pytest

from lace.spark.engine import session as ending
from lace.spark.engine.session import stopped


@pytest.fixture(autouse=True)
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each block was cut off; nothing of Spark is there to be stopped."""
    made: list[bool] = []

    def stop(_context: Any, *, is_cut_off: bool) -> None:
        made.append(is_cut_off)

    monkeypatch.setattr(ending, "_stop", stop)
    return made


def fail_after(first: BaseException) -> None:
    """Fail while something else is handled, as PySpark does after a signal."""
    try:
        raise first
    except BaseException:  # noqa: BLE001 - whatever it is
        raise KeyError("p")  # noqa: B904 - as it happens there


def test_a_signal_is_what_has_happened(cuts: list[bool]) -> None:
    with pytest.raises(KeyboardInterrupt), stopped(None):
        fail_after(KeyboardInterrupt())
    assert cuts == [True]


def test_an_error_is_itself(cuts: list[bool]) -> None:
    with pytest.raises(KeyError), stopped(None):
        fail_after(ValueError())
    with stopped(None):
        pass
    assert cuts == [False, False]


@pytest.mark.parametrize("before", [KeyboardInterrupt, SystemExit])
def test_what_the_caller_handles_is_no_signal(
    cuts: list[bool], before: type[BaseException]
) -> None:
    def run() -> None:
        try:
            raise before
        except BaseException:  # noqa: BLE001 - whatever it is
            with stopped(None):
                fail_after(ValueError())

    with pytest.raises(KeyError):
        run()
    assert cuts == [False]
