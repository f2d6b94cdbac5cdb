"""Built-in tests over numbers: a test of one variable is asked once for each value.

It is a table of verdicts by number, whatever rules ask again. A comparison of two
variables compares ranks: the texts seen so far are sorted, as bytes or as integers. A
`TextShape` of several variables sorts the different values of a frame. A few rows are asked
about one by one.
The meaning of every test is that of `lace.rules.builtins`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lace.columns import costs
from lace.columns.keys import distinct_ids
from lace.rules.builtins import int_compare, integer_rank, lex_compare, text_shape
from lace.rules.syntax import Inequality, IntCompare, LexCompare, TextShape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lace.columns.dictionary import Ids, Texts
    from lace.columns.keys import Flags, Look
    from lace.engine.budget import Budget
    from lace.rules.syntax import Operator, Term, Test


# -- The order of texts by number, so that comparing two columns of texts compares two of ranks.
#
# A rank is a mark on a scale with room between two marks. A few texts that are new are put
# between those that are known; all are only put in order again when there are many new ones.

_Item = TypeVar("_Item")
_Key: TypeAlias = "str | tuple[int, int, str]"
_SCALE: Final = 2**31 - 2
"""The highest mark."""
_UNRANKED: Final = -2
_NO_INTEGER: Final = -1
_FEW_SHARE: Final = 32
"""New texts that are at most this share of those known are put between them."""
_FETCHED: Final = 2**14
"""Texts that are fetched between two looks at the budget."""
_TEXT_BYTES: Final = 88
"""What a text takes in memory beside its characters, about."""
_KEY_BYTES: Final = 128
"""What the key of an integer takes beside its digits, about."""
_PLACE_BYTES: Final = 64
"""What a text takes while texts are sorted: its places in runs, and in the order."""
_ORDER_BYTES: Final = 48
"""What a text takes that is in order already, while others are put between."""
_STRETCH: Final = 2**12
"""Texts that are worked off one by one between two looks at the budget."""
_RUN: Final = 2**16
"""Texts that are sorted between two looks at the budget."""
_SAMPLED: Final = 2**10
"""The distance of two samples of a run."""


def fetched(dictionary: Texts, ids: Ids, budget: Budget) -> list[str]:
    """Return the texts of numbers; what they cost and take is counted as they come."""
    made: list[str] = []
    for first in range(0, len(ids), _FETCHED):
        some = ids[first : first + _FETCHED]
        budget.charge(costs.TEXT * len(some))
        texts = dictionary.texts(some)
        budget.charge(costs.CHARACTER * sum(map(len, texts)))
        budget.take(text_bytes(texts))
        made += texts
    return made


def text_bytes(texts: Sequence[str]) -> int:
    """Return about what texts take in memory: one, two or four bytes for each character."""
    if all(map(str.isascii, texts)):
        return _TEXT_BYTES * len(texts) + sum(map(len, texts))
    return _TEXT_BYTES * len(texts) + sum(map(_characters_bytes, texts))


def _characters_bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    # A character beyond the first 2^16 makes all of them as wide as itself.
    is_wide = len(text.encode("utf-16-le", "surrogatepass")) > 2 * len(text)
    return (4 if is_wide else 2) * len(text)


def stretches(items: Sequence[_Item], budget: Budget) -> Iterator[Sequence[_Item]]:
    """Yield items in short stretches, with a look at the budget before each."""
    for first in range(0, len(items), _STRETCH):
        budget.check()
        yield items[first : first + _STRETCH]


def in_order(keys: Sequence[Any], places: list[int], budget: Budget) -> list[int]:
    """Return places sorted by their keys, with a look at the budget now and then."""
    budget.take(_PLACE_BYTES * len(places))
    return sort_in_runs(keys, places, budget.check)


def sort_in_runs(keys: Sequence[Any], places: list[int], look: Look) -> list[int]:
    """Return places sorted by their keys, with a look now and then.

    They are sorted in runs. Samples of these at equal distances say where to cut all runs, so
    that the pieces between two cuts are about as many as one run, whatever order they came in.
    """
    key = keys.__getitem__
    runs: list[list[int]] = []
    for first in range(0, len(places), _RUN):
        look()
        runs.append(sorted(places[first : first + _RUN], key=key))
    if len(runs) <= 1:
        return runs[0] if runs else []
    samples = sorted((at for run in runs for at in run[_SAMPLED::_SAMPLED]), key=key)
    made: list[int] = []
    begins = [0] * len(runs)
    for cut in samples[_RUN // _SAMPLED :: _RUN // _SAMPLED]:
        look()
        ends = [
            bisect_left(run, key(cut), begin, key=key)
            for run, begin in zip(runs, begins, strict=True)
        ]
        pieces = zip(runs, begins, ends, strict=True)
        made += sorted(chain.from_iterable(run[low:high] for run, low, high in pieces), key=key)
        begins = ends
    look()
    last = zip(runs, begins, strict=True)
    return made + sorted(chain.from_iterable(run[begin:] for run, begin in last), key=key)


class Ranks:
    """The order of texts, by number: as bytes, or as integers (-1 for any other text)."""

    def __init__(self, dictionary: Texts, kind: type[LexCompare | IntCompare]) -> None:
        self._dictionary = dictionary
        self._as_integers = kind is IntCompare
        self._ranks = np.full(0, _UNRANKED, np.int32)
        self._known = np.empty(0, np.int32)
        # The numbers of texts with different keys in their order, and their marks.
        self._order = np.empty(0, np.int32)
        self._marks = np.empty(0, np.int32)

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum(each.nbytes for each in (self._ranks, self._known, self._order, self._marks))

    def has(self, *columns: Ids) -> bool:
        """Tell whether all values of columns have a rank already."""
        size = len(self._ranks)
        return all(
            bool((column < size).all()) and bool((self._ranks[column] != _UNRANKED).all())
            for column in columns
        )

    def of(self, *columns: Ids, budget: Budget) -> list[Ids]:
        """Return the ranks of the values of columns; they compare as the values do."""
        missing: list[Ids] = []
        size = len(self._dictionary)
        if len(self._ranks) < size:
            budget.reserve(4 * size)
            wider = np.full(size, _UNRANKED, np.int32)
            wider[: len(self._ranks)] = self._ranks
            self._ranks = wider
        for column in columns:
            unknown = column[self._ranks[column] == _UNRANKED]
            if len(unknown):
                missing.append(unknown)
        if missing:
            self._add(distinct_ids(np.concatenate(missing), size), budget)
        return [self._ranks[column] for column in columns]

    def _add(self, ids: Ids, budget: Budget) -> None:
        """Give ranks to numbers that have none; the ranks given before may change."""
        with budget.temporaries():
            if len(ids) * _FEW_SHARE > len(self._known):
                self._rank_all(np.concatenate([self._known, ids]), budget)
            else:
                self._insert(ids, budget)

    def _keys(self, ids: Ids, budget: Budget) -> Sequence[_Key | None]:
        texts = fetched(self._dictionary, ids, budget)
        if not self._as_integers:
            # Code points sort as UTF-8 bytes do, so the texts need not be encoded.
            return texts
        budget.charge(costs.INTEGER * len(texts))
        budget.take(text_bytes(texts) + _KEY_BYTES * len(texts))
        keys: list[_Key | None] = []
        for some in stretches(texts, budget):
            keys += map(integer_rank, some)
        return keys

    def _rank_all(self, ids: Ids, budget: Budget) -> None:
        """Put all of these numbers in order; nothing is changed before that is done."""
        keys = self._keys(ids, budget)
        order = in_order(keys, [at for at, key in enumerate(keys) if key is not None], budget)
        first: list[int] = []
        before: _Key | None = None
        for some in stretches(range(len(order)), budget):
            for place in some:
                key = keys[order[place]]
                if key != before:
                    first.append(place)
                before = key
        self._known = ids
        self._ranks[ids] = _NO_INTEGER
        begins = np.array(first, np.intp)
        ordered = ids[np.array(order, np.intp)] if order else ids[:0]
        self._order, self._marks = ordered[begins], _spread(len(first))
        self._ranks[ordered] = np.repeat(self._marks, np.diff(np.append(begins, len(order))))

    def _insert(self, ids: Ids, budget: Budget) -> None:
        """Put a few numbers between those in order; nothing is changed before all have places."""
        budget.charge(costs.INSERTED_TEXT * len(ids))
        budget.take(_ORDER_BYTES * len(self._order))
        keys = self._keys(ids, budget)
        valid = in_order(keys, [at for at, key in enumerate(keys) if key is not None], budget)
        new: list[list[int]] = []  # those of one key together
        places: list[int] = []
        equal: list[int] = []  # those whose key is in the order already
        marks: list[int] = []
        before: _Key | None = None
        for some in stretches(valid, budget):
            for at in some:
                key = keys[at]
                if key is None:
                    raise AssertionError("what is no integer has no place")
                if new and key == before:
                    new[-1].append(at)
                    continue
                before = key
                place = _place(key, self._key_at, len(self._order), places[-1] if places else 0)
                if place < len(self._order) and self._key_at(place) == key:
                    equal.append(at)
                    marks.append(int(self._marks[place]))
                    before = None  # one of the same key finds its place by itself
                    continue
                new.append([at])
                places.append(place)
        # Marks may move for those that are new now; so all that have one are known before.
        self._known = np.concatenate([self._known, ids])
        self._ranks[ids] = _NO_INTEGER
        self._ranks[ids[equal]] = marks
        if new:
            self._squeeze(np.array(places, np.intp), [ids[each] for each in new])

    def _key_at(self, place: int) -> _Key:
        text = self._dictionary.text(int(self._order[place]))
        key: _Key | None = integer_rank(text) if self._as_integers else text
        if key is None:
            raise AssertionError("only integers are in the order")
        return key

    def _squeeze(
        self, places: Ids | np.ndarray[tuple[int], np.dtype[np.intp]], new: list[Ids]
    ) -> None:
        """Give marks to texts before some places of the order; each has a key of its own."""
        old_marks, known = self._marks, self._known
        self._order = np.insert(self._order, places, [each[0] for each in new])
        at = places + np.arange(len(places))  # where the new ones are now
        marks = np.insert(old_marks.astype(np.int64), places, -1)
        edges = np.concatenate(([0], old_marks, [_SCALE])).astype(np.int64)
        _, first, count = np.unique(places, return_index=True, return_counts=True)
        nth = np.arange(len(places)) - np.repeat(first, count)
        low, high = edges[places], edges[places + 1]
        share = (high - low) // (np.repeat(count, count) + 1)
        if int(share.min()) > 0:
            marks[at] = low + share * (nth + 1)
            self._marks = marks.astype(np.int32)
        else:  # there is no room left somewhere
            self._marks = _spread(len(marks))
            ranked = known[self._ranks[known] >= 0]
            stays = np.ones(len(marks), np.bool_)
            stays[at] = False
            moved = self._marks[stays]
            self._ranks[ranked] = moved[np.searchsorted(old_marks, self._ranks[ranked])]
        for place, ids in zip(at.tolist(), new, strict=True):
            self._ranks[ids] = self._marks[place]


def _spread(count: int) -> Ids:
    """Return `count` marks with the same room before, between and after them."""
    room = max(_SCALE // (count + 1), 1)
    return (np.arange(1, count + 1, dtype=np.int64) * room).astype(np.int32)


def _place(key: _Key, key_at: Callable[[int], _Key], high: int, low: int) -> int:
    """Return the first place whose key is not below one."""
    while low < high:
        middle = (low + high) // 2
        if key_at(middle) < key:  # type: ignore[operator]
            low = middle + 1
        else:
            high = middle
    return low


# -- A `TextShape` of several variables, answered for whole columns at once.
#
# Which texts begin with a text is a stretch of the texts in their order, and which end with
# one a stretch of their order from behind. So a pair of texts takes a few comparisons of
# numbers, and only different values are looked at as texts. What is left of the meaning are
# lengths, and where delimiters stand. The meaning is that of `lace.rules.builtins.text_shape`.

_Numbers = npt.NDArray[np.int64]
_LAST: Final = 0x10FFFF
"""The last code point."""
_CHARACTER_BYTES: Final = 16
"""What a character takes while delimiters are looked for."""


@dataclass(frozen=True, slots=True)
class Values:
    """The different values of a column, and for each row which of them it has."""

    texts: Sequence[str]
    at: _Numbers

    @property
    def lengths(self) -> _Numbers:
        """How many characters the value of each row has."""
        made: _Numbers = np.fromiter(map(len, self.texts), np.int64, len(self.texts))[self.at]
        return made


def shape_mask(text: Values, start: Values, delimiters: str, end: Values, budget: Budget) -> Flags:
    """Tell for which rows a text has a shape."""
    lengths, skipped, closing = text.lengths, start.lengths, end.lengths
    mask = _begin(text.texts, start.texts, budget).among(text.at, start.at)
    mask &= _begin(_turned(text.texts, budget), _turned(end.texts, budget), budget).among(
        text.at, end.at
    )
    budget.check()
    if not delimiters:
        mask &= lengths >= skipped + closing
        return mask
    rows = np.flatnonzero(mask)
    at, last = text.at[rows], (lengths - closing - 1)[rows]
    mask[rows] = _delimited(text.texts, at, skipped[rows], last, delimiters, budget)
    return mask


@dataclass(frozen=True, slots=True)
class _Stretches:
    """The places of texts in their order, and from where to where others are their beginnings."""

    places: _Numbers
    first: _Numbers
    behind: _Numbers

    def among(self, texts: _Numbers, beginnings: _Numbers) -> Flags:
        """Tell which texts begin so, by their numbers."""
        places = self.places[texts]
        mask: Flags = places >= self.first[beginnings]
        mask &= places < self.behind[beginnings]
        return mask


def _turned(texts: Sequence[str], budget: Budget) -> list[str]:
    return [each[::-1] for some in stretches(texts, budget) for each in some]


def _begin(texts: Sequence[str], beginnings: Sequence[str], budget: Budget) -> _Stretches:
    order = in_order(texts, list(range(len(texts))), budget)
    ordered = [texts[at] for at in order]
    places = np.empty(len(texts), np.int64)
    places[np.array(order, np.intp)] = np.arange(len(texts))
    first: list[int] = []
    behind: list[int] = []
    for some in stretches(beginnings, budget):
        for each in some:
            first.append(bisect_left(ordered, each))
            after = _after(each)
            behind.append(len(ordered) if after is None else bisect_left(ordered, after))
    return _Stretches(places, np.array(first, np.int64), np.array(behind, np.int64))


def _after(text: str) -> str | None:
    """Return the first text behind all that begin with one; None when there is no such text."""
    shorter = text.rstrip(chr(_LAST))
    return shorter[:-1] + chr(ord(shorter[-1]) + 1) if shorter else None


def _delimited(
    texts: Sequence[str],
    at: _Numbers,
    skipped: _Numbers,
    last: _Numbers,
    delimiters: str,
    budget: Budget,
) -> Flags:
    """Tell which texts have their first delimiter at `last`, after at least one character."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    budget.take(_CHARACTER_BYTES * int(lengths.sum()))
    begins = np.cumsum(lengths) - lengths
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    wanted = np.frombuffer(delimiters.encode("utf-32-le", "surrogatepass"), np.uint32)
    # One more stands before all texts, so that every place has one before it.
    found = np.append(np.int64(-1), np.flatnonzero(np.isin(points, wanted)))
    places = begins[at] + last
    which = np.searchsorted(found, places)
    which[which == len(found)] = 0
    mask: Flags = (last > skipped) & (found[which] == places)
    mask &= found[np.maximum(which - 1, 0)] < begins[at] + skipped
    return mask


Columns: TypeAlias = "Mapping[str, Ids]"
_UNKNOWN: Final = 2
_FEW_ROWS: Final = 256
"""Rows up to which texts are compared one pair after the other."""
_ASKED: Final = 2**12
"""Values that are asked about between two looks at the budget."""
_MATCH_BYTES: Final = 64
"""What a row takes while a test of several variables is answered for all of them at once."""
_SHAPED_BYTES: Final = 64
"""What a different value takes for that, beside its text and what sorting takes."""
_MAX_TABLE_BYTES: Final = 2**27
"""What the tables of all tests take together; the one asked longest ago goes first."""
_COMPARE: Final = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


class Verdicts:
    """What every test asked so far says of every value asked so far."""

    def __init__(self, dictionary: Texts, size: int) -> None:
        self._dictionary = dictionary
        self._size = size
        self._tables: OrderedDict[Test, npt.NDArray[np.uint8]] = OrderedDict()
        self.lexical = Ranks(dictionary, LexCompare)
        self.integer = Ranks(dictionary, IntCompare)

    def ranks(self, test: LexCompare | IntCompare) -> Ranks:
        """Return the order that a comparison compares by."""
        return self.lexical if isinstance(test, LexCompare) else self.integer

    @property
    def size(self) -> int:
        """How many bytes all tables take."""
        tables = sum(table.nbytes for table in self._tables.values())
        return tables + self.lexical.size + self.integer.size

    def mask(self, test: Test, columns: Columns, rows: int, budget: Budget) -> Flags:
        """Tell for which rows a test holds; what texts cost is counted here, and not the rows."""
        names = sorted({term.name for term in test.terms if isinstance(term, Variable)})
        if not names:
            return np.full(rows, _ask(test, {}), np.bool_)
        if len(names) == 1:
            return self._of_one(test, names[0], columns[names[0]], budget)
        if isinstance(test, Inequality):
            left, right = (_column(term, columns) for term in test.terms)
            differ: Flags = left != right
            return differ
        with budget.temporaries():
            if isinstance(test, LexCompare | IntCompare):
                return self._compared(test, columns, budget)
            if rows <= _FEW_ROWS:
                return self._of_several(test, names, columns, budget)
            return self._shaped(test, columns, rows, budget)

    def _of_one(self, test: Test, name: str, column: Ids, budget: Budget) -> Flags:
        table = self._tables.get(test)
        if table is None:
            budget.charge(self._size // costs.UNIT_BYTES, self._size)
            table = self._tables[test] = np.full(self._size, _UNKNOWN, np.uint8)
            while len(self._tables) > max(1, _MAX_TABLE_BYTES // self._size):
                self._tables.popitem(last=False)
        self._tables.move_to_end(test)
        found = table[column]
        unknown = found == _UNKNOWN
        if unknown.any():
            ids = distinct_ids(column[unknown], self._size)
            holds = _asker(test, name)
            for first in range(0, len(ids), _ASKED):
                some = ids[first : first + _ASKED]
                with budget.temporaries():
                    texts = fetched(self._dictionary, some, budget)
                    table[some] = np.fromiter(map(holds, texts), np.uint8, len(texts))
            found = table[column]
        return found.view(np.bool_)

    def _compared(self, test: LexCompare | IntCompare, columns: Columns, budget: Budget) -> Flags:
        both = [_column(term, columns) for term in test.terms]
        ranks = self.ranks(test)
        if len(both[0]) <= _FEW_ROWS and not ranks.has(*both):
            names = sorted({_name(term) for term in test.terms})
            return self._of_several(test, names, columns, budget)
        left, right = ranks.of(*both, budget=budget)
        holds: Flags = _COMPARE[test.operator](left, right)
        if isinstance(test, IntCompare):
            holds &= (left >= 0) & (right >= 0)
        return holds

    def _of_several(
        self, test: Test, names: Sequence[str], columns: Columns, budget: Budget
    ) -> Flags:
        budget.charge(costs.PAIR * len(columns[names[0]]))
        texts = [fetched(self._dictionary, columns[name], budget) for name in names]
        answers = [
            _ask(test, dict(zip(names, values, strict=True))) for values in zip(*texts, strict=True)
        ]
        return np.array(answers, np.bool_)

    def _shaped(self, test: Test, columns: Columns, rows: int, budget: Budget) -> Flags:
        if not isinstance(test, TextShape):
            raise AssertionError("only a TextShape is left")
        budget.charge(costs.MATCH * rows)
        budget.take(_MATCH_BYTES * rows)
        terms = test.text, test.start, test.end
        different = [
            distinct_ids(columns[term.name], self._size) if isinstance(term, Variable) else None
            for term in terms
        ]
        count = sum(len(ids) for ids in different if ids is not None)
        budget.charge(costs.SHAPED_TEXT * count)
        budget.take(_SHAPED_BYTES * count)
        text, start, end = (
            self._values(term, ids, columns, rows, budget)
            for term, ids in zip(terms, different, strict=True)
        )
        budget.take(text_bytes(text.texts) + text_bytes(end.texts))  # from behind
        return shape_mask(text, start, test.delimiters.value, end, budget)

    def _values(
        self, term: Term, ids: Ids | None, columns: Columns, rows: int, budget: Budget
    ) -> Values:
        if not isinstance(term, Variable) or ids is None:
            return Values([str_of(term, {})], np.zeros(rows, np.int64))
        column = columns[term.name]
        return Values(fetched(self._dictionary, ids, budget), np.searchsorted(ids, column))


def _name(term: Term) -> str:
    return term.name if isinstance(term, Variable) else ""


def _column(term: Term, columns: Columns) -> Ids:
    if not isinstance(term, Variable):
        raise AssertionError("a comparison of two variables has no constant")
    return columns[term.name]


def _asker(test: Test, name: str) -> Callable[[str], bool]:
    """Return a test of one variable as a function of its value."""
    match test:
        case TextShape(Variable(), start, delimiters, end) if not any(
            isinstance(term, Variable) for term in (start, end)
        ):
            begin, close = str_of(start, {}), str_of(end, {})
            if delimiters.value:
                return _delimited_asker(begin, delimiters.value, close)
            if not close:
                return lambda text: text.startswith(begin)
            return lambda text: text_shape(text, begin, "", close)
        case _:
            return lambda text: _ask(test, {name: text})


def _delimited_asker(begin: str, delimiters: str, close: str) -> Callable[[str], bool]:
    """Return a TextShape with delimiters as a function of the text; they are found in C."""
    first = re.compile(f"[{re.escape(delimiters)}]")
    skipped = len(begin)

    def holds(text: str) -> bool:
        if not (text.startswith(begin) and text.endswith(close)):
            return False
        found = first.search(text, skipped)
        return (
            found is not None and found.start() > skipped and found.end() == len(text) - len(close)
        )

    return holds


def str_of(term: Term, values: Mapping[str, str]) -> str:
    """Return the value of a term; anonymous terms have none, and no test has one."""
    if isinstance(term, Variable):
        return values[term.name]
    value: str = getattr(term, "value", "")
    return value


def _ask(test: Test, values: Mapping[str, str]) -> bool:
    """Ask a test about values, by its reference meaning."""
    operator: Operator
    match test:
        case Inequality():
            return str_of(test.left, values) != str_of(test.right, values)
        case IntCompare(left, operator, right):
            return int_compare(str_of(left, values), operator, str_of(right, values))
        case LexCompare(left, operator, right):
            return lex_compare(str_of(left, values), operator, str_of(right, values))
        case TextShape(text, start, delimiters, end):
            texts = (str_of(term, values) for term in (text, start, end))
            shown, begin, close = texts
            return text_shape(shown, begin, delimiters.value, close)
