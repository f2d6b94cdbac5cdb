"""A warehouse behind `lace serve`: as a lace with the same records would do, or a clear refusal."""

from __future__ import annotations

import re
import shutil
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from lace.api import open_lace
from lace.base import b64a
from lace.spark.pipeline.warehouse import WarehouseFolder
from lace.store.links import LinkFiles
from tests.cli.links import Party, Serving, hashes, make_parties, plex, serving, wait_until
from tests.cli.running import call, process, spawn
from tests.spark.samples import make_records, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark

ANY = "tcp:127.0.0.1:0"
BY_FIELD = (
    "SelectHave(P) :- Have(P), Field(P,'App',_,'ding').\n"
    "SelectAdvertised(P,S) :- AdvertisedField(P,S,'App',_,'ding').\n"
)
BY_CLAIM = (
    "SelectHave(P) :- Have(P), Field(P,'App',_,'n').\n"
    "SelectHave(P) :- Have(P), Advertised(_,_), Field(P,'App',_,'ding').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S).\n"
)
HIDE = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Field(P,'Group',_,'u/1').\n"


@dataclass(frozen=True, slots=True)
class World:
    """A warehouse and a lace with the same records, and a lace that has others."""

    folder: Path
    here: Party
    peer: Party

    @property
    def warehouse(self) -> Path:
        return self.folder / "wh"

    def with_rules(self, select: str, *, both: bool = True) -> World:
        """The same with another selector on both sides, or here."""
        path = self.folder / "chosen.lace"
        path.write_text(select)
        here, peer = (
            Party(each.folder, each.verifier, path, each.view) for each in (self.here, self.peer)
        )
        return World(self.folder, here, peer if both else self.peer)

    def evaluate(self, *more: object, name: str) -> None:
        """Evaluate what `lace serve` of these two is asked."""
        here, peer = self.here, self.peer
        exposing = f"{here.view}@{peer.verifier}"
        policy = ("--select", here.select, "--peer-select", peer.select, "--expose", exposing)
        asked = (*policy, "--viewer", peer.verifier, "--index", 1, "--out", name, *more)
        done = call("pipeline", "evaluate", self.warehouse, *asked)
        assert done.code == 0, done.err

    def register(self, *more: object, name: str = "exchange") -> str:
        """Register what `lace serve` of these two is asked; returns the root of what it sends."""
        self.evaluate(*more, name=name)
        here = self.here
        source = ("--source", here.verifier)
        done = call("pipeline", "advertise", self.warehouse, "--exchange", name, *source)
        assert done.code == 0, done.err
        return done.lines[-1].removeprefix("root ")

    @contextmanager
    def serving(self, *more: object) -> Iterator[Serving]:
        """Run `lace serve` with the warehouse behind it."""
        arguments = ("--warehouse", self.warehouse, *more)
        with serving(self.here, self.peer, ANY, *arguments) as server:
            yield server


REGISTERED_ONLY = ("--set", "warehouse_embedded_records=0")
EMBEDDED = ("--set", "warehouse_embedded_records=1000")


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world that tests copy: 60 records, ingested, with facts; no plan is registered."""
    assert spark is not None
    folder = tmp_path_factory.mktemp("served")
    here, peer = make_parties(folder)
    with open_lace(here.folder) as lace:
        key = lace.keys.load()
        lace.remove(*hashes(here))
        records = make_records(key, 60)
        lace.add_all(records)
    file = folder / "all.records"
    file.write_bytes(b"".join(record.bytes for record in records))
    for stage in (("ingest", folder / "wh", file), ("facts", folder / "wh")):
        done = call("pipeline", *stage)
        assert done.code == 0, done.err
    return World(folder, here, peer)


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    """A copy of it."""
    shutil.copytree(made.folder, tmp_path / "w")
    here, peer = (
        Party(
            tmp_path / "w" / each.folder.name,
            each.verifier,
            tmp_path / "w" / each.select.name,
            tmp_path / "w" / each.view.name,
        )
        for each in (made.here, made.peer)
    )
    return World(tmp_path / "w", here, peer)


FIGURES = (
    "received-hashes",
    "bytes-received",
    "bytes-sent",
    "reconciliation-bytes-received",
    "exchange-plan-id",
    "link-id",
    "at-fixed-point",
    "loops",
)
"""What a peer sees of a server, besides the order in which records come."""


def exchanged(world: World, server: Serving, name: str) -> tuple[dict[str, Any], set[str]]:
    """Sync a copy of the peer with a server; returns what the peer saw, and what it then has."""
    folder = world.folder / name
    shutil.copytree(world.peer.folder, folder)
    peer = Party(folder, world.peer.verifier, world.peer.select, world.peer.view)
    done = peer.sync(world.here, server.address, "--peer", world.here.verifier, "--json")
    assert done.code == 0, (done.err, server.errors)
    seen = {each: done.json()[each] for each in FIGURES}
    seen["received-hashes"] = sorted(seen["received-hashes"])
    kept = LinkFiles(folder).load(seen["link-id"])
    assert kept is not None
    seen["root"] = b64a.encode(kept.cursor.theirs.root(""))  # of what the server advertises
    return seen, hashes(peer)


def of_lace(world: World) -> tuple[dict[str, Any], set[str]]:
    """Return what the peer sees of a lace with the same records, which asks for nothing."""
    with serving(world.here, world.peer, ANY) as server:
        return exchanged(world, server, "with-lace")


@pytest.mark.requirement("050-163")
@pytest.mark.parametrize("select", [None, BY_FIELD], ids=["bare", "fields"])
def test_a_registered_plan_is_served_as_a_lace_would(world: World, select: str | None) -> None:
    """The peer gets the same records in the same bytes; nothing is evaluated for it."""
    world = world if select is None else world.with_rules(select)
    world.here.view.write_text(HIDE)
    root = world.register()
    empty_peer(world)
    with world.serving(*REGISTERED_ONLY) as server:
        seen, held = exchanged(world, server, "with-warehouse")
        again = exchanged(world, server, "once-more")
    assert (seen, held) == of_lace(world)
    assert again[1] == held
    assert seen["root"] == again[0]["root"] == root
    assert 20 < len(held) < 60


def empty_peer(world: World) -> None:
    """Let the peer have nothing, so that nothing is asked of it."""
    with open_lace(world.peer.folder) as lace:
        lace.remove(*hashes(world.peer))


@pytest.mark.parametrize("select", [None, BY_FIELD], ids=["bare", "fields"])
def test_another_plan_is_evaluated_within_the_budget(world: World, select: str | None) -> None:
    world = world if select is None else world.with_rules(select)
    world.here.view.write_text(HIDE)
    empty_peer(world)
    with world.serving(*EMBEDDED) as server:
        seen, held = exchanged(world, server, "with-warehouse")
    assert 20 < len(held) < 60
    assert (seen, held) == of_lace(world)


def test_a_set_that_depends_on_the_peer_is_no_registered_one(world: World) -> None:
    """What it advertises decides there what may be sent: a server has to evaluate that itself."""
    world = world.with_rules(BY_CLAIM, both=False)
    world.register()
    with world.serving(*REGISTERED_ONLY) as server:
        assert world.peer.sync(world.here, server.address).code == 4
        server.wait_for("is not registered")
    with world.serving(*EMBEDDED) as server:
        held = exchanged(world, server, "with-warehouse")[1]
    assert 20 < len(held) < 65
    assert held == of_lace(world)[1]


def test_a_plan_beyond_the_budget_is_refused_by_name(world: World) -> None:
    """The refusal names plan, viewer, limit and what to do; the server goes on."""
    with world.serving("--set", "warehouse_embedded_records=59") as server:
        done = world.peer.sync(world.here, server.address, "--json")
        assert done.code == 4
        server.wait_for("is not registered")
        told = " ".join(server.errors.split())
        plan = done.json()["exchange-plan-id"]
        assert f"the plan {plan} for the viewer {world.peer.verifier} is not registered" in told
        assert "whose 60 records are more" in told
        assert "warehouse_embedded_records=59" in told
        # What it says to do is what is needed.
        said = re.search(r"`lace pipeline evaluate (.*) && lace pipeline advertise (.*)`", told)
        assert said is not None
        assert said[1].startswith(f"{world.warehouse} --index 1 --select FILE --peer-select FILE")
        assert said[1].endswith(f"--viewer {world.peer.verifier}")
        assert said[2] == f"{world.warehouse} --exchange exchange --source {world.here.verifier}"
        world.register()
        assert world.peer.sync(world.here, server.address).code == 4  # not read again yet
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the generation of the warehouse")
        assert world.peer.sync(world.here, server.address).code == 0
    assert len(hashes(world.peer)) == 65


def test_a_plan_that_was_evaluated_twice_and_advertised_once(world: World) -> None:
    """It is registered, under whichever of its names it is advertised."""
    for name in ("before", "behind"):
        world.evaluate(name=name)
    source = ("--source", world.here.verifier)
    done = call("pipeline", "advertise", world.warehouse, "--exchange", "behind", *source)
    assert done.code == 0, done.err
    with world.serving(*REGISTERED_ONLY) as server:
        assert world.peer.sync(world.here, server.address).code == 0, server.errors
    assert len(hashes(world.peer)) == 65


def test_more_records_than_are_served(world: World) -> None:
    policy = (*world.here.policy(world.peer), "--warehouse", world.warehouse)
    done = process("serve", ANY, *policy, "--set", "warehouse_served_records=59")
    assert done.code == 1, done.err
    assert "has 60 records, more than are served" in done.err
    assert "warehouse_served_records=59" in done.err
    assert not done.raw
    more = plex("later")
    (world.folder / "more").write_bytes(more.bytes)
    with world.serving("--set", "warehouse_served_records=60", *EMBEDDED) as server:
        assert call("pipeline", "ingest", world.warehouse, world.folder / "more").code == 0
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("has 61 records, more than are served")
        assert world.peer.sync(world.here, server.address).code == 0, "the state before stays"
    assert len(hashes(world.peer)) == 65


def test_a_state_whose_files_were_removed_is_too_old(world: World) -> None:
    """The server says what to do instead of calling it damaged; then it goes on."""
    rewritten(world, "records", lambda rows: rows)  # no other table has files beside it
    with world.serving(*EMBEDDED) as server:
        for _ in range(7):
            rewritten(world, "records", lambda rows: rows)
        assert world.peer.sync(world.here, server.address).code == 4
        server.wait_for("which is served, is too old")
        assert "damaged" not in server.errors
        assert "SIGHUP" in server.errors
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the generation of the warehouse")
        assert world.peer.sync(world.here, server.address).code == 0, server.errors
    assert len(hashes(world.peer)) == 65


def test_nothing_is_requested_and_nothing_is_written(world: World) -> None:
    """Neither the warehouse nor the lace beside it gets a record; cursors are kept apart."""
    world.register()
    before = (world.warehouse / "manifest.json").read_bytes(), hashes(world.here)
    with world.serving(*REGISTERED_ONLY) as server:
        done = world.peer.sync(world.here, server.address, "--json").json()
        again = world.peer.sync(world.here, server.address, "--json").json()
    assert (done["at-fixed-point"], len(done["received-hashes"]), done["bytes-sent"]) == (
        True,
        60,
        0,
    )
    assert (again["at-fixed-point"], again["received-hashes"]) == (True, [])
    assert again["cursor-updated"] is True
    small = again["reconciliation-bytes-received"]
    assert small < done["reconciliation-bytes-received"]
    assert ((world.warehouse / "manifest.json").read_bytes(), hashes(world.here)) == before
    kept = [path.parent for path in (world.here.folder / "links").rglob("*.link")]
    assert kept == [world.here.folder / "links" / "warehouse"]


def test_newer_records_are_served_after_sighup(world: World) -> None:
    """Until then links see one state; what is registered for less does not count any more."""
    world.register()
    more = plex("later")
    (world.folder / "more").write_bytes(more.bytes)
    with world.serving(*REGISTERED_ONLY) as server:
        for stage in (("ingest", world.warehouse, world.folder / "more"), ()):
            if stage:
                assert call("pipeline", *stage).code == 0
            exchanged_now = exchanged(world, server, f"at-first-{len(stage)}")[1]
            assert str(more.id) not in exchanged_now
            assert len(exchanged_now) == 65
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the generation of the warehouse")
        done = world.peer.sync(world.here, server.address)
        assert done.code == 4  # one record is not in the registered evaluation
        server.wait_for("is not registered")
        assert call("pipeline", "facts", world.warehouse).code == 0
        world.register()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the generation of the warehouse", 2)
        assert str(more.id) in exchanged(world, server, "at-last")[1]


def test_an_open_link_begins_a_new_epoch_with_the_newer_state(world: World) -> None:
    more = plex("later")
    (world.folder / "more").write_bytes(more.bytes)
    here, peer = world.here, world.peer
    with world.serving("--open", *EMBEDDED) as server:
        with spawn("sync", server.address, *peer.policy(here), "--open") as syncing:
            try:
                wait_until(lambda: len(hashes(peer)) == 65)
                assert call("pipeline", "ingest", world.warehouse, world.folder / "more").code == 0
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: str(more.id) in hashes(peer))
            finally:
                syncing.terminate()
                syncing.communicate(timeout=60)
        assert server.end() in (0, -signal.SIGTERM, 143)


def test_no_warehouse(world: World) -> None:
    policy = world.here.policy(world.peer)
    for place, code in ((world.folder / "none", 2), (world.here.folder, 2)):
        done = process("serve", ANY, *policy, "--warehouse", place)
        assert done.code == code, done.err
        assert f"there is no warehouse at {place}" in done.err
        assert not done.raw


def damage(world: World, table: str) -> Path:
    """Change bytes in the middle of a file of a table, which keeps its size and its ends."""
    warehouse = WarehouseFolder.open(world.warehouse)
    (path,) = warehouse.files(table)
    raw = bytearray(path.read_bytes())
    raw[40:80] = bytes(byte ^ 0xFF for byte in raw[40:80])
    path.write_bytes(raw)
    return path


def test_damage_that_shows_at_once(world: World) -> None:
    path = damage(world, "records")  # the hashes come first in the file
    done = process("serve", ANY, *world.here.policy(world.peer), "--warehouse", world.warehouse)
    assert done.code == 6, done.err
    assert path.name in done.err


def test_damage_that_shows_in_a_link(world: World) -> None:
    """The link ends with clear words, the peer learns nothing, and the server goes on."""
    world.register()
    whole = (WarehouseFolder.open(world.warehouse).files("records"))[0].read_bytes()
    with world.serving(*REGISTERED_ONLY) as server:
        path = WarehouseFolder.open(world.warehouse).files("records")[0]
        column = parquet.ParquetFile(path).metadata.row_group(0).column(4)
        assert column.path_in_schema == "data"
        at = column.data_page_offset + column.total_compressed_size // 2
        path.write_bytes(whole[:at] + bytes(8) + whole[at + 8 :])
        done = world.peer.sync(world.here, server.address)
        assert done.code == 4
        server.wait_for("a file of the warehouse is damaged")
        assert path.name in server.errors
        path.write_bytes(whole)
        assert world.peer.sync(world.here, server.address).code == 0
    assert len(hashes(world.peer)) == 65


def rewritten(world: World, table: str, change: Any) -> None:
    """Put other rows into a table, as if they had been committed so."""
    warehouse = WarehouseFolder.open(world.warehouse)
    with warehouse.writing("a test") as job:
        rows = pa.concat_tables(parquet.read_table(path) for path in warehouse.files(table))
        target = job.folder("changed")
        target.mkdir(parents=True)
        parquet.write_table(change(rows), target / "part-0.parquet", write_page_checksum=True)
        files = job.adopt(target)
        job.commit(warehouse.manifest.with_replaced(table, files))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.slice(1), "has not the count and root that it had"),
        (
            lambda rows: rows.set_column(
                1, "record", [[str(plex("nowhere").id), *rows.column("record").to_pylist()[1:]]]
            ),
            "and no table has that record",
        ),
    ],
    ids=["fewer", "missing"],
)
def test_advertisements_that_do_not_go_with_the_records(
    world: World, change: Any, words: str
) -> None:
    world.register()
    rewritten(world, "advertisements/exchange", change)
    with world.serving("--once") as server:
        assert world.peer.sync(world.here, server.address).code == 4
        assert server.process.wait(60) == 6
        assert words in server.errors


def test_neither_spark_nor_java_is_needed(world: World) -> None:
    """Importing PySpark would fail in this process; only pyarrow is used."""
    world.register()
    script = """
import sys
sys.modules["pyspark"] = None
from pathlib import Path
from lace.spark.served import open_served
served = open_served(Path(sys.argv[1]))
import lace.cli.serve, lace.spark.served
print(served.plans, len(served.index), sum(1 for _ in served.facts()) > 300)
hashes = [text for batch in served.index.all_rows(["hash"]) for text in batch.column(0).to_pylist()]
print(len(dict(served.index.bytes_of(hashes))), "py4j" in sys.modules)
"""
    done = run_script(script, str(world.warehouse))
    assert (done.returncode, done.stdout) == (0, "1 60 True\n60 False\n"), done.stderr


def test_what_advertise_takes_of_an_exchange(world: World) -> None:
    wrong = ("pipeline", "advertise", world.warehouse, "--source", world.here.verifier)
    both = call(*wrong, "--exchange", "exchange", "--field", "App")
    assert (both.code, "leave out --of, --field" in both.err) == (2, True)
    none = call(*wrong, "--exchange", "exchange")
    assert (none.code, "no exchange was evaluated as 'exchange'" in none.err) == (2, True)
    rules = world.folder / "rules"
    rules.write_text("Selected(P) :- Have(P).\n")
    made = call("pipeline", "evaluate", world.warehouse, "--rules", rules, "--out", "rules")
    assert made.code == 0, made.err
    assert call(*wrong, "--exchange", "rules").code == 2


@pytest.mark.requirement("020-08")
def test_names_that_no_record_of_the_warehouse_has(world: World, tmp_path: Path) -> None:
    """They are looked up in the warehouse, at the start and at SIGHUP, up to its limit."""
    rule = "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'{}').\n"
    said = "warning: no record here has the app '{}' [020-08]"
    view = tmp_path / "view2.lace"
    view.write_text(rule.format("dign") + rule.format("ding"))
    exposing = ("--expose", f"{view}@{world.peer.verifier}")
    with world.serving(*EMBEDDED, *exposing) as server:
        server.wait_for(f"{said.format('dign')}; did you mean 'ding'?")
        view.write_text(rule.format("ding") + rule.format("zip"))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(said.format("zip"))
        assert "the app 'ding'" not in server.errors
    with world.serving(*REGISTERED_ONLY, *exposing) as server:
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the rule files were read again")
        assert server.end() == 143
        assert "no record here" not in server.errors
