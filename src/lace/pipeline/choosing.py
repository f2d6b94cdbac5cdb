"""Choosing records of a warehouse: those that are named, or those that rules choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lace.base.text import shorten
from lace.errors import LaceError, UsageError
from lace.pipeline.records import find_hashes, held_hashes
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from lace.engines.spark.options import Options
    from lace.pipeline.evaluate import Question
    from lace.pipeline.warehouse import Warehouse

__all__ = ["Chosen", "NotHeldError", "check_selection", "choose_records", "find_named"]


class NotHeldError(LaceError):
    """A record that is not in the warehouse."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The hashes of records that rules choose, and how many values are no record here."""

    hashes: frozenset[str]
    strangers: int


def find_named(warehouse: Warehouse, texts: Sequence[str]) -> frozenset[str]:
    """Return the hashes of the records that texts name, the newest of a coordinate.

    Raises:
        AddressError: a text is no hash and no coordinate.
        NotHeldError: at least one is not there; all of them are named.
        WarehouseDamagedError: a file is damaged.
    """
    found = find_hashes(warehouse, [parse_address(text) for text in texts])
    missing = [text for text, each in zip(texts, found, strict=True) if each is None]
    if missing:
        names = ", ".join(shorten(text, 100) for text in missing)
        raise NotHeldError(f"not in this warehouse: {names}")
    return frozenset(each for each in found if each is not None)


def check_selection(question: Question) -> Question:
    """Return a question that chooses records: of one predicate, with one argument.

    Raises:
        UsageError: the predicate has another number of arguments.
    """
    (key,) = question.predicates
    if key.arity != 1:
        raise UsageError(
            f"{key} has {key.arity} arguments, and records are chosen by one",
            hint="name a predicate with one argument",
        )
    return question


def choose_records(
    session: SparkSession, warehouse: Warehouse, question: Question, options: Options
) -> Chosen:
    """Return the records that a question chooses; nothing is written.

    Raises:
        LimitExceeded: it goes beyond a limit.
        WarehouseDamagedError: a file of the warehouse is damaged.
        SparkJobError: Spark failed.
    """
    from lace.pipeline.evaluate import select_values

    values = select_values(session, warehouse, question, options=replace(options, cuts="local"))
    found = held_hashes(warehouse, values)
    return Chosen(found, len(values) - len(found))
