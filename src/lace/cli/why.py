"""`lace why`: how a fact follows from rules, or what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.questions import Question, new_statistics, read_rules
from lace.engines.result import AnswerLostError
from lace.facts.lines import FactLineError, parse_fact
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.facts.lines import Fact

__all__ = ["command"]


def _parse(text: str, max_value_bytes: int) -> Fact:
    """Return the fact of an argument; a full stop at its end is forgiven."""
    raw = text.strip().encode("utf-8", "surrogateescape").removesuffix(b".")
    try:
        return parse_fact(raw, max_value_bytes=max_value_bytes)
    except FactLineError as error:
        if error.rule == "G35":
            error.hint = "write it like a line of `lace query`: \"Name('value','value')\""
        raise


@lace_command(
    "why",
    piped="The derivation as an indented tree, down to base facts; for a fact that does not hold, "
    "what failed nearest. The same as on a terminal.",
    json_keys={
        "fact": "the fact, {predicate, values, text}",
        "holds": "true if it follows",
        "height": "how many rules follow one another down to base facts; or null",
        "steps": "every fact of the derivation once, the fact itself first: {fact, height, rule, "
        "body}; rule is null for a base fact, and a condition of body names its step by position",
        "absence": "for a fact that does not hold, what failed nearest; or null",
    },
    examples=[
        ("lace why --rules policy.lace \"Selected('B.….H3')\"", "why the rules choose a record"),
        (
            "lace why --rules paths.lace --facts edges.txt \"Path('a','c')\"",
            "over given facts only, without a lace",
        ),
    ],
)
@click.argument("fact", metavar="FACT")
@click.option(
    "--rules",
    metavar="FILE",
    required=True,
    help="Read the rules from FILE, or - for standard input.",
)
@click.option(
    "--facts",
    metavar="FILE",
    multiple=True,
    help="Ask the fact lines of FILE (or -) only, and no lace. Repeatable.",
)
@click.pass_obj
def command(session: Session, fact: str, rules: str, facts: tuple[str, ...]) -> int:
    """Show why a fact follows from rules, or why it does not.

    FACT is a fact line as `lace query` writes it. The tree goes from the fact through the
    rules that make it, with their identifiers and annotations, down to base facts. When the
    fact does not hold, it shows which condition failed nearest, and the exit code is 1.
    """
    name, *values = _parse(fact, session.rule_limits().max_value_bytes)
    question = Question(session, read_rules(session, rules), facts)
    key = PredicateKey(name, len(values))
    wanted = [key] if key in question.checked.derived else []
    try:
        explanation = question.ask("why", wanted, new_statistics()).why(name, *values)
    except AnswerLostError:  # segments that are damaged have been given up: others are made
        explanation = question.ask("why", wanted, new_statistics()).why(name, *values)
    if session.output.json:
        session.output.json_document(explanation.to_json())
    else:
        for line in str(explanation).rstrip("\n").split("\n"):
            session.output.line(line)
    return 0 if explanation.holds else 1
