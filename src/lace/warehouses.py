"""Warehouses from a program: what is in one, its tables as Arrow, and its records.

Looking needs pyarrow at most; what needs Spark starts it, or takes a session that there is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from lace.arguments import check_argument, check_callable, check_many
from lace.base.limits import Source, resolve_settings
from lace.engines.arrow import load_pyarrow
from lace.errors import UsageError
from lace.rules.checks.undefined import parse_allowed
from lace.rules.program import refuse_undefined
from lace.staging import Stages
from lace.stocktaking import (
    Checking,
    check_lace,
    check_spark,
    chosen_records,
    differing_records,
    engine_options,
    question_of,
    side_of_state,
    write_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow

    from lace.engines.queries import Rules
    from lace.facts.lines import Fact
    from lace.opened import Lace
    from lace.pipeline.checking import Checked
    from lace.record.ids import RecordId
    from lace.store.intake import Intake, Report

__all__ = ["Warehouse", "open_warehouse"]

_SELECTED: Final = "Selected/1"


def open_warehouse(
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    settings: Mapping[str, object] | None = None,
) -> Warehouse:
    """Open the warehouse in a folder.

    Args:
        path: the folder.
        create: make the warehouse where there is nothing yet.
        settings: settings by name, for what is done with it.

    Raises:
        StoreError: it does not exist, or is damaged.
        UsageError: the folder holds something else, or an argument is of another type.
    """
    check_argument(path, (str, os.PathLike), "path is the path of a folder")
    check_argument(settings or {}, Mapping, "settings are a mapping from names to values")
    from lace.pipeline.warehouse import Warehouse as Folder

    place = Path(path)
    resolved, _origins = resolve_settings([Source("the caller", settings or {})])
    return Warehouse(Folder.create(place) if create else Folder.open(place), resolved)


class Warehouse(Stages):
    """A warehouse folder; each stage of the pipeline leaves it at a new state.

    A stage takes `spark`, a session that there is, or starts one at `master` and ends it.
    """

    def __repr__(self) -> str:
        return f"<Warehouse {str(self.path)!r}: {self.status()['records']:,} records>"

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.folder

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables, sorted."""
        return tuple(sorted(self._folder.manifest.tables))

    def status(self) -> Mapping[str, Any]:
        """Return what it holds: counts, `tables` with rows and bytes, and the last `runs`."""
        from lace.pipeline.describing import describe_warehouse

        return describe_warehouse(self._folder)

    def to_arrow(self, table: str, columns: Iterable[str] | None = None) -> pyarrow.Table:
        """Return a table as a pyarrow table; it is read into memory.

        Args:
            table: one of `tables`.
            columns: only these.

        Raises:
            UsageError: there is no such table or column.
            EngineError: pyarrow is not installed.
            StoreError: a file of it is damaged.
        """
        if table not in self.tables:
            raise UsageError(
                f"there is no table {table!r}", hint=f"it has {', '.join(self.tables) or 'none'}"
            )
        if columns is not None:
            check_many(columns, "columns are the names of columns", "as in ['hash']")
        arrow = load_pyarrow()
        from pyarrow import parquet

        files = self._folder.files(table)
        names = None if columns is None else list(columns)
        known = parquet.read_schema(files[0]).names
        for name in names or ():
            if name not in known:
                raise UsageError(
                    f"{table} has no column {name!r}", hint=f"it has {', '.join(known)}"
                )
        parts = [parquet.read_table(each, columns=names) for each in files]
        return arrow.concat_tables(parts)

    def diff(
        self,
        first: str | Iterable[Fact],
        second: str | Iterable[Fact],
        *,
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Iterator[tuple[str, RecordId]]:
        """Compare two advertisement states; yields what they do not share, in order.

        Each is `a` (the first has it alone), `b` (the second has it alone) or `differs` (both have
        it with other fields), and the record. A state is a name that `advertise` gave, or what a
        peer listed: `Advertised` and `AdvertisedField` facts. To count, as in
        `collections.Counter(kind for kind, _ in warehouse.diff("mine", "theirs"))`.

        Raises:
            UsageError: there is no state of that name, or something is no fact.
            LaceError: no peer would list this.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged.
        """
        check_spark(master)
        sides = ((first, "first"), (second, "second"))
        found = [side_of_state(self._folder, given, which) for given, which in sides]
        return differing_records(found[0], found[1], spark, master)

    def verify(
        self,
        *,
        sample: int | None = None,
        everything: bool = False,
        report: Callable[[Checked], None] | None = None,
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Checked:
        """Compare every file with the manifest, and validate records again.

        Without a sample, 1,000 records are validated and Spark is not needed. With one, or with
        everything, the tables are compared with these records as well, and derived ones with what
        the embedded engine derives: `proof` of what is returned says so. As in
        `assert warehouse.verify(everything=True).is_sound`.

        Args:
            sample: how many records, chosen by chance.
            everything: all records.
            report: hears how many files were checked so far.
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            UsageError: both are asked for, or the sample is too large.
            EngineError: a package that is needed is not installed, or Spark failed.
            LimitExceeded: there are more digests than are compared at once.
            StoreError: the manifest is damaged.
        """
        check_callable(report, "report hears of progress")
        checking = Checking(sample, everything=everything)
        if checking.has_proof:
            check_spark(master)
        return checking.run(self._folder, self._settings, report, spark, master)

    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *records: str,
        rules: Rules | None = None,
        predicate: str = _SELECTED,
        allow_undefined: Iterable[str] = (),
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> int:
        """Write the bytes of records, one after another; returns how many records they are.

        All records, those that are named by hash or coordinate, or those that rules choose, in the
        order of the warehouse. Each is checked against its hash. Only rules need Spark. As in
        `warehouse.export("notes.records", rules="Selected(P) :- Field(P,'App',_,'notes').")`.

        Args:
            target: a path, whose file is written whole or not at all, or a file open for bytes.
            records: these alone.
            rules: those that these rules choose.
            predicate: the one that chooses.
            allow_undefined: predicates that nobody defines on purpose, as `"Blocked/1"`; any
                other that a negated or counted atom depends on is refused.
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            RuleError: the rules are not legal, or rest on a predicate that nobody defines.
            LaceError: a record that is named is not there; nothing is written.
            UsageError: records and rules are given, or the target is not a file or a path.
            LimitExceeded: an evaluation reached a limit.
            EngineError: what is needed is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or the file cannot be written.
        """
        if records and rules is not None:
            raise UsageError("records and rules exclude each other", hint="give one of them")
        for each in records:
            check_argument(each, str, "a record is named by its hash or coordinate")
        load_pyarrow()
        from lace.pipeline.choosing import find_named

        wanted = find_named(self._folder, records) if records else None
        if rules is not None:
            check_spark(master)
            question = question_of(self._settings, rules, [predicate])
            allowed = parse_allowed(allow_undefined)
            for program in question.programs:
                refuse_undefined(program, allowed)
            how = engine_options(self._settings, master)
            wanted = chosen_records(self._folder, question, how, spark, master)
        return write_records(self._folder, wanted, target)

    def export_lace(self, store: Lace, *, report: Report | None = None) -> Intake:
        """Store the records of the warehouse in a lace, each validated as an import does it.

        Without Spark. As in `with lace.open("notes") as notes: warehouse.export_lace(notes)`.

        Args:
            store: an open lace, whose limits count.
            report: hears of the counts so far, and of the errors of each batch.

        Raises:
            UsageError: it is no open lace.
            EngineError: pyarrow is not installed.
            StoreError: the warehouse is damaged, or the records could not be stored.
        """
        check_lace(store)
        check_callable(report, "report hears of progress")
        load_pyarrow()
        from lace.pipeline.laces import store_records

        return store_records(
            self._folder, store.store, settings=store.settings, workers=store.workers, report=report
        )
