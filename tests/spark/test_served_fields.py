"""A field outside the offered schema does not show of a served warehouse either (040-106).

Two warehouses have the same records and read them alike, but for one field: to the one it says
this, to the other that. What a server sends is the same then, unless it offers that field; it does
not matter whether the plan is evaluated in the exchange or was registered beforehand.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lace
from lace.base.limits import Settings
from lace.exchange import events as happened
from lace.exchange.failures import Failure
from lace.link import side as exchanging
from lace.link.client import LinkOptions
from lace.link.side import Side, party_of
from lace.spark.pipeline import records as lookup
from lace.spark.pipeline.tables import check_row, record_row
from lace.spark.pipeline.warehouse import WarehouseFolder
from lace.spark.served import ServedWarehouse, WarehouseEvaluating, WarehouseStore, open_served
from lace.store.links import LinkFiles
from lace.store.sqlite.store import SqliteStore
from tests.cli.running import call
from tests.link.pairing import Pairing
from tests.property.test_noninterference_fields import (
    EVERYTHING,
    GROUP,
    NOW,
    OURS,
    SECRET,
    THEIRS,
    VALUES,
    listen,
    policy,
    records,
)
from tests.simulator.policies import ALICE, BOB
from tests.spark.test_lookup import SCHEMA, add_table
from tests.store.samples import valid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.link.party import Party

SOURCE = str(ALICE.verifier)
EMBEDDED, REGISTERED = 1_000, 0
"""How many records a plan may have that is evaluated in an exchange: all of them, or none."""

ADVERTISING = "Advertised", "AdvertisedField", "AdvertisementPartition"


def make_warehouse(folder: Path, value: bytes, name: str = "here") -> WarehouseFolder:
    """Make a warehouse of records whose heads say a value that their bytes may not have."""
    made = WarehouseFolder.create(folder)
    rows = []
    for record in valid(*records(40, "both") + records(9, name)):
        row = dict(zip(SCHEMA.names, (*record_row(record), 0, 0), strict=True))
        rows.append({**row, "head": row["head"].replace(VALUES[0], value)})
    add_table(made, pa.Table.from_pylist(rows, SCHEMA), 7)
    return made


@pytest.fixture
def _bytes_as_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the bytes that are sent be those that the hashes are of."""

    def restored(row: dict[str, Any]) -> Any:
        return check_row({**row, "head": row["head"].replace(VALUES[1], VALUES[0])})

    monkeypatch.setattr(lookup, "check_row", restored)


pytestmark = pytest.mark.usefixtures("_bytes_as_hashed")


class _Link:
    """An exchange of a served warehouse with a peer that has a store."""

    def __init__(
        self,
        folder: Path,
        served: ServedWarehouse,
        policies: tuple[lace.Policy, lace.Policy],
        *,
        mode: int = 2,
        is_open: bool = False,
        most_embedded: int = EMBEDDED,
    ) -> None:
        self.served = served
        self.whole: list[bytes] = []
        self.blocks: list[bytes] = []
        self.evaluations = 0
        means = Settings(reconcile_mode=mode)
        store = WarehouseStore(lambda: self.served)
        self._theirs = SqliteStore(folder / "there", create=True)
        self._theirs.admit(valid(*records(40, "both")[:5]))
        evaluating = WarehouseEvaluating(store, most_embedded)

        def counted(*args: Any, **named: Any) -> Any:
            self.evaluations += 1
            return evaluating(*args, **named)

        links = LinkFiles(folder / "links")
        sides = (
            Side(store, means, policies[0], ALICE, evaluating=counted, links=links),
            Side(self._theirs, means, policies[1], BOB),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exchanging, "os", SimpleNamespace(urandom=random.Random(1).randbytes))
            self.parties: list[Party] = [
                party_of(side, 1 - at, lambda: NOW, LinkOptions(is_open=is_open))
                for at, side in enumerate(sides)
            ]
        listen(self.parties[0], self.whole, self.blocks)
        self._pairing = Pairing(*reversed(self.parties))

    def run(self, later: ServedWarehouse | None = None) -> tuple[bytes, bytes]:
        """Run it, and with another state of the warehouse a second epoch; returns what was sent."""
        self._pairing.start()
        self._pairing.run()
        if later is not None:
            self.served = later
            config = self.parties[0].machine.config
            self.parties[0].take(happened.Renewed(config.operand, config.exposures))
            self._pairing.run()
            for party in self.parties:
                party.take(happened.Stopped())
            self._pairing.run()
        for party in self.parties:
            party.close()
        self._theirs.close()
        return b"".join(self.whole), b"".join(self.blocks)


def sent(
    folder: Path, ours: lace.Policy, theirs: lace.Policy, *, mode: int, is_open: bool
) -> list[tuple[bytes, bytes]]:
    """Return what is sent of each of the two warehouses, which evaluate in the exchange."""
    found = []
    for number, value in enumerate(VALUES):
        place = folder / str(number)
        place.mkdir()
        first, later = (
            open_served(make_warehouse(place / name, value, name).folder) for name in ("a", "b")
        )
        link = _Link(place, first, (ours, theirs), mode=mode, is_open=is_open)
        found.append(link.run(later if is_open else None))
    return found


@pytest.mark.requirement("040-106", "050-151")
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize(("mode", "is_open"), [(0, False), (1, False), (2, False), (2, True)])
def test_a_field_that_is_not_offered_does_not_show(
    tmp_path: Path, mode: int, ours: str, theirs: str, *, is_open: bool
) -> None:
    one, other = sent(tmp_path, OURS[ours](), THEIRS[theirs](), mode=mode, is_open=is_open)
    assert one[0] == other[0]
    for whole, blocks in (one, other):
        assert b"'Secret'" not in blocks
        assert not any(value in blocks for value in VALUES)
        assert VALUES[1] not in whole
    if theirs in ("secret", "any"):
        assert one[0] == one[1], "no record is sent"
        assert not any(f"\n{each}('".encode() in one[1] for each in ADVERTISING)
    elif (ours, theirs) != ("none", "group"):
        assert one[0].count(b"Secret: ") >= 44, "all that the peer lacks is sent"


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_field_that_is_offered_shows(tmp_path: Path, mode: int) -> None:
    """Otherwise the test above would see nothing."""
    ours = policy(EVERYTHING, fields=["Secret"])
    one, other = sent(tmp_path, ours, THEIRS["secret"](), mode=mode, is_open=False)
    assert one[0] != other[0]
    assert VALUES[0] in one[1]
    assert VALUES[1] in other[1]


@pytest.mark.requirement("040-106", "050-130", "050-131")
@pytest.mark.parametrize("most_embedded", [EMBEDDED, REGISTERED])
@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("theirs", ["secret", "any"])
def test_a_peer_that_needs_a_field_that_is_not_offered_ends_at_hello(
    tmp_path: Path, ours: str, theirs: str, most_embedded: int
) -> None:
    """Nothing is evaluated, and no plan is looked up: the refusal says nothing of the warehouse."""
    served = open_served(make_warehouse(tmp_path / "wh", VALUES[0]).folder)
    policies = OURS[ours](), THEIRS[theirs]()
    link = _Link(tmp_path, served, policies, most_embedded=most_embedded)
    link.run()
    outcome = link.parties[0].machine.outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.SCHEMA_UNMET
    assert link.evaluations == 0


REGISTERED_POLICIES: dict[
    str, tuple[Callable[[], lace.Policy], Callable[[], lace.Policy], list[str] | None]
] = {
    "default": (lambda: policy(GROUP), lambda: policy(GROUP), None),
    "some": (OURS["some"], THEIRS["all"], ["Group", "Topic"]),
}
"""Of both sides, and the fields that both offer where these are more than the plan requires."""


@pytest.fixture(scope="module")
def registered(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ServedWarehouse, ServedWarehouse]:
    """The two warehouses, in which plans of these policies are registered."""
    found = []
    for value in VALUES:
        folder = make_warehouse(tmp_path_factory.mktemp("registered") / "wh", value).folder
        warehouse = lace.open_warehouse(folder)
        warehouse.make_facts(spark=spark)
        for name, (ours, theirs, fields) in REGISTERED_POLICIES.items():
            peer = theirs().select
            viewer = str(BOB.verifier)
            warehouse.evaluate_exchange(
                ours(), peer, index=1, viewer=viewer, name=name, spark=spark
            )
            if fields is None:
                warehouse.advertise(SOURCE, exchange=name, spark=spark)
            else:
                of = f"{name}/MaySend"
                warehouse.advertise(SOURCE, of=of, fields=fields, name=name, spark=spark)
        found.append(open_served(folder))
    return found[0], found[1]


@pytest.mark.spark
@pytest.mark.requirement("040-106", "050-151")
@pytest.mark.parametrize("name", REGISTERED_POLICIES)
@pytest.mark.parametrize("mode", [0, 2])
def test_a_field_that_is_not_offered_does_not_show_of_a_registered_plan(
    registered: tuple[ServedWarehouse, ServedWarehouse], tmp_path: Path, mode: int, name: str
) -> None:
    found = []
    for number, served in enumerate(registered):
        place = tmp_path / str(number)
        place.mkdir()
        ours, theirs, _ = REGISTERED_POLICIES[name]
        link = _Link(place, served, (ours(), theirs()), mode=mode, most_embedded=REGISTERED)
        found.append(link.run())
        outcome = link.parties[0].machine.outcome
        assert outcome is not None
        assert outcome.failure is None
    one, other = found
    assert one[0] == other[0]
    assert one[0].count(b"Secret: ") == 44, "all that the peer lacks is sent"
    assert b"'Secret'" not in one[1]
    assert not any(value in one[1] for value in VALUES)
    assert b"\nAdvertisedField('" in one[1]


@pytest.mark.spark
@pytest.mark.requirement("040-106")
def test_what_is_registered_has_no_field_that_is_not_offered(spark: Any, tmp_path: Path) -> None:
    """An exchange with such a peer fails, so its field is not written beside the records either."""
    warehouse = lace.open_warehouse(make_warehouse(tmp_path / "wh", VALUES[0]).folder)
    warehouse.make_facts(spark=spark)
    both = SECRET.replace(", Ad", ", AdvertisedField(P,S,'Group',_,_), Ad", 1)
    for ours, fields in (
        (policy(EVERYTHING), {"Group"}),
        (policy(EVERYTHING, fields=["Topic"]), set()),
        (policy(EVERYTHING, fields=["Secret", "Group", "Topic"]), {"Group", "Secret"}),
    ):
        viewer = str(BOB.verifier)
        done = warehouse.evaluate_exchange(ours, both, index=1, viewer=viewer, spark=spark)
        assert done.fresh, "an answer for other fields is not this one"
        warehouse.advertise(SOURCE, exchange="exchange", spark=spark)
        texts = warehouse.to_arrow("advertisements/exchange").column("fields").to_pylist()
        assert {
            name for name in ("Group", "Secret", "Topic") if f'"{name}"' in str(texts)
        } == fields


@pytest.mark.spark
@pytest.mark.requirement("040-106", "050-130")
def test_evaluate_warns_of_a_field_that_is_not_offered(spark: Any, tmp_path: Path) -> None:
    assert spark is not None
    folder = make_warehouse(tmp_path / "wh", VALUES[0]).folder
    for name, rules in (("mine", EVERYTHING), ("theirs", SECRET)):
        (tmp_path / name).write_text(rules)
    asked = ("--select", tmp_path / "mine", "--peer-select", tmp_path / "theirs", "--index", 1)
    done = call("pipeline", "evaluate", folder, *asked)
    assert done.code == 0, done.err
    assert "needs the advertised field Secret, which you do not offer" in " ".join(done.err.split())
    done = call("pipeline", "evaluate", folder, *asked, "--field", "Secret")
    assert (done.code, "do not offer" in done.err) == (0, False), done.err


def test_the_refusal_of_a_plan_says_which_fields_to_register(tmp_path: Path) -> None:
    """Fields beyond those that the plan requires are registered by their names."""
    served = open_served(make_warehouse(tmp_path / "wh", VALUES[0]).folder)
    link = _Link(tmp_path, served, (OURS["some"](), THEIRS["all"]()), most_embedded=REGISTERED)
    link.run()
    told = str(link.parties[0].error)
    assert "--of exchange/MaySend --field Group --field Topic --source V." in told
