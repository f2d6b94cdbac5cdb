"""Colours for rules in the documentation: the words of the rule language, for Pygments."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Operator, Punctuation, String, Text

__all__ = ["LaceLexer"]


class LaceLexer(RegexLexer):
    """Splits rules into comments, predicates, variables and texts."""

    name = "Lace rules"
    aliases: ClassVar = ["lace"]
    filenames: ClassVar = ["*.lace"]
    tokens: ClassVar = {
        "root": [
            (r"\s+", Text),
            (r"#.*$", Comment.Single),
            (r"'(?:[^'\\\n]|\\.)*'", String.Single),
            (r":-|!=", Operator),
            (r"\b(?:not|true)\b", Keyword),
            (r"_?[A-Za-z][\w~-]*(?=\()", Name.Function),
            (r"[A-Z]\w*|_", Name.Variable),
            (r"[(),.]", Punctuation),
            (r".", Text),
        ]
    }
