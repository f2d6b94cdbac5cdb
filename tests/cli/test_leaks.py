"""What leaves a server, and what it shows to collectors, whatever it hides (020-86).

Two servers have the same key, rules and records inside the view of a client, and others outside of
it. The client runs the operations of `lace remote` over a link. Both servers send the same bytes,
but for what is random or the time, and count the same.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from tests.cli.links import Party, hashes, make_parties, plex, serving, wait_until
from tests.cli.relays import Relay
from tests.cli.running import call, spawn
from tests.cli.test_serve_figures import page, port_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.links import Serving

SECONDS = 60.0
VIEW = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'u').\n"
HIDDEN = tuple(plex(f"right/{number}", group="private") for number in range(40))
VARYING = re.compile(rb"^(ExchangeNonce|HelloProof|HelloTAI|TickReady)\('[^']*'\)$", re.MULTILINE)
TIMES = re.compile(r"lace_(?:start_time|uptime|phase)_seconds")


@dataclass(frozen=True)
class Life:
    """A server with some of the hidden records, and a client."""

    left: Party
    right: Party
    server: Serving


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[tuple[Life, Life]]:
    """The same client and server twice; the second server hides records, the first does not."""
    left, right = make_parties(tmp_path)
    view = tmp_path / "u.lace"
    view.write_text(VIEW)
    made = []
    for number in range(2):
        folders = [tmp_path / f"{each.folder.name}{number}" for each in (left, right)]
        for folder, each in zip(folders, (left, right), strict=True):
            shutil.copytree(each.folder, folder)
        made.append(
            (
                Party(folders[0], left.verifier, left.select, left.view),
                Party(folders[1], right.verifier, right.select, view),
            )
        )
    with open_lace(made[1][1].folder) as store:
        store.add_all(HIDDEN)
    more = ("--metrics", 0, "--open")
    (one, first), (other, second) = made
    with (
        serving(first, one, "tcp:127.0.0.1:0", *more) as plain,
        serving(second, other, "tcp:127.0.0.1:0", *more) as hiding,
    ):
        yield Life(one, first, plain), Life(other, second, hiding)


def masked(raw: bytearray) -> bytes:
    """What was sent, without what is random or a time."""
    return VARYING.sub(rb"\1", bytes(raw))


def figures(server: Serving) -> list[str]:
    """What a collector sees, without the times."""
    return [line for line in page(port_of(server)).splitlines() if not TIMES.search(line)]


def transcripts(life: Life, *arguments: object, code: int = 0) -> tuple[bytes, bytes]:
    """Run an operation; what each side has sent."""
    with Relay(life.server.address) as relay:
        relay.go_on()
        operation, *more = arguments
        words = ["remote", operation, relay.address, *more, "--lace", life.left.folder]
        done = call(*words)
        assert done.code == code, done.err
        relay.close()
        return masked(relay.asked), masked(relay.answered)


@pytest.mark.slow
@pytest.mark.requirement("020-86", "050-205", "050-244")
def test_operations_and_figures_show_nothing_that_is_hidden(lives: tuple[Life, Life]) -> None:
    mine = str(plex("left/1").id)
    operations: list[tuple[tuple[object, ...], int]] = [
        (("list", "//u//"), 0),
        (("list", "//private//"), 1),
        (("list",), 0),
        (("get", "//u//n//right/2"), 0),
        (("get", "//private//n//right/2"), 1),
        (("get", str(HIDDEN[3].id)), 1),
        (("store", mine, "--peer", lives[0].right.verifier), 0),
        (("get", "//u//n//right/9"), 1),
    ]
    for number, (words, code) in enumerate(operations, 1):
        one, other = (transcripts(life, *words, code=code) for life in lives)
        assert one == other, words
        assert len(one[1]) > 500, "an exchange took place"
        assert not any(bytes(str(each.id), "ascii") in one[1] for each in HIDDEN)
        for life in lives:
            life.server.wait_for("outcome=fixed-point", number)
        assert figures(lives[0].server) == figures(lives[1].server), words
    assert mine in hashes(lives[0].right) & hashes(lives[1].right)


@pytest.mark.slow
@pytest.mark.requirement("020-86", "050-195")
def test_watching_shows_nothing_that_is_hidden(lives: tuple[Life, Life]) -> None:
    """Hidden records that arrive while a client watches cause no byte, and count as nothing."""
    told = []
    for number, life in enumerate(lives):
        with Relay(life.server.address) as relay:
            relay.go_on()
            words = ("//u//n//right/", "--limit", 6, "--lace", life.left.folder)
            watching = spawn("remote", "watch", relay.address, *words)
            try:
                wait_until(lambda life=life: len(hashes(life.left)) == 10)  # type: ignore[misc]
                wait_until(lambda life=life: _is_waiting(life))  # type: ignore[misc]
                before, counted = bytes(relay.answered), figures(life.server)
                if number:
                    with open_lace(life.right.folder) as store:
                        store.add_all(plex(f"more/{n}", group="private") for n in range(3))
                    _let_look(life)
                assert bytes(relay.answered) == before
                assert figures(life.server) == counted
                with open_lace(life.right.folder) as store:
                    store.add(plex("right/5"))
                assert watching.wait(SECONDS) == 0
            finally:
                watching.kill()
                watching.communicate()
            relay.close()
            told.append((masked(relay.asked), masked(relay.answered)))
            assert life.server.end() == 143
    assert told[0] == told[1]


def _is_waiting(life: Life) -> bool:
    """Whether the server has done all that there is to do: its figures do not change."""
    before = figures(life.server)
    _let_look(life)
    return figures(life.server) == before


def _let_look(life: Life) -> None:
    """Wait for longer than a server takes to look at its store."""
    assert life.server.process.poll() is None
    with pytest.raises(Exception, match="timed out"):
        life.server.process.wait(2.5)
