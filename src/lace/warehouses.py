"""Warehouses from a program: what is in one, its tables as Arrow, and the stages of the pipeline.

Looking needs pyarrow at most; a stage starts Spark, or takes a session that there is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lace.arguments import check_argument, check_many
from lace.base.limits import Source, resolve_settings
from lace.engines.arrow import load_pyarrow
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    import pyarrow

    from lace.base.limits import Settings
    from lace.engines.queries import Rules
    from lace.pipeline.derived import Evaluated
    from lace.pipeline.facts import Extracted
    from lace.pipeline.ingest import Ingested
    from lace.pipeline.warehouse import Job
    from lace.pipeline.warehouse import Warehouse as Folder

__all__ = ["Warehouse", "open_warehouse"]

_RESULT: Final = "result"
_MASTER: Final = "master is the address of a Spark master"


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
        from lace.pipeline.checking import describe_warehouse

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
        check_argument(master, str, _MASTER)
        from lace.engines.spark.session import check_installed

        check_installed()
        from lace.pipeline.ingest import Ingested, find_new, ingest
        from lace.pipeline.sources import find_files

        paths = find_files([str(source) for source in sources])
        with self._writing("ingest") as job:
            new = find_new(self._folder, paths)
            if not new.files:  # there is nothing to start Spark for
                return Ingested(skipped=new.skipped)
            with _session(spark, master) as session:
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
        check_argument(master, str, _MASTER)
        from lace.engines.spark.session import check_installed

        check_installed()
        from lace.pipeline.facts import Extracted, has_fresh_records, make_facts

        with self._writing("facts") as job:
            if not has_fresh_records(self._folder.manifest):
                return Extracted(0, 0, 0)
            with _session(spark, master) as session:
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
        check_argument(master, str, _MASTER)
        from lace.engines.spark.session import check_installed

        check_installed()
        from lace.engines.queries import check_rules, find_predicates
        from lace.engines.spark.options import options_of
        from lace.pipeline.derived import check_name
        from lace.pipeline.evaluate import Question, evaluate, find_answer
        from lace.rules.limits import limits_of

        checked = check_rules(rules, limits=limits_of(self._settings))
        wanted = tuple(dict.fromkeys(find_predicates(checked, predicates))) or checked.derived
        question, kept = Question((checked,), wanted), check_name(name)
        with self._writing("evaluate") as job:
            known = find_answer(self._folder, kept, question)
            if known is not None:  # there is nothing to start Spark for
                return known
            options = options_of(self._settings, cluster=not master.startswith("local"))
            with _session(spark, master) as session:
                return evaluate(session, job, kept, question, options=options)

    @contextmanager
    def _writing(self, purpose: str) -> Iterator[Job]:
        wait = self._settings.wait_seconds
        with self._folder.writing(f"lace.Warehouse.{purpose}", wait) as job:
            yield job


def _session(spark: Any, master: str) -> AbstractContextManager[Any]:  # noqa: ANN401
    """Return the session that there is, or one for a while."""
    if spark is not None:
        return nullcontext(spark)
    from lace.engines.spark.session import open_session

    return open_session(master)
