"""The warehouse behind `lace serve`: opened once, read again when that is wanted."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lace.api import Lace
    from lace.engines.budget import Cancellation
    from lace.errors import Finding
    from lace.exchanging import Side
    from lace.facts.lines import Fact
    from lace.pipeline.served import ServedWarehouse
    from lace.policy.local import Policy

__all__ = ["WarehouseBehind"]

_LINKS: Final = "warehouse"
"""Cursors of these links are kept apart from those of the lace: they hold less."""


class WarehouseBehind:
    """A warehouse whose records are sent instead of the lace's.

    Args:
        lace: the lace beside it.
        folder: the warehouse.

    Raises:
        EngineError: pyarrow is not installed.
        NoStoreError: there is no warehouse.
        WarehouseDamagedError: it is damaged.
        LimitExceeded: it has more records than are served.
    """

    def __init__(self, lace: Lace, folder: Path) -> None:
        self._lace, self._folder = lace, folder
        self._served = self._open(None)

    def _open(self, before: ServedWarehouse | None) -> ServedWarehouse:
        from lace.pipeline.served import open_served  # what it needs takes long to load

        most = self._lace.settings.warehouse_served_records
        return open_served(self._folder, before, most=most)

    @property
    def generation(self) -> int:
        """The generation that new links get."""
        return self._served.generation

    def renew(self) -> None:
        """Go on with the newest state; the one before stays while links use it.

        Raises:
            StoreError: it does not exist, or is damaged.
            LimitExceeded: it has more records than are served by now.
        """
        self._served = self._open(self._served)

    def strange_names(self, policy: Policy, cancellation: Cancellation) -> tuple[Finding, ...]:
        """Return a warning for each field name, group and app of rules that no record has.

        All records are read, in constant memory. A warehouse of more than the setting
        `warehouse_embedded_records` is not looked at.

        Raises:
            EvaluationCancelled: it was cancelled.
            WarehouseDamagedError: a file is damaged, or was removed since.
        """
        from lace.policy.local import modules_of
        from lace.querying import find_strange_names_among

        served = self._served
        if len(served.index) > self._lace.settings.warehouse_embedded_records:
            return ()
        return find_strange_names_among(_watched(served.facts(), cancellation), modules_of(policy))

    @contextmanager
    def side(self, opened: AbstractContextManager[Side]) -> Iterator[Side]:
        """Open a side of the lace as one of the warehouse."""
        from lace.driver.warehouse_evaluator import WarehouseEvaluating
        from lace.pipeline.served_store import WarehouseStore
        from lace.store.links import LinkFiles

        with opened as own:
            store = WarehouseStore(lambda: self._served)
            most = own.settings.warehouse_embedded_records
            yield replace(
                own,
                store=store,
                evaluating=WarehouseEvaluating(store, most),
                links=LinkFiles(
                    self._lace.store.folder,
                    within=_LINKS,
                    may_write=not self._lace.store.read_only,
                ),
            )


def _watched(facts: Iterator[Fact], cancellation: Cancellation) -> Iterator[Fact]:
    for fact in facts:
        cancellation.check()
        yield fact
