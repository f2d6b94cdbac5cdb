"""Strategies for lacegrams, and slow, plain readings of what the checks decide.

A program is made of nested tuples, printed here; nothing of `lace.rules` is used, so
that a fault there cannot hide.

    program  (rule, …)
    rule     (atom, (item, …))
    atom     (name, (term, …))
    term     ("var", name) | ("any", "") | ("const", value)
    item     ("pos", atom) | ("not", atom) | ("ne", term, term) | ("true",)
             | ("int" | "lex", term, operator, term) | ("shape", term, term, value, term)
             | ("card", atom, operator, bound)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from lace.base.text import is_nfc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Term = tuple[str, str]
Atom = tuple[str, tuple[Term, ...]]
Item = tuple[Any, ...]
Rule = tuple[Atom, tuple[Item, ...]]
Program = tuple[Rule, ...]
Key = tuple[str, int]

OPERATORS = st.sampled_from(["<", "<=", ">", ">="])
VARIABLES = st.sampled_from(["X", "Y", "Z", "W", "Longer_1"])
DERIVED = st.sampled_from(["A", "B", "C", "a-b~c_1", "_Local"])
BASE = st.sampled_from(["E", "F", "G"])
VALUES = st.one_of(
    st.sampled_from(["", "x", "it's", "back\\slash", "\\'", "links/a", "10", "-3", "é", "\u2028"]),
    st.text(st.sampled_from("a'\t\x00\x01\x1b\x7f\x85\u2029"), max_size=4),
    st.text(
        st.characters(exclude_characters="\n\r\U0010fffd", exclude_categories=["Cs"]), max_size=6
    ).filter(is_nfc),
)
NUMBERS = st.one_of(st.integers(-(10**40), 10**40).map(str), st.sampled_from(["007", "-0", "00"]))

BOUNDS = st.sampled_from(["0", "3", "007", "9" * 40, "-1", "-0", "-007", "-" + "9" * 40])

variables = VARIABLES.map(lambda name: ("var", name))
constants = VALUES.map(lambda value: ("const", value))
anything = st.just(("any", ""))
terms = st.one_of(variables, variables, constants, anything)
numbers = st.one_of(variables, NUMBERS.map(lambda value: ("const", value)))


def atoms(names: st.SearchStrategy[str]) -> st.SearchStrategy[Atom]:
    return st.tuples(names, st.lists(terms, max_size=3).map(tuple))


heads = st.tuples(DERIVED, st.lists(st.one_of(variables, constants), max_size=2).map(tuple))
body_atoms = st.one_of(atoms(DERIVED), atoms(BASE))
items: st.SearchStrategy[Item] = st.one_of(
    st.tuples(st.just("pos"), body_atoms),
    st.tuples(st.just("pos"), body_atoms),
    st.tuples(st.just("not"), body_atoms),
    st.tuples(st.just("ne"), terms, terms),
    st.tuples(st.just("int"), numbers, OPERATORS, numbers),
    st.tuples(st.just("lex"), terms, OPERATORS, terms),
    st.tuples(st.just("shape"), terms, terms, VALUES, terms),
    st.tuples(st.just("card"), body_atoms, OPERATORS, BOUNDS),
    st.just(("true",)),
)
rules = st.tuples(heads, st.lists(items, min_size=1, max_size=5).map(tuple))
programs: st.SearchStrategy[Program] = st.lists(rules, max_size=6).map(tuple)


# Programs of few predicates without arguments, so always safe and often stratified.
letters = st.sampled_from("ABCDEFGH").map(lambda name: (name, ()))
links: st.SearchStrategy[Item] = st.one_of(
    *(st.tuples(st.just("pos"), letters) for _ in range(4)),
    st.tuples(st.just("not"), letters),
    st.tuples(st.just("card"), letters, OPERATORS, st.just("3")),
)
skeletons: st.SearchStrategy[Program] = st.lists(
    st.tuples(letters, st.lists(links, min_size=1, max_size=2).map(tuple)), max_size=10
).map(tuple)


def quote(value: str) -> str:
    return "'" + "".join(f"\\{each}" if each in "'\\" else each for each in value) + "'"


def tokens_of_term(term: Term) -> str:
    kind, text = term
    return {"var": text, "any": "_"}.get(kind) or quote(text)


def tokens_of_atom(atom: Atom) -> Iterator[str]:
    name, terms_of_it = atom
    yield f"{name}("
    for position, term in enumerate(terms_of_it):
        if position:
            yield ","
        yield tokens_of_term(term)
    yield ")"


def tokens_of_item(item: Item) -> Iterator[str]:
    match item:
        case ("pos", atom):
            yield from tokens_of_atom(atom)
        case ("not", atom):
            yield "not "
            yield from tokens_of_atom(atom)
        case ("ne", left, right):
            yield from (tokens_of_term(left), " != ", tokens_of_term(right))
        case ("int" | "lex" as kind, left, operator, right):
            yield "IntCompare(" if kind == "int" else "LexCompare("
            yield from (tokens_of_term(left), ",", f"'{operator}'", ",", tokens_of_term(right), ")")
        case ("shape", text, start, delimiters, end):
            yield from ("TextShape(", tokens_of_term(text), ",", tokens_of_term(start), ",")
            yield from (quote(delimiters), ",", tokens_of_term(end), ")")
        case ("card", atom, operator, bound):
            yield "Cardinality("
            yield from tokens_of_atom(atom)
            yield from (",", f"'{operator}'", ",", f"'{bound}'", ")")
        case _:
            yield "true"


def tokens_of_rule(rule: Rule) -> Iterator[str]:
    head, body = rule
    yield from tokens_of_atom(head)
    yield " :- "
    for position, item in enumerate(body):
        if position:
            yield ", "
        yield from tokens_of_item(item)
    yield "."


def canonical(program: Program) -> str:
    return "\n".join("".join(tokens_of_rule(rule)) for rule in program)


SPACES = st.sampled_from(["", "", " ", "  ", "\t", " \t "])
COMMENTS = st.sampled_from(
    ["", " \t", "# comment", "  # indented é", "#", '#:json {"label":"x"}', "#:other", "# '(.,:-"]
)


@st.composite
def authored(draw: st.DrawFn, of: st.SearchStrategy[Program] = programs) -> tuple[Program, str]:
    """Return a program and text for it with random spaces, comments and blank lines."""
    program = draw(of)
    lines: list[str] = []
    for rule in program:
        lines += draw(st.lists(COMMENTS, max_size=2))
        parts = []
        for token in tokens_of_rule(rule):
            space = draw(SPACES)
            if token == "not ":
                parts.append(space + "not" + (draw(SPACES) or " "))
            else:
                parts.append(space + token.strip(" "))
        lines.append("".join(parts) + draw(SPACES))
    lines += draw(st.lists(st.sampled_from(["", "# the end", "\t"]), max_size=2))
    return program, "\n".join(lines)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Return a text with a few small changes."""
    pieces = st.sampled_from(
        ["'", "\\", "(", ")", ",", ".", ":-", "_", "X", "a", "not ", "true", "!=", "=", "<", " ",
         "\t", "\n", "\r", "#", "#:json ", "{}", '"', "\x00", "\u0301", "é", "\ufeff", "\ud800",
         "1", "Cardinality(", "TextShape(", "IntCompare(", "Prefix(", "Have("]
    )  # fmt: skip
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        gone = draw(st.integers(0, 3))
        text = text[:at] + draw(st.one_of(st.just(""), pieces)) + text[at + gone :]
    return text


def named(terms_of_it: Iterable[Term]) -> list[str]:
    return [text for kind, text in terms_of_it if kind == "var"]


def tested(item: Item) -> list[Term]:
    """The terms that a test tests."""
    match item:
        case ("ne", left, right) | ("int" | "lex", left, _, right):
            return [left, right]
        case ("shape", text, start, _, end):
            return [text, start, end]
        case _:
            return []


def is_safe(rule: Rule) -> bool:
    """Decide safety by the words of the rule, one occurrence after the other."""
    (_, head), body = rule
    bound = {name for item in body if item[0] == "pos" for name in named(item[1][1])}
    if any(kind == "any" for kind, _ in head) or not bound.issuperset(named(head)):
        return False
    for position, item in enumerate(body):
        if item[0] == "not" and not bound.issuperset(named(item[1][1])):
            return False
        if any(kind == "any" for kind, _ in tested(item)) or not bound.issuperset(
            named(tested(item))
        ):
            return False
        if item[0] == "card":
            outside = set(named(head))
            for other, each in enumerate(body):
                if other != position:
                    inner = each[1][1] if each[0] in {"pos", "not", "card"} else tested(each)
                    outside.update(named(inner))
            if any(name in outside and name not in bound for name in named(item[1][1])):
                return False
    return True


def edges(program: Program) -> list[tuple[Key, Key, bool]]:
    """User, used, and whether through negation or counting."""
    return [
        ((head[0], len(head[1])), (item[1][0], len(item[1][1])), item[0] != "pos")
        for head, body in program
        for item in body
        if item[0] in {"pos", "not", "card"}
    ]


def is_stratified(program: Program) -> bool:
    """Decide by trying every path."""
    found = edges(program)

    def leads(start: Key, goal: Key, seen: frozenset[Key]) -> bool:
        return start == goal or any(
            leads(used, goal, seen | {used})
            for user, used, _ in found
            if user == start and used not in seen
        )

    return not any(strict and leads(used, user, frozenset({used})) for user, used, strict in found)


def levels(program: Program) -> dict[Key, int]:
    """The lowest strata: raise each level until nothing is wrong."""
    level = {(head[0], len(head[1])): 0 for head, _ in program}
    again = True
    while again:
        again = False
        for user, used, strict in edges(program):
            if used in level and level[user] < level[used] + strict:
                level[user] = level[used] + strict
                again = True
    return level
