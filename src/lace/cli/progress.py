"""Progress: on a terminal, on standard error, and only after a second.

`Progress` is a bar for work that is counted, `Waiting` a line for work that takes what
it takes, with a bar where there is something to count at times.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from lace.cli.output import plural, size_text, wrap_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.live import Live

    from lace.cli.output import Output
    from lace.cli.session import Session


_AFTER_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.25
_BAR_WIDTH: Final = 20
_BESIDE_TITLE: Final = _BAR_WIDTH + 30
"""Columns that a bar and its count need beside a title."""


class Progress:
    """A bar with rate and time left; nothing at all where nobody would see it."""

    def __init__(
        self,
        session: Session,
        title: str,
        total: int | None,
        unit: Literal["bytes", "records"],
        *,
        hidden: bool = False,
    ) -> None:
        is_seen = sys.stderr is not None and sys.stderr.isatty()
        self._enabled = is_seen and session.output.progress_wanted and not hidden
        self._color = session.output.color
        self._title, self._total, self._unit = title, total, unit
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        """Tell how much is done."""
        if not self._enabled:
            return
        if self._bar is None:
            if time.monotonic() - self._started < _AFTER_SECONDS:
                return
            self._bar, self._task = self._start()
        self._bar.update(self._task, completed=done, note=note)

    def _start(self) -> tuple[Any, Any]:
        from rich import progress
        from rich.console import Console
        from rich.text import Text

        class Rate(progress.ProgressColumn):
            """Bytes or records a second, once that is known."""

            def render(self, task: progress.Task) -> Text:
                speed = task.finished_speed or task.speed
                if not speed:
                    return Text("")
                return Text(
                    f"{size_text(round(speed))}/s" if is_bytes else f"{speed:,.0f} records/s"
                )

        is_bytes = self._unit == "bytes"
        console = Console(stderr=True, color_system="auto" if self._color else None)
        bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            *([progress.DownloadColumn()] if is_bytes else []),
            Rate(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            console=console,
            get_time=time.monotonic,
            transient=True,
        )
        task = bar.add_task(self._title, total=self._total, note="")
        bar.start()
        return bar, task


class Waiting:
    """A line that says what is going on and for how long."""

    def __init__(
        self,
        session: Session,
        title: str,
        detail: Callable[[], str] = str,
        share: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        is_seen = sys.stderr is not None and sys.stderr.isatty()
        self._enabled = is_seen and session.output.progress_wanted and session.output.log is None
        self._output, self._color = session.output, session.output.color
        self._title, self._detail, self._share = title, detail, share
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._is_away = False
        self._thread = threading.Thread(target=self._show, name="waiting", daemon=True)
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        if self._enabled:
            self._output.beside = self._aside
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._enabled:
            self._output.beside = None
            self._over.set()
            self._thread.join()

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Take the line away while something else is written to the terminal."""
        with self._lock:
            if self._live is not None and not self._is_away:
                self._live.update("", refresh=True)
                self._is_away = True
            yield

    def _show(self) -> None:
        if self._over.wait(_AFTER_SECONDS):
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, color_system="auto" if self._color else None)
        frame = self._spinning() if self._share is None else self._counting(console, self._share)
        # It refreshes here alone: by itself it would do so in the middle of another's line.
        live = Live(frame(), console=console, transient=True, auto_refresh=False)
        with self._lock:
            live.start(refresh=not self._output.is_held)
            self._live, self._is_away = live, self._output.is_held
        while not self._over.wait(_AGAIN_SECONDS):
            made = frame()
            with self._lock:
                if self._output.is_held:
                    continue
                self._is_away = False
                live.update(made, refresh=True)
        with self._lock:
            self._live = None
            live.stop()

    def _line(self, *words: str) -> str:
        seconds = f"{time.monotonic() - self._started:.0f} s"
        return ", ".join(filter(None, (*words, seconds, self._detail())))

    def _spinning(self) -> Callable[[], RenderableType]:
        """Return what makes a line of what is going on."""
        from rich.spinner import Spinner
        from rich.text import Text

        spinner = Spinner("dots", style="status.spinner")

        def frame() -> RenderableType:
            spinner.update(text=Text(self._line(self._title)))
            return spinner

        return frame

    def _counting(
        self, console: Console, share: Callable[[], tuple[int, int]]
    ) -> Callable[[], RenderableType]:
        """Return what makes a bar while something is counted, beside what is going on."""
        from rich import progress
        from rich.console import Group
        from rich.text import Text

        is_wide = console.width >= len(self._title) + _BESIDE_TITLE
        bar = progress.Progress(
            *([progress.TextColumn("{task.description}", markup=False)] if is_wide else []),
            progress.BarColumn(_BAR_WIDTH),
            progress.TextColumn("{task.fields[count]}", markup=False),
            console=console,
        )
        task = bar.add_task(self._title, total=None, count="")
        idle = self._spinning()

        def frame() -> RenderableType:
            done, total = share()
            if done >= total:  # nothing is under way, so that a bar would be full for hours
                return idle()
            count = f"{done:,} of {plural(total, 'record')}"
            bar.update(task, completed=done, total=total, count=count)
            if is_wide:
                return Group(bar, Text(self._line()))
            return Group(Text(self._line(self._title)), bar)

        return frame


# -- What a command that was started says, beside a line that moves on the same terminal.

_PIECE_BYTES: Final = 65536
_LAST_SECONDS: Final = 1.0
"""How long its last words are waited for: something that it started may hold the pipe open."""


@contextmanager
def relayed_errors(output: Output, command: Sequence[str]) -> Iterator[int | None]:
    """Give a descriptor for a command's standard error, where a line on the terminal moves.

    Where none does, that is None: the command has the standard error of this process.
    """
    if not command or output.beside is None:
        yield None
        return
    reading, writing = os.pipe()
    relay = threading.Thread(target=_relay, args=(output, reading), name="relay", daemon=True)
    relay.start()
    try:
        yield writing
    finally:
        os.close(writing)
        relay.join(_LAST_SECONDS)
        end_line(output)


def _relay(output: Output, reading: int) -> None:
    with os.fdopen(reading, "rb", buffering=0) as source:
        while piece := source.read(_PIECE_BYTES):
            with _beside(output):
                sys.stderr.buffer.write(_fitting(piece, output.aside_width))
                sys.stderr.buffer.flush()
                # A question that waits for its answer in the same line is not drawn over.
                output.is_held = not piece.endswith(b"\n")
    end_line(output)


def end_line(output: Output) -> None:
    """Continue the moving line below what a command has written without a line end."""
    with _beside(output):
        if output.is_held:
            sys.stderr.buffer.write(b"\n")
            sys.stderr.buffer.flush()
            output.is_held = False


def _beside(output: Output) -> AbstractContextManager[None]:
    beside = output.beside
    return nullcontext() if beside is None else beside()


def _fitting(piece: bytes, width: int | None) -> bytes:
    """Break whole lines of plain text to the terminal, which the command cannot see."""
    if width is None:
        return piece
    return b"".join(_broken(line, width) for line in piece.splitlines(keepends=True))


def _broken(line: bytes, width: int) -> bytes:
    text = line[:-1].decode("utf-8", "replace")
    if not line.endswith(b"\n") or len(text) <= width or not text.isprintable():
        return line
    return "".join(f"{each}\n" for each in wrap_answer(text, width)).encode()
