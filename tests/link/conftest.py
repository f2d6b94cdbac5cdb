"""Two laces in one process with an open exchange between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.store import interface as watching
from tests.link.pairing import OpenPair, open_pair

if TYPE_CHECKING:
    from collections.abc import Iterator


STOP_SECONDS = 20.0


@pytest.fixture
def exchange(sides: tuple[lace.Lace, lace.Lace]) -> Iterator[OpenPair]:
    """An exchange between the two sides, through handles of its own, which goes on."""
    left, right = (each.store.folder for each in sides)
    with lace.open(left) as here, lace.open(right) as there:
        made = open_pair((here, there))
        try:
            yield made
        finally:
            made.stop(STOP_SECONDS)
        assert made.error is None
    assert not watching._watchers
