"""What a store keeps of links: cursors, and the claims that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.driver.evaluator import Known
from lace.store.links import KeptLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.engines.embedded.exchange_facts import ClaimTable
    from lace.interlacing.config import Cursor
    from lace.store.links import LinkFiles

__all__ = ["KeptLinks"]


class KeptLinks:
    """The cursors of a lace, by Link-Id, with the claims that belong to them.

    Args:
        files: where they are kept.
    """

    def __init__(self, files: LinkFiles) -> None:
        self._files = files
        self._found: tuple[str, KeptLink] | None = None
        self.before: Callable[[], None] | None = None
        """Called before anything is looked up: what waits to be saved is saved then."""

    def get(self, link_id: str, /) -> Cursor | None:
        """Return what is kept of a link."""
        if self.before is not None:
            self.before()
        kept = self._files.load(link_id)
        self._found = None if kept is None else (link_id, kept)
        return None if kept is None else kept.cursor

    def known(self, link_id: str) -> Known:
        """Return what the peer is taken to claim under the cursor that was found last."""
        if self._found is None or self._found[0] != link_id:
            raise AssertionError("claims are asked for with the cursor that was found")
        kept, self._found = self._found[1], None
        return Known(kept.cursor.theirs, kept.claims, kept.cursor.ours, kept.state)

    def save(
        self, link_id: str, cursor: Cursor, claims: ClaimTable | None, state: str | None
    ) -> None:
        """Keep a cursor, what the peer claims under it, and the state in which that is all."""
        self._files.save(link_id, KeptLink(cursor=cursor, claims=claims, state=state))
