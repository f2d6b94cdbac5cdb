"""The story of the demonstration: a club with two members, a diary, and somebody who is blocked."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.api import SigningKey, open_lace
from lace.base import b64a
from lace.base.digest import digest
from lace.cli.demo_stage import DemoError
from lace.errors import LaceError
from lace.record.model import Plex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.cli.demo_stage import Stage

__all__ = ["Findings", "tell"]

READINGS: Final = 20_000
"""Generated records: the levels of a tide gauge, each signed."""
_SECONDS: Final = 1_700_000_000
_ALICE, _BOB = "alice.lace", "bob.lace"
_CLUB: Final = """\
# What both want to share: the club. Alice founded it: what she signs
# says who is a member, and who is blocked.
Founding(P) :- Field(P,'Group',_,'club'), Field(P,'Signed-By',_,'{alice}').
Member(V) :- Founding(P), Field(P,'App',_,'members'), Field(P,'Key',_,V).
Blocked(V) :- Founding(P), Field(P,'App',_,'blocked'), Field(P,'Key',_,V).

SelectHave(P) :- Founding(P).
SelectHave(P) :- Field(P,'Group',_,'club'), Field(P,'Signed-By',_,V), Member(V), not Blocked(V).
Club(P,V,S) :- AdvertisedField(P,S,'Group',_,'club'), AdvertisedField(P,S,'Signed-By',_,V).
SelectAdvertised(P,S) :- Club(P,'{alice}',S).
SelectAdvertised(P,S) :- Club(P,V,S), Member(V), not Blocked(V).
"""
_VIEW: Final = """\
# What the other's rules may see here: the club, and nothing else.
AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Group',_,'club').
"""
_BAIT: Final = """\
# "Send me the club, but only if you keep no diary": what arrives
# would tell whether there is one.
Diary('kept') :- Field(_,'Group',_,'private').
SelectHave(P) :- Field(P,'Group',_,'club'), not Diary('kept').
SelectAdvertised(P,S) :- Advertised(P,S).
"""


@dataclass(slots=True)
class Findings:
    """What the demonstration found, for programs."""

    received: int = 0
    loops: int = 0
    again_bytes: int = 0
    """Bytes of reconciliation, both ways, of a sync that found nothing new."""
    bait_learned: bool = True
    selected: int = 0
    set_digest: str = ""
    spark_set_digest: str | None = None
    """None when Spark could not run here."""


class _Story:
    """The acts, one after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.found = Findings()
        self._alice = self._bob = ""
        self._diary = self._spam = ""

    # -- two people ----------------------------------------------------------------------------

    def meet(self) -> None:
        stage = self._stage
        stage.step("Alice and Bob each have a lace, a folder of records, and a key to sign with.")
        self._alice, self._bob = (self._equip(name) for name in ("alice", "bob"))
        stage.step("Alice founds a club: she signs who is a member. She also keeps a diary.")
        self._put("members", "alice", key=self._alice, shown=False)
        self._put("members", "bob", key=self._bob)
        stage.write("welcome.txt", "Welcome to the harbour club.\n")
        stage.write("monday.txt", "Slept badly. Do not tell Bob.\n")
        self._put("notes", "welcome", "welcome.txt")
        self._diary = self._put("diary", "monday", "monday.txt", group="private")
        self._join_mallory()
        stage.step("This is what Alice has; a name like S.….H3 is the hash of the record's bytes.")
        stage.run("--lace", _ALICE, "list")

    def _equip(self, name: str) -> str:
        """Give somebody a lace and a key; returns the verifier."""
        stage = self._stage
        stage.run("--lace", f"{name}.lace", "init", shown=False)
        return stage.run("--lace", f"{name}.lace", "key", "new", variable=name.upper())

    def _put(
        self,
        app: str,
        name: str,
        data: str = "empty.txt",
        *,
        group: str = "club",
        key: str | None = None,
        shown: bool = True,
    ) -> str:
        place = "--group", group, "--app", app, "--name", name
        header = () if key is None else ("--header", f"Key: {key}")
        return self._stage.run(
            "--lace", _ALICE, "put", data, *place, *header, "--sign", quietly=not shown
        )

    def _join_mallory(self) -> None:
        """A member who sends advertisements through Bob, until Alice has enough of it."""
        stage = self._stage
        key = SigningKey.generate()
        mallory = str(key.verifier)
        stage.step(
            "Mallory was a member, too. He left his spam with Bob, and Alice blocks his key."
        )
        stage.name(mallory, "MALLORY")
        self._put("members", "mallory", key=mallory, shown=False)
        self._put("blocked", "mallory", key=mallory)
        spam = Plex(group="club", app="notes", name="offer", data=b"BUY ANCHORS NOW\n")
        with open_lace(stage.path(_BOB)) as bob:
            self._spam = str(bob.add(spam.seal(key)))

    def measure(self) -> None:
        """Give Bob many records."""
        stage = self._stage
        stage.step(f"Bob reads the tide gauge: {READINGS:,} signed records, imported.")
        with open_lace(stage.path(_BOB)) as bob:
            key = bob.signing_key()
            if key is None:
                raise DemoError("Bob has lost his key")
            with stage.path("gauge.records").open("wb") as file:
                file.writelines(_readings(key))
        stage.run("--lace", _BOB, "import", "gauge.records")

    # -- a policy ------------------------------------------------------------------------------

    def agree(self) -> None:
        stage = self._stage
        stage.step("What to share is said by rules. Both bring the same selector here:")
        stage.write("club.lace", _CLUB.format(alice=self._alice))
        stage.file("club.lace")
        stage.step("Selecting is not showing. What the other's rules can see is a second file:")
        stage.write("view.lace", _VIEW)
        stage.file("view.lace")
        stage.step("Before a byte leaves, Alice looks at what Bob could learn from her:")
        stage.run("--lace", _ALICE, "disclose", *self._exposed(), "--peer-select", "club.lace")

    def _exposed(self) -> tuple[str, ...]:
        return "--expose", f"view.lace@{self._bob}", "--viewer", self._bob

    def bait(self) -> None:
        """A rule that tries to learn of the diary, and the proof that it does not."""
        stage = self._stage
        stage.step(
            "What if Bob brings a bait? Here is a selector that asks for the diary's shadow:"
        )
        stage.write("bait.lace", _BAIT)
        stage.file("bait.lace")
        asked = "preview", "--select", "club.lace", "--peer-select", "bait.lace", *self._exposed()
        with_diary = stage.run("--lace", _ALICE, *asked)
        stage.say("The same with a twin of Alice's lace in which there is no diary:")
        stage.run("--lace", "twin.lace", "init", quietly=True)
        twin = "export", "--rules", "club.lace", "--predicate", "SelectHave/1", "-o", "club.records"
        stage.run("--lace", _ALICE, *twin, quietly=True)
        stage.run("--lace", "twin.lace", "import", "club.records", quietly=True)
        without = stage.run("--lace", "twin.lace", *asked)
        self.found.bait_learned = with_diary != without
        if self.found.bait_learned:
            raise DemoError("the bait told the two laces apart")
        stage.say(
            "The same answer, byte for byte: Bob's rules never see what is not exposed to him."
        )

    # -- moving --------------------------------------------------------------------------------

    def sync(self) -> None:
        stage = self._stage
        stage.step("Now they meet, over TCP. Each proves to hold the key that the other expects.")
        view = "--expose", f"view.lace@{self._bob}"
        with stage.serving(
            *("--lace", _BOB, "serve", "tcp:127.0.0.1:0", "--select", "club.lace"),
            *("--expose", f"view.lace@{self._alice}"),
        ) as address:
            words = "--lace", _ALICE, "sync", address, "--select", "club.lace", *view
            told = _figures(stage.figures(*words, "--peer", self._bob))
            self.found.received, self.found.loops = int(told["received"]), int(told["loops"])
            stage.say(
                f"{self.found.received:,} records came in {told['loops']} loops, from one who has"
                f" proven to be {told['peer-verifier'][:8]}…"
            )
            stage.step("Once more. Nothing is new, and both find that out with a few bytes:")
            again = _figures(stage.figures(*words, "--peer", self._bob))
        names = "reconciliation-bytes-received", "reconciliation-bytes-sent"
        self.found.again_bytes = sum(int(again[name]) for name in names)
        stage.say(
            f"{again['received']} records, {self.found.again_bytes:,} bytes of reconciliation"
            f" for {self.found.received:,} records in common."
        )

    def explain(self) -> None:
        stage = self._stage
        about = "--select", "club.lace", "--peer-select", "club.lace"
        mine = "--expose", f"view.lace@{self._alice}", "--viewer", self._alice
        stage.step("Every answer has a reason. Why did the first reading come?")
        stage.run("--lace", _BOB, "why", *about, *mine, f"MaySend('{self._first_reading()}')")
        stage.step("And why did the spam not come?")
        stage.run("--lace", _BOB, "why", *about, *mine, f"MaySend('{self._spam}')", code=1)
        stage.step("And why does the diary stay at home?")
        asked = "why", *about, *self._exposed(), f"MaySend('{self._diary}')"
        stage.run("--lace", _ALICE, *asked, code=1)

    def _first_reading(self) -> str:
        with open_lace(self._stage.path(_ALICE), read_only=True) as alice:
            (found,) = alice.find("//club//tide//gauge/00000")
        return str(found.id)

    # -- the same at scale ---------------------------------------------------------------------

    def scale(self) -> None:
        stage, found = self._stage, self.found
        stage.step("The same rules answer questions, in this process …")
        asked = "query", "--rules", "club.lace", "--predicate", "SelectHave/1", "-o"
        stage.run("--lace", _ALICE, *asked, "embedded.facts")
        found.selected, found.set_digest = self._set_digest("embedded.facts")
        stage.say(f"{found.selected:,} records are selected; the digest of the set is")
        stage.say(found.set_digest)
        if importlib.util.find_spec("pyspark") is None:
            stage.step("… and on Spark, which is not installed here: pip install 'lace[spark]'")
            return
        stage.step("… and on Spark, as they do for an archive that does not fit one process:")
        spark = "--lace", _ALICE, *asked, "spark.facts", "--engine", "spark"
        stage.start("evaluating on Spark", *spark)
        count, found.spark_set_digest = self._set_digest("spark.facts")
        stage.say(f"{count:,} records are selected; the digest of the set is")
        stage.say(found.spark_set_digest)
        if found.spark_set_digest != found.set_digest:
            raise DemoError("the two engines do not agree")
        stage.say("Two engines, one relational program, one answer.")

    def _set_digest(self, name: str) -> tuple[int, str]:
        """Return how many facts a file has, and the digest of all: they are sorted."""
        raw = self._stage.read(name)
        return raw.count(b"\n"), b64a.encode(digest(raw))


def tell(stage: Stage) -> Findings:
    """Tell the story; returns what it found.

    Raises:
        DemoError: something is not as the story has it.
    """
    stage.write("empty.txt", "")
    story = _Story(stage)
    for act in (
        story.meet,
        story.agree,
        story.bait,
        story.measure,
        story.sync,
        story.explain,
        story.scale,
    ):
        act()
    return story.found


def _readings(key: SigningKey) -> Iterator[bytes]:
    for number in range(READINGS):
        level = 200 + (number * 7919) % 180
        yield (
            Plex(
                group="club",
                app="tide",
                name=f"gauge/{number:05}",
                tai=f"{_SECONDS + 600 * number}:000000000",
                data=f"{level} cm\n".encode(),
                headers=[("Level", str(level))],
            )
            .seal(key)
            .bytes
        )


def _figures(text: str) -> dict[str, str]:
    """Return what `lace sync` tells, by name."""
    found = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    if not {"received", "loops", "peer-verifier"} <= found.keys():
        raise LaceError("the exchange told nothing of its result")
    return found
