"""Built-in tests over numbers: a test of one variable is asked once for each value.

It is a table of verdicts by number, whatever rules ask again. A comparison of two
variables compares ranks: the texts seen so far are sorted, as bytes or as integers. A
`TextShape` of several variables sorts the different values of a frame. A few rows are asked
about one by one.
The meaning of every test is that of `lace.rules.builtins`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.engines import costs
from lace.engines.embedded.keys import distinct_ids
from lace.engines.embedded.ranks import Ranks, fetched, text_bytes
from lace.engines.embedded.shapes import Values, shape_mask
from lace.rules.builtins import int_compare, lex_compare, text_shape
from lace.rules.syntax import Inequality, IntCompare, LexCompare, TextShape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lace.engines.budget import Budget
    from lace.engines.embedded.dictionary import Ids, Texts
    from lace.engines.embedded.keys import Flags
    from lace.rules.syntax import Operator, Term, Test

__all__ = ["Verdicts"]

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
