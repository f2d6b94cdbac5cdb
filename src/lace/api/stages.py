"""The stages of the pipeline, and the verification of a warehouse, from a program.

A stage starts Spark at its `master`, or takes a session that there is.

Apart from `warehouse`, which describes one and reads it without Spark.
"""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from lace.api.system import now, written_file
from lace.base.arguments import check_argument, check_callable, check_count, check_many, kind_of
from lace.base.arrow import load_pyarrow
from lace.errors import StoreError, UsageError
from lace.record.ids import RecordId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from contextlib import AbstractContextManager

    from lace.api.lace import Lace
    from lace.base.limits import Settings
    from lace.facts.lines import Fact
    from lace.policy.local import Policy
    from lace.policy.local import Rules as PolicyRules
    from lace.query.evaluate import Rules
    from lace.spark.engine.session import Options
    from lace.spark.pipeline.advertise import Done
    from lace.spark.pipeline.audit import Checked
    from lace.spark.pipeline.derived import Evaluated
    from lace.spark.pipeline.diff import DiffSide
    from lace.spark.pipeline.evaluate import Question
    from lace.spark.pipeline.facts import Extracted
    from lace.spark.pipeline.ingest import Ingested, NewFiles
    from lace.spark.pipeline.run import Ran
    from lace.spark.pipeline.warehouse import Job, WarehouseFolder


# -- Going through a warehouse from a program: what differs, what is wrong, records into a file.
#
# Here, too, is how a program comes by a Spark session: its own, or one for a while.


def check_lace(store: object) -> None:
    """Refuse what is no open lace.

    Raises:
        UsageError: it is something else.
    """
    from lace.api.lace import Lace

    check_argument(store, Lace, "store is an open lace", "open it with lace.open(path)")


def check_spark(master: object) -> None:
    """Refuse to go on without what Spark needs.

    Raises:
        UsageError: the master is no text.
        EngineError: a package or Java is missing.
    """
    check_argument(master, str, "master is the address of a Spark master")
    from lace.spark.engine.session import check_installed

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
    from lace.spark.engine.session import open_session

    return open_session(master)


def engine_options(settings: Settings, master: str) -> Options:
    """Return how the engine goes about it, by the settings and by where Spark runs."""
    from lace.spark.engine.session import options_of

    return options_of(settings, cluster=not master.startswith("local"))


def question_of(settings: Settings, rules: Rules, predicates: Iterable[str]) -> Question:
    """Return what is asked of rules: some predicates, or all that they define.

    Raises:
        RuleError: the rules are not legal.
        UsageError: they do not define a predicate.
    """
    from lace.query.evaluate import check_rules, find_predicates
    from lace.rules.limits import limits_of
    from lace.spark.pipeline.evaluate import Question

    checked = check_rules(rules, limits=limits_of(settings))
    wanted = tuple(dict.fromkeys(find_predicates(checked, predicates))) or checked.derived
    return Question((checked,), wanted)


def side_of_state(warehouse: WarehouseFolder, given: str | Iterable[Fact], which: str) -> DiffSide:
    """Return a state by its name, or what a peer listed.

    Raises:
        UsageError: there is no state of that name, or something is no fact.
        FactLineError: no peer would list this.
        WarehouseDamagedError: the state is damaged.
    """
    from lace.spark.pipeline.diff import given_listing, side_of

    if isinstance(given, str):
        return side_of(warehouse, given)
    check_many(given, f"{which} is a name or several facts", "as in [('Advertised','P.…','S')]")
    return given_listing(given, f"the {which} listing")


def differing_records(
    first: DiffSide,
    second: DiffSide,
    spark: Any,  # noqa: ANN401 - PySpark's own
    master: str,
) -> Iterator[tuple[str, RecordId]]:
    """Yield what two states do not share; Spark runs until the last of it was taken."""
    from lace.spark.pipeline.diff import Comparison

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
        from lace.spark.pipeline.proof import MOST_SAMPLED

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
        warehouse: WarehouseFolder,
        settings: Settings,
        report: Callable[[Checked], None] | None,
        spark: Any,  # noqa: ANN401 - PySpark's own
        master: str,
    ) -> Checked:
        """Verify; returns what was found."""
        load_pyarrow()
        from lace.spark.pipeline.audit import check_warehouse, validate_some

        checked = check_warehouse(warehouse, report)
        if checked.damaged:  # what is read now would only say so again
            return checked
        if not self.has_proof:
            validate_some(warehouse, checked)
            return checked
        from lace.spark.pipeline.audit import prove

        most = settings.warehouse_embedded_records
        with spark_session(spark, master) as session:
            checked.proof = prove(session, warehouse, self._sample, most_records=most)
        return checked


def chosen_records(
    warehouse: WarehouseFolder,
    question: Question,
    options: Options,
    spark: Any,  # noqa: ANN401 - PySpark's own
    master: str,
) -> frozenset[str]:
    """Return the hashes of the records that rules choose.

    Raises:
        UsageError: the predicate that chooses has not one argument.
    """
    from lace.spark.pipeline.evaluate import check_selection, choose_records

    check_selection(question)
    with spark_session(spark, master) as session:
        return choose_records(session, warehouse, question, options).hashes


def write_records(
    warehouse: WarehouseFolder,
    wanted: Collection[str] | None,
    target: str | os.PathLike[str] | IO[bytes],
) -> int:
    """Write the bytes of all records, or of those of some hashes; returns how many they are.

    Raises:
        UsageError: the target is not a file or a path.
        StoreError: the file cannot be written, or the warehouse is damaged.
    """
    from lace.spark.pipeline.records import iterate_records

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


_RESULT: Final = "result"
_EXCHANGE: Final = "exchange"


class Stages:
    """What brings a warehouse to a new state."""

    def __init__(self, folder: WarehouseFolder, settings: Settings) -> None:
        self._folder, self._settings = folder, settings

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
        paths = _found(sources, master)
        with self._writing("ingest") as job:
            from lace.spark.pipeline.ingest import find_new

            new, limit = find_new(self._folder, paths), self._settings.max_data_bytes
            return _ingested(job, new, limit, spark, master)

    def import_lace(
        self,
        store: Lace,
        *,
        report: Callable[[int, int], None] | None = None,
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Ingested:
        """Validate the records of a lace, and keep those that are new.

        A record that is removed from the lace stays in the warehouse.

        Args:
            store: an open lace, whose limits count.
            report: hears how many of how many records were read so far.
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            UsageError: it is no open lace.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the lace or the warehouse is damaged, or another process writes.
        """
        check_lace(store)
        check_callable(report, "report hears of progress")
        check_spark(master)
        from lace.spark.pipeline.run import find_lace_records

        with self._writing("import_lace") as job:
            with store.snapshot() as snapshot:
                new = find_lace_records(job, store.store.folder, snapshot, report)
            return _ingested(job, new, store.settings.max_data_bytes, spark, master)

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
        from lace.spark.pipeline.facts import Extracted, has_fresh_records, make_facts

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
            UsageError: they do not define a predicate, or the name is not valid.
            LimitExceeded: a limit was reached; nothing is kept.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        check_texts(name=name)
        check_spark(master)
        question = question_of(self._settings, rules, predicates)
        return self._evaluated(question, name, spark, master)

    def evaluate_exchange(
        self,
        policy: Policy,
        peer_select: PolicyRules,
        *,
        index: int = 0,
        viewer: str | None = None,
        public: Iterable[Fact] = (),
        at: str | None = None,
        name: str = _EXCHANGE,
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
    ) -> Evaluated:
        """Evaluate what an exchange with a peer may send and request, and keep it under a name.

        It is what `Lace.preview` shows of a lace. The tables are `derived/NAME/MaySend~1` and
        `derived/NAME/MayRequest~1`; `advertise` makes what the peer would be told, as in
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
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            RuleError: the peer's selector is not legal.
            PolicyError: the viewer is no verifier, or there is no plan for these two.
            UsageError: the name is not valid, or an argument is of another type.
            LimitExceeded: a limit was reached; nothing is kept.
            EngineError: a fact is not public, what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        check_texts(name=name)
        check_spark(master)
        from lace.policy.public_facts import with_local_time, with_peer
        from lace.query.preview import exchange_of, local_instant, offer_of
        from lace.spark.pipeline.evaluate import exchange_question

        instant = local_instant(self._settings, at, now)
        found = exchange_of(self._settings, policy, peer_select, index=index, viewer=viewer)
        facts = with_peer(public, viewer)
        if found.executable.reads_clock:
            facts = with_local_time(facts, instant)
        offer = offer_of(self._settings, policy, found.executable.plan.required)
        question = exchange_question(found.executable, facts, offer.schema)
        return self._evaluated(question, name, spark, master)

    def _evaluated(self, question: Question, name: str, spark: Any, master: str) -> Evaluated:  # noqa: ANN401
        from lace.spark.pipeline.derived import check_name
        from lace.spark.pipeline.evaluate import evaluate, find_answer

        kept = check_name(name)
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
                its plan needs and its policy offers.
            name: what to call them: `all`, or the name of the derived set.
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            UsageError: the set or exchange is unknown, or the name or the source is not valid.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        names = field_names(fields)
        check_texts(source=source, of=of or "", exchange=exchange or "", name=name or "")
        if exchange is not None and (names or all_fields or of is not None):
            raise UsageError(
                "an exchange says itself what is advertised, and with which fields",
                hint="leave out of, fields and all_fields",
            )
        check_spark(master)
        from lace.policy.schema import Schema
        from lace.spark.pipeline.advertise import advertise, asked_of, is_current

        schema = Schema(names=names, all=all_fields)
        with self._writing("advertise") as job:
            asked = asked_of(self._folder, source, schema, of=of, exchange=exchange, name=name)
            done = is_current(self._folder, asked)
            if done is not None:  # there is nothing to start Spark for
                return done
            with spark_session(spark, master) as session:
                return advertise(session, job, asked)

    def run(
        self,
        *sources: str | os.PathLike[str],
        rules: Rules,
        name: str = _RESULT,
        predicates: Iterable[str] = (),
        source: str | None = None,
        fields: Iterable[str] = (),
        spark: Any = None,  # noqa: ANN401 - a session of PySpark, which is optional
        master: str = "local[*]",
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
            spark: a session that there is.
            master: where to start one otherwise.

        Raises:
            RuleError: the rules are not legal.
            UsageError: a file is unreadable, a predicate undefined, or a name or source invalid.
            LimitExceeded: the evaluation reached a limit; the stages before it stay.
            EngineError: what Spark needs is not installed, or Spark failed.
            StoreError: the warehouse is damaged, or another process writes.
        """
        names = field_names(fields)
        check_texts(name=name, source=source or "")
        if names and source is None:
            raise UsageError("fields are of what is advertised", hint="give a source as well")
        question = question_of(self._settings, rules, predicates)
        paths = _found(sources, master)
        from lace.spark.pipeline.advertise import asked_for_all
        from lace.spark.pipeline.run import Work, run_stages

        work = Work(
            paths=paths,
            max_data_bytes=self._settings.max_data_bytes,
            name=name,
            question=question,
            options=engine_options(self._settings, master),
            asked=None if source is None else asked_for_all(source, names),
        )
        with self._writing("run") as job:
            return run_stages(job, work, lambda: spark_session(spark, master))

    @contextmanager
    def _writing(self, purpose: str) -> Iterator[Job]:
        wait = self._settings.wait_seconds
        with self._folder.writing(f"lace.Warehouse.{purpose}", wait) as job:
            yield job


def _found(sources: Iterable[str | os.PathLike[str]], master: str) -> list[Path]:
    """Return the files that sources mean, where Spark could read them."""
    for source in sources:
        check_argument(source, (str, os.PathLike), "a source is a path or a pattern of paths")
    check_spark(master)
    from lace.spark.pipeline.ingest import find_files

    return find_files([str(source) for source in sources])


def _ingested(job: Job, new: NewFiles, max_data_bytes: int, spark: Any, master: str) -> Ingested:  # noqa: ANN401
    from lace.spark.pipeline.ingest import Ingested, ingest

    if not new.files:  # there is nothing to start Spark for
        return Ingested(skipped=new.skipped)
    with spark_session(spark, master) as session:
        return ingest(session, job, new, max_data_bytes=max_data_bytes)
