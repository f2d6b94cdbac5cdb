"""Built-in tests over numbers: a test of one variable is asked once for each value.

It is a table of verdicts by number, whatever rules ask again. A comparison of two
variables compares ranks: the texts seen so far are sorted, as bytes or as integers. What
is left (two variables in a `TextShape`) is asked once for each different pair of values
in a frame.
The meaning of every test is that of `lace.rules.builtins`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.keys import distinct_ids, radix_keys
from lace.rules.builtins import int_compare, integer_rank, lex_compare, text_shape
from lace.rules.syntax import Inequality, IntCompare, LexCompare, TextShape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lace.engines.embedded.dictionary import Ids, Texts
    from lace.engines.embedded.keys import Flags
    from lace.rules.syntax import Operator, Term, Test

__all__ = ["Ranks", "Verdicts"]

Columns: TypeAlias = "Mapping[str, Ids]"
_UNKNOWN: Final = 2
_FEW_ROWS: Final = 256
"""Rows up to which new values are compared as texts: ranking them would sort all anew."""
_MAX_TABLE_BYTES: Final = 2**27
"""What the tables of all tests take together; the one asked longest ago goes first."""
_COMPARE: Final = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


class Ranks:
    """The order of texts, by number: as bytes, or as integers (-1 for what is none)."""

    def __init__(self, dictionary: Texts, kind: type[LexCompare | IntCompare]) -> None:
        self._dictionary = dictionary
        self._as_integers = kind is IntCompare
        self._ranks = np.full(0, -2, np.int32)
        self._known = np.empty(0, np.int32)

    def has(self, *columns: Ids) -> bool:
        """Tell whether all values of columns have a rank already."""
        size = len(self._ranks)
        return all(
            bool((column < size).all()) and bool((self._ranks[column] != -2).all())
            for column in columns
        )

    def of(self, *columns: Ids) -> list[Ids]:
        """Return the ranks of the values of columns; they compare as the values do."""
        missing: list[Ids] = []
        size = len(self._dictionary)
        if len(self._ranks) < size:
            wider = np.full(size, -2, np.int32)
            wider[: len(self._ranks)] = self._ranks
            self._ranks = wider
        for column in columns:
            unknown = column[self._ranks[column] == -2]
            if len(unknown):
                missing.append(unknown)
        if missing:
            self._rank(distinct_ids(np.concatenate([self._known, *missing]), size))
        return [self._ranks[column] for column in columns]

    def _rank(self, ids: Ids) -> None:
        """Rank all of these anew: the ranks given before no longer hold."""
        texts = self._dictionary.texts(ids)
        self._known = ids
        if self._as_integers:
            keys = [integer_rank(text) for text in texts]
            different = sorted({key for key in keys if key is not None})
            rank = {key: number for number, key in enumerate(different)}
            self._ranks[ids] = [-1 if key is None else rank[key] for key in keys]
            return
        # Code points sort as UTF-8 bytes do, so the texts need not be encoded.
        order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.intp)
        ranks = np.empty(len(texts), np.int32)
        ranks[order] = np.arange(len(texts), dtype=np.int32)
        self._ranks[ids] = ranks


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

    def mask(self, test: Test, columns: Columns, rows: int) -> Flags:
        """Tell for which rows a test holds."""
        names = sorted({term.name for term in test.terms if isinstance(term, Variable)})
        if not names:
            return np.full(rows, _ask(test, {}), np.bool_)
        if len(names) == 1:
            return self._of_one(test, names[0], columns[names[0]])
        if isinstance(test, Inequality):
            left, right = (_column(term, columns) for term in test.terms)
            differ: Flags = left != right
            return differ
        if isinstance(test, LexCompare | IntCompare):
            return self._compared(test, columns)
        return self._of_several(test, names, columns)

    def _of_one(self, test: Test, name: str, column: Ids) -> Flags:
        table = self._tables.get(test)
        if table is None:
            table = self._tables[test] = np.full(self._size, _UNKNOWN, np.uint8)
            while len(self._tables) > max(1, _MAX_TABLE_BYTES // self._size):
                self._tables.popitem(last=False)
        self._tables.move_to_end(test)
        found = table[column]
        unknown = found == _UNKNOWN
        if unknown.any():
            ids = distinct_ids(column[unknown], self._size)
            holds = _asker(test, name)
            texts = self._dictionary.texts(ids)
            table[ids] = np.fromiter(map(holds, texts), np.uint8, len(texts))
            found = table[column]
        return found.view(np.bool_)

    def _compared(self, test: LexCompare | IntCompare, columns: Columns) -> Flags:
        both = [_column(term, columns) for term in test.terms]
        ranks = self.ranks(test)
        if len(both[0]) <= _FEW_ROWS and not ranks.has(*both):
            return self._of_several(test, sorted({_name(term) for term in test.terms}), columns)
        left, right = ranks.of(*both)
        holds: Flags = _COMPARE[test.operator](left, right)
        if isinstance(test, IntCompare):
            holds &= (left >= 0) & (right >= 0)
        return holds

    def _of_several(self, test: Test, names: Sequence[str], columns: Columns) -> Flags:
        chosen = [columns[name] for name in names]
        _, at, back = np.unique(
            radix_keys(chosen, self._size)
            if len(chosen) == 2
            else np.stack(chosen, axis=1).view(np.dtype((np.void, 4 * len(chosen)))).ravel(),
            return_index=True,
            return_inverse=True,
        )
        texts = [self._dictionary.texts(column[at]) for column in chosen]
        answers = [
            _ask(test, dict(zip(names, values, strict=True))) for values in zip(*texts, strict=True)
        ]
        return np.array(answers, np.bool_)[back]


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
            if not delimiters.value and not close:
                return lambda text: text.startswith(begin)
            return lambda text: text_shape(text, begin, delimiters.value, close)
        case _:
            return lambda text: _ask(test, {name: text})


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
