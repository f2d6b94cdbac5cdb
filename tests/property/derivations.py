"""Small, dense programs in which most rules give facts, and many of them in several ways.

The programs of `evaluations` are wide and often give nothing, and whatever Hypothesis
draws choice by choice tends to the simplest. These are made from one number: few
predicates, few values, many facts, so that heights grow and derivations compete.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.property.lacegrams import Atom, Item, Program, Rule, Term

Fact = tuple[str, ...]
Key = tuple[str, int]

BASE: list[Key] = [("E", 2), ("F", 1)]
LAYERS: list[list[Key]] = [[("A", 2), ("B", 1)], [("C", 2), ("D", 1), ("Flag", 0)]]
VALUES = ["a", "b", "c", "10", "9", "d", "e"]
OPERATORS = ["<", "<=", ">", ">="]


def _chain(first: str, second: str) -> Rule:
    x, y, z = (("var", name) for name in "XYZ")
    return ("A", (x, z)), (("pos", (first, (x, y))), ("pos", (second, (y, z))))


CLOSURES = [_chain("A", "E"), _chain("E", "A"), _chain("A", "A")]


def dense_worlds() -> st.SearchStrategy[tuple[Program, list[Fact]]]:
    """Programs with facts."""
    return st.integers(0, 2**40).map(lambda seed: _world(Random(seed)))


def _world(random: Random) -> tuple[Program, list[Fact]]:
    rules: list[Rule] = []
    below = list(BASE)
    for layer in LAYERS:
        level = [*below, *layer]
        rules += [_rule(random, head, below, below) for head in layer]
        rules += [
            _rule(random, random.choice(layer), below, level) for _ in range(random.randint(1, 4))
        ]
        below = level
    if random.random() < 0.7:
        rules.append(random.choice(CLOSURES))
    random.shuffle(rules)
    pairs = {(random.choice(VALUES), random.choice(VALUES)) for _ in range(random.randint(5, 11))}
    ones = random.sample(VALUES, random.randint(1, 3))
    facts: list[Fact] = [("E", *pair) for pair in sorted(pairs)]
    return tuple(rules), facts + [("F", one) for one in ones]


def _rule(random: Random, head: Key, below: list[Key], level: list[Key]) -> Rule:
    atoms = [_atom(random, random.choice(level)) for _ in range(random.randint(1, 3))]
    bound = sorted({text for _, terms in atoms for kind, text in terms if kind == "var"})
    if not bound:
        atoms.append(("F", (("var", "X"),)))
        bound = ["X"]
    known: list[Term] = [("var", name) for name in bound]
    items: list[Item] = [("pos", atom) for atom in atoms]
    if random.random() < 0.6:
        items.append(_condition(random, random.choice(below), known))
    random.shuffle(items)
    return (head[0], tuple(random.choice(known) for _ in range(head[1]))), tuple(items)


def _atom(random: Random, key: Key) -> Atom:
    def term() -> Term:
        chance = random.random()
        if chance < 0.05:
            return "const", random.choice(VALUES)
        return ("any", "") if chance < 0.15 else ("var", names.pop())

    names = random.sample("XYZ", 3) if random.random() < 0.9 else ["X", "X", "X"]
    return key[0], tuple(term() for _ in range(key[1]))


def _condition(random: Random, key: Key, known: list[Term]) -> Item:
    kind = random.choice(["not", "not", "card", "card", "ne", "lex", "int", "true"])
    name, arity = key
    if kind == "not":
        return kind, (name, tuple(random.choice([*known, ("any", "")]) for _ in range(arity)))
    if kind == "card":
        free = [*known, ("var", "Q"), ("any", "")]
        atom = name, tuple(random.choice(free) for _ in range(arity))
        return kind, atom, random.choice(OPERATORS), random.choice(["0", "1", "2", "4"])
    if kind == "ne":
        return kind, random.choice(known), random.choice(known)
    if kind == "true":
        return (kind,)
    return kind, random.choice(known), random.choice(OPERATORS), random.choice(known)
