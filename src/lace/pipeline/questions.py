"""Questions as tables: the rules and public facts that an evaluation was made of, to ask again.

One row a part: of each program its limits, the predicates that it reads and its rules in
canonical text; and the facts that are not of records. A reader trusts none of it: rules
are parsed and checked again, and together they must have the identity of the evaluation.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from lace.base.limits import MAX_VALUE_SETTING
from lace.errors import LaceError, Place
from lace.facts.lines import format_fact, parse_fact
from lace.pipeline.derived import question_table
from lace.pipeline.failures import damage_told
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.records import batches_of
from lace.rules.canonical import parse_canonical, rule_id
from lace.rules.limits import UNLIMITED, RuleLimits
from lace.rules.profiles import Profile
from lace.rules.program import Written, assemble_program
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lace.facts.lines import Fact
    from lace.pipeline.warehouse import Warehouse
    from lace.rules.program import CheckedProgram

__all__ = ["read_question", "write_question"]

_COLUMNS: Final = ("program", "part", "text")
_LIMITS, _BASE, _RULE, _FACT = "limits", "base", "rule", "fact"
_PUBLIC: Final = -1
"""The number of the program that facts have, which are of none."""
_MOST_ROWS: Final = 2**25
_MOST_PROGRAMS: Final = 16
_PARSING: Final = replace(
    UNLIMITED, max_rules=2**20, max_rules_bytes=2**28, max_rule_line_bytes=2**25
)
"""Generated rules are longer than those that they were made of, which limits are for."""


def write_question(
    programs: Sequence[CheckedProgram], public: Iterable[Fact], folder: Path
) -> None:
    """Write the table of a question into a new folder."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = list(_rows(programs, public))
    kinds = (pa.int32(), pa.string(), pa.string())
    table = pa.table(
        {
            name: pa.array([row[at] for row in rows], kind)
            for at, (name, kind) in enumerate(zip(_COLUMNS, kinds, strict=True))
        }
    )
    folder.mkdir(parents=True)
    parquet.write_table(
        table, folder / "question.parquet", compression="zstd", write_page_checksum=True
    )


def _rows(
    programs: Sequence[CheckedProgram], public: Iterable[Fact]
) -> Iterator[tuple[int, str, str]]:
    for number, program in enumerate(programs):
        yield number, _LIMITS, json.dumps(asdict(program.limits))
        yield number, _BASE, json.dumps([[key.name, key.arity] for key in program.required_base])
        for line in program.lines:
            yield number, _RULE, line
    for fact in public:
        yield _PUBLIC, _FACT, format_fact(fact)


def read_question(
    warehouse: Warehouse, name: str
) -> tuple[tuple[CheckedProgram, ...], tuple[Fact, ...]] | None:
    """Return the programs and public facts of an evaluation; None where it does not tell.

    Raises:
        WarehouseDamagedError: the table is damaged, or its rules are none.
    """
    parts: dict[int, dict[str, list[str]]] = {}
    seen = 0
    try:
        for path in warehouse.files(question_table(name)):
            with damage_told(path):
                for batch in batches_of(path, _COLUMNS):
                    seen += batch.num_rows
                    if seen > _MOST_ROWS:
                        raise ValueError(f"it has more than {_MOST_ROWS} rows")
                    for row in batch.to_pylist():
                        program = parts.setdefault(int(row["program"]), {})
                        program.setdefault(str(row["part"]), []).append(str(row["text"]))
        public = parts.pop(_PUBLIC, {}).get(_FACT, [])
        if sorted(parts) != list(range(len(parts))) or len(parts) > _MOST_PROGRAMS:
            raise ValueError("its programs are not numbered in turn")
        programs = tuple(_program(parts[number]) for number in range(len(parts)))
        facts = tuple(
            parse_fact(line.encode(), max_value_bytes=MAX_VALUE_SETTING) for line in public
        )
    except WarehouseDamagedError:
        raise
    except (LaceError, ValueError, TypeError, KeyError) as error:
        raise WarehouseDamagedError(
            f"the table {question_table(name)} is damaged: {error}",
            hint="`lace pipeline evaluate` makes another under another --out",
        ) from error
    return (programs, facts) if programs else None


def _program(found: Mapping[str, list[str]]) -> CheckedProgram:
    """Return the program of its parts, as rules that were generated."""
    (limits,), (base,) = found[_LIMITS], found[_BASE]
    lines = found.get(_RULE, [])
    rules = parse_canonical("\n".join(lines).encode(), limits=_PARSING).rules if lines else ()
    return assemble_program(
        rules,
        profile=Profile(name="kept", base=frozenset(_keys(json.loads(base)))),
        limits=RuleLimits(**json.loads(limits)),
        written=[
            Written(
                number=number,
                id=rule_id(line),
                text=line,
                part="kept",
                place=Place(line=number),
                annotations={},
            )
            for number, line in enumerate(lines, 1)
        ],
    )


def _keys(found: list[Any]) -> Iterator[PredicateKey]:
    for name, arity in found:
        yield PredicateKey(str(name), int(arity))
