"""Two laces in one process with an open exchange between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import now
from lace.link.side import Side, open_exchange
from lace.store import interface as watching
from tests.link.test_pairing import policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.link.in_process import OpenPairing

STOP_SECONDS = 20.0


@pytest.fixture
def exchange(sides: tuple[lace.Lace, lace.Lace]) -> Iterator[OpenPairing]:
    """An exchange between the two sides, through handles of its own, which goes on."""
    left, right = sides
    with lace.open(left.store.folder) as here, lace.open(right.store.folder) as there:
        made = open_exchange(
            Side(here.store, here.settings, policy(right), here.signing_key()),
            Side(there.store, there.settings, policy(left), there.signing_key()),
            now,
        )
        try:
            yield made
        finally:
            made.stop(STOP_SECONDS)
        assert made.error is None
    assert not watching._watchers
