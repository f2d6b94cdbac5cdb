"""The front door of exchanges: with a lace in this program, or with a server.

Whatever they need is loaded when the first of them begins: most programs do without.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from lace.base.arguments import check_argument, check_callable, check_many
from lace.base.limits import MAX_WAIT_TICKS as MAX_WAIT_TICKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lace.api import Lace
    from lace.api.links import Link, LinkObserver, Outcome
    from lace.api.server import Serving
    from lace.link.server import Served
    from lace.link.side import Interlaced, OpenInterlace, Side
    from lace.policy.local import Policy as Policy
    from lace.record.ids import RecordId, Verifier
    from lace.record.seal import SigningKey as SigningKey

__all__ = [
    "connect",
    "find_receipt",
    "interlace",
    "publish_receipts",
    "receipt_key",
    "serve",
]


@overload
def interlace(
    left: Lace,
    right: Lace,
    left_policy: Policy,
    right_policy: Policy,
    *,
    open: Literal[False] = False,
    offer_all: bool = False,
    store_differing: bool = False,
    receipts: bool = False,
) -> Interlaced: ...
@overload
def interlace(
    left: Lace,
    right: Lace,
    left_policy: Policy,
    right_policy: Policy,
    *,
    open: Literal[True],
    offer_all: bool = False,
    store_differing: bool = False,
    receipts: bool = False,
) -> OpenInterlace: ...
def interlace(
    left: Lace,
    right: Lace,
    left_policy: Policy,
    right_policy: Policy,
    *,
    open: bool = False,
    offer_all: bool = False,
    store_differing: bool = False,
    receipts: bool = False,
) -> Interlaced | OpenInterlace:
    """Let two open laces converge on what both policies select.

    Each is who its default key says it is (`lace key new`); without keys nothing is proven,
    and only what is exposed to anyone is exposed.

    Args:
        left: one lace; it is operand 0.
        right: another.
        left_policy: what the left one selects and exposes.
        right_policy: what the right one does.
        open: go on after a fixed point, in a thread of its own with handles of its own; what
            is returned then is stopped by its `stop`, or by the end of a `with` block.
        offer_all: advertise all fields of records, not only those that the rules name.
        store_differing: store records also if their advertisements said something else.
        receipts: publish a receipt, on either side, for each record that comes and is stored.

    Raises:
        ProtocolError: the sides do not agree, or a limit was reached; valid records that
            were received before stay stored.
        StoreError: a lace could not be read or written; the message says which.
        PolicyError: a selector reads a field that the settings of its lace do not offer.
        UsageError: an argument is of another type.
    """
    from lace.api import now
    from lace.exchange.capabilities import capabilities_of
    from lace.link.client import LinkOptions
    from lace.link.intake import choose_receipt_key
    from lace.link.side import OpenInterlace, Side, run_exchange
    from lace.policy.local import check_policy

    _check_lace(left, "left")
    _check_lace(right, "right")
    check_policy(left_policy, "left_policy")
    check_policy(right_policy, "right_policy")
    for each, policy in ((left, left_policy), (right, right_policy)):
        capabilities_of(each.settings, policy, offer_all=offer_all)  # refuses its fields
    options = LinkOptions(offer_all=offer_all, store_differing=store_differing)
    parties = [
        (
            each,
            policy,
            each.signing_key(),
            choose_receipt_key(each.keys, None) if receipts else None,
        )
        for each, policy in ((left, left_policy), (right, right_policy))
    ]
    if open:
        first, second = (
            each.side(policy, key, receipt_key=signer, purpose="lace.interlace")
            for each, policy, key, signer in parties
        )
        return OpenInterlace((first, second), now, options)
    sides = [
        Side(each.store, each.settings, policy, key, each.workers, receipt_key=signer)
        for each, policy, key, signer in parties
    ]
    return run_exchange(sides[0], sides[1], now, options)


def connect(
    address: str,
    store: Lace,
    policy: Policy,
    *,
    open: bool = False,
    wait_ticks: int = 0,
    peer: str | Iterable[str] = (),
    key: SigningKey | None = None,
    claim: str | None = None,
    plain: bool = False,
    uid_map: str | os.PathLike[str] | Mapping[int, str] | None = None,
    receipts: bool = False,
    stdio_peer: str | None = None,
    command: Sequence[str] = (),
    ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    tls_pin: bool = False,
    reconnect: bool = False,
    dry_run: bool = False,
    claims: bool = False,
    capture: str | os.PathLike[str] | None = None,
    observer: LinkObserver | None = None,
    errors: int | None = None,
    own_handle: bool = True,
) -> Link:
    """Return a link to a server, for an `async with` or a `with` block; there it begins.

    The link has a handle of its own: the lace can be used meanwhile. `await link.result()`
    waits for the end and gives its `Outcome`; `async for event in link.events()` follows it.
    In a plain `with` block both wait, without `await`: the link runs in a thread of its own.

    Args:
        address: where to, as `tcp:host:port`; see `docs/reference/iltp.md`.
        store: an open lace.
        policy: what this side selects and exposes.
        open: go on after a fixed point, until the end of the block.
        wait_ticks: of a bounded link, how many ticks to wait for before it ends; it goes on after
            a fixed point until then, if the server does; else `Outcome.ticks_missed` is true.
        peer: the verifier, or those, that the server may have; else anyone's.
        key: who this side is; else the default key of the lace says so.
        claim: the verifier that this side claims without a key, because its transport proves
            it to the server; not with `key`.
        plain: leave the nonce out, for a peer that knows only 050; a key then counts only if
            it is given here, and the transport has to prove it.
        uid_map: which verifier a user at the other end of a Unix socket is: a file with
            `uid V` lines, or a mapping.
        receipts: publish a receipt for each record that comes and is stored (050-208); the peer has
            to be proven. It is signed with the key, else with that of the claim, else with the
            default key of the lace.
        command: what to start, for `stdio`.
        stdio_peer: the verifier that this command is, on the caller's word: nothing is checked.
        ca: whose certificates are taken, for `wss`; else the system's authorities.
        tls_cert: this side's certificate, where the server asks for one.
        tls_key: its key.
        tls_pin: instead of an authority, take the server's certificate if `peer` proves in hello
            that it is its own; the selector is sent before that proof.
        reconnect: connect again, after a pause, when the connection of an open link is lost or
            the server ends it.
        dry_run: go up to the request lists and end there, so that nothing moves; `link.dry_run`
            has what would.
        claims: note what the peer claims to have and requests, in `link.claims`; no cursor is
            kept then for the next exchange.
        capture: a file that gets all bytes of the connection, as text; records are in it.
        observer: observes the link, in its event loop.
        errors: a descriptor for the standard error of `command`; else that of this process.
        own_handle: open the lace once more for the link; else `store` itself is used, and nothing
            else may use it until the end.

    Raises:
        UsageError: the address is not valid, or has no such option; or an argument is
            of another type.
        PolicyError: the selector reads a field that the settings do not offer.
        ProtocolError: at the begin of the block, there is no connection to be had.
    """
    from contextlib import nullcontext

    from lace.api import now
    from lace.api.links import Link, LinkObserver
    from lace.errors import UsageError
    from lace.iltp.address import parse_address
    from lace.link.client import LinkOptions, check_pinned, check_wait_ticks
    from lace.link.events import Claims, DryRun
    from lace.link.intake import choose_receipt_key
    from lace.transport.listening import ConnectOptions
    from lace.transport.tls import load_client_tls

    who, claimed = _check_side(address, store, policy, key, claim, is_plain=plain)
    check_many(command, "command is a program and its arguments", "as in ['ssh','host','lace']")
    _check_files(ca=ca, tls_cert=tls_cert, tls_key=tls_key, capture=capture)
    check_wait_ticks(wait_ticks, is_open=open)
    if reconnect and not open:
        raise UsageError("reconnect is for an open link", hint="give open=True as well")
    tls = None
    expected = _verifiers(peer)
    if tls_pin:
        check_pinned(expected, is_plain=plain)
    if tls_pin or ca is not None or tls_cert is not None or tls_key is not None:
        paths = [None if each is None else Path(each) for each in (ca, tls_cert, tls_key)]
        tls = load_client_tls(
            authorities=paths[0], certificate=paths[1], key=paths[2], is_pinned=tls_pin
        )
    signer = choose_receipt_key(store.keys, who, claimed) if receipts else None

    def opening() -> AbstractContextManager[Side]:
        if own_handle:
            return store.side(policy, who, receipt_key=signer)
        from lace.link.side import Side  # what an exchange needs takes long to load

        side = Side(store.store, store.settings, policy, who, store.workers, receipt_key=signer)
        return nullcontext(side)

    return Link(
        parse_address(address),
        opening,
        LinkOptions(
            is_open=open,
            wait_ticks=wait_ticks,
            is_plain=plain,
            claim=claimed,
            expected=expected,
            dry_run=DryRun() if dry_run else None,
            claims=Claims() if claims else None,
        ),
        now,
        ConnectOptions(
            command=tuple(command),
            errors=errors,
            stdio_peer=_verifier(stdio_peer, "stdio_peer"),
            tls=tls,
            verifiers=_users(uid_map),
        ),
        reconnect=reconnect,
        capture=None if capture is None else Path(capture),
        verifier=claimed if who is None else who.verifier,
        observer=observer or LinkObserver(),
    )


def serve(
    address: str,
    store: Lace,
    policy: Policy,
    *,
    open: bool = False,
    peer: str | Iterable[str] = (),
    key: SigningKey | None = None,
    claim: str | None = None,
    plain: bool = False,
    uid_map: str | os.PathLike[str] | Mapping[int, str] | None = None,
    receipts: bool = False,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    tls_client_map: str | os.PathLike[str] | None = None,
    tls_client_ca: str | os.PathLike[str] | None = None,
    report: Callable[[Served], None] | None = None,
    once: bool = False,
    stdio: bool = False,
    stdio_peer: str | None = None,
    channel_cert: str | os.PathLike[str] | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    max_links: int | None = None,
    max_links_of_address: int | None = None,
    inherited: int | None = None,
    warehouse: str | os.PathLike[str] | None = None,
    metrics: int | None = None,
    observer: LinkObserver | None = None,
) -> Serving:
    """Return a server of a lace, for an `async with` or a `with` block; there it listens.

    Each link has a handle of its own: the lace can be used meanwhile.

    Args:
        address: where, as `tcp:127.0.0.1:0`, which picks a port; `serving.address` has it.
        store: an open lace.
        policy: what this side selects and exposes.
        open: go on after a fixed point, where the peer does.
        peer: the verifier, or those, that peers may have; else anyone's.
        key: who this side is; else the default key of the lace says so.
        claim: the verifier that this side claims without a key, because its transport proves
            it to clients; not with `key`.
        plain: leave the nonce out, for peers that know only 050.
        uid_map: which verifier a user at the other end of a Unix socket is: a file with
            `uid V` lines, or a mapping.
        receipts: publish a receipt for each record that comes and is stored (050-208), if its
            sender is proven. It is signed with the key, else with that of the claim, else with the
            default key of the lace.
        tls_cert: this side's certificate, for `wss`.
        tls_key: its key.
        tls_client_map: a file that says which verifier a client's certificate is, with
            `SHA256-fingerprint V` lines; clients are then asked for one.
        tls_client_ca: whose client certificates are accepted; else the system's authorities.
        report: hears of each link that has ended, in the thread of the server.
        once: end after the first link.
        stdio: serve on the standard input and output of this process, for the address `stdio`.
        stdio_peer: the verifier at the other end of them, on the caller's word.
        channel_cert: for `ws` behind a proxy that ends TLS, the certificate of that proxy.
        hosts: further names of a `ws` or `wss` server.
        origins: web pages that may connect to one.
        max_links: how many links there may be at once; else the setting of that name.
        max_links_of_address: how many of them from one address or user; else the setting.
        inherited: the descriptor of a listening socket that was handed over to this process.
        warehouse: the folder of a warehouse whose records are sent instead of those of the lace.
        metrics: a port of this machine that shows metrics for Prometheus; 0 picks one.
        observer: observes the server and its links, in its event loop.

    Raises:
        UsageError: the address is not valid, or has no such option; or an argument is
            of another type.
        PolicyError: the selector reads a field that the settings do not offer.
        StoreError: the warehouse cannot be read; at the begin of the block, the address cannot
            be had.
    """
    from lace.api import now
    from lace.api.server import ServedRecords, Serving
    from lace.errors import UsageError
    from lace.iltp.address import parse_address
    from lace.link.client import LinkOptions
    from lace.link.intake import choose_receipt_key
    from lace.transport.connections import ConnectionLimits
    from lace.transport.identity_maps import read_fingerprint_map
    from lace.transport.listening import ListenOptions
    from lace.transport.tls import load_certificate, load_server_tls

    who, claimed = _check_side(address, store, policy, key, claim, is_plain=plain)
    _check_files(
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_map=tls_client_map,
        tls_client_ca=tls_client_ca,
        channel_cert=channel_cert,
        warehouse=warehouse,
    )
    check_callable(report, "report hears of links that have ended")
    where = parse_address(address, for_serving=True)
    if where.scheme == "stdio" and not stdio:
        raise UsageError("a program does not serve on stdio", hint="run `lace serve stdio`")
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("a certificate goes with its key", hint="give both")
    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = load_server_tls(
            Path(tls_cert),
            Path(tls_key),
            clients=None if tls_client_map is None else read_fingerprint_map(Path(tls_client_map)),
            client_authorities=None if tls_client_ca is None else Path(tls_client_ca),
        )
    elif tls_client_map is not None or tls_client_ca is not None:
        raise UsageError(
            "tls_client_map and tls_client_ca need tls_cert and tls_key",
            hint="give the certificate of this server and its key",
        )
    signer = choose_receipt_key(store.keys, who, claimed) if receipts else None
    if signer is not None and warehouse is not None:
        raise UsageError(
            "a receipt is stored in the lace that is served, and a warehouse is only read",
            hint="leave the receipts out",
        )
    settings = store.settings
    limits = ConnectionLimits(
        in_all=max_links or settings.max_links,
        of_address=max_links_of_address or settings.max_links_of_address,
        idle_seconds=settings.idle_link_seconds,
    )
    return Serving(
        where,
        policy,
        ServedRecords(store, who, signer, None if warehouse is None else Path(warehouse)),
        LinkOptions(
            is_open=open,
            is_plain=plain,
            claim=claimed,
            expected=_verifiers(peer),
        ),
        now,
        ListenOptions(
            stdio_peer=_verifier(stdio_peer, "stdio_peer"),
            verifiers=_users(uid_map),
            tls=tls,
            channel_certificate=None
            if channel_cert is None
            else load_certificate(Path(channel_cert)),
            hosts=frozenset(name.lower() for name in hosts),
            origins=frozenset(origins),
            limits=limits,
            inherited=inherited,
        ),
        verifier=claimed if who is None else who.verifier,
        once=once,
        metrics=metrics,
        report=report,
        observer=observer,
    )


def receipt_key(store: Lace, key: SigningKey | None = None, claim: str | None = None) -> SigningKey:
    """Return the key that signs receipts: the given one, that of the claim, or the default key.

    Raises:
        UsageError: the lace has no default key, or the claim is not a verifier.
    """
    from lace.link.intake import choose_receipt_key

    return choose_receipt_key(store.keys, key, _verifier(claim, "claim"))


def publish_receipts(store: Lace, outcome: Outcome, key: SigningKey) -> list[RecordId]:
    """Store a receipt for each record that an exchange has brought, and return their identifiers.

    Raises:
        PolicyError: the peer has proven nothing, so that no receipt can name it.
    """
    from lace.errors import PolicyError
    from lace.record.model import make_receipt

    sender = outcome.peer_verifier
    if sender is None:
        raise PolicyError(
            "the peer has proven nothing, so that no receipt can name it",
            rule="050-208",
            hint="the records are stored; leave the receipts out",
        )
    return store.add_all([make_receipt(record, sender, key) for record in outcome.received])


def find_receipt(store: Lace, record: str, signer: str | None) -> str | None:
    """Return the hash of a receipt for a record that a verifier has signed, if it is here."""
    from lace.record.model import RECEIPT_APP, RECEIPT_GROUP, receipt_name
    from lace.record.paths import Address, Coordinate

    if signer is None:
        return None
    at = Coordinate(RECEIPT_GROUP, RECEIPT_APP, receipt_name(record))
    with store.snapshot() as snapshot:
        for found in snapshot.find(Address(coordinate=at, type="S")):
            if found.signed_by == signer:
                return str(found.id)
    return None


def _check_lace(store: object, said: str) -> None:
    from lace.api.lace import Lace

    check_argument(store, Lace, f"{said} is an open lace", "open it with lace.open(path)")


def _check_side(
    address: object,
    store: Lace,
    policy: Policy,
    key: SigningKey | None,
    claim: object,
    *,
    is_plain: bool,
) -> tuple[SigningKey | None, Verifier | None]:
    """Refuse what one side of a link cannot be made of; returns its key and its claim.

    On a plain link nothing is signed: a side that claims to be someone needs a transport that
    proves it, so that only a key that is given counts. With a claim no key is used.
    """
    from lace.exchange.capabilities import capabilities_of
    from lace.policy.local import check_policy
    from lace.record.seal import SigningKey

    check_argument(address, str, "address is text", "as in 'tcp:127.0.0.1:4790'")
    _check_lace(store, "store")
    check_policy(policy)
    capabilities_of(store.settings, policy)  # refuses fields that are not offered
    claimed = _claim(claim, key)
    if key is not None:
        check_argument(key, SigningKey, "key is a SigningKey", "as in store.keys.load(verifier)")
        return key, None
    return None if is_plain or claimed is not None else store.signing_key(), claimed


def _check_files(**given: object) -> None:
    for name, path in given.items():
        if path is not None:
            check_argument(path, (str, os.PathLike), f"{name} is the path of a file")


def _claim(claim: object, key: object) -> Verifier | None:
    """Return the verifier that a side claims and its transport proves."""
    from lace.errors import UsageError

    if claim is not None and key is not None:
        raise UsageError(
            "claim and key do not go together",
            hint="a key claims its own verifier; a claim leaves the proof to the transport",
        )
    return _verifier(claim, "claim")


def _verifier(text: object, said: str) -> Verifier | None:
    """Return a verifier that an argument names, if it does."""
    from lace.store.keys import parse_verifier

    if text is None:
        return None
    check_argument(text, str, f"{said} is a verifier", "as in str(key.verifier)")
    return parse_verifier(str(text))


def _users(uid_map: object) -> dict[int, Verifier]:
    """Return the verifiers of users, from a map file or a mapping."""
    from collections.abc import Mapping

    from lace.errors import UsageError
    from lace.store.keys import parse_verifier
    from lace.transport.identity_maps import read_uid_map

    if uid_map is None:
        return {}
    kinds = (str, os.PathLike, Mapping)
    check_argument(uid_map, kinds, "uid_map is the path of a file, or a mapping", "{1000: 'V.…'}")
    if not isinstance(uid_map, Mapping):
        return read_uid_map(Path(str(uid_map)))
    for uid in uid_map:
        if isinstance(uid, bool) or not isinstance(uid, int) or uid < 0:
            raise UsageError(f"uid_map has user numbers as keys, got {uid!r}", hint="see `id -u`")
    return {uid: parse_verifier(str(verifier)) for uid, verifier in uid_map.items()}


def _verifiers(peer: str | Iterable[str]) -> frozenset[str]:
    from lace.record.ids import Verifier

    names = [peer] if isinstance(peer, str) else peer
    check_many(names, "peer is a verifier, or several", "as in str(key.verifier)")
    return frozenset(str(Verifier(each)) for each in names)
