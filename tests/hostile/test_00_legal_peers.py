"""No attack: a peer that uses what the protocol allows to the full is served.

What bounds hostile peers must not refuse these: a selector of nearly a megabyte, a listing of as
many records as may be listed with fields of each, a comment before every record, more than a
megabyte directly behind the hello, a request list of as many records.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.base import b64a
from lace.exchange.blocks import format_block
from tests.cli.links import EXPOSE_ALL, plex
from tests.cli.policies import ALL
from tests.hostile.kit import MIB, attacked, resource_block

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact

pytestmark = pytest.mark.slow

OF_A_GROUP = ALL.replace("Advertised(P,S).", "Advertised(P,S), AdvertisedField(P,S,'Group',_,'u').")
LISTED = 100_000
REQUESTED = 20_000


def lines_of(records: list[str], source: str) -> bytes:
    made = []
    for number, record in enumerate(records):
        facts: list[Fact] = [
            ("Advertised", record, source),
            ("AdvertisedField", record, source, "Group", "0", "u"),
        ]
        made.append(b"# %d\n" % number + format_block(facts)[:-1])
    return b"".join(made) + b"\n"


@pytest.mark.requirement("050-229", "050-230", "060-85")
@pytest.mark.exhaustive
def test_a_full_listing_with_comments(tmp_path: Path) -> None:
    """A comment for each record is more than any hostile flood of them; 30 MB in one block."""
    chance = random.Random(5)
    records = sorted(f"P.{b64a.encode(chance.randbytes(32))}.H3" for _ in range(LISTED))
    with attacked(tmp_path, growth=224 * MIB) as target:
        peer = target.connect()
        assert peer.send(lines_of(records, peer.enter(OF_A_GROUP)))
        peer.read_block()
        wanted, _ = peer.read_block()
        assert [fact[1] for fact in wanted] == records
        peer.connection.close()
        target.said("peer closed early")
        peer.got = b""  # it is asked for what it advertised


@pytest.mark.requirement("050-174", "060-147")
@pytest.mark.exhaustive
def test_a_long_request_list_and_a_large_selector(tmp_path: Path) -> None:
    """More than a megabyte of requests, by a peer whose selector has nearly as much."""
    names = ", ".join(f"P != '{number:05}'" for number in range(1000))
    select = ALL + "\n".join(f"X{number}(P) :- Have(P), {names}." for number in range(58))
    assert MIB * 3 // 4 < len(resource_block(select)) < MIB
    (tmp_path / "everyone.lace").write_text(EXPOSE_ALL)
    options = ("--expose", tmp_path / "everyone.lace")
    with attacked(tmp_path, *options, growth=128 * MIB) as target:
        with open_lace(target.host.folder) as lace:
            lace.add_all(plex(f"many/{number}") for number in range(REQUESTED))
        peer = target.connect()
        peer.enter(select)
        offered, _ = peer.read_block()
        peer.block([])
        peer.read_block()
        requests = format_block([("MayRequest", fact[1]) for fact in offered])
        assert len(requests) > MIB
        peer.send(requests)
        assert peer.skip_batch() == len(offered) >= REQUESTED
        peer.connection.close()
        target.said("peer closed early")
        peer.got = b""  # everything is exposed to it
