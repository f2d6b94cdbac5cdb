"""Strategies for programs that can be evaluated, with facts, and for changes of the facts.

Predicates stand in layers: a rule may use predicates of its own layer, so there is plain
and mutual recursion, and negates or counts only what lies below. Every variable of a
head, a negation or a test is taken from a positive atom, so every program is legal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.property.lacegrams import Item, Program, Rule, Term

Fact = tuple[str, ...]
Change = tuple[tuple[Fact, ...], tuple[Fact, ...]]

BASE = (("E", 2), ("F", 1), ("G", 3), ("N", 1), ("Z", 0), ("E", 1))
LAYERS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("A", 2), ("B", 1), ("A", 1)),
    (("C", 2), ("D", 1), ("Flag", 0)),
    (("H", 1), ("K", 3), ("a-b~c_1", 2)),
)
VALUES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "links/a",
        "links/b/m",
        "1",
        "2",
        "10",
        "-3",
        "007",
        "é",
        "a\tb",
        "\x01",
        "\x85",
    ]
)
NUMBERS = st.sampled_from(
    ["1", "2", "3", "10", "-3", "007", "0", "-0", "9" * 40, "9" * 39 + "8", "x", ""]
)
NAMES = st.sampled_from(["X", "Y", "Z", "W"])
OPERATORS = st.sampled_from(["<", "<=", ">", ">="])


def _values(predicate: str) -> st.SearchStrategy[str]:
    return NUMBERS if predicate == "N" else VALUES


@st.composite
def facts(draw: st.DrawFn, max_size: int = 12) -> list[Fact]:
    made: list[Fact] = []
    for _ in range(draw(st.integers(0, max_size))):
        name, arity = draw(st.sampled_from(BASE))
        made.append((name, *(draw(_values(name)) for _ in range(arity))))
    return made


def _terms(arity: int, variables: st.SearchStrategy[Term]) -> st.SearchStrategy[tuple[Term, ...]]:
    term = st.one_of(
        variables, variables, variables, st.just(("any", "")), VALUES.map(lambda v: ("const", v))
    )
    return st.tuples(*(term for _ in range(arity)))


@st.composite
def _rule(draw: st.DrawFn, head: tuple[str, int], below: Any, level: Any) -> Rule:
    names = NAMES.map(lambda name: ("var", name))
    items: list[Item] = []
    for _ in range(draw(st.integers(1, 3))):
        name, arity = draw(st.sampled_from(level))
        items.append(("pos", (name, draw(_terms(arity, names)))))
    bound = sorted({text for item in items for kind, text in item[1][1] if kind == "var"})
    known = st.sampled_from([("var", name) for name in bound]) if bound else None
    constant = VALUES.map(lambda value: ("const", value))
    number = NUMBERS.filter(lambda text: text.lstrip("-").isdigit()).map(lambda v: ("const", v))
    some = st.one_of(known, known, constant) if known is not None else constant
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["not", "card", "ne", "int", "lex", "shape", "true"]))
        if kind == "not":
            name, arity = draw(st.sampled_from(below))
            term = st.one_of(some, st.just(("any", "")))
            items.append(("not", (name, draw(st.tuples(*(term for _ in range(arity)))))))
        elif kind == "card":
            name, arity = draw(st.sampled_from(below))
            free = st.sampled_from([("var", "Q"), ("var", "R"), ("any", "")])
            term = st.one_of(some, free, free)
            atom = (name, draw(st.tuples(*(term for _ in range(arity)))))
            if not _clashes(items, atom):
                bounds = st.sampled_from(
                    ["0", "1", "2", "3", "007", "9" * 30, "-1", "-0", "-" + "9" * 30]
                )
                items.append(("card", atom, draw(OPERATORS), draw(bounds)))
        elif kind == "ne":
            items.append(("ne", draw(some), draw(some)))
        elif kind == "int":
            operand = st.one_of(known, number) if known is not None else number
            items.append(("int", draw(operand), draw(OPERATORS), draw(operand)))
        elif kind == "lex":
            items.append(("lex", draw(some), draw(OPERATORS), draw(some)))
        elif kind == "shape":
            delimiters = draw(st.sampled_from(["", "/", "/."]))
            items.append(("shape", draw(some), draw(some), delimiters, draw(some)))
        else:
            items.append(("true",))
    order = draw(st.permutations(items))
    terms = tuple(draw(some) for _ in range(head[1]))
    return (head[0], terms), tuple(order)


def _clashes(items: list[Item], atom: Any) -> bool:
    """A free variable in two counted atoms is not safe."""
    free = {text for kind, text in atom[1] if kind == "var" and text in "QR"}
    for item in items:
        if item[0] == "card":
            free -= {"Q", "R"} - {text for kind, text in item[1][1] if kind == "var"}
    used = {
        text for item in items if item[0] == "card" for kind, text in item[1][1] if kind == "var"
    }
    return bool(free & used)


@st.composite
def programs(draw: st.DrawFn, max_rules: int = 4) -> Program:
    made: list[Rule] = []
    below: list[tuple[str, int]] = list(BASE)
    for layer in LAYERS:
        level = [*below, *layer]
        heads = draw(st.lists(st.sampled_from(layer), max_size=max_rules))
        made += [draw(_rule(head, below, level)) for head in heads]
        below = level
    return tuple(draw(st.permutations(made)))


@st.composite
def order_programs(draw: st.DrawFn) -> Program:
    """Programs that count what comes before, in the pattern of the newest-100 example."""
    kind = draw(st.sampled_from(["lex", "int"]))
    item_kind = draw(st.sampled_from(["lex", "int"]))
    operators = st.sampled_from(["<", ">"])

    def var(name: str) -> Term:
        return ("var", name)

    ahead: Rule = (
        ("Before", (var("P"), var("Q"))),
        (
            ("pos", ("E", (var("P"), var("TP")))),
            ("pos", ("E", (var("Q"), var("TQ")))),
            (kind, *draw(st.sampled_from([
                (var("TQ"), ">", var("TP")), (var("TP"), "<", var("TQ")),
                (var("TQ"), "<", var("TP"))]))),
        ),
    )  # fmt: skip
    tied: Rule = (
        ("Before", (var("P"), var("Q"))),
        (
            ("pos", ("E", (var("Q"), var("T")))),
            ("pos", ("E", (var("P"), var("T")))),
            (item_kind, var("Q"), draw(operators), var("P")),
        ),
    )
    bound = draw(st.sampled_from(["0", "1", "2", "5", "-1", "-0", "-" + "9" * 30]))
    other = draw(st.sampled_from([var("Q"), ("any", "")]))
    chosen: Rule = (
        ("Selected", (var("P"),)),
        (
            ("pos", draw(st.sampled_from([("E", (var("P"), ("any", ""))), ("F", (var("P"),))]))),
            ("card", ("Before", (var("P"), other)), draw(OPERATORS), bound),
        ),
    )
    rules = draw(st.sampled_from([(ahead, tied), (ahead,), (tied,), (tied, ahead)]))
    return (*rules, chosen)


@st.composite
def changes(draw: st.DrawFn, start: list[Fact]) -> list[Change]:
    """Return a few changes of facts: what comes and what goes, some of it not there."""
    made: list[Change] = []
    known = list(start)
    for _ in range(draw(st.integers(1, 4))):
        more = draw(facts(max_size=4))
        gone = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        known += more
        made.append((tuple(more), tuple(gone)))
    return made
