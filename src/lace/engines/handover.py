"""Evaluating over columns of 64-bit numbers in this process: what a larger engine hands over.

The numbers are another engine's. They are numbered again, densely, and the embedded engine
asks for a text only where a test needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.engines.budget import Budget
from lace.engines.embedded.dictionary import Dictionary, fingerprints_of
from lace.engines.embedded.engine import Evaluation
from lace.engines.embedded.relation import Relation
from lace.engines.embedded.state import State
from lace.record.hash_rows import decode_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from lace.algebra.nodes import RelationalProgram
    from lace.engines.budget import Statistics
    from lace.engines.embedded.dictionary import Fingerprints, Ids
    from lace.record.hash_rows import Octets
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

    Numbers = npt.NDArray[np.int64]
    Columns = tuple[list[Numbers], int]

__all__ = ["evaluate_columns"]


class _HandedTexts:
    """Texts by dense number, for those numbers that came along."""

    def __init__(
        self,
        numbers: Numbers,
        constants: Mapping[str, int],
        texts: Callable[[Numbers], list[str]],
    ) -> None:
        self._numbers = numbers
        self._constants = constants
        self._texts = texts
        self._known: list[str | None] = [None] * len(numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that it does not have."""
        given = np.array([self._constants.get(text, -1) for text in texts], np.int64)
        at = np.searchsorted(self._numbers, given)
        return np.where(given >= 0, at, -1).astype(np.int32)

    def find_hashes(self, rows: Octets) -> Ids:
        """Return the numbers of record hashes, -1 for one that it does not have."""
        return self.find(decode_hashes(rows))

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers."""
        known, asked = self._known, ids.tolist()
        missing = sorted({at for at in asked if known[at] is None})
        if missing:  # asked for together, and once: each time may be a job of its own
            found = self._texts(self._numbers[missing])
            for at, text in zip(missing, found, strict=True):
                known[at] = text
        return [text for at in asked if (text := known[at]) is not None]

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return what `fingerprints_of` gives for the texts of numbers."""
        return fingerprints_of(self.texts(ids))


def evaluate_columns(
    checked: CheckedProgram,
    program: RelationalProgram,
    inputs: Mapping[PredicateKey, Columns],
    *,
    constants: Mapping[str, int],
    texts: Callable[[Numbers], list[str]],
    wanted: Iterable[PredicateKey],
    statistics: Statistics,
) -> dict[PredicateKey, Columns]:
    """Return the facts of predicates, in the numbers of the caller.

    See `lace.engines.spark.handing.Handover`, which this is.

    Raises:
        LimitExceeded: it would go beyond a limit.
    """
    given = [np.fromiter(constants.values(), np.int64, len(constants))]
    given += [column for columns, _ in inputs.values() for column in columns]
    numbers = np.unique(np.concatenate(given))
    relations = {
        key: Relation.of(
            [np.searchsorted(numbers, column).astype(np.int32) for column in columns], rows
        )
        for key, (columns, rows) in inputs.items()
    }
    dictionary = Dictionary(_HandedTexts(numbers, constants, texts))
    budget = Budget(checked, statistics)
    state = State(program, dictionary, max(1, len(numbers)), relations, budget)
    evaluation = Evaluation(checked, state)
    asked = list(wanted)
    evaluation.run(asked)
    made: dict[PredicateKey, Columns] = {}
    for key in asked:
        found = evaluation.relation(key)
        made[key] = [numbers[column] for column in found.columns()], found.rows
    return made
