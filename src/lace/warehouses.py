"""Warehouses from a program: what is in one, its tables as Arrow, and the stages of the pipeline.

Looking needs pyarrow at most; a stage starts Spark, or takes a session that there is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from lace.arguments import check_argument, check_callable, check_many
from lace.base.limits import Source, resolve_settings
from lace.engines.arrow import load_pyarrow
from lace.errors import UsageError
from lace.stocktaking import (
    Checking,
    check_spark,
    chosen_records,
    differing_records,
    engine_options,
    question_of,
    side_of_state,
    spark_session,
    write_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow

    from lace.base.limits import Settings
    from lace.engines.queries import Rules
    from lace.facts.lines import Fact
    from lace.pipeline.advertise import Done
    from lace.pipeline.checking import Checked
    from lace.pipeline.derived import Evaluated
    from lace.pipeline.facts import Extracted
    from lace.pipeline.ingest import Ingested
    from lace.pipeline.warehouse import Job
    from lace.pipeline.warehouse import Warehouse as Folder
    from lace.record.ids import RecordId

__all__ = ["Warehouse", "open_warehouse"]

_RESULT: Final = "result"
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
        StoreError: there is none, or it is damaged.
        UsageError: the folder holds something else, or an argument is of another type.
    """
    check_argument(path, (str, os.PathLike), "path is the path of a folder")
    check_argument(settings or {}, Mapping, "settings are a mapping from names to values")
    from lace.pipeline.warehouse import Warehouse as Folder

    place = Path(path)
    resolved, _origins = resolve_settings([Source("the caller", settings or {})])
    return Warehouse(Folder.create(place) if create else Folder.open(place), resolved)


class Warehouse:
    """A warehouse folder; each stage of the pipeline leaves it at a new state.

    A stage takes `spark`, a session that there is, or starts one at `master` and ends it.
    """

    def __init__(self, folder: Folder, settings: Settings) -> None:
        self._folder, self._settings = folder, settings

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

    def ingest(
        self,
        *sources: str | os.PathLike[str],
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Ingested:
        """Validate the records of files, folders or patterns, and keep those that are new.

        Raises:
            UsageError: a file cannot be read.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        for source in sources:
            check_argument(source, (str, os.PathLike), "a source is a path or a pattern of paths")
        check_spark(master)
        from lace.pipeline.ingest import Ingested, find_new, ingest
        from lace.pipeline.sources import find_files

        paths = find_files([str(source) for source in sources])
        with self._writing("ingest") as job:
            new = find_new(self._folder, paths)
            if not new.files:  # there is nothing to start Spark for
                return Ingested(skipped=new.skipped)
            with spark_session(spark, master) as session:
                return ingest(session, job, new, max_data_bytes=self._settings.max_data_bytes)

    def make_facts(
        self,
        *,
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Extracted:
        """Make the facts of all records that have none yet.

        Raises:
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        check_spark(master)
        from lace.pipeline.facts import Extracted, has_fresh_records, make_facts

        with self._writing("facts") as job:
            if not has_fresh_records(self._folder.manifest):
                return Extracted(0, 0, 0)
            with spark_session(spark, master) as session:
                return make_facts(session, job)

    def evaluate(
        self,
        rules: Rules,
        *,
        name: str = _RESULT,
        predicates: Iterable[str] = (),
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Evaluated:
        """Evaluate rules over the facts of the warehouse, and keep what follows under a name.

        The facts of `Selected/1` are then the table `derived/NAME/Selected~1`. The same rules
        over the same facts are not evaluated again.

        Raises:
            RuleError: the rules are not legal.
            UsageError: they do not define a predicate, or the name is none.
            LimitExceeded: a limit was reached; nothing is kept.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        check_spark(master)
        from lace.pipeline.derived import check_name
        from lace.pipeline.evaluate import evaluate, find_answer

        question, kept = question_of(self._settings, rules, predicates), check_name(name)
        with self._writing("evaluate") as job:
            known = find_answer(self._folder, kept, question)
            if known is not None:  # there is nothing to start Spark for
                return known
            how = engine_options(self._settings, master)
            with spark_session(spark, master) as session:
                return evaluate(session, job, kept, question, options=how)

    def advertise(
        self,
        source: str,
        *,
        fields: Iterable[str] = (),
        all_fields: bool = False,
        of: str | None = None,
        exchange: str | None = None,
        name: str | None = None,
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Done:
        """Make the advertisements of records, with their digests and Merkle roots.

        They are what a peer would be told of these records. Records that came since the last run
        are added; with another source, other fields or another set, those of that name are
        replaced. As in `warehouse.advertise("V.….H3", fields=["App", "Group"], name="mine").root`.

        Args:
            source: who advertises: a verifier, or the label of a side without a key, `Opq_0`.
            fields: the names of the fields that they carry.
            all_fields: carry every field.
            of: only a derived set, `NAME` or `NAME/PREDICATE`; all records by default.
            exchange: what the exchange evaluated under this name may send, with the fields that
                its plan needs.
            name: what to call them: `all`, or the name of the derived set.
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            UsageError: there is no such set or exchange, or the name or the source is none.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        check_many(fields, "fields are the names of fields", "as in ['App']")
        names = frozenset(fields)
        if exchange is not None and (names or all_fields or of is not None):
            raise UsageError(
                "an exchange says itself what is advertised, and with which fields",
                hint="leave out of, fields and all_fields",
            )
        check_spark(master)
        from lace.interlacing.capabilities import Schema
        from lace.pipeline.advertise import advertise, asked_of, is_current

        schema = Schema(names=names, all=all_fields)
        with self._writing("advertise") as job:
            asked = asked_of(self._folder, source, schema, of=of, exchange=exchange, name=name)
            done = is_current(self._folder, asked)
            if done is not None:  # there is nothing to start Spark for
                return done
            with spark_session(spark, master) as session:
                return advertise(session, job, asked)

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
        the embedded engine derives: `proof` of what is returned tells of that. As in
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
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            RuleError: the rules are not legal.
            LaceError: a record that is named is not there; nothing is written.
            UsageError: records and rules are given, or the target is none.
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
            how = engine_options(self._settings, master)
            wanted = chosen_records(self._folder, question, how, spark, master)
        return write_records(self._folder, wanted, target)

    @contextmanager
    def _writing(self, purpose: str) -> Iterator[Job]:
        wait = self._settings.wait_seconds
        with self._folder.writing(f"lace.Warehouse.{purpose}", wait) as job:
            yield job
