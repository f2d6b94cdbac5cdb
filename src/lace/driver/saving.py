"""When the cursors of an exchange are kept, and what is known by them of the peer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.driver.evaluator import Known

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.base.tai import Tai
    from lace.driver.answering import Evaluator
    from lace.driver.kept import KeptLinks
    from lace.interlacing.effects import Agree, SaveCursor

__all__ = ["CursorSaver"]

_SAVED_EVERY: Final = 30 * 1_000_000_000
"""How long an open exchange goes on before it keeps another cursor."""


class CursorSaver:
    """Keeps the cursors of one exchange; in an open one, where each round has one, now and then.

    Args:
        kept: where they are kept; without it none is.
        clock: gives readings of a steady clock.
        is_open: whether the exchange is open.
    """

    def __init__(self, kept: KeptLinks | None, clock: Callable[[], Tai], *, is_open: bool) -> None:
        self._kept = kept
        self._clock = clock
        self._is_open = is_open
        self._unsaved: tuple[SaveCursor, str | None] | None = None
        """The last one that is not kept yet, and the state in which it says everything."""
        self._saved: Tai | None = None

    def known(self, effect: Agree, before: Evaluator | None) -> Known | None:
        """Return what the peer is taken to claim at the start of an epoch."""
        if effect.known is None:
            return None
        link_id = effect.terms.link_id
        if link_id is not None and self._kept is not None:
            return self._kept.known(link_id)
        return None if before is None else Known(effect.known, before.claims())

    def take(self, effect: SaveCursor, evaluator: Evaluator) -> None:
        """Take note of a cursor, and keep it if it is time."""
        if self._kept is None:
            return
        is_whole = effect.is_settled and not evaluator.is_resting
        self._unsaved = effect, evaluator.state() if is_whole else None
        is_due = self._saved is None or self._clock() >= self._saved.shift(_SAVED_EVERY)
        if is_due or not self._is_open:
            self.save(evaluator)

    def save(self, evaluator: Evaluator | None) -> None:
        """Keep what is not kept yet."""
        if self._kept is None or self._unsaved is None or evaluator is None:
            return
        (effect, state), self._unsaved = self._unsaved, None
        if not evaluator.is_resting:  # else all of it is as it was found
            self._kept.save(effect.link_id, effect.cursor, evaluator.claims(), state)
        self._saved = self._clock()

    def forget(self) -> None:
        """Drop a cursor that is not kept yet: the claims are of another state from now on."""
        self._unsaved = None
