"""Going through a warehouse from a program: what differs, what is wrong, records into a file.

Here, too, is how a program comes by a Spark session: its own, or one for a while.
"""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lace.arguments import check_argument, check_count, check_many, kind_of
from lace.engines.arrow import load_pyarrow
from lace.errors import StoreError, UsageError
from lace.outside import written_file
from lace.record.ids import RecordId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from contextlib import AbstractContextManager

    from lace.base.limits import Settings
    from lace.engines.queries import Rules
    from lace.engines.spark.options import Options
    from lace.facts.lines import Fact
    from lace.pipeline.checking import Checked
    from lace.pipeline.diff import Side
    from lace.pipeline.evaluate import Question
    from lace.pipeline.warehouse import Warehouse

__all__ = [
    "Checking",
    "check_lace",
    "check_spark",
    "check_texts",
    "chosen_records",
    "differing_records",
    "engine_options",
    "field_names",
    "question_of",
    "side_of_state",
    "spark_session",
    "write_records",
]


def check_lace(store: object) -> None:
    """Refuse what is no open lace.

    Raises:
        UsageError: it is something else.
    """
    from lace.opened import Lace

    check_argument(store, Lace, "store is an open lace", "open it with lace.open(path)")


def check_spark(master: object) -> None:
    """Refuse to go on without what Spark needs.

    Raises:
        UsageError: the master is no text.
        EngineError: a package or Java is missing.
    """
    check_argument(master, str, "master is the address of a Spark master")
    from lace.engines.spark.session import check_installed

    check_installed()


def check_texts(**given: object) -> None:
    """Refuse arguments that are no text, by their names.

    Raises:
        UsageError: one is something else.
    """
    for name, value in given.items():
        check_argument(value, str, f"{name} is a text")


def field_names(fields: Iterable[str]) -> frozenset[str]:
    """Return the names of the fields that advertisements are to carry.

    Raises:
        UsageError: they are something else.
    """
    check_many(fields, "fields are the names of fields", "as in ['App']")
    names = frozenset(fields)
    for each in names:
        check_argument(each, str, "a field is given by its name", "as in ['App']")
    return names


def spark_session(spark: Any, master: str) -> AbstractContextManager[Any]:  # noqa: ANN401 - PySpark's own
    """Return the session that there is, or one for a while."""
    if spark is not None:
        return nullcontext(spark)
    from lace.engines.spark.session import open_session

    return open_session(master)


def engine_options(settings: Settings, master: str) -> Options:
    """Return how the engine goes about it, by the settings and by where Spark runs."""
    from lace.engines.spark.options import options_of

    return options_of(settings, cluster=not master.startswith("local"))


def question_of(settings: Settings, rules: Rules, predicates: Iterable[str]) -> Question:
    """Return what is asked of rules: some predicates, or all that they define.

    Raises:
        RuleError: the rules are not legal.
        UsageError: they do not define a predicate.
    """
    from lace.engines.queries import check_rules, find_predicates
    from lace.pipeline.evaluate import Question
    from lace.rules.limits import limits_of

    checked = check_rules(rules, limits=limits_of(settings))
    wanted = tuple(dict.fromkeys(find_predicates(checked, predicates))) or checked.derived
    return Question((checked,), wanted)


def side_of_state(warehouse: Warehouse, given: str | Iterable[Fact], which: str) -> Side:
    """Return a state by its name, or what a peer listed.

    Raises:
        UsageError: there is no state of that name, or something is no fact.
        FactLineError: no peer would list this.
        WarehouseDamagedError: the state is damaged.
    """
    from lace.pipeline.diff import given_listing, side_of

    if isinstance(given, str):
        return side_of(warehouse, given)
    check_many(given, f"{which} is a name or several facts", "as in [('Advertised','P.…','S')]")
    return given_listing(given, f"the {which} listing")


def differing_records(
    first: Side,
    second: Side,
    spark: Any,  # noqa: ANN401 - PySpark's own
    master: str,
) -> Iterator[tuple[str, RecordId]]:
    """Yield what two states do not share; Spark runs until the last of it was taken."""
    from lace.pipeline.diff import Comparison

    compared = Comparison(first, second)
    if compared.is_same:  # there is nothing to start Spark for
        return
    with spark_session(spark, master) as session:
        for kind, record in compared.records(session):
            yield kind, RecordId(record)


class Checking:
    """How much of a warehouse to verify: its files and some records, a sample, or everything.

    Raises:
        UsageError: both are given, or the sample is not a number of records.
    """

    def __init__(self, sample: int | None, *, everything: bool) -> None:
        check_count(sample, "a sample")
        from lace.pipeline.proof import MOST_SAMPLED

        if sample is not None and everything:
            raise UsageError("a sample and everything exclude each other", hint="give one of them")
        if sample is not None and not 1 <= sample <= MOST_SAMPLED:
            raise UsageError(
                f"a sample has from 1 to {MOST_SAMPLED:,} records, not {sample:,}",
                hint="or verify everything",
            )
        self._sample = sample
        self.has_proof = everything or sample is not None
        """Whether tables are compared with records: for that, Spark is needed."""

    def run(
        self,
        warehouse: Warehouse,
        settings: Settings,
        report: Callable[[Checked], None] | None,
        spark: Any,  # noqa: ANN401 - PySpark's own
        master: str,
    ) -> Checked:
        """Verify; returns what was found."""
        load_pyarrow()
        from lace.pipeline.checking import check_warehouse, validate_some

        checked = check_warehouse(warehouse, report)
        if checked.damaged:  # what is read now would only say so again
            return checked
        if not self.has_proof:
            validate_some(warehouse, checked)
            return checked
        from lace.pipeline.proving import prove

        most = settings.warehouse_embedded_records
        with spark_session(spark, master) as session:
            checked.proof = prove(session, warehouse, self._sample, most_records=most)
        return checked


def chosen_records(
    warehouse: Warehouse,
    question: Question,
    options: Options,
    spark: Any,  # noqa: ANN401 - PySpark's own
    master: str,
) -> frozenset[str]:
    """Return the hashes of the records that rules choose.

    Raises:
        UsageError: the predicate that chooses has not one argument.
    """
    from lace.pipeline.choosing import check_selection, choose_records

    check_selection(question)
    with spark_session(spark, master) as session:
        return choose_records(session, warehouse, question, options).hashes


def write_records(
    warehouse: Warehouse,
    wanted: Collection[str] | None,
    target: str | os.PathLike[str] | IO[bytes],
) -> int:
    """Write the bytes of all records, or of those of some hashes; returns how many they are.

    Raises:
        UsageError: the target is not a file or a path.
        StoreError: the file cannot be written, or the warehouse is damaged.
    """
    from lace.pipeline.records import iterate_records

    number = 0
    with _written(target) as file:
        for record in iterate_records(warehouse, wanted):
            file.write(record.bytes)
            number += 1
    return number


def _takes_bytes(target: object) -> bool:
    return hasattr(target, "write") and not isinstance(target, io.TextIOBase)


@contextmanager
def _written(target: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """Take a file that is open for bytes, or write one that appears when it is whole."""
    if not isinstance(target, (str, os.PathLike)):
        if not _takes_bytes(target):
            raise UsageError(
                f"target is a path, or a file that was opened for bytes, not {kind_of(target)}",
                hint="open it with mode 'wb'",
            )
        yield target
        return
    path = Path(target)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise UsageError(f"{path} is a folder, or in one that is not there", hint="name a file")
    with written_file(
        path, lambda error: StoreError(f"{path} cannot be written: {error.strerror}")
    ) as file:
        yield file
