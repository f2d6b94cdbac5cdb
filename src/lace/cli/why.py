"""`lace why`: how a fact follows from rules or from a policy, or what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lace.cli.command import command as lace_command
from lace.cli.policy_files import (
    ask_again,
    explain_empty_view,
    note_missing_facts,
    note_no_record,
    read_policy,
    warn_of_names,
)
from lace.cli.policy_options import exchange_options
from lace.cli.progress import Waiting
from lace.cli.questions import QueryRequest, new_statistics, read_rules
from lace.errors import UsageError
from lace.facts.lines import parse_typed_fact
from lace.policy.exposure import scope_name
from lace.query.result import AnswerLostError
from lace.rules.profiles import ALLOW_QUERY_RECORD, CAN_QUERY_RECORD, MAY_REQUEST, MAY_SEND
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session
    from lace.facts.lines import Fact
    from lace.query.preview import Preview
    from lace.why.explanation import Explanation


class _Asked:
    """A fact that an exchange is asked about, by the name that its rules have there."""

    def __init__(self, preview: Preview, name: str, values: Sequence[str]) -> None:
        self._preview = preview
        self._values = values
        self.is_decision = len(values) == 1 and name in (MAY_SEND.name, MAY_REQUEST.name)
        self.name = self._scoped(name)

    def _scoped(self, name: str) -> str:
        """Return the name in the whole of both operands and exposures.

        One's own predicates may be named as they are written. What exposures allow is
        asked of all of them together.
        """
        executable, arity = self._preview.executable, len(self._values)
        if (name, arity) == ALLOW_QUERY_RECORD:
            return CAN_QUERY_RECORD.name
        ours = scope_name(executable.our_scope, PredicateKey(name, arity))
        return ours.name if ours in executable.ours.derived else name

    def answer(self) -> tuple[str, dict[str, Any], bool]:
        """Return the answer as text and as plain values, and whether it is yes."""
        if self.is_decision:
            decision = self._preview.decide(self.name, self._values[0])
            return str(decision), decision.to_json(), decision.moves
        found = self._preview.why(self.name, *self._values)
        return str(found), found.to_json(), found.holds


def _ask_rules(session: Session, fact: Fact, rules: str, facts: tuple[str, ...]) -> Explanation:
    """Explain a fact of plain rules, over a lace or over given facts."""
    name, *values = fact
    question = QueryRequest(session, read_rules(session, rules), facts)
    key = PredicateKey(name, len(values))
    wanted = [key] if key in question.checked.derived else []
    try:
        return question.ask("why", wanted, new_statistics()).why(name, *values)
    except AnswerLostError:  # segments that are damaged have been given up: others are made
        return question.ask("why", wanted, new_statistics()).why(name, *values)


def _ask_exchange(
    session: Session, fact: Fact, given: PolicyArguments
) -> tuple[str, dict[str, Any], bool]:
    """Explain what an exchange would do with a record, or a fact of its policy."""
    read = read_policy(session, given)
    name, *values = fact

    def ask() -> tuple[Preview, tuple[str, dict[str, Any], bool]]:
        preview = lace.preview(
            read.policy,
            read.peer.module,
            index=given.index,
            viewer=read.viewer,
            public=read.public,
        )
        return preview, _Asked(preview, name, values).answer()

    with session.asking("why") as lace:
        warn_of_names(session, lace, read.policy)
        with Waiting(session, "explaining"):
            preview, answer = ask_again(lace, ask)
    if preview.executable.exposes_nothing:
        explain_empty_view(session, read.policy.exposures, read.viewer)
    elif preview.shows_nothing:
        note_no_record(session)
    note_missing_facts(session, preview.executable, read.public)
    return answer


@lace_command(
    "why",
    api="Result.why, Lace.preview",
    piped="The derivation as an indented tree, down to base facts; for a fact that does not hold, "
    "what failed nearest. The same as on a terminal. For MaySend and MayRequest the first line "
    "says whether the record would move, and which gate decides that it does not.",
    json_keys={
        "fact": "the fact, {predicate, values, text}",
        "holds": "true if it follows",
        "height": "how many rules follow one another down to base facts; or null",
        "steps": "every fact of the derivation once, the fact itself first: {fact, height, rule, "
        "body}; rule is null for a base fact, and a condition of body names its step by position",
        "absence": "for a fact that does not hold, what failed nearest; or null",
        "allowed, moves, gate, message, explanation": "of MaySend and MayRequest instead, besides "
        "the fact: whether policy allows it; whether the record would move; what "
        "decides that it does not, or null; both in words; and an explanation, with the keys above",
    },
    examples=[
        ("lace why --rules policy.lace \"Selected('B.….H3')\"", "why the rules choose a record"),
        (
            "lace why --rules paths.lace --facts edges.txt \"Path('a','c')\"",
            "over given facts only, without a lace",
        ),
        (
            "lace why --select mine.lace --peer-select theirs.lace --expose team.lace@V.….H3 "
            "--viewer V.….H3 \"MaySend('B.….H3')\"",
            "why a record would be sent to a peer, or what stops it",
        ),
    ],
)
@click.argument("fact", metavar="FACT")
@click.option("--rules", metavar="FILE", help="Read the rules from FILE, or - for standard input.")
@click.option(
    "--facts",
    metavar="FILE",
    multiple=True,
    help="Ask the fact lines of FILE (or -) only, and no lace. Repeatable.",
)
@exchange_options(required=False)
@click.pass_obj
def command(
    session: Session,
    fact: str,
    rules: str | None,
    facts: tuple[str, ...],
    exchange: PolicyArguments,
) -> int:
    """Show why a fact follows from rules, or why it does not.

    FACT is a fact line as `lace query` writes it. The tree goes from the fact through the
    rules that make it, with their identifiers and annotations, down to base facts. When the
    fact does not hold, it shows which condition failed nearest, and the exit code is 1.

    With --select and --peer-select instead of --rules it is about an exchange, as `lace
    preview` shows it: MaySend('…') and MayRequest('…') say whether a record would move and
    which gate stops it (exit code 1). Predicates of your selector are asked by their names, as
    SelectHave('…'); those of both by o0_SelectHave('…') and o1_SelectHave('…'); what a viewer
    may query by CanQueryRecord('V','…'), or AllowQueryRecord for all exposures together.
    """
    if rules is None and not exchange.is_given:
        raise UsageError(
            "there are no rules", hint="give --rules FILE, or --select and --peer-select"
        )
    if (rules is not None or facts) and exchange.is_given:
        raise UsageError(
            "--rules and --facts are not for an exchange",
            hint="give --rules FILE, or --select and --peer-select, not both",
        )
    asked = parse_typed_fact(fact, session.rule_limits().max_value_bytes)
    if rules is not None:
        explanation = _ask_rules(session, asked, rules, facts)
        text, document, is_yes = str(explanation), explanation.to_json(), explanation.holds
    else:
        text, document, is_yes = _ask_exchange(session, asked, exchange)
    if session.output.json:
        session.output.json_document(document)
    else:
        for line in text.rstrip("\n").split("\n"):
            session.output.say(line)
    return 0 if is_yes else 1
