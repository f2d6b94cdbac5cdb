"""The order of joins, from what an engine knows of sizes: each choice, with what it beats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.algebra.lower import from_change, lower_program, places
from lace.algebra.nodes import Filter, Project, Scan, explain_plan
from lace.algebra.passes.order import order_joins
from lace.rules.profiles import QUERY
from lace.rules.program import check_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.algebra.nodes import Node
    from lace.algebra.passes.order import Estimates

PROFILE = QUERY.with_base([*((name, 1) for name in "FGHI"), *((name, 2) for name in "ABCDE")])


class Rows:
    """Estimates by the name of a predicate: its rows, all different unless `distinct` says less."""

    def __init__(self, distinct: dict[str, int] | None = None, **rows: int) -> None:
        self._rows = rows
        self._distinct = distinct or {}

    def rows(self, scan: Scan) -> int:
        return self._rows[scan.predicate.name]

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        name = scan.predicate.name
        return self._distinct.get(name, self._rows[name])


class Unknown:
    """Estimates that must not be asked for."""

    def rows(self, scan: Scan) -> int:
        raise AssertionError(scan)

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        raise AssertionError(scan)


def order_of(body: str, estimates: Estimates, head: str = "Found(X)") -> list[str]:
    """Return the scans of a rule's plan, the one that is done first in front."""
    program = check_source(f"{head} :- {body}.", profile=PROFILE)
    plan = lower_program(program).steps[0].branches[0].plan
    lines = [line.split() for line in explain_plan(order_joins(plan, estimates))]
    return [words[1] for words in lines if words[0] == "scan"]


def test_the_connected_scan_that_makes_fewest_rows_is_next() -> None:
    """Not the first of those that are connected: each row meets 50 of B, 2 of C, 7 of D."""
    rows = Rows({"B": 2, "C": 50, "D": 10}, A=10, B=100, C=100, D=70)
    body = "A(X,S), B(S,T), C(S,U), D(S,V)"
    found = order_of(body, rows, "Found(X,T,U,V)")
    assert found == ["A(X,S)", "C(S,U)", "D(S,V)", "B(S,T)"]


def test_among_scans_that_make_as_many_rows_the_shorter_is_next() -> None:
    rows = Rows({"B": 100, "C": 50}, A=10, B=200, C=100)
    assert order_of("A(X,S), B(S,T), C(S,U)", rows, "Found(X,T,U)") == [
        "A(X,S)",
        "C(S,U)",
        "B(S,T)",
    ]


def test_scans_that_only_tests_connect_are_joined_by_size() -> None:
    """No scan shares a column with what is bound, so the smallest of those left is next."""
    body = "F(X), G(Y), H(Z), I(W), X != Y, Y != Z, Z != W"
    head = "Found(X,Y,Z,W)"
    assert order_of(body, Rows(F=40, G=10, H=30, I=20), head) == ["G(Y)", "I(W)", "H(Z)", "F(X)"]
    assert order_of(body, Rows(F=1, G=2, H=3, I=4), head) == ["F(X)", "G(Y)", "H(Z)", "I(W)"]


def test_the_smallest_of_two_scans_begins_unless_it_only_tests_the_other() -> None:
    """An index of some more rows takes longer than a look at each of them."""
    body = "A(X,Y), F(X)"
    assert order_of(body, Rows(A=80, F=10), "Found(X,Y)") == ["A(X,Y)", "F(X)"]
    assert order_of(body, Rows(A=81, F=10), "Found(X,Y)") == ["F(X)", "A(X,Y)"]
    assert order_of("A(X,Y), B(Y,Z)", Rows(A=12, B=10), "Found(X,Z)") == ["B(Y,Z)", "A(X,Y)"]


def test_of_three_scans_the_smallest_begins_even_if_it_only_tests() -> None:
    body = "A(X,Y), F(X), G(X)"
    assert order_of(body, Rows(A=12, F=10, G=11), "Found(X,Y)")[0] == "F(X)"


def test_a_scan_alone_needs_no_estimate() -> None:
    """Sizes are counted on demand, which takes time where nothing depends on them."""
    assert order_of("F(X)", Unknown()) == ["F(X)"]
    assert order_of("F(X), G(Y)", Unknown(), "Found(X,Y)") == ["F(X)", "G(Y)"]


def test_a_scan_whose_columns_are_all_bound_only_tests_and_comes_first() -> None:
    """Before a join that makes fewer rows than the scan has."""
    rows = Rows(A=10, B=20, C=1000)
    body = "A(X,Y), B(Y,Z), C(X,Y)"
    assert order_of(body, rows, "Found(X,Z)") == ["A(X,Y)", "C(X,Y)", "B(Y,Z)"]


def test_one_scan_is_not_joined() -> None:
    program = check_source("Found(X) :- F(X), X != 'a'.", profile=PROFILE)
    branch = lower_program(program).steps[0].branches[0]
    assert [type(node) for node in _nodes(branch.plan)] == [Project, Filter, Scan]
    ((scan, _),) = places(branch.plan)
    changed = from_change(branch.plan, scan.occurrence)
    assert [type(node) for node in _nodes(changed)] == [Project, Filter, Scan]


def _nodes(node: Project | Node) -> Iterator[Project | Node]:
    """Yield a chain of nodes, the last of which has no input."""
    yield node
    if isinstance(node, Project | Filter):
        yield from _nodes(node.input)
