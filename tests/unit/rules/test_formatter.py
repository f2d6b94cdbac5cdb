"""The formatter: rules canonical, everything else kept."""

from __future__ import annotations

import pytest

from lace.errors import RuleError
from lace.rules.canonical import canonicalize
from lace.rules.source import format_source

MESSY = """

  # What is selected.\t
\t#:json   {"label": "all"}\x20

 Selected( P ):-Have(P),not   Blocked(P) .
   # Who is blocked.



Blocked(P)\t:-\tField(P , 'Name' , _ , 'it\\'s') , P!='x'.
Blocked(P) :- Cardinality( Field(P,_,_,_) , '>' , '3' ), Have(P), true.
#


"""

NEAT = """# What is selected.
#:json {"label": "all"}

Selected(P) :- Have(P), not Blocked(P).
# Who is blocked.

Blocked(P) :- Field(P,'Name',_,'it\\'s'), P != 'x'.
Blocked(P) :- Cardinality(Field(P,_,_,_),'>','3'), Have(P), true.
#
"""


def test_a_messy_file() -> None:
    assert format_source(MESSY) == NEAT
    assert format_source(NEAT) == NEAT
    assert format_source(NEAT.encode()) == NEAT
    assert canonicalize(MESSY) == canonicalize(NEAT)


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_nothing_stays_nothing(text: str) -> None:
    assert format_source(text) == ""


def test_rules_that_are_unsafe_can_be_formatted() -> None:
    assert format_source("A(X):-true.") == "A(X) :- true.\n"


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(RuleError, match="a rule ends with a period"):
        format_source("A(X) :- B(X)")


def test_other_blanks_are_text_of_a_comment() -> None:
    assert format_source("#\u00a0x\u2028 y\u00a0") == "#\u00a0x\u2028 y\u00a0\n"
