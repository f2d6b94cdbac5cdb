"""RECORD arguments: a hash, `////hash` or a coordinate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lace.base.text import shorten
from lace.cli.command import LaceCommand
from lace.errors import LaceError, UsageError
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from lace.store.interface import Snapshot, StoredRecord

__all__ = ["LocalCommand", "NotFoundError", "find_records"]

_PEER: Final = re.compile(r"(unix|tcp|ws|wss):")


class LocalCommand(LaceCommand):
    """A command about this lace, which has a namesake for the laces of peers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse the address of a peer, which no record and no coordinate begins with."""
        if args and _PEER.match(args[0]) and not ctx.resilient_parsing:
            raise UsageError(
                f"{shorten(args[0])} is the address of a peer, and this is about your own lace",
                hint=f"did you mean `lace remote {self.name} {shorten(args[0])} …`?",
            )
        return super().parse_args(ctx, args)


class NotFoundError(LaceError):
    """A record that is not in the lace."""


def find_records(snapshot: Snapshot, texts: Sequence[str]) -> list[StoredRecord]:
    """Return the record that each text names, the tip of a coordinate, each record once.

    Raises:
        AddressError: a text is no hash and no coordinate.
        NotFoundError: at least one is not there; all of them are named.
    """
    addresses = [parse_address(text) for text in texts]
    found: dict[str, StoredRecord] = {}
    missing: list[str] = []
    for text, address in zip(texts, addresses, strict=True):
        records = snapshot.find(address, limit=1)
        if records:
            found[records[0].id] = records[0]
        else:
            missing.append(text)
    if missing:
        names = ", ".join(shorten(text, 100) for text in missing)
        raise NotFoundError(f"not in this lace: {names}", hint="`lace list` shows what is there")
    return list(found.values())
