"""`lace demo`: a short story of two laces, with the commands that a person would type."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from lace.api import Plex, SigningKey, open_lace
from lace.api.records import digest_text
from lace.cli.command import command as lace_command
from lace.cli.output import Output, wrap_answer, wrap_command, wrap_prose
from lace.cli.progress import Waiting
from lace.errors import LaceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.cli.session import Session


_SHORT: Final = (
    "Hashes and keys are cut short here, as in V.1a2b3c…; the commands write them whole."
)
_OWN: Final = (
    "lace init && lace key new",
    "echo hello | lace put --group me --app notes --name first --sign",
    "lace list",
)
"""What to type next."""
_KEPT: Final = (
    "lace --lace alice.lace list //club//notes//",
    "lace --lace alice.lace query --rules club.lace --predicate Member/1",
    "lace --lace alice.lace log",
)
"""What to type next where the laces of the story are kept."""


def _new_folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="lace-demo-"))
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{keep} is not an empty folder", hint="name a folder that is new")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def _what_stays(folder: Path) -> str:
    """Return the remark on what stays after a signal."""
    shown = shlex.quote(str(folder))
    return f"what was made stays in {shown}: remove it, or name another folder, to run it again"


@lace_command(
    "demo",
    shell_only="it runs other commands",
    piped="The same text as on a terminal, without progress.",
    json_keys={
        "received": "records that the first sync brought",
        "loops": "loops that it took",
        "again_bytes": "bytes of reconciliation, both ways, of the second sync",
        "bait_learned": "whether the bait told a lace with a diary from one without: false",
        "selected": "records that the rules select",
        "set_digest": "the digest of that set",
        "spark_set_digest": "the same by Spark; null where it is not installed",
        "steps": "how many steps there were",
        "folder": "where everything is, with --keep; else null",
    },
    examples=[
        ("lace demo", "see Lace at work; nothing is left behind"),
        ("lace demo --keep club", "keep everything in the folder club, to look around in it"),
    ],
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep everything in DIR, which is made.",
)
@click.pass_obj
def command(session: Session, keep: Path | None) -> int:
    """Show Lace at work.

    Two laces with keys, a policy, what it discloses, a bait that learns nothing, a sync with
    proofs of identity, reasons, and the same rules on Spark. Everything happens in a temporary
    folder, which is removed at the end, unless --keep names one. Each step says in plain words
    what it does and shows the command that you would type.
    """
    folder = _new_folder(keep)
    output = session.output
    session.durable = "nothing is left behind" if keep is None else _what_stays(folder)
    try:
        stage = DemoStage(session, folder)
        if not output.json:
            where = "a temporary folder" if keep is None else shlex.quote(str(folder))
            stage.prose(f"Lace at work: a story of two laces. Everything is in {where}. {_SHORT}")
        found = tell(stage)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if output.json:
        kept = None if keep is None else str(folder)
        output.json_document({**asdict(found), "steps": stage.steps, "folder": kept})
        return 0
    output.line("")
    if keep is None:
        stage.prose("Done; nothing is left behind. Three commands to try next, in an empty folder:")
    else:
        stage.prose(f"Done; everything stays in {folder}. Three commands to look around there:")
        stage.typed(f"cd {shlex.quote(str(folder))}")
    for line in _OWN if keep is None else _KEPT:
        stage.typed(line)
    return 0


# -- Where the demonstration plays: commands run as they would be typed, shown with what they say.
#
# Most run in this process, which is quick. The server of an exchange and Spark are processes of
# their own, as they are for users.

_MOST_LINES: Final = 14
"""Lines of an answer that are shown; of a longer one, how many are left."""
_END_SECONDS: Final = 20.0
_RUN_END_SECONDS: Final = 30
"""Java may be starting, and has to end then."""
_LONG: Final = re.compile(r"([A-Z]\.[0-9A-Za-z_~]{6})[0-9A-Za-z_~]{37}(?:\.H3)?")
"""Hashes and verifiers; what is shown of them tells them apart."""
_MARGIN: Final = 3
_DEEPER: Final = 5
"""How far what a command says stands from the edge."""
_TABLE_WIDTH: Final = 95
"""How wide tables are where no terminal says it."""


class DemoError(LaceError):
    """A step of the demonstration did not do what it is there to show."""


class _Aside(Output):
    """What a command of the story writes; the story itself says what there is to heed."""

    def warn(self, text: str) -> None:
        """Say nothing."""


class DemoStage:
    """Runs the commands of the demonstration in a folder, and shows each with what it says."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._names: dict[str, str] = {}
        self._is_json = session.output.json
        self._width = None if self._is_json else session.output.width
        self.steps = 0
        """How many steps were shown."""

    # -- words ---------------------------------------------------------------------------------

    def step(self, words: str) -> None:
        """Say what comes next."""
        self.steps += 1
        self._show("")
        self.prose(f"{self.steps}. {words}", "bold", rest=_MARGIN)

    def say(self, text: str) -> None:
        """Say something in passing."""
        self.prose(text, "green", first=_MARGIN, rest=_MARGIN)

    def prose(self, text: str, style: str = "", *, first: int = 0, rest: int = 0) -> None:
        """Show a paragraph in as many lines as it needs here, that far from the edge."""
        if self._width is None:
            self._show(" " * first + text, style)
            return
        for line in wrap_prose(text, self._width, " " * first, " " * rest):
            self._show(line, style)

    def typed(self, line: str, remark: str = "") -> None:
        """Show a command line, with what there is to say of what it writes."""
        width, prompt = self._width, f"{' ' * _MARGIN}$ "
        if width is None:
            lines = [f"{prompt}{line}"]
        else:
            lines = wrap_command(line, width, prompt, " " * (_DEEPER + 2))
        if remark and (width is None or len(f"{lines[-1]}   {remark}") <= width):
            lines[-1] += f"   {remark}"
        elif remark:
            lines.append(f"{' ' * len(prompt)}{remark}")
        for each in lines:
            self._show(each, "cyan")

    def _show(self, text: str, style: str = "") -> None:
        if not self._is_json:
            self._session.output.styled_line((text, style), is_whole=True)
            self._session.output.flush()

    def name(self, verifier: str, variable: str) -> None:
        """Replace a verifier by a shell variable from now on."""
        self._names[verifier] = f"${variable}"
        self.typed(f"{variable}={verifier}")

    def file(self, name: str) -> None:
        """Show a file of the folder."""
        text = (self._folder / name).read_text("utf-8")
        self.typed(f"cat {name}", "# keys are cut short here" if _LONG.search(text) else "")
        self._indent(text)

    def write(self, name: str, text: str) -> None:
        """Put a file into the folder."""
        (self._folder / name).write_text(text, "utf-8")

    def read(self, name: str) -> bytes:
        """Return what a file of the folder holds."""
        return (self._folder / name).read_bytes()

    def path(self, name: str) -> Path:
        """Return where a file of the folder is."""
        return self._folder / name

    def _indent(self, text: str) -> None:
        lines = text.rstrip("\n").split("\n") if text.strip() else []
        most = len(lines) if len(lines) <= _MOST_LINES + 2 else _MOST_LINES
        for line in lines[:most]:
            self._show_answer(_LONG.sub(_shortened, line))
        if len(lines) > most:
            self._show_answer(f"… and {len(lines) - most:,} more lines", "dim")

    def _show_answer(self, line: str, style: str = "") -> None:
        """Show a line of what a command says; a long one goes on below, a little deeper."""
        if self._width is None or not line:
            self._show(f"{' ' * _DEEPER}{line}" if line else "", style)
            return
        for each in wrap_answer(line, self._width, " " * _DEEPER):
            self._show(each, style)

    # -- commands ------------------------------------------------------------------------------

    def run(
        self,
        *words: str,
        code: int = 0,
        shown: bool = True,
        quietly: bool = False,
        variable: str | None = None,
    ) -> str:
        """Run a command as it would be typed in the folder; returns what it writes."""
        if not quietly:
            self._typed(words, variable)
        text = self._invoke(words, code, is_terminal=not self._is_json)
        if variable is not None:
            self._names[text.strip()] = f"${variable}"
        elif shown and not quietly:
            self._indent(text)
        return text.strip()

    def figures(self, *words: str) -> str:
        """Run a command that moves records, with its progress; returns what it tells a script."""
        self._typed(words)
        return self._invoke(words, 0, is_terminal=False)

    def _invoke(self, words: Sequence[str], code: int, *, is_terminal: bool) -> str:
        from lace.cli.main import invoke
        from lace.cli.session import Session as NewSession

        captured = io.BytesIO()
        width = _TABLE_WIDTH if self._width is None else self._width - _DEEPER
        inner = NewSession({}, _Aside(captured, is_terminal, width))
        inner.output.color = False
        inner.output.quiet = True
        inner.output.progress = self._session.output.progress_wanted and not self._is_json
        found = invoke([self._absolute(word) for word in words], inner)
        if found != code:
            raise DemoError(f"`lace {_typed(words)}` ended with exit code {found}, not {code}")
        return captured.getvalue().decode("utf-8").replace(f"{self._folder}{os.sep}", "")

    def start(self, title: str, *words: str) -> str:
        """Run a command in another process, and return what it writes."""
        self._typed(words)
        with nullcontext() if self._is_json else Waiting(self._session, title):
            code, out, err = self._run(words)
        if code:
            raise DemoError(f"`lace {_typed(words)}` failed: {err.strip() or f'exit code {code}'}")
        return out

    def _run(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a process to its end; returns its exit code and what it wrote.

        An interrupt at the terminal is for this process alone, which tells the other one to end,
        and waits until all is gone that it has made for a while.
        """
        with subprocess.Popen(  # noqa: S603 - ourselves
            self._command(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            cwd=self._folder,
            text=True,
        ) as process:
            try:
                out, err = process.communicate()
            except BaseException:
                _end(process, _RUN_END_SECONDS)
                raise
        return process.returncode, out, err

    @contextmanager
    def serving(self, *words: str) -> Iterator[str]:
        """Run a server until the end of the block; gives the address that it prints."""
        self._typed((*words, "&"))
        with subprocess.Popen(  # noqa: S603 - ourselves
            self._command(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            text=True,
        ) as process:
            try:
                address = process.stdout.readline().strip() if process.stdout else ""
                if not address:
                    raise DemoError("the server does not start")
                self._indent(address)
                yield address
            finally:
                _end(process)

    def _command(self, words: Sequence[str]) -> list[str]:
        color = [] if self._session.output.color else ["--no-color"]
        return [sys.executable, "-m", "lace", *color, *words]

    def _typed(self, words: Sequence[str], variable: str | None = None) -> None:
        line = f"lace {_typed(words, self._names)}"
        self.typed(line if variable is None else f"{variable}=$({line})")

    def _absolute(self, word: str) -> str:
        """Return a word with the place of the file that it names, if it names one."""
        name, at, viewer = word.partition("@")
        is_here = name.endswith((".lace", ".txt", ".facts", ".records")) and "/" not in name
        return f"{self._folder / name}{at}{viewer}" if is_here else word


def _end(process: subprocess.Popen[str], seconds: float = _END_SECONDS) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return
    process.kill()


def _typed(words: Sequence[str], names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a command line as a person would type it, with variables for verifiers."""
    return " ".join(word if word == "&" else _quoted(word, names) for word in words)


def _shortened(found: re.Match[str]) -> str:
    return f"{found[1]}…"


def _quoted(word: str, names: Mapping[str, str]) -> str:
    """Return a word as a person would type it: quotes inside of the other quotes."""
    for verifier, variable in names.items():
        if verifier in word:
            put = word.replace(verifier, variable)
            return f'"{put}"' if " " in put else put
    if "'" in word and not set(word) & set('"$`!\\'):
        return f'"{word}"'
    return shlex.quote(word)


# -- The story of the demonstration: a club with two members, a diary, and somebody who is blocked.

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

    def __init__(self, stage: DemoStage) -> None:
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
        return raw.count(b"\n"), digest_text(raw)


def tell(stage: DemoStage) -> Findings:
    """Tell the story; returns what it found."""
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
        raise LaceError("the exchange printed no result")
    return found
