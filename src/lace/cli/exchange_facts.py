"""Facts that come with an exchange, as commands read them: advertisements and runtime facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.cli.fact_files import read_fact_files
from lace.cli.output import plural
from lace.facts.catalogue import BASE_PREDICATES, FactClass
from lace.facts.lines import FactLineError
from lace.policy.public_facts import PEER, with_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.cli.session import Session
    from lace.facts.lines import Fact

__all__ = ["read_public_facts"]

_OPTION_OF: Final = {
    FactClass.ADVERTISEMENT: "--advertised",
    FactClass.RUNTIME: "--runtime",
}
_RULE_OF: Final = {FactClass.ADVERTISEMENT: "040-13", FactClass.RUNTIME: "040-89"}


def read_public_facts(
    session: Session, advertised: str | None, runtime: str | None, viewer: str | None
) -> tuple[Fact, ...]:
    """Return the facts of both files, and the `Peer` fact that a proven viewer gives.

    Raises:
        FactLineError: a fact does not belong into its file.
    """
    limits = session.rule_limits()
    found: list[Fact] = []
    for argument, kind in ((advertised, FactClass.ADVERTISEMENT), (runtime, FactClass.RUNTIME)):
        if argument is not None:
            found += read_fact_files(session, [argument], limits, _only(kind)).facts
    proven = {fact[1] for fact in found if fact[0] == PEER}
    if proven and proven != {viewer}:
        who = f"the viewer is {viewer}" if viewer else "there is no --viewer"
        session.output.note(
            f"the runtime facts have Peer('{sorted(proven)[0]}'), and {who}: "
            "exposures are chosen by the viewer alone"
        )
    return with_peer(found, viewer)


def _only(kind: FactClass) -> Callable[[Fact], None]:
    """Return a check that refuses facts of another kind."""
    option, rule = _OPTION_OF[kind], _RULE_OF[kind]
    taken = [each for each in BASE_PREDICATES.values() if each.fact_class is kind]
    names = ", ".join(map(str, taken))

    def check(fact: Fact) -> None:
        found, arity = BASE_PREDICATES.get(fact[0]), len(fact) - 1
        if found is None or found.fact_class is not kind:
            other = _OPTION_OF.get(found.fact_class) if found is not None else None
            belongs = "record facts come from the lace" if found is not None else ""
            raise FactLineError(
                f"{fact[0]}/{arity} is no {kind.value} fact",
                rule=rule,
                hint=f"it belongs into {other}" if other else belongs or f"{option} takes {names}",
            )
        if found.arity != arity:
            raise FactLineError(
                f"{fact[0]} has {plural(found.arity, 'value')}, and here {arity:,}",
                rule=rule,
                hint=f"write {found.name}({','.join(found.arguments)}), each value in quotes",
            )

    return check
