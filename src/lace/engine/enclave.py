"""Enclaves: a program evaluated over facts of its own, and nothing beside them.

An enclave numbers texts by itself, in an order that only its facts decide; it has its
own relations, access paths, plans and budget. So whatever its evaluation does, costs or
fails at is a function of the program and of the facts it was given. Facts that others
hold cannot show in it, not even in the rows it visits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.columns.index import RowSet
from lace.columns.keys import (
    choose,
    distinct_sorted,
    is_short,
    nothing,
    places_in,
    sort_rows,
    stretches_of,
)
from lace.columns.relation import Relation
from lace.engine.budget import Cancellation, Statistics
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.engine.load import ReferredTexts, check_values
from lace.engine.predicate_cache import sort_in_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.columns.dictionary import Fingerprints, Ids, Texts
    from lace.columns.keys import Look
    from lace.engine.budget import Clock, Supervisor
    from lace.engine.engine import Evaluation
    from lace.engine.factbase import Changes, Columns
    from lace.engine.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey


# -- An order of rows that only the rows themselves decide.
#
# The numbers of a dictionary tell in which order texts arrived, and so something of whatever
# arrived between them. Here rows are put into the order of the texts that identify them; who
# numbers texts as they come up in that order tells nothing else.

Identifying: TypeAlias = "Mapping[PredicateKey, tuple[int, ...]]"
"""For each predicate the positions whose texts no two of its rows share."""
_Order: TypeAlias = "npt.NDArray[np.int64]"
_LAST_PACKED: Final = 2**63 - 1
"""The highest key that several ranks are packed into."""
_SMALL_SHARE: Final = 64
"""Rows that are fewer than one in this many numbers are sorted, not looked up in tables."""
_PRINTED_AT_ONCE: Final = 2**17
"""Texts whose fingerprints are made between two looks: about 0.2 s."""
_DIGIT_BITS: Final = 16
_DIGIT: Final = 2**_DIGIT_BITS - 1


def in_text_order(
    relations: Columns,
    identifying: Identifying,
    dictionary: Texts,
    size: int,
    check: Look = nothing,
) -> dict[PredicateKey, tuple[list[Ids], int]]:
    """Return rows by predicate, and their columns, in an order that their texts decide."""
    keys = sorted(relations)
    named = {key: identifying.get(key, range(key.arity)) for key in keys}
    present, columns = _packed({key: relations[key][0] for key in keys}, size, check)
    check()
    ranks = _text_ranks(
        [columns[key][at] for key in keys for at in named[key]], present, dictionary, check
    )
    made: dict[PredicateKey, tuple[list[Ids], int]] = {}
    for key in keys:
        check()
        given, rows = relations[key]
        order = _order([ranks[columns[key][at]] for at in named[key]], rows, check)
        each: list[Ids] = []
        for column in given:
            check()
            each.append(column[order])
        made[key] = each, rows
    return made


def _packed(
    columns: Mapping[PredicateKey, Sequence[Ids]], size: int, check: Look
) -> tuple[Ids, dict[PredicateKey, list[Ids]]]:
    """Return the numbers that columns have, sorted, and the columns by places among these.

    Everything that follows then works on tables as long as the view, not as the dictionary.
    """
    every = [column for each in columns.values() for column in each]
    if sum(map(len, every)) * _SMALL_SHARE < size:
        few = distinct_sorted(np.concatenate([*every, np.empty(0, np.int32)]), check)
        return few, {
            key: [places_in(few, column, look=check).astype(np.int32) for column in each]
            for key, each in columns.items()
        }
    flags = np.zeros(size, np.bool_)
    for column in every:
        check()
        flags[column] = True
    present = np.flatnonzero(flags).astype(np.int32)
    places = np.empty(size, np.int32)
    places[present] = np.arange(len(present), dtype=np.int32)
    found: dict[PredicateKey, list[Ids]] = {}
    for key, each in columns.items():
        check()
        found[key] = [places[column] for column in each]
    return present, found


def _text_ranks(columns: Sequence[Ids], present: Ids, dictionary: Texts, check: Look) -> Ids:
    """Return for each place in some columns the rank that its text gives it among them."""
    flags = np.zeros(len(present), np.bool_)
    for column in columns:
        flags[column] = True
    chosen = np.flatnonzero(flags).astype(np.int32)
    ranks = np.zeros(len(present), np.int32)
    order = _text_order(present[chosen], dictionary, check)
    ranks[chosen[order]] = np.arange(len(chosen), dtype=np.int32)
    return ranks


def _text_order(ids: Ids, dictionary: Texts, check: Look) -> Ids:
    """Return an order of different texts that these alone decide."""
    order, prints = sort_rows(_fingerprints(ids, dictionary, check), check)
    is_same = prints[1:] == prints[:-1]
    if not is_same.any():
        return order
    is_tied = np.zeros(len(ids), np.bool_)  # anyone can invent hashes that begin alike
    is_tied[1:] |= is_same
    is_tied[:-1] |= is_same
    tied = order[is_tied]
    texts: list[str] = []
    for stretch in stretches_of(len(tied)):
        check()
        texts += dictionary.texts(ids[tied[stretch]])
    keys = list(zip(prints[is_tied].tolist(), texts, strict=True))
    order[is_tied] = tied[sort_in_runs(keys, list(range(len(keys))), check)]
    return order


def _fingerprints(ids: Ids, dictionary: Texts, check: Look) -> Fingerprints:
    """Return the fingerprints of texts, with a look between two stretches of many."""
    if len(ids) <= _PRINTED_AT_ONCE:
        return dictionary.fingerprints(ids)
    made: list[Fingerprints] = []
    for first in range(0, len(ids), _PRINTED_AT_ONCE):
        check()
        made.append(dictionary.fingerprints(ids[first : first + _PRINTED_AT_ONCE]))
    return np.concatenate(made)


def _order(ranks: Sequence[Ids], rows: int, check: Look = nothing) -> _Order | Ids:
    """Return the order of rows by their ranks in some columns, the first before the others."""
    if not ranks or not rows:
        return np.arange(rows, dtype=np.int64)
    if not is_short(rows):
        return _order_of_many(ranks, check)
    if len(ranks) == 1:
        return np.argsort(ranks[0])
    key, highest = np.zeros(rows, np.int64), 0
    for each in ranks:
        dense, count = _dense(each)
        if highest > _LAST_PACKED // max(count, 1):
            return np.lexsort(tuple(reversed(ranks)))
        key = key * count + dense
        highest = highest * count + count - 1
    # Sorting by sixteen bits after the other is quicker than comparing.
    order = np.argsort((key & _DIGIT).astype(np.uint16), stable=True)
    while highest := highest >> _DIGIT_BITS:
        key >>= _DIGIT_BITS
        order = order[np.argsort((key[order] & _DIGIT).astype(np.uint16), stable=True)]
    return order


def _order_of_many(ranks: Sequence[Ids], check: Look) -> Ids:
    """Return the same order, found in stretches: no two rows have the same ranks."""
    key, highest = ranks[0].astype(np.int64), int(ranks[0].max())
    for each in ranks[1:]:
        check()
        dense, count = _dense(each)
        if highest >= _LAST_PACKED // count:
            key = _places(key, check)
            highest = len(key) - 1
        key = key * count + dense
        highest = highest * count + count - 1
    return sort_rows(key, check)[0]


def _places(keys: _Order, check: Look) -> _Order:
    """Return where each key is among the different ones."""
    return places_in(distinct_sorted(keys, check), keys, look=check)


def _dense(ranks: Ids) -> tuple[Ids, int]:
    """Return ranks without the numbers that none of them has, and how many are left."""
    flags = np.zeros(int(ranks.max(initial=-1)) + 1, np.bool_)
    flags[ranks] = True
    below = np.cumsum(flags, dtype=np.int32)
    return below[ranks] - 1, int(below[-1]) if len(below) else 0


class Enclave:
    """One program over facts of its own, kept up to date as these change."""

    def __init__(
        self,
        program: CheckedProgram,
        relations: Mapping[PredicateKey, Relation],
        identifying: Identifying,
        base: FactBase,
        clock: Clock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.program = program
        self._outer = base
        self._identifying = identifying
        self._supervisor = supervisor or Cancellation()
        self._limit = program.limits.max_value_bytes
        self._texts = ReferredTexts(base.dictionary, np.empty(0, np.int32), self._limit)
        self._base = FactBase(max_value_bytes=self._limit, dictionary=self._texts)
        own = self._own(_columns_of(relations))
        self._base.make_room()
        self._base.relations.update(
            {key: Relation.of(columns, rows) for key, (columns, rows) in own.items()}
        )
        self._session = EvaluationSession(self._base, clock, supervisor)
        self._evaluation: Evaluation | None = None
        self.work = 0
        """The rows that were visited so far."""

    def _own(self, columns: Columns) -> Columns:
        """Return rows of the base in numbers, and in an order, of one's own."""
        dictionary = self._outer.dictionary
        size = len(dictionary)
        check = self._supervisor.check
        ordered = in_text_order(columns, self._identifying, dictionary, size, check)
        before = len(self._texts)
        try:
            made = {key: (self._adopted(each), rows) for key, (each, rows) in ordered.items()}
            if self._outer.max_value_bytes > self._limit:
                self._check_texts(before)
        except BaseException:
            self._texts.forget(before)  # or a text might pass that was not checked
            raise
        return made

    def _adopted(self, columns: Iterable[Ids]) -> list[Ids]:
        """Return columns in numbers of one's own."""
        made: list[Ids] = []
        for column in columns:
            self._supervisor.check()
            made.append(self._texts.adopt(column))
        return made

    def _check_texts(self, since: int) -> None:
        """Refuse texts that are too long here, from a number on."""
        new = np.arange(since, len(self._texts), dtype=np.int32)
        for stretch in stretches_of(len(new)):
            self._supervisor.check()
            check_values(self._texts.texts(new[stretch]), self._limit)

    def change(
        self, added: Iterable[Fact] | GroupedFacts, removed: Iterable[Fact] | GroupedFacts = ()
    ) -> Changes | None:
        """Take facts out and add facts, in whatever order they come.

        Returns:
            All that changed; None when the program has to be evaluated again.
        """
        look = self._supervisor.check
        gone, come = self._outer.intern(removed, look), self._outer.intern(added, look)
        return self.change_columns(come, gone)

    def change_columns(self, added: Columns, removed: Columns) -> Changes | None:
        """Take rows out and add rows, in numbers of the base; returns as `change` does."""
        before = self._evaluation.statistics if self._evaluation is not None else None
        try:
            gone, come = self._own(removed), self._own(added)
            changes = self._base.change_columns(come, gone, self._supervisor.check)
            if not changes:
                return changes
            made = self._session.update(changes).get(self.program)
        except BaseException:
            self._session.forget()  # nothing is built upon what is half done
            raise
        if self._evaluation is not None and self._evaluation.statistics is not before:
            self.work += self._evaluation.statistics.work  # also when a limit stopped it
        return made

    def replace(self, relations: Mapping[PredicateKey, Relation], base: FactBase) -> Changes | None:
        """Give some predicates exactly these rows; those that stay are not touched."""
        self._outer = base
        self._texts.take_outer(base.dictionary)
        size, look = len(base.dictionary), self._supervisor.check
        come: dict[PredicateKey, tuple[tuple[Ids, ...], int]] = {}
        gone: dict[PredicateKey, tuple[tuple[Ids, ...], int]] = {}
        for key, wanted in relations.items():
            found = self._base.relations.get(key) or Relation(key.arity)
            held = tuple(map(self.in_base, found.columns()))
            for rows, (some, count), (others, other_count) in (
                (come, (wanted.columns(), wanted.rows), (held, found.rows)),
                (gone, (held, found.rows), (wanted.columns(), wanted.rows)),
            ):
                known = RowSet.of(others, other_count, size, look)
                alone = ~known.contains(some, count, look)
                if alone.any():
                    rows[key] = choose(some, alone, look), int(alone.sum())
        return self.change_columns(come, gone)

    def evaluate(
        self, predicates: Iterable[PredicateKey], statistics: Statistics | None = None
    ) -> Evaluation:
        """Return the answer for the facts of now."""
        spent = statistics if statistics is not None else Statistics()
        before = spent.work
        try:
            self._evaluation = self._session.evaluate(self.program, predicates, spent)
        finally:
            self.work += spent.work - before
        return self._evaluation

    def in_base(self, ids: Ids) -> Ids:
        """Return the numbers that texts of the enclave have in the base."""
        return self._texts.ids[ids]


def _columns_of(relations: Mapping[PredicateKey, Relation]) -> Columns:
    return {key: (found.columns(), found.rows) for key, found in relations.items()}
