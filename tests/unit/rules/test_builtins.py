"""The reference meaning of tests and bounds."""

from __future__ import annotations

import itertools

import pytest

from lace.rules.builtins import (
    cardinality_holds,
    count_bound,
    int_compare,
    is_integer,
    lex_compare,
    text_shape,
    unequal,
)
from lace.rules.syntax import OPERATORS, Operator

BIG = "1" + "0" * 40


@pytest.mark.parametrize(
    ("left", "operator", "right", "holds"),
    [
        ("10", ">", "9", True),
        ("9", "<", "10", True),
        ("007", "<=", "7", True),
        ("007", ">=", "7", True),
        ("007", "<", "7", False),
        ("-0", ">=", "0", True),
        ("-0", "<", "000", False),
        ("-10", "<", "-9", True),
        ("-12", "<", "-11", True),
        ("-1", "<", "0", True),
        ("-5", "<", BIG, True),
        (BIG, "<", BIG[:-1] + "1", True),
        ("9" * 40, "<", BIG, True),
        ("-" + BIG, "<", "-" + "9" * 40, True),
        ("9" * 10_000, ">", "9" * 9_999, True),
    ],
)
def test_int_compare(left: str, operator: Operator, right: str, holds: bool) -> None:
    assert int_compare(left, operator, right) is holds


@pytest.mark.parametrize("text", ["", "ten", "+5", " 5", "5 ", "1_0", "１", "٣", "--1", "-", "1\n"])  # noqa: RUF001  # digits of other scripts
def test_what_is_no_integer_makes_it_false(text: str) -> None:
    assert not is_integer(text)
    for operator in OPERATORS:
        assert not int_compare(text, operator, "5")
        assert not int_compare("5", operator, text)


def test_int_compare_orders_as_numbers_do() -> None:
    texts = [f"{sign}{zeros}{n}" for sign in ("", "-") for zeros in ("", "0") for n in range(31)]
    for left, right in itertools.product(texts, repeat=2):
        assert int_compare(left, "<", right) is (int(left) < int(right))
        assert int_compare(left, "<=", right) is (int(left) <= int(right))
        assert int_compare(left, ">", right) is (int(left) > int(right))
        assert int_compare(left, ">=", right) is (int(left) >= int(right))


@pytest.mark.parametrize(
    ("left", "operator", "right", "holds"),
    [
        ("10", "<", "9", True),
        ("", "<", "a", True),
        ("a", "<=", "a", True),
        ("a", ">", "B", True),
        ("z", "<", "é", True),
        ("\uffff", "<", "\U00010000", True),  # not so in UTF-16
    ],
)
def test_lex_compare(left: str, operator: Operator, right: str, holds: bool) -> None:
    assert lex_compare(left, operator, right) is holds


@pytest.mark.parametrize(
    ("text", "start", "delimiters", "end", "holds"),
    [
        ("links/1", "links/", "", "", True),
        ("link", "links/", "", "", False),
        ("a.json", "", "", ".json", True),
        ("links/.md", "links/", "", ".md", True),
        ("aba", "ab", "", "ba", False),
        ("abba", "ab", "", "ba", True),
        ("", "", "", "", True),
        ("links/bob/msg", "links/", "./", "msg", True),
        ("links/bob.msg", "links/", "./", "msg", True),
        ("links/msg", "links/", "./", "msg", False),
        ("links/bob/alice/msg", "links/", "./", "msg", False),
        ("links/.msg", "links/", "./", "msg", False),
        ("x/b/c", "", "/", "b/c", True),
        ("links/bob/", "links/", "/", "", True),
        ("links/bob/x", "links/", "/", "", False),
        ("links/bob", "links/", "/", "", False),
        ("a/b/c", "a/", "/", "c", True),
        ("xéy", "", "é", "y", True),
        ("links/bob.msg", "links/", ".//.", "msg", True),
    ],
)
def test_text_shape(text: str, start: str, delimiters: str, end: str, holds: bool) -> None:
    assert text_shape(text, start, delimiters, end) is holds


def test_unequal_and_cardinality() -> None:
    assert unequal("a", "b")
    assert not unequal("a", "a")
    assert cardinality_holds(3, "<", "0100")
    assert not cardinality_holds(3, ">=", "4")
    assert cardinality_holds(0, "<=", "0")


@pytest.mark.requirement("030-89")
@pytest.mark.parametrize("count", [0, 1, 7, 2**40])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("bound", ["-1", "-0", "-007", "-" + "9" * 400, "07", "9" * 18, "9" * 400])
def test_a_bound_is_any_integer(count: int, operator: Operator, bound: str) -> None:
    whole = sum((ord(d) - 48) * 10**at for at, d in enumerate(reversed(bound.lstrip("-"))))
    whole = -whole if bound[0] == "-" else whole
    holds = {"<": count < whole, "<=": count <= whole, ">": count > whole, ">=": count >= whole}
    assert cardinality_holds(count, operator, bound) is holds[operator]
    assert int_compare(str(count), operator, str(count_bound(bound))) is holds[operator]
    assert -1 <= count_bound(bound) <= 2**62
