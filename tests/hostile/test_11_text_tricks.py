"""Case 11: a peer whose text only looks like what it should be.

Not NFC, U+2028, U+0085, CR, a byte order mark, overlong UTF-8, surrogates, `1_0`, full-width
digits, leading zeros. Expected: the same refusal whatever the layer, and nothing repaired:
the exchange ends with "malformed" and without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.iltp.items import PREFACE
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact

pytestmark = pytest.mark.slow

FIRST = [
    b"\xef\xbb\xbf" + PREFACE,
    PREFACE.replace(b"\n", b"\r\n"),
    PREFACE + b"\r\n",
    PREFACE + b"A('e\xcc\x81')\n\n",
    PREFACE + b"A('\xc0\xaf')\n\n",
    PREFACE + b"A('\xed\xa0\x80')\n\n",
    PREFACE + b"A('\x00')\n\n",
    PREFACE + b"A('x')\r\n\r\n",
    PREFACE + b"A('x') \n\n",
    PREFACE + "A('x')\u2028B('y')\n\n".encode(),
    PREFACE + "A('x')\u0085B('y')\n\n".encode(),
    PREFACE + "\uff21('x')\n\n".encode(),
    PREFACE + b"\xf0\x9f\xa7\xa9: R." + b"0" * 43 + b"  lacegram\nA(P) :- Have(P).\n\n",
]
NUMBERS = [
    "1_0",
    "\uff11\uff10",
    "010",
    "+10",
    " 10",
    "10\u2028",
    "10\u0085",
    "-0",
    "1e9",
    "0x10",
    "",
]
TIMES = ["1700000000:0", "1700000000:00000000\u0660", "1_700000000:000000000", "17:000000000"]


@pytest.mark.requirement("060-21", "060-26")
def test_bytes_that_look_like_text(tmp_path: Path) -> None:
    with attacked(tmp_path) as target:
        for count, raw in enumerate(FIRST, 1):
            peer = target.connect()
            peer.send(raw)
            peer.outcome()
            target.said("malformed fact block", count)


@pytest.mark.requirement("050-114")
def test_numbers_and_times(tmp_path: Path) -> None:
    with attacked(tmp_path) as target:
        lies: list[Fact] = [("HelloTickInterval", each) for each in NUMBERS]
        lies += [("HelloTAI", each) for each in TIMES]
        lies += [("HelloLimit", "max_fact_block_size", each) for each in NUMBERS]
        for count, lie in enumerate(lies, 1):
            peer = target.connect()
            facts = [fact for fact in peer.meet().facts if fact[: len(lie) - 1] != lie[:-1]]
            peer.block([*facts, lie])
            assert peer.outcome() == b""
            target.said("outcome=failed", count)
        assert target.server.errors.count("malformed") == len(lies)
