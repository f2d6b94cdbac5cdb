"""The stages of the pipeline from a program: what each takes, and that Spark runs only for work.

A stage starts Spark at its `master`, or takes a session that there is.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from lace.arguments import check_argument, check_callable
from lace.errors import UsageError
from lace.outside import now
from lace.stocktaking import (
    check_lace,
    check_spark,
    check_texts,
    engine_options,
    field_names,
    question_of,
    spark_session,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from lace.base.limits import Settings
    from lace.engines.queries import Rules
    from lace.facts.lines import Fact
    from lace.opened import Lace
    from lace.pipeline.advertise import Done
    from lace.pipeline.derived import Evaluated
    from lace.pipeline.evaluate import Question
    from lace.pipeline.facts import Extracted
    from lace.pipeline.ingest import Ingested, NewFiles
    from lace.pipeline.running import Ran
    from lace.pipeline.warehouse import Job, Warehouse
    from lace.policy.local import Policy
    from lace.policy.local import Rules as PolicyRules

__all__ = ["Stages"]

_RESULT: Final = "result"
_EXCHANGE: Final = "exchange"


class Stages:
    """What brings a warehouse to a new state."""

    def __init__(self, folder: Warehouse, settings: Settings) -> None:
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
            from lace.pipeline.ingest import find_new

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
        from lace.pipeline.laces import find_lace_records

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
        from lace.pipeline.evaluate import exchange_question
        from lace.policy.public_facts import with_local_time, with_peer
        from lace.previewing import exchange_of, local_instant, offer_of

        instant = local_instant(self._settings, at, now)
        found = exchange_of(self._settings, policy, peer_select, index=index, viewer=viewer)
        facts = with_peer(public, viewer)
        if found.executable.reads_clock:
            facts = with_local_time(facts, instant)
        offer = offer_of(self._settings, policy, found.executable.plan.required)
        question = exchange_question(found.executable, facts, offer.schema)
        return self._evaluated(question, name, spark, master)

    def _evaluated(self, question: Question, name: str, spark: Any, master: str) -> Evaluated:  # noqa: ANN401
        from lace.pipeline.derived import check_name
        from lace.pipeline.evaluate import evaluate, find_answer

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
        from lace.pipeline.advertise import asked_for_all
        from lace.pipeline.running import Work, run_stages

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
    from lace.pipeline.sources import find_files

    return find_files([str(source) for source in sources])


def _ingested(job: Job, new: NewFiles, max_data_bytes: int, spark: Any, master: str) -> Ingested:  # noqa: ANN401
    from lace.pipeline.ingest import Ingested, ingest

    if not new.files:  # there is nothing to start Spark for
        return Ingested(skipped=new.skipped)
    with spark_session(spark, master) as session:
        return ingest(session, job, new, max_data_bytes=max_data_bytes)
