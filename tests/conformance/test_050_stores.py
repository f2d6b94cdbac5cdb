"""What text 050 says of operations, receipts and engines in one process, shown with real stores.

The exchanges here are those of `lace.interlace`; a tap notes what its machines take and want.
"""

from __future__ import annotations

import ast
import inspect
import random
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lace
from lace.errors import RecordError, RuleError
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.blocks import CONTROL_PREDICATES, format_block
from lace.exchange.capabilities import Capabilities, ExchangeLimits, MachineConfig
from lace.exchange.machine import Machine
from lace.exchange.result import Outcome
from lace.exchange.transitions import State
from lace.facts.lines import parse_fact
from lace.iltp.items import NEED_MORE, PREFACE, RecordItem, StreamError
from lace.iltp.reader import Reader
from lace.link.party import Party
from lace.policy.operand import operand_of
from lace.store.sqlite.snapshot import SqliteSnapshot
from lace.store.sqlite.store import SqliteStore
from tests.conformance.test_050_interlace import blocks, world_of
from tests.link.pairing import Pairing
from tests.simulator.policies import EXPOSURES, SELECTORS, START, pool
from tests.simulator.side import facts_of
from tests.simulator.world import some_world
from tests.store.samples import key, plex, valid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.base.tai import Tai
    from lace.exchange.effects import Effect
    from lace.exchange.events import Event
    from lace.facts.lines import Fact
    from lace.record.model import Record
    from lace.record.validate import ValidRecord
    from lace.store.interface import Admission

requirement = pytest.mark.requirement
EVERYTHING = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
GROUP_U = (
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'u').\n"
    "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u').\n"
)
SHOW_ALL = EXPOSURES[0]


@dataclass
class Tap:
    """What the machines of an exchange went through, by the index of their operands."""

    states: dict[int, list[State]] = field(default_factory=lambda: {0: [], 1: []})
    events: dict[int, list[Event]] = field(default_factory=lambda: {0: [], 1: []})
    effects: dict[int, list[Effect]] = field(default_factory=lambda: {0: [], 1: []})

    def blocks(self, index: int) -> list[tuple[Fact, ...]]:
        """The blocks that a side sent."""
        return [each.facts for each in self.effects[index] if isinstance(each, wanted.SendBlock)]

    def predicates(self) -> set[str]:
        """The predicates of all facts that travelled."""
        return {fact[0] for index in (0, 1) for block in self.blocks(index) for fact in block}


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Tap:
    """Note what machines do from now on."""
    found = Tap()
    receive = Machine.receive

    def noting(self: Machine, event: Event, *now: Tai) -> list[Effect]:
        made = receive(self, event, *now)
        index = self.config.operand.index
        found.events[index].append(event)
        found.effects[index] += made
        if not found.states[index] or found.states[index][-1] is not self.state:
            found.states[index].append(self.state)
        return made

    monkeypatch.setattr(Machine, "receive", noting)
    return found


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[lace.Lace, lace.Lace]]:
    """Two laces of two people."""
    with lace.open(tmp_path / "left") as left, lace.open(tmp_path / "right") as right:
        for number, each in enumerate((left, right), 1):
            each.keys.add(key(number))
            each.keys.set_default(key(number).verifier)
        yield left, right


def policy(select: str = EVERYTHING, expose: str = SHOW_ALL) -> lace.Policy:
    return lace.Policy(select=select, exposures=[expose])


def hashes(store: lace.Lace) -> set[str]:
    with store.snapshot() as snapshot:
        return {record.hash_text for record in snapshot.records()}


def ids(records: Sequence[Record]) -> set[str]:
    return {str(each.id) for each in records}


# -- what applications are offered -------------------------------------------------------------


@requirement("050-05")
def test_applications_speak_of_selected_sets_and_of_no_direction(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """One selector, the same on both sides, moves records both ways."""
    left, right = sides
    ours, theirs = [plex(f"l/{n}") for n in range(3)], [plex(f"r/{n}") for n in range(3)]
    left.add_all(ours)
    right.add_all(theirs)
    shared = policy(GROUP_U)
    assert list(inspect.signature(lace.interlace).parameters) == [
        "left",
        "right",
        "left_policy",
        "right_policy",
        "open",
        "offer_all",
        "store_differing",
        "receipts",
    ]
    assert lace.interlace(left, right, shared, shared)
    assert hashes(left) == hashes(right) == ids([*ours, *theirs])
    for directed in ("MaySend(P) :- Have(P).", "MayRequest(P) :- Advertised(P,_)."):
        with pytest.raises(RuleError):
            policy(f"{EVERYTHING}{directed}\n")


# -- numbers and snapshots of stores -----------------------------------------------------------


def party_of(store: SqliteStore, index: int, settings: lace.Lace, **more: object) -> Party:
    """One side that is driven by a test: all that is random about it is fixed."""
    config = MachineConfig(
        operand=operand_of(EVERYTHING, index),
        exposures=policy().exposures,
        random_bytes=random.Random(index).randbytes,
        key=key(1 + index),
        **more,  # type: ignore[arg-type]
    )
    return Party(
        Machine(config),
        store,
        settings.settings,
        transport="stdio",
        clock=lambda: lace.Tai(f"{START:010d}:000000000"),
        random_bytes=random.Random(9).randbytes,
    )


@requirement("050-15", "050-194", "050-195")
def test_an_open_exchange_follows_the_numbers_of_its_store(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen is not read again: each look begins behind the last StoreRecordId."""
    looks: list[tuple[int, int]] = []
    new_records = SqliteSnapshot.new_records

    def noting(self: SqliteSnapshot, after: int) -> list[ValidRecord]:
        found = new_records(self, after)
        looks.append((after, len(found)))
        return found

    monkeypatch.setattr(SqliteSnapshot, "new_records", noting)
    left, right = sides
    right.add_all([plex(f"r/{n}") for n in range(5)])
    parties = [party_of(each.store, index, each, is_open=True) for index, each in enumerate(sides)]
    link = Pairing(*parties)
    link.start()
    link.run()
    assert all(each.machine.state is State.WAITING for each in parties)
    assert len(hashes(left)) == 5
    with right.snapshot() as snapshot:
        water = snapshot.counters().high_water
    looks.clear()
    right.add_all([plex("later/1"), plex("later/2")])
    parties[1].take(happened.Changed())
    link.run()
    assert len(hashes(left)) == 7
    assert (water, 2) in looks, "the two that are new, and nothing before them"
    assert all(after >= 5 or count <= 5 for after, count in looks)
    # Nothing new behind the number that was seen last: no loop is begun.
    loops = parties[1].machine.counters.loops
    parties[1].take(happened.Changed())
    link.run()
    assert parties[1].machine.counters.loops == loops


@requirement("050-191", "050-148")
def test_the_numbers_of_a_store_are_for_itself_alone(tmp_path: Path, tap: Tap) -> None:
    """Stores that differ only in StoreRecordIds say the same, and get the same."""
    records: list[Record] = [plex(f"n/{n}", data=str(n)) for n in range(12)]
    said: list[list[set[Fact]]] = []
    got: list[set[str]] = []
    numbers: list[dict[str, int]] = []
    for run, order in enumerate((records, records[::-1])):
        tap.effects[0].clear()
        with (
            lace.open(tmp_path / f"left{run}") as left,
            lace.open(tmp_path / f"right{run}") as right,
        ):
            if run:  # numbers with gaps
                extra = left.add_all([plex(f"gone/{n}") for n in range(20)])
                left.remove(*extra)
            left.add_all(order)
            with left.snapshot() as snapshot:
                held = snapshot.numbered_records()
                numbers.append({record.hash_text: number for number, record in held})
            parties = [party_of(each.store, at, each) for at, each in enumerate((left, right))]
            link = Pairing(*parties)
            link.start()
            link.run()
            said.append([set(block) for block in tap.blocks(0)])
            got.append(hashes(right))
    assert all(numbers[0][record] != numbers[1][record] for record in numbers[0])
    assert said[0] == said[1]
    assert got[0] == got[1] == ids(records)


def adding(
    monkeypatch: pytest.MonkeyPatch, watched: lace.Lace, other: lace.Lace, record: Record
) -> None:
    """Store a record on one side when the other stores its first."""
    admit = SqliteStore.admit
    left = [record]

    def noting(self: SqliteStore, records: Sequence[ValidRecord]) -> Admission:
        done = admit(self, records)
        if self is watched.store and left:
            other.add(left.pop())
        return done

    monkeypatch.setattr(SqliteStore, "admit", noting)


@requirement("050-146", "050-147", "050-148", "050-149", "050-189")
def test_snapshots_of_stores_keep_reads_coherent_and_bound_no_exchange(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    before = right.add_all([plex(f"r/{n}") for n in range(3)])
    late = plex("late")
    adding(monkeypatch, left, right, late)
    slowly = {"service_budget_bytes": 1}  # a record in each loop
    with right.snapshot() as held, lace.open(right.store.folder, settings=slowly) as sending:
        done = lace.interlace(left, sending, policy(), policy())
        assert done
        assert not held.has(str(late.id)), "this snapshot is of the time before"
        assert {each.hash_text for each in held.records()} == set(before)
    assert set(done.left.received) == {*before, str(late.id)}


# -- records within records, and other forms of them --------------------------------------------


@requirement("020-43")
@pytest.mark.parametrize("stored", ["seal", "both", "hidden"])
def test_an_inner_record_moves_by_itself_only_where_the_view_has_it(
    sides: tuple[lace.Lace, lace.Lace], stored: str
) -> None:
    """To be sent or requested, it must be stored, and be in the view of who asks for it."""
    left, right = sides
    inner = plex("inner", group="u")
    outer = inner.seal(key(2))
    right.add_all([outer] if stored == "seal" else [outer, inner])
    by_name = f"Given('{outer.id}') :- true.\nGiven('{inner.id}') :- true.\n"
    select = (
        "SelectHave(H) :- PlexHash(_,H).\nSelectHave(P) :- Given(P).\n"
        f"SelectAdvertised(P,S) :- Advertised(P,S).\n{by_name}"
    )
    shown = f"AllowQueryRecord(V,'{outer.id}') :- _Viewer(V), Have('{outer.id}').\n"
    theirs = policy(expose=shown if stored == "hidden" else SHOW_ALL)
    done = lace.interlace(left, right, policy(select), theirs)
    assert done
    assert set(done.left.received) == ids([outer, inner] if stored == "both" else [outer])
    assert done.left.counters.requested == len(done.left.received)


@requirement("050-182")
def test_the_trailer_hash_form_is_refused_where_it_is_not_supported() -> None:
    """Streams support the hash-first form only; the other one is no response, and says so."""
    record = plex("n").bytes
    for lead, is_taken in ((b"", True), ("\u22ef".encode(), False)):
        reader = Reader()
        reader.feed(PREFACE + b"HelloRecordFormat('H3')\n\n")
        while reader.next_event() is not NEED_MORE:
            pass
        reader.expect(batch=True)
        reader.feed(lead + record + b"\n\n")
        if is_taken:
            item = reader.next_event()
            assert isinstance(item, RecordItem)
            assert item.raw.data == record
        else:
            with pytest.raises(StreamError, match="trailer-hash form") as caught:
                reader.next_event()
            assert caught.value.hint == "send it with the hash first"
            with pytest.raises(RecordError, match="trailer-hash form"):
                lace.parse_record(lead + record)


# -- operations are wrappers -------------------------------------------------------------------


def get(record: str) -> str:
    """A wrapper's selector: one record, by its hash."""
    return (
        f"SelectHave('{record}') :- Have('{record}').\n"
        f"SelectAdvertised('{record}',S) :- Advertised('{record}',S).\n"
    )


def names(prefix: str) -> str:
    """A wrapper's selector: the records of names with a prefix."""
    return (
        f"SelectHave(P) :- Have(P), Field(P,'Name',_,N), TextShape(N,'{prefix}','','').\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Name',_,N),"
        f" TextShape(N,'{prefix}','','').\n"
    )


def storing(*records: str) -> str:
    """A wrapper's selector: these local records."""
    facts = "".join(f"Given('{record}') :- true.\n" for record in records)
    return (
        "SelectHave(P) :- Have(P), Given(P).\n"
        f"SelectAdvertised(P,S) :- Advertised(P,S), Given(P).\n{facts}"
    )


@requirement("050-204", "050-205", "050-206")
@pytest.mark.parametrize("operation", ["get", "list", "store"])
def test_operations_are_selectors_and_nothing_on_the_wire(
    sides: tuple[lace.Lace, lace.Lace], tap: Tap, operation: str
) -> None:
    left, right = sides
    theirs = [plex(f"notes/{n}") for n in range(3)] + [plex(f"other/{n}") for n in range(3)]
    right.add_all(theirs)
    own = [plex("mine/1"), plex("mine/2")]
    left.add_all(own)
    select, gets, gives = {
        "get": (get(str(theirs[4].id)), [theirs[4]], []),
        "list": (names("notes/"), theirs[:3], []),
        "store": (storing(str(own[0].id)), [], [own[0]]),
    }[operation]
    done = lace.interlace(left, right, policy(select), policy())
    assert done
    assert set(done.left.received) == ids(gets)
    assert set(done.right.received) == ids(gives)
    # The setup block names the wrapper's selector, and its module travels with it.
    setup = next(each for each in tap.effects[0] if isinstance(each, wanted.SendBlock))
    operand = operand_of(select, 0)
    assert setup.facts[0][:3] == ("ExchangeOperand", "0", operand.module_id)
    assert setup.modules == ((operand.module_id, operand.canonical_bytes),)
    # Nothing else than the control facts of every exchange is said, in the same steps.
    assert tap.predicates() <= set(CONTROL_PREDICATES)
    usual = {State.SETUP, State.HELLO, State.ADVERTISING, State.REQUESTING, State.TRANSFERRING}
    assert all(usual <= set(states) for states in tap.states.values())


@requirement("050-207")
def test_who_collects_results_changes_nothing_of_the_exchange() -> None:
    """The same world twice; once every report is dropped unread."""
    spoken: list[list[list[bytes]]] = []
    for is_deaf in (False, True):
        world = some_world(11, is_open=(True, True))
        world.connect()
        for side in world.sides:
            if is_deaf:
                side.reports = Nobody()
        world.run()
        assert all(each.machine.state is State.WAITING for each in world.sides)
        spoken.append([side.transcript for side in world.sides])
        assert is_deaf or all(side.reports for side in world.sides)
        told = {field.name for field in fields(Outcome)} & {
            fact[0] for side in world.sides for block in blocks(side) for fact in block
        }
        assert not told
    assert spoken[0] == spoken[1]


class Nobody(list[Outcome]):
    """A collector that takes nothing."""

    def append(self, report: Outcome) -> None:
        """Let a report pass."""


@requirement("050-207")
def test_core_and_store_know_nothing_of_who_collects() -> None:
    """They import no driver and are given nothing to call but a source of randomness."""
    source = Path(inspect.getfile(lace)).parent
    for path in (*(source / "exchange").glob("*.py"), *(source / "store").rglob("*.py")):
        imported = {
            name
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            for name in (
                [each.name for each in node.names]
                if isinstance(node, ast.Import)
                else [str(node.module)]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        above = ("lace.link", "lace.api", "lace.cli")
        assert not {name for name in imported if name.startswith(above)}, path
    called = [each.name for each in fields(MachineConfig) if "Callable" in str(each.type)]
    assert called == ["random_bytes"]


# -- receipts ----------------------------------------------------------------------------------


def receipt(record: str, sender: str, number: int) -> lace.Seal:
    """A receipt of the side with this key for a record that it stored."""
    made = lace.Plex(
        group="lace",
        app="receipt",
        name=f"store/{record}",
        tai=lace.Tai(f"{START:010d}:000000000"),
        headers=(("Stored-Hash", record), ("Stored-From", sender)),
        data=b"",
    )
    return made.seal(key(number))


@requirement("050-208", "050-209")
def test_a_receipt_is_a_record_like_any_other(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    (record,) = left.add_all([plex("links/1")])
    done = lace.interlace(left, right, policy(), policy())
    assert done.right.received == (record,)
    assert hashes(right) == {record}, "nobody publishes a receipt by itself"
    published = right.add(receipt(record, str(key(1).verifier), 2))
    receipts = (
        "SelectHave(P) :- Receipt(P).\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'lace'),"
        f" AdvertisedField(P,S,'App',_,'receipt'), AdvertisedField(P,S,'Stored-Hash',_,'{record}'),"
        " AdvertisedField(P,S,'Signed-By',_,V), Peer(V).\n"
        "Receipt(P) :- Have(P), Field(P,'Group',_,'lace'), Field(P,'App',_,'receipt').\n"
    )
    # The rules of an exchange decide about it, as about everything.
    lace.interlace(left, right, policy(GROUP_U), policy(GROUP_U))
    assert published not in hashes(left)
    assert lace.interlace(left, right, policy(receipts), policy()).left.received == (published,)
    found = left.get(published)
    assert isinstance(found, lace.Seal)
    assert found.signed_by == key(2).verifier
    with left.snapshot() as snapshot:
        held = {fact[1:] for fact in snapshot.query("Field", published)}
    assert {
        ("Group", "0", "lace"),
        ("App", "0", "receipt"),
        ("Name", "0", f"store/{record}"),
        ("TAI", "0", f"{START:010d}:000000000"),
        ("Stored-Hash", "0", record),
        ("Stored-From", "0", str(key(1).verifier)),
        ("Signed-By", "0", str(key(2).verifier)),
    } <= held
    # One that somebody else signed is nobody's receipt to the sender.
    forged = right.add(receipt(record, str(key(1).verifier), 3))
    lace.interlace(left, right, policy(receipts), policy())
    assert forged not in hashes(left)


# -- both sides in one process -----------------------------------------------------------------


@requirement("050-236")
def test_an_engine_in_one_process_shows_no_store(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are not written out; all that is stored goes through validation and `admit`."""
    left, right = sides
    theirs = right.add_all([plex(f"r/{n}") for n in range(4)])
    admitted: list[str] = []
    admit = SqliteStore.admit

    def noting(self: SqliteStore, records: Sequence[ValidRecord]) -> Admission:
        admitted.extend(each.hash_text for each in records)
        return admit(self, records)

    monkeypatch.setattr(SqliteStore, "admit", noting)
    done = lace.interlace(left, right, policy(), policy())
    assert sorted(admitted) == sorted(theirs)
    assert {each.name for each in fields(done)} == {"left", "right"}
    assert isinstance(done.left, Outcome)
    assert not {"Party", "Pairing", "StoreEvaluator", "SqliteStore", "Machine"} & set(lace.__all__)
    values = [getattr(done.left, each.name) for each in fields(done.left)]
    assert not any(isinstance(value, (SqliteStore, lace.Lace)) for value in values)


@requirement("050-237")
def test_an_engine_in_one_process_goes_through_the_same_transitions(
    sides: tuple[lace.Lace, lace.Lace], tap: Tap
) -> None:
    left, right = sides
    theirs = right.add_all([plex(f"r/{n}") for n in range(4)])
    assert lace.interlace(left, right, policy(), policy())
    in_order = [
        State.SETUP,
        State.HELLO,
        State.EVALUATING,
        State.ADVERTISING,
        State.COMPARING,
        State.REQUESTING,
        State.TRANSFERRING,
        State.EVALUATING,
        State.CLOSED,
    ]
    for index in (0, 1):
        went = iter(tap.states[index])
        assert all(state in went for state in in_order), tap.states[index]
    agreed = [each for index in (0, 1) for each in tap.effects[index] if type(each) is wanted.Agree]
    assert len({each.terms.plan_id for each in agreed}) == 1
    assert agreed[0].terms.start_tai == agreed[1].terms.start_tai
    asked = {fact[1] for block in tap.blocks(0) for fact in block if fact[0] == "MayRequest"}
    validated = [each for each in tap.events[0] if isinstance(each, happened.Validated)]
    assert asked == set(theirs)
    assert sum(len(each.outcomes) for each in validated) == len(theirs)
    assert any(isinstance(each, wanted.Validate) for each in tap.effects[0])


@requirement("050-24", "050-236", "050-237")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_handing_over_and_writing_out_are_the_same(tmp_path: Path, tap: Tap, mode: int) -> None:
    """Two sides in one process say what two sides say over text, block by block."""
    said: list[list[list[set[Fact]]]] = []
    records = [plex(f"n/{n}", data=str(n)) for n in range(30)]
    for run in (0, 1):
        for index in (0, 1):
            tap.effects[index].clear()
        with (
            lace.open(tmp_path / f"left{run}") as left,
            lace.open(tmp_path / f"right{run}") as right,
        ):
            left.add_all(records[:20])
            right.add_all(records[10:])
            parties = [
                party_of(each.store, at, each, capabilities=Capabilities(mode=mode))
                for at, each in enumerate((left, right))
            ]
            link = Pairing(*parties)
            with pytest.MonkeyPatch.context() as patch:
                if run:
                    write_out(patch)
                link.start()
                link.run()
            assert hashes(left) == hashes(right) == ids(records)
        said.append([[set(block) for block in tap.blocks(index)] for index in (0, 1)])
    assert said[0] == said[1]


def write_out(patch: pytest.MonkeyPatch) -> None:
    """Let every block be written as text and read back on its way."""
    take = Party.take

    def reading(self: Party, event: Event) -> None:
        if isinstance(event, happened.BlockReceived) and event.facts:
            lines = format_block(event.facts).split(b"\n")
            facts = tuple(parse_fact(line) for line in lines if line)
            event = happened.BlockReceived(facts, event.modules)
        take(self, event)

    patch.setattr(Party, "take", reading)


@requirement("050-156", "050-239")
def test_narrowing_is_skipped_where_both_states_are_at_hand() -> None:
    """Equal stores: nobody asks anything, and what both know is what a listing tells."""
    found: list[set[str]] = []
    for mode in (0, 1, 2):
        records = list(pool()[:20])
        world = world_of(records, records, means=Capabilities(mode=mode))
        world.run()
        for side in world.sides:
            said = {fact[0] for block in blocks(side) for fact in block}
            assert not said & {
                "NarrowAdvertisementPartition",
                "ListAdvertisementPartition",
                "AdvertisementChildren",
            }
            assert ("Advertised" in said) is (mode == 0)
            assert side.outcome is not None
            assert side.outcome.at_fixed_point
            loops = side.machine._loops
            assert loops is not None
            found.append(set(loops.states.theirs))
    assert all(each == {record.hash_text for record in pool()[:20]} for each in found)


# -- schedules and time ------------------------------------------------------------------------


@requirement("050-202", "050-203")
def test_monotonic_rules_give_one_result_whatever_the_schedule() -> None:
    """Where rules only add, budgets and order decide nothing; otherwise they may."""
    ends: dict[str, set[frozenset[str]]] = {}
    same = valid(*(plex("same", at=START, data=str(n)) for n in range(4)))
    for name in ("members", "one of a name"):
        rules = next(each for each in SELECTORS if each.name == name).rules
        ends[name] = set()
        for budget in (0, 400, 2**27):
            for seed in (1, 2, 3):
                means = Capabilities(limits=ExchangeLimits(service_budget_bytes=budget))
                world = world_of(
                    [], [*pool(), *same], rules=(rules, SELECTORS[0].rules), means=means
                )
                world.rnd.seed(seed)
                world.settle()
                world.check_fixed_point()
                ends[name].add(frozenset(world.sides[0].store))
    assert len(ends["members"]) == 1
    assert len(ends["one of a name"]) > 1
    # Who selects from validated facts afterwards has one result all the same.
    chosen = "Chosen(P) :- Have(P), Field(P,'App',_,'member'), Field(P,'Group',_,'u')."
    world = world_of([], list(pool()))
    world.run()
    expected = {r.hash_text for r in pool() if (r.group, r.app) == ("u", "member")}
    facts = [fact for each in world.sides[0].store.values() for fact in facts_of(each)]
    assert {row[0] for row in lace.evaluate(chosen, facts)["Chosen/1"]} == expected


@requirement("050-143", "050-187")
def test_waiting_for_a_tick_is_a_condition_of_who_runs_the_exchange() -> None:
    """A wrapper runs an open exchange up to a tick and closes; a bounded side waits for none."""
    rules = next(each for each in SELECTORS if each.name == "in time").rules
    late = valid(plex("links/1", at=START + 12))
    world = world_of([], late, rules=(rules, rules), is_open=True)
    world.run()
    a = world.sides[0]
    assert a.machine.state is State.WAITING
    assert not a.store
    while a.ticks[-1] == a.ticks[0]:  # until one tick has come: the wrapper's condition
        world.wait(1)
    world.wait(10)
    a.happen(happened.Stopped(), world.now(a))
    world.run()
    for side in world.sides:
        assert side.outcome is not None
        assert side.outcome.failure is None
        assert side.outcome.at_fixed_point
    assert set(a.store) == {late[0].hash_text}
    assert not any("wait" in each.name or "until" in each.name for each in fields(MachineConfig))
    bounded = world_of([], late, rules=(rules, rules))
    bounded.run()
    assert bounded.is_over
    assert not bounded.sides[0].store
