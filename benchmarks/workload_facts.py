"""The facts of a description, as columns of interned ids with a dictionary and as texts.

The texts come from the columns, so both forms say the same. The candidates of W4 and
the edges of TC are here as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from benchmarks.workloads import (
    APPS,
    GROUPS,
    LABELS,
    NO,
    TAGS,
    VERSION,
    Description,
    name_of,
)
from lace.base import b64a

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Columns",
    "candidates",
    "columns_of",
    "edges",
    "made_up_ids",
    "occurrences",
    "tai_text",
    "text_facts",
]

Ids: TypeAlias = "NDArray[np.int32]"
Fact: TypeAlias = tuple[str, ...]

TC_NODES: Final = 2_500
TC_REACH: Final = 50


@dataclass(frozen=True, slots=True)
class Columns:
    """Relations by predicate name, each as equally long columns of places in a dictionary."""

    dictionary: list[str]
    relations: dict[str, tuple[Ids, ...]]

    def count(self, predicate: str) -> int:
        """Return how many facts a predicate has."""
        return len(self.relations[predicate][0])


class _Dictionary:
    """Texts in the order in which they came; blocks of texts come with a first place."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def block(self, texts: Sequence[str]) -> int:
        """Add texts that are different from all others; return the place of the first."""
        first = len(self.texts)
        self.texts += texts
        return first

    def place(self, text: str) -> int:
        """Return the place of a text that may be there already, though in no block."""
        if text not in self._places:
            self._places[text] = self.block([text])
        return self._places[text]

    def places(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self.place(text) for text in texts], np.int64)


def made_up_ids(letter: str, count: int, seed: int = 0) -> list[str]:
    """Return texts of the form of identifiers that are the hash of nothing."""
    raw = np.random.default_rng([VERSION, ord(letter), seed]).bytes(32 * count)
    return [f"{letter}.{b64a.encode(raw[at : at + 32])}.H3" for at in range(0, len(raw), 32)]


def tai_text(number: int) -> str:
    """Return the TAI text of one of the instants."""
    return f"{1_700_000_000 + number:010d}:000000000"


def occurrences(source: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each link, sorted by source, which one of its source it is."""
    return np.arange(len(source)) - np.searchsorted(source, source)


def columns_of(
    description: Description,
    record_ids: Sequence[str] | None = None,
    verifiers: Sequence[str] | None = None,
) -> Columns:
    """Return Have, Field and RecordLink; identifiers are made up unless they are given.

    The identifiers are those of all records that there are, so of earlier ones as well.
    """
    first, count = description.first, description.records
    ids = record_ids or made_up_ids("S", first + count)
    words = _Dictionary()
    record_at = words.block(ids)
    verifier_at = words.block(verifiers or made_up_ids("V", description.verifiers))
    zero, one = words.place("0"), words.place("1")
    codes, code_of = np.unique(description.name_codes, return_inverse=True)
    name_at = words.block([name_of(int(code)) for code in codes])
    names = np.where(description.named == NO, name_at + code_of, verifier_at + description.named)
    instants, instant_of = np.unique(description.tai, return_inverse=True)
    tai_at = words.block([tai_text(int(instant)) for instant in instants])
    everyone = np.arange(record_at + first, record_at + first + count)
    fields = [
        (everyone, words.place(name), np.full(count, zero), values)
        for name, values in (
            ("Type", np.full(count, words.place("S"))),
            ("Group", words.places(GROUPS)[description.group]),
            ("App", words.places(APPS)[description.app]),
            ("Name", names),
            ("TAI", tai_at + instant_of),
            ("Signed-By", verifier_at + description.signer),
            ("Seq", words.places([str(number) for number in range(1000)])[description.seq]),
        )
    ]
    tag_words = words.places([f"tag-{tag}" for tag in range(TAGS)])
    for occurrence, index in enumerate((zero, one)):
        tags = description.tags[:, occurrence]
        has = tags != NO
        fields.append(
            (everyone[has], words.place("Tag"), np.full(has.sum(), index), tag_words[tags[has]])
        )
    sources = description.link_source
    indexes = words.places([str(number) for number in range(12)])
    link = (
        record_at + sources,
        np.full(len(sources), words.place("+Link")),
        indexes[occurrences(sources)],
        words.places(LABELS)[description.link_label],
        record_at + description.link_target,
    )
    field = (
        np.concatenate([part[0] for part in fields]),
        np.repeat([part[1] for part in fields], [len(part[0]) for part in fields]),
        np.concatenate([part[2] for part in fields]),
        np.concatenate([part[3] for part in fields]),
    )
    relations = {"Have": (everyone,), "Field": field, "RecordLink": link}
    return Columns(
        words.texts,
        {name: tuple(c.astype(np.int32) for c in columns) for name, columns in relations.items()},
    )


def text_facts(columns: Columns) -> Iterator[Fact]:
    """Yield the facts of columns as a predicate's name and its values."""
    texts = np.array(columns.dictionary, dtype=object)
    for predicate, relation in columns.relations.items():
        yield from zip(repeat(predicate), *(texts[column].tolist() for column in relation))


def candidates(count: int) -> list[Fact]:
    """Return the Candidate facts of W4: records with a TAI from a third as many instants."""
    instants = np.random.default_rng([VERSION, 4, count]).integers(0, max(count // 3, 1), count)
    ids = made_up_ids("S", count, seed=4)
    texts = map(tai_text, instants.tolist())
    return [("Candidate", record, text) for record, text in zip(ids, texts, strict=True)]


def edges(nodes: int = TC_NODES) -> list[Fact]:
    """Return the Edge facts of TC: from each node two edges to one of the next fifty."""
    steps = np.random.default_rng([VERSION, 5, nodes]).integers(1, TC_REACH + 1, (nodes, 2))
    targets = np.arange(nodes)[:, None] + steps
    pairs = {
        (node, target)
        for node, row in enumerate(targets.tolist())
        for target in row
        if target < nodes
    }
    return [("Edge", f"n{node}", f"n{target}") for node, target in sorted(pairs)]
