"""`lace pipeline evaluate`: what follows from rules, over the facts of a warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_rules import (
    EXCHANGE_NAME,
    RULES_NAME,
    engine_options,
    note_without_facts,
    read_exchange,
    read_question,
    show_evaluated,
)
from lace.cli.pipeline_session import (
    SparkOptions,
    open_job,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.cli.policy_options import exchange_options
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session
    from lace.spark.pipeline.evaluate import Question

__all__ = ["command"]


def _read(
    session: Session, rules: str | None, predicates: tuple[str, ...], exchange: PolicyArguments
) -> Question:
    if (rules is None) != exchange.is_given:
        raise UsageError(
            "an evaluation is of rules or of an exchange",
            hint="give --rules FILE, or --select FILE and --peer-select FILE",
        )
    if rules is not None:
        return read_question(session, rules, predicates)
    if predicates:
        raise UsageError(
            "an exchange answers with MaySend/1 and MayRequest/1", hint="leave out --predicate"
        )
    return read_exchange(session, exchange)


@lace_command(
    "evaluate",
    piped="Lines of a predicate and the number of its facts, `Name/arity N`.",
    json_keys={
        "name": "what the answer is called in the warehouse",
        "fresh": "whether it was made now; false when it was there already",
        "derived": "an object of the number of facts by predicate",
    },
    examples=[
        ("lace pipeline evaluate big.wh --rules policy.lace", "all that the rules derive"),
        (
            "lace pipeline evaluate big.wh --rules policy.lace --predicate Selected/1 --out chosen",
            "one predicate, kept as chosen",
        ),
        (
            "lace pipeline evaluate big.wh --select mine.lace --peer-select theirs.lace "
            "--expose team.lace@V.….H3 --viewer V.….H3",
            "what an exchange would send and request",
        ),
    ],
)
@warehouse_argument
@click.option("--rules", metavar="FILE", help="Read the rules from FILE, or - for standard input.")
@click.option(
    "--predicate",
    "predicates",
    metavar="NAME/N",
    multiple=True,
    help="Keep only this predicate. Repeatable. Else all that the rules define.",
)
@click.option(
    "--out",
    "name",
    metavar="NAME",
    help=f"What to call the answer: {RULES_NAME}, of an exchange {EXCHANGE_NAME}, unless said.",
)
@exchange_options(required=False)
@spark_options
@click.pass_obj
def command(
    session: Session,
    warehouse: str,
    rules: str | None,
    predicates: tuple[str, ...],
    name: str | None,
    exchange: PolicyArguments,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Evaluate rules over the facts of a warehouse, and keep what follows.

    Each predicate becomes a table of texts, derived/NAME/PREDICATE, in place of what was there
    under that NAME. Rules that are not legal are refused before Spark starts; an evaluation
    that passes a limit commits nothing. The same rules over the same facts are not evaluated
    again. With --select and --peer-select the answer is MaySend and MayRequest, as in `lace
    preview`.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.derived import check_name
    from lace.spark.pipeline.evaluate import evaluate, find_answer
    from lace.spark.pipeline.warehouse import Warehouse

    kept = check_name(name or (EXCHANGE_NAME if rules is None else RULES_NAME))
    options = SparkOptions(master, python_env, spark_settings)
    question = _read(session, rules, predicates, exchange)
    opened = Warehouse.open(Path(warehouse))
    with open_job(session, opened, "evaluate") as job:
        note_without_facts(session, opened.manifest)
        done = find_answer(opened, kept, question)
        if done is None:  # else there is nothing to start Spark for
            how = engine_options(session, options)
            with spark_session(session, options, "evaluate") as spark:
                done = evaluate(spark, job, kept, question, options=how)
    show_evaluated(session, done)
    return 0
