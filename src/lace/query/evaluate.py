"""Questions: rules as a caller has them and facts from anywhere, in; a result, out.

Here rules are checked against the facts that come with them, predicates are found by
their names, and an engine is chosen. Where facts come from is the caller's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base.arguments import check_many, kind_of
from lace.base.text import shorten
from lace.errors import Finding, Place, RuleError, UsageError
from lace.facts.catalogue import BASE_PREDICATES
from lace.query.result import Result
from lace.rules.findings import closest, format_findings
from lace.rules.limits import OWN_LIMITS, read_limits
from lace.rules.profiles import QUERY
from lace.rules.program import CheckedProgram, Lacegram, check_source, with_limits
from lace.rules.syntax import PredicateKey, parse_predicate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lace.algebra.nodes import Answer
    from lace.engine.budget import Statistics, Supervisor
    from lace.engine.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.rules.limits import Limits, RuleLimits
    from lace.spark.engine.session import Options


Rules: TypeAlias = "Lacegram | CheckedProgram | str | bytes"
"""Rules that are checked already, or their authoring text."""

ENGINES: Final = ("embedded", "spark")


def check_engine(engine: object) -> None:
    """Refuse an engine that does not exist, or that cannot be used here."""
    if engine not in ENGINES:
        near = closest(engine, ENGINES) if isinstance(engine, str) else None
        raise UsageError(
            f"there is no engine {engine!r}",
            hint=f"did you mean {near}?" if near else f"the engines are {', '.join(ENGINES)}",
        )
    if engine == "spark":
        from lace.spark.engine.session import check_installed

        check_installed()


def check_rules(
    rules: Rules,
    given: Collection[PredicateKey] = (),
    *,
    limits: RuleLimits = OWN_LIMITS,
    name: str | None = None,
    allowed: Collection[PredicateKey] | None = None,
) -> CheckedProgram:
    """Return checked rules that may read the predicates of the facts that come with them."""
    match rules:
        case Lacegram(program):
            checked = program
        case CheckedProgram():
            checked = rules
        case str() | bytes():
            checked = check_source(rules, profile=QUERY, limits=limits, name=name, allowed=allowed)
        case _:
            raise UsageError(
                f"rules are a Lacegram or its text, not {kind_of(rules)}",
                hint="as in lace.evaluate(\"A(X) :- Edge(X,_).\", [('Edge','a','b')])",
            )
    return with_given(checked, given, rules if isinstance(rules, (str, bytes)) else None)


def check_limited(
    rules: Rules,
    given: Collection[PredicateKey] = (),
    *,
    limits: Limits | None,
    default: RuleLimits = OWN_LIMITS,
) -> CheckedProgram:
    """Return checked rules as `check_rules` does, under the limits that a program gives."""
    if limits is None:
        return check_rules(rules, given, limits=default)
    allowed = read_limits(limits, default)
    return with_limits(check_rules(rules, given, limits=allowed), allowed)


def with_given(
    checked: CheckedProgram, given: Collection[PredicateKey], text: str | bytes | None = None
) -> CheckedProgram:
    """Return rules for facts that come with them; their text, if given, is checked again."""
    _refuse_both(checked, given)
    more = set(given) - checked.profile.base
    if not more or text is None:
        return checked
    profile = checked.profile.with_base(more)  # nothing that facts have is unknown now
    return check_source(text, profile=profile, limits=checked.limits, name=checked.source)


def _refuse_both(checked: CheckedProgram, given: Collection[PredicateKey]) -> None:
    """Refuse a predicate that has facts and rules: an answer could not tell them apart."""
    both = set(checked.derived) & set(given)
    findings = tuple(
        Finding(
            severity="error",
            place=Place(checked.source, rule.span.line or None, rule.span.column or None),
            message=f"{rule.head.key} is defined by this rule, and there are facts of it too",
            rule="030-47",
            hint="rename one of them",
        )
        for rule in checked.rules
        if rule.head.key in both
    )
    if not findings:
        return
    first = findings[0]
    if len(findings) > 1:
        raise RuleError(format_findings(findings), findings=findings)
    raise RuleError(
        first.message, findings=findings, rule=first.rule, place=first.place, hint=first.hint
    )


def find_predicates(checked: CheckedProgram, texts: Iterable[object]) -> list[PredicateKey]:
    """Return the derived predicates of names with their arities; one name may stand alone."""
    if isinstance(texts, str):
        texts = [texts]
    check_many(texts, "predicates are names with arities", "as in ['Selected/1']")
    known = {str(key): key for key in checked.derived}
    return [_find(known, text) for text in texts]


def _find(known: Mapping[str, PredicateKey], text: object) -> PredicateKey:
    if isinstance(text, PredicateKey):
        text = str(text)
    if not isinstance(text, str):
        raise UsageError(f"a predicate is named by text, not by {kind_of(text)}")
    found = known.get(text)
    if found is None:
        raise UsageError(f"no rule defines {shorten(text)!r}", hint=_meant(text, known))
    return found


def _meant(text: str, known: Collection[str]) -> str:
    name = text.partition("/")[0]
    same = [each for each in known if each.partition("/")[0] == name]
    near = same[0] if same else closest(text, known)
    if near is None:
        names = {each.partition("/")[0]: each for each in known}
        near = names.get(closest(name, names) or "")
    if near is not None:
        return f"did you mean {near}?"
    base = BASE_PREDICATES.get(name)
    if base is not None:
        return f"{base} is a base predicate: `lace facts` shows its facts"
    parse_predicate(text)  # else that is what is wrong
    shown = sorted(known)[:10]
    more = ", …" if len(known) > len(shown) else ""
    return f"the rules define {', '.join(shown)}{more}" if shown else "there are no rules"


def evaluate_rules(
    rules: Rules,
    facts: Iterable[Sequence[str]],
    *,
    engine: str = "embedded",
    limits: Limits | None = None,
    predicates: Iterable[str] | None = None,
    statistics: Statistics | None = None,
    supervisor: Supervisor | None = None,
) -> Result:
    """Evaluate rules over facts from anywhere; rules may read every predicate that these have.

    Limits that are given hold for checked rules as well, which otherwise keep their own.
    """
    check_engine(engine)
    from lace.engine.load import group_facts  # numpy, only where it is needed

    grouped = group_facts(facts)
    checked = check_limited(rules, grouped.keys(), limits=limits)
    return evaluate_given(
        checked,
        grouped,
        engine=engine,
        predicates=predicates,
        statistics=statistics,
        supervisor=supervisor,
    )


def evaluate_given(
    checked: CheckedProgram,
    facts: Iterable[Fact] | GroupedFacts,
    *,
    engine: str = "embedded",
    predicates: Iterable[str] | None = None,
    statistics: Statistics | None = None,
    supervisor: Supervisor | None = None,
    options: Options | None = None,
) -> Result:
    """Evaluate checked rules over facts, with an engine that is there.

    A supervisor watches the embedded engine only; options are those of Spark.
    """
    wanted = None
    if predicates is not None:
        wanted = find_predicates(checked, predicates)
    answer: Answer
    if engine == "spark":
        from lace.query.distributed import evaluate_facts

        answer = evaluate_facts(
            checked, facts, predicates=wanted, statistics=statistics, options=options
        )
    else:
        from lace.engine.engine import evaluate  # numpy, only where it is needed

        answer = evaluate(
            checked, facts, predicates=wanted, statistics=statistics, supervisor=supervisor
        )
    return Result(checked, answer)
