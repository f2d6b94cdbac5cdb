"""Facts that come with an exchange, as commands read them: advertisements and runtime facts.

They are held to what an exchange would take. A value of a wrong form is refused. What is
well formed, and no exchange would have it so, is warned of with its place: a preview may be
asked about it all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.api import now
from lace.base.text import shorten
from lace.cli.fact_files import name_of, read_fact_files
from lace.cli.output import plural
from lace.cli.rule_files import complain_findings
from lace.cli.times import parse_time
from lace.errors import Finding, Place, UsageError
from lace.exchange.blocks import CONTROL_PREDICATES, Syntax
from lace.exchange.capabilities import capabilities_of
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.facts.lines import FactLineError
from lace.policy.exposure import read_clock
from lace.policy.public_facts import PEER, local_time, with_local_time, with_peer
from lace.rules.profiles import LOCAL_TAI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.cli.session import Session
    from lace.facts.lines import Fact
    from lace.policy.exposure import Exposure

__all__ = ["read_public_facts", "with_clock"]

_OPTION_OF: Final = {
    FactClass.ADVERTISEMENT: "--advertised",
    FactClass.RUNTIME: "--runtime",
}
_RULE_OF: Final = {FactClass.ADVERTISEMENT: "040-13", FactClass.RUNTIME: "040-89"}
_FORMS: Final = {
    "Advertised": CONTROL_PREDICATES["Advertised"].syntax,
    "AdvertisedField": CONTROL_PREDICATES["AdvertisedField"].syntax,
    "Here": (Syntax.VERIFIER,),
    "Peer": (Syntax.VERIFIER,),
    "Transport": (Syntax.TEXT,),
    "TransportEncrypted": (),
    "StartTAI": (Syntax.TAI,),
    "TickTAI": (Syntax.TAI,),
    "ClockSkewSeconds": (Syntax.DECIMAL,),
    LOCAL_TAI.name: (Syntax.TAI,),
}
_RULES: Final = {
    "Advertised": "050-39",
    "AdvertisedField": "050-40",
    "Here": "050-25",
    "Peer": "050-26",
    "Transport": "050-27",
    "StartTAI": "050-29",
    "TickTAI": "050-30",
    "ClockSkewSeconds": "050-31",
    LOCAL_TAI.name: "G05b",
}
_TAKEN: Final = {
    FactClass.ADVERTISEMENT: frozenset(
        name
        for name, found in BASE_PREDICATES.items()
        if found.fact_class is FactClass.ADVERTISEMENT
    ),
    FactClass.RUNTIME: frozenset(
        {
            LOCAL_TAI.name,
            *(
                name
                for name, found in BASE_PREDICATES.items()
                if found.fact_class is FactClass.RUNTIME
            ),
        }
    ),
}
"""The predicates that each option takes."""
_KNOWN: Final = {**BASE_PREDICATES, **LOCAL_PREDICATES}


def read_public_facts(
    session: Session, advertised: str | None, runtime: str | None, viewer: str | None
) -> tuple[Fact, ...]:
    """Return the facts of both files, and the `Peer` fact that a proven viewer gives.

    Raises:
        FactLineError: a fact does not belong into its file, or a value has a wrong form.
    """
    limits = session.rule_limits()
    found: list[Fact] = []
    odd: list[Finding] = []
    for argument, kind in ((advertised, FactClass.ADVERTISEMENT), (runtime, FactClass.RUNTIME)):
        if argument is not None:
            checker = _Checker(kind, name_of(argument))
            found += read_fact_files(session, [argument], limits, checker).facts
            odd += checker.findings()
    if odd and not session.output.quiet:
        complain_findings(session, odd)
    proven = {fact[1] for fact in found if fact[0] == PEER}
    if proven and proven != {viewer}:
        who = f"the viewer is {viewer}" if viewer else "there is no --viewer"
        session.output.note(
            f"the runtime facts have Peer('{sorted(proven)[0]}'), and {who}: "
            "exposures are chosen by the viewer alone"
        )
    return with_peer(found, viewer)


def with_clock(
    session: Session, facts: tuple[Fact, ...], exposures: Iterable[Exposure], at: str | None
) -> tuple[Fact, ...]:
    """Return facts with the clock that exposures read: as `--at` says, else that of now.

    Where no exposure reads it they stay as they are.

    Raises:
        UsageError: `--at` is no instant, or the facts have one as well.
    """
    told = any(fact[0] == LOCAL_TAI.name for fact in facts)
    if at is not None:
        if told:
            raise UsageError(
                f"--at and --runtime both give {LOCAL_TAI.name}", hint="leave one of them out"
            )
        return with_local_time(facts, parse_time(at, "--at"))
    if told or not read_clock(exposures):
        return facts
    settings = session.settings(session.find_folder())[0]
    return with_local_time(facts, local_time(now(), capabilities_of(settings).tick_interval))


class _Oddity:
    """Something that no exchange would have: where it is first, and how often it is there."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.line = 0
        self.message = ""
        self.count = 0

    def add(self, line: int, message: str, count: int = 1) -> None:
        """Note it, once or more often; the first is told."""
        if not self.count:
            self.line, self.message = line, message
        self.count += count

    def finding(self, name: str) -> Finding:
        """Return what is said of it."""
        more = f", and {plural(self.count - 1, 'other')} like it" if self.count > 1 else ""
        return Finding(
            severity="warning",
            place=Place(name, self.line),
            message=f"{self.message}{more}",
            rule=self.rule,
        )


class _Checker:
    """Takes the facts of one file, line by line, if they are of its kind and well formed."""

    def __init__(self, kind: FactClass, name: str) -> None:
        self._kind = kind
        self._name = name
        self._line = 0
        self._source: tuple[str, int] | None = None
        self._advertised: set[tuple[str, str]] = set()
        self._claimed: dict[tuple[str, str], tuple[int, int]] = {}
        self._values: dict[Fact, str] = {}
        self._single: dict[str, tuple[Fact, int]] = {}
        self._odd: dict[str, _Oddity] = {}

    def __call__(self, fact: Fact) -> None:
        """Take the fact of the next line.

        Raises:
            FactLineError: it is of another kind, or a value has a wrong form.
        """
        self._line += 1
        _check_kind(self._kind, fact)
        _check_form(fact)
        match fact:
            case ("Advertised", record, source):
                self._advertised.add((record, source))
                self._check_source(source)
            case ("AdvertisedField", record, source, *_):
                first, count = self._claimed.get((record, source), (self._line, 0))
                self._claimed[record, source] = first, count + 1
                self._check_source(source)
                if self._values.setdefault(fact[:-1], fact[-1]) != fact[-1]:
                    message = f"field {shorten(fact[3])} has another value at index {fact[4]}"
                    self._note("value", "G42", message)
            case _:
                other, line = self._single.setdefault(fact[0], (fact, self._line))
                if other != fact:
                    message = f"an exchange has one {fact[0]}, and line {line:,} has another"
                    self._note(fact[0], _RULES[fact[0]], message)

    def findings(self) -> list[Finding]:
        """Return what is odd, by line, once all lines were taken."""
        for key, (line, count) in self._claimed.items():
            if key not in self._advertised:
                odd = self._odd.setdefault("field", _Oddity("G42"))
                odd.add(line, "this field has no Advertised line of its record and source", count)
        found = sorted(self._odd.values(), key=lambda each: each.line)
        return [each.finding(self._name) for each in found]

    def _check_source(self, source: str) -> None:
        if self._source is None:
            self._source = source, self._line
        first, line = self._source
        if source != first:
            message = f"a peer is one source, and line {line:,} has another: {shorten(first)}"
            self._note("source", "G42", message)

    def _note(self, sort: str, rule: str, message: str) -> None:
        self._odd.setdefault(sort, _Oddity(rule)).add(self._line, message)


def _check_kind(kind: FactClass, fact: Fact) -> None:
    """Refuse a fact of another kind, or with another number of values."""
    option, rule = _OPTION_OF[kind], _RULE_OF[kind]
    found, arity = _KNOWN.get(fact[0]), len(fact) - 1
    if found is None or found.name not in _TAKEN[kind]:
        taken = [each for each in _KNOWN.values() if each.name in _TAKEN[kind]]
        other = _OPTION_OF.get(found.fact_class) if found is not None else None
        hint = f"{option} takes {', '.join(map(str, taken))}"
        if found is not None:
            hint = f"it belongs into {other}" if other else "record facts come from the lace"
        if found is not None and found.fact_class is FactClass.LOCAL:
            hint = "give it with --runtime" if found.name == LOCAL_TAI.name else "give --viewer V"
        raise FactLineError(f"{fact[0]}/{arity} is no {kind.value} fact", rule=rule, hint=hint)
    if found.arity != arity:
        raise FactLineError(
            f"{fact[0]} has {plural(found.arity, 'value')}, and here {arity:,}",
            rule=rule,
            hint=f"write {found.name}({','.join(found.arguments)}), each value in quotes",
        )


def _check_form(fact: Fact) -> None:
    """Refuse a value that has not the form of its place."""
    name, *values = fact
    for value, syntax in zip(values, _FORMS[name], strict=True):
        if not syntax.matches(value) and syntax is not Syntax.TEXT:
            raise FactLineError(
                f"{shorten(value)!r} is not {syntax.title}",
                rule=_RULES[name],
                hint=f"as in {name}({','.join(_KNOWN[name].arguments)})",
            )
