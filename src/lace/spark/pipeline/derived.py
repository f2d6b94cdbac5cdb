"""Derived facts in a warehouse: their tables, and what they were made of.

An evaluation has a name. Each of its predicates is a table of texts, and one small table tells
of all of them: how many facts there are, and which rules over which facts made them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.base.digest import digest
from lace.base.text import shorten
from lace.errors import UsageError
from lace.policy.compile import flat_program
from lace.policy.exposure import PUBLIC
from lace.policy.schema import Schema
from lace.rules.profiles import LOCAL_TAI, MAY_SEND
from lace.rules.syntax import PredicateKey
from lace.spark.pipeline.tables import (
    DERIVED,
    DICTIONARY,
    EVALUATIONS,
    QUESTIONS,
    columns_of,
    read_rows,
    table_damage,
    write_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.spark.pipeline.warehouse import DataFile, Job, Manifest, WarehouseFolder


# -- Plans that are registered in a warehouse: what each may send was evaluated beforehand.
#
# A registration is made by `lace pipeline evaluate` for an exchange. It tells the plan, the viewer
# and the fields that advertisements need, and has a name for all that decides what may be sent: the
# rules, the facts of records, and of the public facts those that matter to it. One that finds the
# same name for an exchange of now need not evaluate.

_FORMAT: Final = 1
_ALL: Final = "*"
_VARYING: Final = frozenset(
    {
        LOCAL_TAI,
        *(key for key in PUBLIC if key.name in ("Advertised", "AdvertisedField", "TickTAI")),
    }
)
"""What changes while an exchange runs: a set that depends on it is evaluated there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An exchange that was evaluated: its plan, the viewer, and the fields of advertisements.

    The fields are those that the plan requires, as far as the policy offers them (040-106).

    `sends` is the name of all that decides what may be sent; empty where that depends on what
    the peer says, or on the time.
    """

    plan: str
    viewer: str
    schema: Schema
    sends: str

    def to_row(self) -> tuple[str, str, str, str]:
        """Return it as the last columns of the table of an evaluation."""
        return self.plan, self.viewer, format_schema(self.schema), self.sends

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Registration | None:
        """Return what columns say; None where they describe no exchange."""
        if not row.get("plan"):
            return None
        return cls(
            plan=str(row["plan"]),
            viewer=str(row["viewer"]),
            schema=parse_schema(row["fields"]),
            sends=str(row["sends"]),
        )


def register(
    manifest: Manifest, executable: Executable, public: Iterable[Fact], offered: Schema
) -> Registration:
    """Return the registration of an exchange over the facts of a warehouse."""
    return Registration(
        plan=executable.plan.id,
        viewer=executable.viewer,
        schema=registered_schema(executable, offered),
        sends=name_of_sending(manifest, executable, public),
    )


def registered_schema(executable: Executable, offered: Schema) -> Schema:
    """Return the fields that a plan requires, as far as they are offered."""
    required = executable.plan.required
    return offered & Schema(names=required.names, all=required.all)


def name_of_sending(manifest: Manifest, executable: Executable, public: Iterable[Fact]) -> str:
    """Return the name of all that decides what may be sent; empty where that may change."""
    whole = flat_program(executable)
    read = {key for key in PUBLIC | {LOCAL_TAI} if whole.depends_on(MAY_SEND, key)}
    if read & _VARYING:
        return ""
    facts = sorted({fact for fact in public if PredicateKey(fact[0], len(fact) - 1) in read})
    programs = [each.canonical for each in executable.programs]
    body = [_FORMAT, executable.index, programs, name_of_facts(manifest), facts]
    return name_of_digest(body)


def name_of_facts(manifest: Manifest) -> list[list[str]]:
    """Return what tells the facts of records in one state from all others."""
    return sorted(
        [table, file.digest]
        for table, files in manifest.tables.items()
        if table == DICTIONARY or table.startswith("facts/")
        for file in files
    )


def name_of_digest(body: object) -> str:
    """Return the digest of plain values, as hexadecimal text."""
    return digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hex()


def format_schema(schema: Schema) -> str:
    """Return the names of fields as a JSON list; `*` for all."""
    return _ALL if schema.all else json.dumps(sorted(schema.names))


def parse_schema(text: object) -> Schema:
    """Return the fields that a text names."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} names no fields")
    if text == _ALL:
        return Schema(all=True)
    return Schema(names=frozenset(map(str, json.loads(text))))


_USUAL: Final = "Selected"
ANOTHER: Final = "`lace pipeline evaluate` makes another under another --out"
"""What to do about a damaged answer."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PREDICATE: Final = re.compile(r"[A-Za-z0-9_]{1,120}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MOST_PREDICATES: Final = 1_000_000
"""Rows of the table that describes an evaluation; rules cannot define more."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation that is in a warehouse.

    `identity` is the same for the same rules, limits and facts; `counts` has how many facts
    each predicate has; `fresh` tells whether it was made now or had been before. Of an exchange
    `registration` tells which one. `made_by` names the version of Lace that made it; it is empty
    where that was one that did not say.
    """

    name: str
    identity: str
    counts: Mapping[PredicateKey, int]
    fresh: bool = False
    registration: Registration | None = None
    made_by: str = ""


def check_name(name: str) -> str:
    """Return the name of an evaluation."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for derived facts",
            hint="use up to 64 letters, digits, _ and -",
        )
    return name


def answer_table(name: str, predicate: PredicateKey) -> str:
    """Return the table of a predicate's facts."""
    if not _PREDICATE.fullmatch(predicate.name):
        raise UsageError(
            f"{predicate} is too long for the name of a table",
            hint="give the predicate a name of at most 120 letters",
        )
    return f"{DERIVED}/{name}/{predicate.name}~{predicate.arity}"


def check_answer(name: str, predicates: Iterable[PredicateKey]) -> None:
    """Refuse a name, or a predicate, that no table can have."""
    for key in predicates:
        answer_table(check_name(name), key)


def evaluation_table(name: str) -> str:
    """Return the table that describes an evaluation."""
    return f"{EVALUATIONS}/{name}"


def question_table(name: str) -> str:
    """Return the table of the rules that an evaluation was made of."""
    return f"{QUESTIONS}/{name}"


def derived_tables(manifest: Manifest) -> list[str]:
    """Return all tables of derived facts."""
    return sorted(table for table in manifest.tables if table.startswith(f"{DERIVED}/"))


def evaluations(manifest: Manifest) -> list[str]:
    """Return the names of all evaluations."""
    lead = f"{EVALUATIONS}/"
    return sorted(table.removeprefix(lead) for table in manifest.tables if table.startswith(lead))


def without_derived(manifest: Manifest, name: str) -> Manifest:
    """Return a state without the tables of an evaluation."""
    mine = f"{DERIVED}/{name}/"
    about = (evaluation_table(name), question_table(name))
    for table in manifest.tables:
        if table in about or table.startswith(mine):
            manifest = manifest.with_replaced(table, ())
    return manifest


def write_evaluated(job: Job, done: Evaluated) -> tuple[DataFile, ...]:
    """Write the table that describes an evaluation."""
    exchange = ("",) * 4 if done.registration is None else done.registration.to_row()
    more = (done.identity, done.made_by, *exchange)
    rows = [(key.name, key.arity, rows, *more) for key, rows in done.counts.items()]
    return write_table(job, evaluation_table(done.name), rows)


def read_evaluated(warehouse: WarehouseFolder, name: str) -> Evaluated | None:
    """Return what is known of an evaluation; None where none has that name."""
    counts: dict[PredicateKey, int] = {}
    found: set[tuple[str, str, Registration | None]] = set()
    table = evaluation_table(name)
    with table_damage(table, ANOTHER):
        for row in read_rows(warehouse, table, most=_MOST_PREDICATES):
            counts[PredicateKey(str(row["predicate"]), int(row["arity"]))] = int(row["rows"])
            maker = str(row.get("made_by") or "")
            found.add((str(row["identity"]), maker, Registration.from_row(row)))
        if not counts:
            return None
        identity, maker, registration = found.pop()
        if found or not _DIGEST.fullmatch(identity):
            raise ValueError("its rows describe several evaluations")
    return Evaluated(
        name, identity, MappingProxyType(counts), registration=registration, made_by=maker
    )


def find_derived(warehouse: WarehouseFolder, text: str) -> str:
    """Return the table that `NAME` or `NAME/PREDICATE` means: a derived set of records."""
    name, _, predicate = text.partition("/")
    known = read_evaluated(warehouse, name)  # a set without records has no table of its own
    found = sorted({key.name for key in known.counts if key.arity == 1}) if known else []
    wanted = predicate or (found[0] if len(found) == 1 else _USUAL)
    if wanted in found:
        return answer_table(name, PredicateKey(wanted, 1))
    hint = f"there are {', '.join(f'{name}/{each}' for each in found)}" if found else None
    raise UsageError(
        f"no derived set of records is called {shorten(text)!r}",
        hint=hint or "`lace pipeline evaluate WAREHOUSE --rules FILE --out NAME` makes one",
    )


def find_exchange(warehouse: WarehouseFolder, name: str) -> tuple[str, Schema]:
    """Return what an exchange that was evaluated may send, as `NAME/PREDICATE`, and its fields."""
    known = read_evaluated(warehouse, name)
    if known is None or known.registration is None:
        raise UsageError(
            f"no exchange was evaluated as {shorten(name)!r}",
            hint="`lace pipeline evaluate WAREHOUSE --select FILE --peer-select FILE` does that",
        )
    return f"{name}/{MAY_SEND.name}", known.registration.schema


def read_derived(
    warehouse: WarehouseFolder, name: str, predicate: PredicateKey
) -> Iterator[tuple[str, ...]]:
    """Yield the facts of a predicate, without Spark, in no particular order."""
    table = answer_table(name, predicate)
    columns = [column for column, _kind in columns_of(table)]
    for row in read_rows(warehouse, table):
        yield tuple(row[column] for column in columns)
