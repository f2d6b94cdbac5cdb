"""Rules over a warehouse, as the commands of the pipeline read them and show their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.cli.policy_files import (
    explain_empty_view,
    note_missing_facts,
    read_policy,
    warn_of,
    warn_of_unmet,
)
from lace.cli.questions import SELECTED
from lace.cli.rule_files import read_file, refusing
from lace.errors import RuleError, UsageError
from lace.policy.local import prepare_exchange
from lace.query.evaluate import check_rules, find_predicates
from lace.rules.checks.emptiness import parse_allowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.cli.pipeline_session import SparkOptions
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.session import Options
    from lace.spark.pipeline.derived import Evaluated
    from lace.spark.pipeline.evaluate import Question
    from lace.spark.pipeline.warehouse import Manifest

__all__ = [
    "EXCHANGE_NAME",
    "RULES_NAME",
    "engine_options",
    "note_without_facts",
    "read_exchange",
    "read_question",
    "read_selection",
    "show_evaluated",
]

RULES_NAME = "result"
"""What the answer to rules is called, unless --out says another name."""
EXCHANGE_NAME = "exchange"
"""What the answer to an exchange is called, unless --out says another name."""


def read_question(
    session: Session,
    rules: str,
    predicates: Sequence[str] = (),
    allowed: frozenset[PredicateKey] | None = None,
) -> Question:
    """Read and check a file of rules; what is wanted is all that they define, or what is named.

    Args:
        session: the run.
        rules: the file.
        predicates: what is wanted.
        allowed: for rules whose answer is acted upon, the predicates that may be undefined.

    Raises:
        UsageError: the file cannot be read, or a predicate is not defined.
        RuleError: the rules are not legal; all findings were shown.
    """
    from lace.spark.pipeline.evaluate import Question

    file = read_file(session, rules)
    try:
        checked = check_rules(
            file.text(), limits=session.rule_limits(), name=file.name, allowed=allowed
        )
    except RuleError as error:
        raise refusing(session, file, error) from error
    wanted = tuple(dict.fromkeys(find_predicates(checked, predicates))) or checked.derived
    warn_of(session, checked.warnings)
    return Question((checked,), wanted)


def read_selection(
    session: Session, rules: str, predicate: str | None, allow_undefined: Sequence[str]
) -> Question:
    """Read rules that choose records: one predicate of one argument.

    Raises:
        UsageError: they do not define it, or it has another number of arguments.
        RuleError: the rules are not legal; all findings were shown.
    """
    from lace.spark.pipeline.evaluate import check_selection

    try:
        allowed = parse_allowed(allow_undefined)
        question = read_question(session, rules, [predicate or SELECTED], allowed)
    except UsageError as error:
        if predicate is None and "no rule defines" in error.message:
            error.hint = "name the predicate that chooses records, as in --predicate Chosen/1"
        raise
    return check_selection(question)


def read_exchange(session: Session, given: PolicyArguments) -> Question:
    """Read what a command line says of an exchange; it means what it does in `lace preview`.

    Raises:
        UsageError: a selector is missing, a file cannot be read, the viewer is no verifier.
        RuleError: rules are not legal; all findings were shown.
        PolicyError: the viewer is a label of one exchange, or there is no plan for these two.
        FactLineError: a line of a fact file does not belong there.
    """
    from lace.query.preview import offer_of
    from lace.spark.pipeline.evaluate import exchange_question

    read = read_policy(session, given)
    executable = prepare_exchange(read.policy, read.peer, read.viewer).executable
    if executable.exposes_nothing:
        explain_empty_view(
            session, read.policy.exposures, read.viewer, so=", so nothing would be sent"
        )
    note_missing_facts(session, executable, read.public)
    settings = session.settings(session.find_settings())[0]
    offer = offer_of(settings, read.policy, executable.plan.required)
    warn_of_unmet(session, offer)
    return exchange_question(executable, read.public, offer.schema)


def engine_options(session: Session, options: SparkOptions) -> Options:
    """Return how the engine goes about it, by the settings and by where Spark runs."""
    from lace.spark.engine.session import options_of

    is_cluster = not options.master.startswith("local")
    return options_of(session.settings(session.find_settings())[0], cluster=is_cluster)


def note_without_facts(session: Session, manifest: Manifest) -> None:
    """Report records that rules do not see yet."""
    from lace.spark.pipeline.facts import has_fresh_records

    if has_fresh_records(manifest):
        session.output.note(
            "some records have no facts yet, and rules do not see them; see `lace pipeline facts`"
        )


def show_evaluated(session: Session, done: Evaluated) -> None:
    """Show how many facts an answer has."""
    counts = {str(key): count for key, count in done.counts.items()}
    if session.output.json:
        document = {"name": done.name, "fresh": done.fresh, "derived": counts}
        session.output.json_document(document)
        return
    session.output.counts(counts)
    if not done.fresh:
        session.output.note(f"{done.name} was there already: same rules, same facts")
