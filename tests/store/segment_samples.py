"""Facts as segments give them, against the facts of the records: what tests of segments compare."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lace.columns.segment_journal import SegmentDamagedError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import record_facts
from tests.store.samples import blob, plex, seal, valid

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact
    from lace.record.model import Record
    from lace.record.validate import ValidRecord
    from lace.store.sqlite.fact_state import FactState
    from lace.store.sqlite.store import SqliteStore

__all__ = ["checked", "decoded", "generation", "linked", "segment_files"]


def decoded(state: FactState) -> Counter[Fact]:
    """The facts of a state, as an engine reads them: segments without what is removed, and tail."""
    made: Counter[Fact] = Counter()
    for record in state.tail:
        made.update(record_facts(record))
    segments = state.segments
    if segments is None:
        return made
    removed = set(state.removed.tolist())
    assert state.removed.tolist() == sorted(removed)
    for name, predicate in RECORD_PREDICATES.items():
        columns = [segments.column(name, position) for position in range(predicate.arity)]
        kept = [row for row, p in enumerate(columns[0].tolist()) if p not in removed]
        texts = [segments.dictionary.texts(column[kept]) for column in columns]
        made.update((name, *values) for values in zip(*texts, strict=True))
        assert segments.rows(name) == len(columns[0])
    for name in ("Field", "RecordLink"):
        _check_names(state, name)
    return made


def _check_names(state: FactState, predicate: str) -> None:
    """Reading Name by Name gives the same rows as reading all of them."""
    segments = state.segments
    assert segments is not None
    arity = RECORD_PREDICATES[predicate].arity
    rows: Counter[tuple[int, ...]] = Counter()
    for name in segments.names(predicate).tolist():
        columns = [segments.column(predicate, at, name).tolist() for at in range(arity)]
        assert set(columns[1]) == {name}
        assert segments.rows(predicate, name) == len(columns[0])
        rows.update(zip(*columns, strict=True))
    whole = [segments.column(predicate, at).tolist() for at in range(arity)]
    assert rows == Counter(zip(*whole, strict=True))
    assert segments.rows(predicate, len(segments.dictionary) + 7) == 0
    assert segments.column(predicate, 0, len(segments.dictionary) + 7).tolist() == []


def checked(store: SqliteStore) -> FactState:
    """Assert that the facts are exactly those of the records, as an engine would get them."""
    for _try in range(3):
        with store.fact_snapshot() as (snapshot, state):
            try:
                found = decoded(state)
            except SegmentDamagedError:
                store.discard_segments()
                continue
            expected = Counter(fact for r in snapshot.records() for fact in record_facts(r))
            assert found == expected
            totals = snapshot.totals()
            assert state.high_water == totals.high_water
            covered = state.segments.records - len(state.removed) if state.segments else 0
            assert covered + len(state.tail) == totals.records
        return state
    raise AssertionError("damaged again and again")


def linked(count: int, prefix: str = "l") -> list[ValidRecord]:
    """Many different records with extra headers and links to one another and to nothing."""
    made: list[Record] = []
    for number in range(count):
        target = blob(f"{prefix}{number // 3}").id
        inner = plex(
            f"{prefix}/{number % 7}",
            at=number + 1,
            data=f"{prefix}{number}",
            headers=[
                (f"{prefix}+Link", f"to {target}"),
                ("Only", target),
                ("Other+Link", f"{number % 5} X.{number}.H9"),
                ("Tag", "é\U0001f5a7" * (number % 3 + 1)),
                ("Tag", f"{number % 11}"),
            ],
        )
        kinds: list[Record] = [blob(f"{prefix}{number}"), inner, seal(inner, 1 + number % 2)]
        made.append(kinds[number % 3])
    return valid(*made)


def generation(folder: Path) -> Path:
    """The generation that counts."""
    return folder / "segments" / (folder / "segments" / "current").read_text().strip()


def segment_files(folder: Path) -> list[Path]:
    """Every file of the segments that holds something."""
    return sorted(
        path
        for path in (folder / "segments").rglob("*")
        if path.is_file() and path.stat().st_size and path.name != "rebuild.lock"
    )
