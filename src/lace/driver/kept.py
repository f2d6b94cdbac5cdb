"""What a store keeps of links, as far as it still fits the records that are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.interlacing.advertisement import is_bare
from lace.store.links import KeptLink, LinkFiles

if TYPE_CHECKING:
    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.config import Cursor
    from lace.store.sqlite.store import SqliteStore

__all__ = ["KeptLinks"]


class KeptLinks:
    """The cursors of a store, by Link-Id, with the claims that belong to them.

    A claim about a record that is stored is not kept: the record says the same. So when
    records were removed since, what is kept is of no use, unless claims have no fields.

    Args:
        store: the store; its folder has the files.
    """

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._files = LinkFiles(store.folder, may_write=not store.read_only)
        self._last: tuple[str, KeptLink] | None = None

    def get(self, link_id: str, /) -> Cursor | None:
        """Return what is kept of a link, if it fits the store."""
        kept = self._files.load(link_id)
        if kept is None or not self._fits(kept):
            return None
        self._last = link_id, kept
        return kept.cursor

    def _fits(self, kept: KeptLink) -> bool:
        if is_bare(kept.cursor.schema):
            return True
        with self._store.snapshot() as snapshot:
            now = snapshot.counters()
        return (
            now.high_water >= kept.high_water
            and (now.removal_sequence or 0) == kept.removal_sequence
        )

    def claims(self, link_id: str) -> tuple[Advertisement, ...]:
        """Return the claims that are kept beside the cursor that `get` or `save` had last."""
        if self._last is None or self._last[0] != link_id:
            raise AssertionError("claims are asked for with their cursor")
        return self._last[1].claims

    def save(self, link_id: str, cursor: Cursor, claims: tuple[Advertisement, ...]) -> None:
        """Keep a cursor, and the claims that the stored records do not say."""
        with self._store.snapshot() as snapshot:
            now = snapshot.counters()
        kept = KeptLink(
            cursor=cursor,
            claims=claims,
            high_water=now.high_water,
            removal_sequence=now.removal_sequence or 0,
        )
        self._last = link_id, kept
        self._files.save(link_id, kept)
