"""Authority taken from records that nobody vouches for (a warning).

Anyone can write a record that says "V is a member". Rules that decide by verifiers
should take them from records whose signer they look at. The check is simple on
purpose, and it is this:

1. A variable is a *verifier* when it is the value of `Field(_,'Signed-By',_,V)` or the
   argument of `Peer`, `Here` or `_Viewer`. A place of a derived predicate holds
   verifiers when a verifier stands there in any rule, in the head, in a positive or in
   a negated atom; and a variable that stands in such a place is a verifier as well.
2. A rule whose head gives out a verifier that it takes from a field or link of a
   record `P`, other than `Signed-By`, is reported, unless its body also has
   `Field(P,'Signed-By',_,…)`, or gives `P` to a derived predicate that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.rules.checks.places import Place, named, spread
from lace.rules.syntax import Atom, Constant, PredicateKey, Rule, Use, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.rules.findings import Reporter

__all__ = ["check_authority"]

_FIELD: Final = PredicateKey("Field", 4)
_VALUES: Final = {_FIELD: 3, PredicateKey("RecordLink", 5): 4}
_IDENTITIES: Final = frozenset(
    {PredicateKey("Peer", 1), PredicateKey("Here", 1), PredicateKey("_Viewer", 1)}
)
_SIGNED_BY: Final = Constant("Signed-By")


def check_authority(rules: Sequence[Rule], reporter: Reporter) -> None:
    """Warn of rules that take verifiers from records without looking at the signer."""
    suspects = [(rule, *found) for rule in rules for found in _taken(rule)]
    if not suspects or not any(True for rule in rules for _ in _verifiers(rule)):
        return
    verifiers = spread(rules, _verifier_places)
    signed = spread(rules, _signed_places)
    for rule, atom, name, record in suspects:
        places = {(rule.head.key, at) for at, each in named(rule.head) if each == name}
        if places & verifiers and record not in _signed_records(rule, signed):
            reporter.warn(
                "020-24",
                atom.span,
                f"{rule.head.key} decides about verifiers, and takes {name} from record {record},"
                " which anyone can write",
                f"look at who signed it: Field({record},'Signed-By',_,…)",
            )


def _taken(rule: Rule) -> Iterator[tuple[Atom, str, str]]:
    """Yield atom, value and record where a head variable comes from a field or link."""
    given = {name for _, name in named(rule.head)}
    for atom in rule.positive_atoms():
        value = _VALUES.get(atom.key)
        if value is None or _is_signer(atom):
            continue
        taken, record = atom.terms[value], atom.terms[0]
        if isinstance(taken, Variable) and isinstance(record, Variable) and taken.name in given:
            yield atom, taken.name, record.name


def _verifier_places(rule: Rule, known: set[Place]) -> set[Place]:
    atoms = [rule.head, *(atom for use, atom in rule.uses() if use is not Use.CARDINALITY)]
    verifiers = set(_verifiers(rule))
    verifiers.update(name for atom in atoms for at, name in named(atom) if (atom.key, at) in known)
    return {
        (atom.key, at)
        for atom in atoms
        if atom.key not in _VALUES
        for at, name in named(atom)
        if name in verifiers
    }


def _verifiers(rule: Rule) -> Iterator[str]:
    """Yield the variables of a rule that are verifiers by where they stand."""
    for atom in rule.positive_atoms():
        if _is_signer(atom) or atom.key in _IDENTITIES:
            term = atom.terms[-1]
            if isinstance(term, Variable):
                yield term.name


def _signed_places(rule: Rule, known: set[Place]) -> set[Place]:
    """Return the places of the head whose records the body looks at the signer of."""
    records = _signed_records(rule, known)
    return {(rule.head.key, at) for at, name in named(rule.head) if name in records}


def _signed_records(rule: Rule, signed: set[Place]) -> set[str]:
    return {
        name
        for atom in rule.positive_atoms()
        for at, name in named(atom)
        if (at == 0 and _is_signer(atom)) or (atom.key, at) in signed
    }


def _is_signer(atom: Atom) -> bool:
    return atom.key == _FIELD and atom.terms[1] == _SIGNED_BY
