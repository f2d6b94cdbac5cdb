"""One exchange from the preface to the close: setup, hello, loops, result (050, 060)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.interop.peer.advertise import States, advertise
from tests.interop.peer.keys import Key, verifies
from tests.interop.peer.plan import EVERYTHING, Plan, Selector, make_plan, proof_message, recognise
from tests.interop.peer.reconcile import Reconciliation
from tests.interop.peer.text import Fact, PeerError, encode, tai_now
from tests.interop.peer.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.interop.peer.records import Record
    from tests.interop.peer.streams import Stream

__all__ = ["Peer", "Memory", "Result", "Session"]

LIMITS = {
    "max_fact_block_size": 64 << 20,
    "max_advertisement_records_listed": 100_000,
    "max_partition_summaries": 16_384,
    "max_narrowing_depth": 12,
    "max_total_transferred_bytes": 1 << 30,
    "max_loop_iterations": 16,
}


@dataclass(slots=True)
class Memory:
    """States of earlier exchanges between the same two verifiers."""

    theirs: dict[str, States] = field(default_factory=dict)
    told: dict[str, dict[str, States]] = field(default_factory=dict)


@dataclass(slots=True)
class Peer:
    """A party: its records, its policy by hand, its key, and how it likes to reconcile."""

    records: dict[str, Record] = field(default_factory=dict)
    selector: Selector = EVERYTHING
    exposes: Callable[[Record], bool] = lambda record: True
    key: Key | None = None
    mode: int = 2
    small: int = 16
    most_served: int = 1_000_000
    tick_interval: int = 10_000_000_000
    fields: frozenset[str] | None = None
    plain: bool = False
    claim: str | None = None
    """What it claims without signing."""
    proven: str | None = None
    """The verifier that its transport proves of the other side."""
    limits: dict[str, int] = field(default_factory=LIMITS.copy)
    memory: Memory = field(default_factory=Memory)

    def add(self, records: Iterable[Record]) -> None:
        """Store records."""
        self.records.update((record.id, record) for record in records)


@dataclass(slots=True)
class Result:
    """What an exchange came to."""

    received: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    not_available: list[str] = field(default_factory=list)
    sent: int = 0
    loops: int = 0
    peer: str | None = None
    plan: str = ""
    mode: int = 0


def _one(block: Iterable[Fact], name: str, size: int) -> Fact:
    (found,) = [fact for fact in block if fact[0] == name] or [()]
    if len(found) != size + 1:
        raise PeerError(f"no single {name}")
    return found


def _values(block: Iterable[Fact], name: str) -> set[str]:
    return {fact[1] for fact in block if fact[0] == name and len(fact) == 2}


class Session:
    """One exchange of a peer over a stream. Tests bend it by overriding its steps."""

    def __init__(self, peer: Peer, stream: Stream, index: int) -> None:
        self.peer = peer
        self.wire = Wire(stream)
        self.index = index
        self.result = Result()
        self.schema: frozenset[str] | None = None
        self.sources = ["", ""]
        self.plan: Plan
        self.theirs: Selector
        self._previous: States | None = None
        self._told: dict[str, States] = {}
        self._link = ""
        self._most_listed = 0
        self._before: object = None

    def run(self) -> Result:
        """Run the exchange to its fixed point."""
        wire = self.wire
        wire.send_preface()
        mine = self.setup_block()
        self.send_setup(mine)
        wire.read_preface()
        self.negotiate(mine, wire.read_block())
        for _ in range(LIMITS["max_loop_iterations"]):
            self.result.loops += 1
            if self._loop():
                break
        else:
            raise PeerError("not at a fixed point")
        wire.finish()
        self._remember()
        return self.result

    # -- setup and hello

    @property
    def claim(self) -> str:
        """The origin that it claims (G27): a verifier of its own, or a label."""
        key = self.peer.key
        if key and not self.peer.plain:
            return key.verifier
        return self.peer.claim or f"Opq_{self.index}"

    def send_setup(self, block: list[Fact]) -> None:
        """Send the text of the operand, then the block that names it."""
        self.wire.send_resource(self.peer.selector.id, "lacegram", self.peer.selector.text)
        self.wire.send_block(block)

    def follow(self, text: str) -> Selector:
        """Find out what the other operand selects."""
        return recognise(text)

    def setup_block(self) -> list[Fact]:
        """The setup: the operand with its claimed origin, and a nonce."""
        operand = (
            "ExchangeOperand",
            str(self.index),
            self.peer.selector.id,
            self.claim,
            "selector",
        )
        if self.peer.plain:
            return [operand]
        return [operand, ("ExchangeNonce", encode(secrets.token_bytes(32)))]

    def hello_block(self, setups: tuple[list[Fact], list[Fact]]) -> list[Fact]:
        """The hello: plan, times, formats, schema, limits, proof."""
        hello: list[Fact] = [
            ("HelloExchangePlan", self.plan.id),
            ("HelloTAI", tai_now()),
            ("HelloTickInterval", str(self.peer.tick_interval)),
            ("HelloRecordFormat", "H3"),
        ]
        if self.peer.fields is None:
            hello.append(("HelloAllAdvertisedFields",))
        else:
            hello += [("HelloAdvertisedField", name) for name in sorted(self.peer.fields)]
        hello += [("HelloLimit", name, str(value)) for name, value in self.peer.limits.items()]
        if self.peer.mode:
            hello.append(("HelloLimit", "reconcile", str(self.peer.mode)))
        return hello + self.proof(setups)

    def proof(self, setups: tuple[list[Fact], list[Fact]]) -> list[Fact]:
        """The signer and its proof, where both setups have a nonce."""
        key = self.peer.key
        if key is None or not all(any(f[0] == "ExchangeNonce" for f in each) for each in setups):
            return []
        message = self._message(setups, self.index, key.verifier)
        return [("HelloSigner", key.verifier), ("HelloProof", key.sign(message))]

    def _message(self, setups: tuple[list[Fact], list[Fact]], index: int, verifier: str) -> bytes:
        channel = self.wire.stream.certificate
        return proof_message(setups, self.plan, index, verifier, channel)

    def negotiate(self, mine: list[Fact], theirs: list[Fact]) -> None:
        """Agree on plan, schema, mode and identities."""
        operand = _one(theirs, "ExchangeOperand", 4)
        if operand[1] != str(1 - self.index) or operand[4] != "selector":
            raise PeerError("not the other operand")
        text = self.wire.resources.get(operand[2], self.peer.selector.text)
        self.theirs = self.follow(text)
        if self.theirs.id != operand[2]:
            raise PeerError("the identifier is not that of the text")
        own = self.peer.selector
        self.plan = make_plan((own, self.theirs) if self.index == 0 else (self.theirs, own))
        setups = (mine, theirs) if self.index == 0 else (theirs, mine)
        self.wire.send_block(self.hello_block(setups))
        hello = self.wire.read_block()
        if _one(hello, "HelloExchangePlan", 1)[1] != self.plan.id:
            raise PeerError("plans differ")
        self._identify(operand[3], hello, setups)
        self._agree(hello)

    def _identify(
        self, claim: str, hello: list[Fact], setups: tuple[list[Fact], list[Fact]]
    ) -> None:
        signer = next(iter(_values(hello, "HelloSigner")), None)
        if signer is not None:
            proof = _one(hello, "HelloProof", 1)[1]
            message = self._message(setups, 1 - self.index, signer)
            if not verifies(signer, message, proof):
                raise PeerError("the signer is not proven")
        claimed = claim if claim.startswith("V.") else None
        if claim == f"Opq_{self.index}" or (claimed and claimed not in (signer, self.peer.proven)):
            raise PeerError(f"the origin {claim} is not proven")
        there = signer or claimed
        self.sources = list(self.plan.origins)
        self.sources[1 - self.index] = there or self.plan.origins[1 - self.index]
        mine = next(iter(_values(self.wire.sent[-1], "HelloSigner")), None)
        mine = mine or (self.claim if self.claim.startswith("V.") else None)
        self.sources[self.index] = mine or self.plan.origins[self.index]
        self.result.peer, self.result.plan = there or self.peer.proven, self.plan.id
        signer = there
        if mine and signer:
            self._link = f"{min(mine, signer)} {max(mine, signer)} {self.plan.id}"
            self._previous = self.peer.memory.theirs.get(self._link)
            self._told = dict(self.peer.memory.told.get(self._link, {}))

    def _agree(self, hello: list[Fact]) -> None:
        if "H3" not in _values(hello, "HelloRecordFormat"):
            raise PeerError("no common format")
        theirs: frozenset[str] | None = frozenset(_values(hello, "HelloAdvertisedField"))
        if ("HelloAllAdvertisedFields",) in hello:
            theirs = None
        schemas = [each for each in (self.peer.fields, theirs) if each is not None]
        self.schema = frozenset.intersection(*schemas) if schemas else None
        if self.schema is not None and not self.plan.required <= self.schema:
            raise PeerError("the schema lacks a field that the plan requires")
        listed = "max_advertisement_records_listed"
        most = [int(f[2]) for f in hello if f[:2] == ("HelloLimit", listed)]
        self._most_listed = min(self.peer.limits[listed], *most or [LIMITS[listed]])
        offers = [int(f[2]) for f in hello if f[:2] == ("HelloLimit", "reconcile")]
        self.result.mode = min(self.peer.mode, 2, *offers) if offers else 0

    # -- loops

    def turn(self, block: list[Fact]) -> list[Fact]:
        """Send one block, read one."""
        self.wire.send_block(block)
        return self.wire.read_block()

    def send_set(self) -> list[Record]:
        """MaySend: both selectors select it, and the peer's sees only what is exposed."""
        return [
            record
            for record in self.peer.records.values()
            if self.peer.selector.selects(record)
            and self.peer.exposes(record)
            and self.theirs.selects(record)
        ]

    def told(self, records: list[Record]) -> States:
        """What is advertised of records."""
        source = self.sources[self.index]
        return States(advertise(record, source, self.schema) for record in records)

    def _loop(self) -> bool:
        source, own = self.sources[1 - self.index], self.send_set()
        told = self.told(own)
        relabelled = States(advertise(record, source, self.schema) for record in own)
        phase = Reconciliation(
            mode=self.result.mode,
            own=told,
            source=source,
            schema=self.schema,
            at_hand=[state for state in (self._previous, relabelled) if state is not None],
            small=self.peer.small,
            cursor=self._previous if self.result.mode == 2 else None,
            told_before=self._told,
            most_listed=self._most_listed,
        )
        state = phase.run(self.turn)
        self._previous = state
        self._told[encode(told.summary()[1])] = told
        wanted = self.requestable(state)
        asked = self.turn([("MayRequest", name) for name in wanted])
        self._serve(asked, {record.id for record in own})
        self._take(wanted, state)
        now = told.summary(), state.summary()
        before, self._before = self._before, now
        still = before == now or not (self.peer.selector.moves or self.theirs.moves)
        return not wanted and not asked and still

    def requestable(self, state: States) -> list[str]:
        """MayRequest: both selectors select the claims; it is not here, nor known as refused."""
        refused = {*self.result.rejected, *self.result.not_available}
        return [
            name
            for name, each in sorted(state.by_id.items())
            if name not in self.peer.records
            and name not in refused
            and name.endswith(".H3")
            and self.peer.selector.selects_claims(each.facts)
            and self.theirs.selects_claims(each.facts)
        ]

    def _serve(self, asked: list[Fact], told: set[str]) -> None:
        names = [fact[1] for fact in asked if fact[0] == "MayRequest" and len(fact) == 2]
        if len(names) != len(asked):
            raise PeerError("not a request list")
        served = names[: self.peer.most_served]
        here = {name for name in served if name in told and name in self.peer.records}
        self.result.sent += len(here)
        present = [self.peer.records[name] for name in served if name in here]
        # What was not advertised is not available, whether it is here or not (G54).
        self.wire.send_batch(present, [name for name in served if name not in here])

    def _take(self, wanted: list[str], state: States) -> None:
        batch = self.wire.read_batch()
        answered = [*(record.id for record in batch.records), *batch.not_available]
        if len(set(answered)) != len(answered) or not set(answered) <= set(wanted):
            raise PeerError("an answer to nothing that was asked")
        self.result.not_available += batch.not_available
        for record in batch.records:
            claimed = state.by_id[record.id].digest
            problem = record.problem
            if advertise(record, self.sources[1 - self.index], self.schema).digest != claimed:
                problem = problem or "advertised claims differ"
            if problem:
                self.result.rejected[record.id] = problem
            else:
                self.peer.add([record])
                self.result.received.append(record.id)

    def _remember(self) -> None:
        if self._link and self._previous is not None:
            self.peer.memory.theirs[self._link] = self._previous
            self.peer.memory.told[self._link] = self._told
