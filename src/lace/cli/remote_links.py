"""What the operations on a peer have in common: their options, and the exchange they run.

Apart from `remote`, whose commands share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.cli.command import LaceCommand
from lace.cli.link_options import (
    CA_OPTION,
    CLAIM_OPTION,
    KEY_OPTION,
    PEER_OPTION,
    PLAIN_OPTION,
    UID_MAP_OPTION,
    all_options,
    claimed_verifier,
    parse_peers,
    signing_key,
    tls_options,
    warn_of_links,
)
from lace.cli.link_runs import LinkRun, connect_options, known_of_peer
from lace.cli.output import plural
from lace.cli.policy_files import read_exposures, warn_of_names
from lace.cli.policy_options import (
    ALL_FIELDS_OPTION,
    ALLOW_UNDEFINED_OPTION,
    EXPOSE_OPTION,
    FIELD_OPTION,
    LOWERING_OPTION,
    offered,
)
from lace.errors import LaceError
from lace.exchange.capabilities import capabilities_of
from lace.iltp.address import parse_address
from lace.link.client import LinkOptions
from lace.link.dry_run import Claims
from lace.link.side import Side
from lace.policy.local import Policy
from lace.policy.plan import LOWERINGS
from lace.record.model import make_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from lace.api import Lace
    from lace.cli.peers import SyncArguments
    from lace.cli.session import Change, Session
    from lace.exchange.result import Outcome
    from lace.link.events import LinkEvent
    from lace.policy.local import Exposing, Rules
    from lace.record.ids import Verifier
    from lace.record.seal import SigningKey


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
_CHILD: Final = "[-- COMMAND…]"
RECEIPTS_OPTION: Final = click.option(
    "--sign-receipts",
    is_flag=True,
    help="Store a receipt here for each record that came, signed with your key: a record that "
    "says what was stored, from whom and when.",
)


class RemoteError(LaceError):
    """A peer that was reached, and did not give or take what was asked for."""


class RemoteCommand(LaceCommand):
    """A command about a peer: what stands behind `--` is what `stdio` starts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command that is to be started from the arguments."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["child"] = tuple(args[at + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return what stands in the line of usage."""
        return [*super().collect_usage_pieces(ctx), _CHILD]


def remote_options(function: Decorated) -> Decorated:
    """Give a command the options that say how a peer is reached, as one `peer` argument."""
    add: Callable[[Decorated], Decorated] = all_options(
        EXPOSE_OPTION,
        LOWERING_OPTION,
        ALLOW_UNDEFINED_OPTION,
        FIELD_OPTION,
        ALL_FIELDS_OPTION,
        KEY_OPTION,
        CLAIM_OPTION,
        PEER_OPTION,
        UID_MAP_OPTION,
        CA_OPTION,
        tls_options(
            "Your certificate, PEM, where a wss server asks for one.",
            "The key of that certificate, PEM.",
        ),
        PLAIN_OPTION,
    )
    return add(function)


@dataclass(slots=True)
class Remote:
    """One operation on a peer."""

    session: Session
    lace: Lace
    given: SyncArguments
    title: str
    known: SyncArguments = field(init=False)
    claim: Verifier | None = field(init=False)
    key: SigningKey | None = field(init=False)
    claims: Claims = field(init=False, default_factory=Claims)

    def __post_init__(self) -> None:
        self.known = known_of_peer(self.session, self.given)
        self.claim = claimed_verifier(self.known.claim, self.known.key)
        self.key = signing_key(
            self.lace, self.known.key, is_plain=bool(self.known.plain), claim=self.claim
        )

    @property
    def place(self) -> str:
        """The peer, as it is called on the command line."""
        return self.given.address or ""

    @property
    def expected(self) -> frozenset[str]:
        """The verifiers that the peer may be; none: anyone."""
        return parse_peers([self.known.peer] if self.known.peer is not None else [])

    def policy(
        self, select: Rules, expose: Sequence[str], generated: Iterable[Exposing] = ()
    ) -> Policy:
        """Return the policy of the operation."""
        limits = self.session.rule_limits()
        allow = self.known.allow_undefined or ()
        exposures = read_exposures(self.session, expose, allow) if expose else generated
        lowering = self.known.lowering or LOWERINGS[0]
        made = Policy(
            select,
            exposures,
            lowering=lowering,
            limits=limits,
            allow_undefined=allow,
            **offered(self.known.field, self.known.all_fields, self.known.format),
        )
        capabilities_of(self.lace.settings, made)  # refuses fields that are not offered
        if expose:
            warn_of_names(self.session, self.lace, *(each.module for each in made.exposures))
        return made

    def run(self, policy: Policy) -> LinkRun:
        """Run the exchange; the caller asks the run for its end, and for a failure."""
        made = self.prepare(policy)
        made.run()
        return made

    def prepare(
        self,
        policy: Policy,
        *,
        is_open: bool = False,
        hear: Callable[[LinkEvent], None] | None = None,
    ) -> LinkRun:
        """Return the exchange, which has not begun."""
        address = parse_address(self.known.address or "")
        plain = bool(self.known.plain)
        options = LinkOptions(
            is_open=is_open,
            is_plain=plain,
            claim=self.claim,
            expected=self.expected,
            claims=self.claims,
        )
        warn_of_links(
            self.session,
            policy,
            address,
            self.key,
            is_plain=plain,
            claim=self.claim,
            is_sending=False,
        )
        side = Side(self.lace.store, self.lace.settings, policy, self.key, self.lace.workers)
        return LinkRun(
            self.session,
            side,
            address,
            options,
            connect_options(self.known),
            title=self.title,
            hear=hear,
        )


def came_and_stays(count: int, folder: Path) -> str:
    """Return what is said of records that came."""
    return f"{plural(count, 'record')} came and {'is' if count == 1 else 'are'} stored in {folder}"


def publish_receipts(session: Session, change: Change, key: SigningKey, outcome: Outcome) -> None:
    """Store a receipt, signed with a key, for each record that came."""
    sender = outcome.peer_verifier
    if not outcome.received:
        return
    if sender is None:
        raise RemoteError(
            "the peer has proven nothing, so that no receipt can name it",
            rule="050-208",
            hint="the records are stored; leave --sign-receipts out",
        )
    made = [make_receipt(record, sender, key) for record in outcome.received]
    change.lace.add_all(made)
    change.result["receipts"] = len(made)
    for receipt in made:
        session.output.note(f"receipt {receipt.id}")
