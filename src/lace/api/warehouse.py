"""Warehouses from a program: what is in one, its records, and the stages of the pipeline.

Looking needs pyarrow at most. What needs Spark takes a session as `spark`, or a function that opens
one as a context manager; otherwise it starts Spark at `master`, and only if there is work for it.
"""
# ruff: noqa: ANN401 - a session of PySpark, which is optional, has no type here

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from lace.api.system import now, writing_file
from lace.base.arguments import check_argument, check_callable, check_count, check_many
from lace.base.arrow import load_pyarrow
from lace.base.limits import Settings, SettingSource, resolve_settings
from lace.errors import UsageError
from lace.record.ids import RecordId
from lace.spark.pipeline.proof import MAX_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow

    from lace.api.lace import Lace
    from lace.facts.lines import Fact as Fact
    from lace.policy.local import Policy
    from lace.policy.local import Rules as PolicyRules
    from lace.query.evaluate import Rules as Rules
    from lace.record.validate import ValidRecord
    from lace.spark.engine.session import Options
    from lace.spark.engine.session import SparkProgress as SparkProgress
    from lace.spark.pipeline.advertise import Asked, Done
    from lace.spark.pipeline.audit import Checked as Checked
    from lace.spark.pipeline.derived import Evaluated as Evaluated
    from lace.spark.pipeline.diff import Comparison, DiffSide
    from lace.spark.pipeline.evaluate import Chosen
    from lace.spark.pipeline.evaluate import Question as Question
    from lace.spark.pipeline.facts import Extracted
    from lace.spark.pipeline.ingest import Ingested as Ingested
    from lace.spark.pipeline.ingest import NewFiles
    from lace.spark.pipeline.tables import Rejected as Rejected
    from lace.spark.pipeline.warehouse import Job, WarehouseFolder
    from lace.store.intake import Intake as Intake
    from lace.store.intake import Report

__all__ = [
    "EXCHANGE",
    "MAX_SAMPLE",
    "RESULT",
    "Ran",
    "SELECTED",
    "Warehouse",
    "open_spark",
    "open_warehouse",
    "spark_progress",
]

RESULT: Final = "result"
"""The name of the answer to rules, unless another is given."""
EXCHANGE: Final = "exchange"
"""The name of the answer to an exchange, unless another is given."""
SELECTED: Final = "Selected/1"
"""The predicate that chooses records, unless another is given."""
_LOCAL: Final = "local[*]"
_Opening: TypeAlias = "Callable[[], Any]"


@dataclass(frozen=True, slots=True)
class Ran:
    """What the stages of a run did; `advertised` is None where nothing was to be advertised."""

    ingested: Ingested
    extracted: Extracted
    evaluated: Evaluated
    advertised: Done | None = None


def open_warehouse(
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    deferred: bool = False,
    settings: Mapping[str, object] | Settings | None = None,
    purpose: str = "lace.Warehouse",
) -> Warehouse:
    """Open the warehouse in a folder.

    Args:
        path: the folder.
        create: make the warehouse where there is nothing yet.
        deferred: with `create`, make it when the first stage writes.
        settings: settings by name, for what is done with it.
        purpose: what this process is doing, for processes that wait for it.

    Raises:
        StoreError: it does not exist, or is damaged.
        UsageError: the folder holds something else, or an argument is of another type.
    """
    check_argument(path, (str, os.PathLike), "path is the path of a folder")
    kinds = "settings are a mapping from names to values"
    check_argument(settings or {}, (Mapping, Settings), kinds)
    from lace.spark.pipeline.warehouse import WarehouseFolder as Folder

    if not isinstance(settings, Settings):
        settings = resolve_settings([SettingSource("the caller", settings or {})])[0]
    opening = (Folder.prepare if deferred else Folder.create) if create else Folder.open
    return Warehouse(opening(Path(path)), settings, purpose)


class Warehouse:
    """A warehouse folder; each stage of the pipeline leaves it at a new state."""

    def __init__(self, folder: WarehouseFolder, settings: Settings, purpose: str) -> None:
        self._folder, self._settings, self._purpose = folder, settings, purpose

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

    @property
    def not_removed(self) -> Sequence[OSError]:
        """The files that the last stage no longer needs and could not remove."""
        return self._folder.not_removed

    def status(self) -> Mapping[str, Any]:
        """Return what it holds: counts, `tables` with rows and bytes, and the last `runs`."""
        from lace.spark.pipeline.tables import describe_warehouse

        return describe_warehouse(self._folder)

    def rejected(self) -> Iterator[Rejected]:
        """Yield what `ingest` rejected: path, offset, rule and reason.

        Raises:
            EngineError: pyarrow is not installed.
            StoreError: a file of the warehouse is damaged.
        """
        from lace.spark.pipeline.tables import rejected_of

        return rejected_of(self._folder)

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

    # -- The stages. Each does what is not done yet, and commits.

    def ingest(
        self, *sources: str | os.PathLike[str], spark: Any = None, master: str = _LOCAL
    ) -> Ingested:
        """Validate the records of files, folders or patterns, and keep those that are new.

        Raises:
            UsageError: a file cannot be read.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        paths = _found(sources, master)
        with self._job("ingest", spark, master) as (job, opening):
            from lace.spark.pipeline.ingest import find_new

            return _ingested(job, find_new(self._folder, paths), self._settings, opening)

    def import_lace(
        self,
        store: Lace,
        *,
        report: Callable[[int, int], None] | None = None,
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Ingested:
        """Validate the records of a lace, and keep those that are new.

        A record that is removed from the lace stays in the warehouse.

        Args:
            store: an open lace, whose limits count.
            report: called with how many records were read so far, and of how many.
            spark: a session, or a function that opens one.
            master: where to start one otherwise.

        Raises:
            UsageError: it is no open lace.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the lace or the warehouse is damaged, or another process writes.
        """
        _check_lace(store)
        check_callable(report, "report hears of progress")
        _check_spark(master)
        from lace.spark.pipeline.ingest import find_lace_records

        with self._job("import-lace", spark, master) as (job, opening):
            with store.snapshot() as snapshot:
                new = find_lace_records(job, store.store.folder, snapshot, report)
            return _ingested(job, new, store.settings, opening)

    def make_facts(self, *, spark: Any = None, master: str = _LOCAL) -> Extracted:
        """Make the facts of all records that have none yet.

        Raises:
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        _check_spark(master)
        with self._job("facts", spark, master) as (job, opening):
            return _extracted(job, opening)

    def evaluate(
        self,
        rules: Rules | Question,
        *,
        name: str = RESULT,
        predicates: Iterable[str] = (),
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Evaluated:
        """Evaluate rules over the facts of the warehouse, and keep what follows under a name.

        The facts of `Selected/1` are then the table `derived/NAME/Selected~1`. The same rules
        over the same facts are not evaluated again.

        Raises:
            RuleError: the rules are not legal.
            UsageError: they do not define a predicate, or the name is not valid.
            LimitExceeded: a limit was reached; nothing is kept.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        _check_texts(name=name)
        _check_spark(master)
        return self._evaluated(self._question(rules, predicates), name, spark, master)

    def evaluate_exchange(
        self,
        policy: Policy,
        peer_select: PolicyRules,
        *,
        index: int = 0,
        viewer: str | None = None,
        public: Iterable[Fact] = (),
        at: str | None = None,
        name: str = EXCHANGE,
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Evaluated:
        """Evaluate what an exchange with a peer may send and request, and keep it under a name.

        It is what `Lace.preview` shows of a lace. The tables are `derived/NAME/MaySend~1` and
        `derived/NAME/MayRequest~1`; `advertise` makes the advertisements for the peer, as in
        `warehouse.advertise(verifier, exchange="exchange")`.

        Args:
            policy: this side's.
            peer_select: the peer's selector, which gets the limits of a peer's rules.
            index: the operand that this side is: 0 connects, 1 accepts.
            viewer: the peer's proven verifier; without one the peer has proven nothing.
            public: what the peer advertises (`Advertised`, `AdvertisedField`), and runtime
                facts such as `StartTAI`; `Peer` of the viewer is added when it is missing.
            at: the TAI instant that exposures read as `_LocalTAI`, unless `public` has one; else
                that of the clock, floored to the tick interval, as in an exchange.
            name: what to call the answer.
            spark: a session, or a function that opens one.
            master: where to start one otherwise.

        Raises:
            RuleError: the peer's selector is not legal.
            PolicyError: the viewer is no verifier, or there is no plan for these two.
            UsageError: the name is not valid, or an argument is of another type.
            LimitExceeded: a limit was reached; nothing is kept.
            EngineError: a fact is not public, what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        _check_texts(name=name)
        _check_spark(master)
        question = self.exchange_question(
            policy, peer_select, index=index, viewer=viewer, public=public, at=at
        )
        return self._evaluated(question, name, spark, master)

    def exchange_question(
        self,
        policy: Policy,
        peer_select: PolicyRules,
        *,
        index: int = 0,
        viewer: str | None = None,
        public: Iterable[Fact] = (),
        at: str | None = None,
    ) -> Question:
        """Return what `evaluate_exchange` evaluates: the compiled policy, and what it offers.

        `evaluate(question, name="exchange")` answers it. The arguments and errors are those of
        `evaluate_exchange`.
        """
        from lace.policy.exposure import with_local_time, with_peer
        from lace.query.preview import exchange_of, local_instant, offer_of
        from lace.spark.pipeline.evaluate import exchange_question

        instant = local_instant(self._settings, at, now)
        found = exchange_of(self._settings, policy, peer_select, index=index, viewer=viewer)
        facts = with_peer(public, viewer)
        if found.executable.reads_clock:
            facts = with_local_time(facts, instant)
        offer = offer_of(self._settings, policy, found.executable.plan.required)
        return exchange_question(found.executable, facts, offer)

    def _question(self, rules: Rules | Question, predicates: Iterable[str]) -> Question:
        """Return what is asked of rules: some predicates, or all that they define."""
        from lace.query.evaluate import check_rules, find_predicates
        from lace.rules.limits import limits_of
        from lace.spark.pipeline.evaluate import Question

        if isinstance(rules, Question):
            return rules
        checked = check_rules(rules, limits=limits_of(self._settings))
        wanted = tuple(dict.fromkeys(find_predicates(checked, predicates))) or checked.derived
        return Question((checked,), wanted)

    def _evaluated(self, question: Question, name: str, spark: Any, master: str) -> Evaluated:
        from lace.spark.pipeline.derived import check_answer

        check_answer(name, question.predicates)
        with self._job("evaluate", spark, master) as (job, opening):
            return self._answered(job, name, question, opening, master)

    def _answered(
        self, job: Job, name: str, question: Question, opening: _Opening, master: str
    ) -> Evaluated:
        from lace.spark.pipeline.evaluate import evaluate, find_answer

        return find_answer(self._folder, name, question) or evaluate(
            opening(), job, name, question, options=self._options(master)
        )

    def _options(self, master: str) -> Options:
        from lace.spark.engine.session import options_of

        return options_of(self._settings, cluster=not master.startswith("local"))

    def advertise(
        self,
        source: str,
        *,
        fields: Iterable[str] = (),
        all_fields: bool = False,
        of: str | None = None,
        exchange: str | None = None,
        name: str | None = None,
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Done:
        """Make the advertisements of records, with their digests and Merkle roots.

        Records that came since the last run are added; with another source, other fields or
        another set, those of that name are replaced. As in
        `warehouse.advertise("V.….H3", fields=["App", "Group"], name="mine").root`.

        Args:
            source: who advertises: a verifier, or the label of a side without a key, `Opq_0`.
            fields: the names of the fields that they carry.
            all_fields: carry every field.
            of: only a derived set, `NAME` or `NAME/PREDICATE`; all records by default.
            exchange: what the exchange evaluated under this name may send, with the fields that
                its plan needs and its policy offers.
            name: what to call them: `all`, or the name of the derived set.
            spark: a session, or a function that opens one.
            master: where to start one otherwise.

        Raises:
            UsageError: the set or exchange is unknown, or the name or the source is not valid.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        names = _field_names(fields)
        _check_texts(source=source, of=of or "", exchange=exchange or "", name=name or "")
        if exchange is not None and (names or all_fields or of is not None):
            raise UsageError(
                "an exchange says itself what is advertised, and with which fields",
                hint="leave out the set and the fields",
            )
        _check_spark(master)
        from lace.policy.schema import Schema
        from lace.spark.pipeline.advertise import asked_of

        schema = Schema(names=names, all=all_fields)
        with self._job("advertise", spark, master) as (job, opening):
            asked = asked_of(self._folder, source, schema, of=of, exchange=exchange, name=name)
            return _advertised(job, asked, opening)

    def run(
        self,
        *sources: str | os.PathLike[str],
        rules: Rules,
        name: str = RESULT,
        predicates: Iterable[str] = (),
        source: str | None = None,
        fields: Iterable[str] = (),
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Ran:
        """Run all stages: ingest, facts, evaluate, and with a source advertise.

        Each does what is not done yet and commits by itself, so a run that was interrupted goes on
        where it was. What cannot be is refused before anything is read. As in
        `warehouse.run("incoming", rules=rules).evaluated.counts`.

        Args:
            sources: files, folders or patterns to ingest.
            rules: what to evaluate.
            name: what to call the answer.
            predicates: only these; else all that the rules define.
            source: who advertises all records: a verifier, or `Opq_0`; nobody unless said.
            fields: the names of the fields that advertisements carry.
            spark: a session, or a function that opens one.
            master: where to start one otherwise.

        Raises:
            RuleError: the rules are not legal.
            UsageError: a file is unreadable, a predicate undefined, or a name or source invalid.
            LimitExceeded: the evaluation reached a limit; the stages before it stay.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        names = _field_names(fields)
        _check_texts(name=name, source=source or "")
        if names and source is None:
            raise UsageError("fields need a source", hint="name the source that advertises them")
        question = self._question(rules, predicates)
        paths = _found(sources, master)
        from lace.spark.pipeline.advertise import asked_for_all
        from lace.spark.pipeline.derived import check_answer
        from lace.spark.pipeline.ingest import find_new

        check_answer(name, question.predicates)
        asked = None if source is None else asked_for_all(source, names)
        with self._job("run", spark, master) as (job, opening):
            return Ran(
                _ingested(job, find_new(self._folder, paths), self._settings, opening),
                _extracted(job, opening),
                self._answered(job, name, question, opening, master),
                None if asked is None else _advertised(job, asked, opening),
            )

    @contextmanager
    def _job(self, stage: str, spark: Any, master: str) -> Iterator[tuple[Job, _Opening]]:
        """Hold the write lock; gives the job, and what opens its Spark session when needed."""
        wait = self._settings.wait_seconds
        with (
            self._folder.writing(f"{self._purpose} {stage}", wait) as job,
            _Session(spark, master) as opening,
        ):
            yield job, opening

    # -- Looking: what differs, what is damaged, records.

    def diff(
        self,
        first: str | Iterable[Fact],
        second: str | Iterable[Fact],
        *,
        only: str | None = None,
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Iterator[tuple[str, RecordId]]:
        """Compare two advertisement states; yields what they do not share, in order.

        Each is `a` (the first has it alone), `b` (the second has it alone) or `differs` (both have
        it with other fields), and the record. A state is a name that `advertise` gave, or what a
        peer listed: `Advertised` and `AdvertisedField` facts.

        Args:
            first: a state.
            second: another.
            only: one of the three kinds; all by default.
            spark: a session, or a function that opens one.
            master: where to start one otherwise.

        Raises:
            UsageError: there is no state of that name, or something is no fact.
            LaceError: no peer would list this.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged.
        """
        return _differing(self._comparison(first, second, master), only, spark, master)

    def count_differences(
        self,
        first: str | Iterable[Fact],
        second: str | Iterable[Fact],
        *,
        spark: Any = None,
        master: str = _LOCAL,
    ) -> tuple[dict[str, int], int | None]:
        """Count what `diff` yields, by kind; arguments and errors are those of `diff`.

        Returns:
            the counts, and how many two-character prefixes were read; None when all were.
        """
        compared = self._comparison(first, second, master)
        read = None if compared.prefixes is None else len(compared.prefixes)
        with _Session(spark, master) as opening:
            return compared.counts(opening), read

    def _comparison(
        self, first: str | Iterable[Fact], second: str | Iterable[Fact], master: str
    ) -> Comparison:
        _check_spark(master)
        from lace.spark.pipeline.diff import Comparison

        return Comparison(self._side(first, "first"), self._side(second, "second"))

    def _side(self, given: str | Iterable[Fact], which: str) -> DiffSide:
        """Return a state by its name, or what a peer listed."""
        from lace.spark.pipeline.diff import given_listing, side_of

        if isinstance(given, str):
            return side_of(self._folder, given)
        check_many(given, f"{which} is a name or several facts", "as in [('Advertised','P.…','S')]")
        return given_listing(given, f"the {which} listing")

    def verify(
        self,
        *,
        sample: int | None = None,
        everything: bool = False,
        report: Callable[[Checked], None] | None = None,
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Checked:
        """Compare every file with the manifest, and validate records again.

        Without a sample, 1,000 records are validated and Spark is not needed. With one, or with
        everything, the tables are compared with these records as well, and derived ones with what
        the embedded engine derives: `proof` of what is returned says so. As in
        `assert warehouse.verify(everything=True).is_sound`.

        Args:
            sample: how many records, chosen by chance.
            everything: all records.
            report: called with what was checked, after each file.
            spark: a session, or a function that opens one.
            master: where to start one otherwise.

        Raises:
            UsageError: both are asked for, or the sample is too large.
            EngineError: a package that is needed is not installed, or Spark failed.
            LimitExceeded: there are more digests than are compared at once.
            StoreError: the manifest is damaged.
        """
        check_callable(report, "report hears of progress")
        check_count(sample, "a sample")
        if sample is not None and everything:
            raise UsageError("a sample and everything exclude each other", hint="give one of them")
        if sample is not None and not 1 <= sample <= MAX_SAMPLE:
            raise UsageError(
                f"a sample has from 1 to {MAX_SAMPLE:,} records, not {sample:,}",
                hint="or verify everything",
            )
        has_proof = everything or sample is not None
        if has_proof:
            _check_spark(master)
        load_pyarrow()
        from lace.spark.pipeline.audit import check_warehouse, prove, validate_some

        checked = check_warehouse(self._folder, report)
        if checked.damaged:  # what is read now would only say so again
            return checked
        if not has_proof:
            validate_some(self._folder, checked)
            return checked
        most = self._settings.warehouse_embedded_records
        with _Session(spark, master) as opening:
            checked.proof = prove(opening(), self._folder, sample, most_records=most)
        return checked

    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *records: str,
        rules: Rules | None = None,
        predicate: str = SELECTED,
        allow_undefined: Iterable[str] = (),
        spark: Any = None,
        master: str = _LOCAL,
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
            spark: a session, or a function that opens one.
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
        wanted: Collection[str] | None = self.find(*records) if records else None
        if rules is not None:
            wanted = self.choose(
                rules,
                predicate=predicate,
                allow_undefined=allow_undefined,
                spark=spark,
                master=master,
            ).hashes
        number = 0
        found = self.records(wanted)
        with writing_file(target) as file:
            for record in found:
                file.write(record.bytes)
                number += 1
        return number

    def find(self, *records: str) -> frozenset[str]:
        """Return the hashes of the records that are named by hash or coordinate.

        Raises:
            LaceError: one is not there.
            EngineError: pyarrow is not installed.
            StoreError: the warehouse is damaged.
        """
        for each in records:
            check_argument(each, str, "a record is named by its hash or coordinate")
        load_pyarrow()
        from lace.spark.pipeline.evaluate import find_named

        return find_named(self._folder, records)

    def choose(
        self,
        rules: Rules,
        *,
        predicate: str = SELECTED,
        allow_undefined: Iterable[str] = (),
        spark: Any = None,
        master: str = _LOCAL,
    ) -> Chosen:
        """Return the `hashes` of the records that rules choose; `strangers` counts other values.

        The arguments and errors are those of `export`.
        """
        _check_spark(master)
        from lace.rules.checks.warnings import parse_allowed
        from lace.rules.program import refuse_undefined
        from lace.spark.pipeline.evaluate import check_selection, choose_records

        question = check_selection(self._question(rules, [predicate]))
        allowed = parse_allowed(allow_undefined)
        for program in question.programs:
            refuse_undefined(program, allowed)
        with _Session(spark, master) as opening:
            return choose_records(opening(), self._folder, question, self._options(master))

    def records(self, hashes: Collection[str] | None = None) -> Iterator[ValidRecord]:
        """Return an iterator of all records, or of those of some hashes, as they are stored.

        Raises:
            EngineError: pyarrow is not installed.
            StoreError: the warehouse is damaged.
        """
        load_pyarrow()
        from lace.spark.pipeline.records import iterate_records

        return iterate_records(self._folder, hashes)

    def export_lace(self, store: Lace, *, report: Report | None = None) -> Intake:
        """Store the records of the warehouse in a lace, each validated as an import does it.

        Without Spark. As in `with lace.open("notes") as notes: warehouse.export_lace(notes)`.

        Args:
            store: an open lace, whose limits count.
            report: called with the counts so far, and the errors of each batch.

        Raises:
            UsageError: it is no open lace.
            EngineError: pyarrow is not installed.
            StoreError: the warehouse is damaged, or the records could not be stored.
        """
        _check_lace(store)
        check_callable(report, "report hears of progress")
        load_pyarrow()
        from lace.spark.pipeline.records import store_records

        return store_records(
            self._folder, store.store, settings=store.settings, workers=store.workers, report=report
        )


# -- What is checked before a stage begins.


def _check_lace(store: object) -> None:
    from lace.api.lace import Lace

    check_argument(store, Lace, "store is an open lace", "open it with lace.open(path)")


def _check_spark(master: object) -> None:
    """Refuse to go on without what Spark needs."""
    check_argument(master, str, "master is the address of a Spark master")
    from lace.spark.engine.session import check_installed, check_master

    check_installed()
    check_master(str(master))


def _check_texts(**given: object) -> None:
    for name, value in given.items():
        check_argument(value, str, f"{name} is a text")


def _field_names(fields: Iterable[str]) -> frozenset[str]:
    check_many(fields, "fields are the names of fields", "as in ['App']")
    names = frozenset(fields)
    for each in names:
        check_argument(each, str, "a field is given by its name", "as in ['App']")
    return names


def _found(sources: Iterable[str | os.PathLike[str]], master: str) -> list[Path]:
    """Return the files that sources mean, where Spark could read them."""
    for source in sources:
        check_argument(source, (str, os.PathLike), "a source is a path or a pattern of paths")
    _check_spark(master)
    from lace.spark.pipeline.ingest import find_files

    return find_files([str(source) for source in sources])


# -- Stages of one job. `opening` is called only when there is work for Spark.


def _ingested(job: Job, new: NewFiles, settings: Settings, opening: _Opening) -> Ingested:
    from lace.spark.pipeline.ingest import Ingested, ingest

    if not new.files:
        return Ingested(skipped=new.skipped)
    return ingest(opening(), job, new, max_data_bytes=settings.max_data_bytes)


def _extracted(job: Job, opening: _Opening) -> Extracted:
    from lace.spark.pipeline.facts import Extracted, has_fresh_records, make_facts

    if not has_fresh_records(job.warehouse.manifest):
        return Extracted(0, 0, 0)
    return make_facts(opening(), job)


def _advertised(job: Job, asked: Asked, opening: _Opening) -> Done:
    from lace.spark.pipeline.advertise import advertise, is_current

    return is_current(job.warehouse, asked) or advertise(opening(), job, asked)


def _differing(
    compared: Comparison, only: str | None, spark: Any, master: str
) -> Iterator[tuple[str, RecordId]]:
    """Yield what two states do not share; Spark runs until the last of it was taken."""
    with _Session(spark, master) as opening:
        for kind, record in compared.records(opening, only):
            yield kind, RecordId(record)


# -- Spark sessions, and files to write.


def open_spark(
    master: str = _LOCAL,
    *,
    settings: Mapping[str, str] | None = None,
    archive: Path | None = None,
    debug: bool = False,
    environ: Mapping[str, str] | None = None,
) -> AbstractContextManager[Any]:
    """Open a Spark session for a `with` block; one that is open in this process is used as it is.

    Args:
        master: where Spark runs: `local[N]`, or the URL of a cluster.
        settings: settings of Spark, such as `spark.driver.memory`.
        archive: a packed Python environment for the workers of a cluster.
        debug: show what Spark's Java process prints.
        environ: the variables that say which Java to take; those of this process by default.

    Raises:
        UsageError: there is no such master or archive.
        EngineError: what Spark needs is not installed, or Spark did not start.
    """
    from lace.spark.engine.session import open_session

    return open_session(master, settings=settings, archive=archive, debug=debug, environ=environ)


def spark_progress() -> SparkProgress | None:
    """Return the stages that Spark runs in this process; None without Spark."""
    from lace.spark.engine.session import active_progress

    return active_progress()


class _Session(ExitStack):
    """A Spark session that the first call opens, and the end of the `with` block closes."""

    def __init__(self, spark: Any, master: str) -> None:
        super().__init__()
        self._spark = partial(open_spark, master) if spark is None else spark

    def __call__(self) -> Any:
        if callable(self._spark):
            self._spark = self.enter_context(self._spark())
        return self._spark
