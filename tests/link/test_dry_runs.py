"""What a dry run takes note of, effect by effect."""

from __future__ import annotations

import pytest

from lace.exchange.effects import SendBlock
from lace.exchange.failures import InterlaceFailure
from lace.link.events import DryRun
from lace.link.messages import BlockMessage
from lace.record.model import Blob


def test_a_dry_run_that_has_not_begun_would_request_nothing() -> None:
    dry = DryRun()
    assert (dry.pending, dry.would_request, dry.would_send, dry.is_complete) == (0, [], [], False)


def test_before_anything_has_happened_nothing_is_known() -> None:
    run = DryRun()
    assert not run.is_complete
    assert not run.is_held
    assert run.would_request == run.would_send == run.may_send == run.named == []


def test_the_lists_of_both_sides() -> None:
    run = DryRun()
    run.hold(BlockMessage(SendBlock((("MayRequest", "P.b.H3"), ("MayRequest", "P.a.H3")))))
    complete = [run.is_held, run.is_complete]
    theirs = [str(Blob(data).id) for data in (b"c", b"d")]
    run.take_theirs(tuple(("MayRequest", each) for each in theirs))
    assert [*complete, run.is_complete] == [True, False, True]
    assert (run.would_request, run.would_send) == (["P.a.H3", "P.b.H3"], sorted(theirs))
    with pytest.raises(InterlaceFailure):
        run.take_theirs((("Advertised", "P.d.H3", "Opq_a"),))


def test_what_the_peer_learns_on_the_way() -> None:
    run = DryRun()
    run.note(SendBlock((("Advertised", "P.a.H3", "Opq_a"), ("TickReady", "x"))), None)
    assert run.named == ["P.a.H3"]
    assert run.may_send == []
