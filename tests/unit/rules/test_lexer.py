"""The lexer: everything is a token, and time is linear."""

from __future__ import annotations

import pytest

from lace.rules.parser import tokenize


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("", "end"),
        (" \t ", "end"),
        ("A(X) :- B('c', _).", "word ( word ) neck word ( quoted , word ) . end"),
        (r"'a\'b' 'c\\'", "quoted quoted end"),
        (r"'open\'", "open end"),
        ("'a", "open end"),
        ('"a" "b', "double double end"),
        ("\u2018a\u2019 \u201cb\u201d", "double double end"),
        ("X != Y = Z <= W", "word unequal word operator word operator word end"),
        ("a # b", "word comment end"),
        ("a; ? \x0b", "word other other other end"),
        ("Größe-1~ 2nd", "word word end"),
        (": - :-", "other word neck end"),
    ],
)
def test_kinds(line: str, kinds: str) -> None:
    assert " ".join(token.kind for token in tokenize(line)) == kinds


def test_columns_count_code_points_from_one() -> None:
    tokens = tokenize("\U0001f5a7 'é' X")
    assert [(token.text, token.column, token.end) for token in tokens] == [
        ("\U0001f5a7", 1, 2),
        ("'é'", 3, 6),
        ("X", 7, 8),
        ("", 8, 9),
    ]


@pytest.mark.parametrize("piece", ["'", "'\\", "\\", '"', "(", "a", "\u2018", "'a\\'"])
def test_long_lines_are_quick(piece: str) -> None:
    line = piece * 200_000
    assert "".join(token.text for token in tokenize(line)) == line


def test_the_end_of_a_line_without_tokens_is_its_first_column() -> None:
    for line in ("", "  \t"):
        (end,) = tokenize(line)
        assert (end.kind, end.text, end.column) == ("end", "", 1)
