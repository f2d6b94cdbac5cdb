"""Tables of a test file, read strictly: what has another type, or no meaning, is noted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base.text import safe_text, shorten
from lace.errors import Finding, Place, UsageError
from lace.rules.findings import closest, format_findings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path


_KINDS: Final = (
    (bool, "true or false"),
    (str, "text"),
    (int, "a whole number"),
    (float, "a number"),
    (list, "an array"),
    (dict, "a table"),
)


def meant(name: str, known: Collection[str], what: str) -> str:
    """Return a hint: the known name most like a name, or all of them.

    >>> meant("sned", ["send", "query"], "keys")
    'did you mean send?'
    """
    near = closest(name, known)
    if near:
        return f"did you mean {near}?"
    shown = sorted(known)
    more = ", …" if len(shown) > 30 else ""
    return f"the {what} are {', '.join(shown[:30])}{more}" if shown else f"there are no {what}"


def _kind(value: object) -> str:
    return next((text for kind, text in _KINDS if isinstance(value, kind)), "a date or a time")


class TomlTable:
    """A table of the file, and the way to it."""

    def __init__(self, values: Mapping[str, object], path: KeyPath, problems: Problems) -> None:
        self._values = values
        self.path = path
        self.problems = problems

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def raw(self, key: str) -> object:
        """Return whatever a key has; None when it is not there."""
        return self._values.get(key)

    def at(self, *more: str | int) -> KeyPath:
        """Return the path of something in the table."""
        return (*self.path, *more)

    def add(
        self, key: str | None, message: str, hint: str | None = None, text: str | None = None
    ) -> None:
        """Note what is wrong with the value of a key, or with the table."""
        path = self.path if key is None else self.at(key)
        self.problems.add(path, message, hint, text)

    def check_keys(self, known: Collection[str]) -> None:
        """Note the keys that mean nothing."""
        for key in self._values:
            if key not in known:
                self.add(key, "there is no such key", meant(key, known, "keys here"))

    def _typed(self, key: str, kind: type, wanted: str) -> object:
        value = self._values.get(key)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        self.add(key, f"this is {_kind(value)}, and should be {wanted}")
        return None

    def text(self, key: str) -> str | None:
        """Return a text; None when it is missing."""
        found = self._typed(key, str, "text")
        return found if isinstance(found, str) else None

    def number(self, key: str) -> int | None:
        """Return a whole number."""
        found = self._typed(key, int, "a whole number")
        return found if isinstance(found, int) else None

    def table(self, key: str) -> TomlTable:
        """Return a table; an empty one when it is missing."""
        found = self._typed(key, dict, "a table")
        return TomlTable(found if isinstance(found, dict) else {}, self.at(key), self.problems)

    def items(self, key: str) -> list[object] | None:
        """Return an array of anything."""
        found = self._typed(key, list, "an array")
        return found if isinstance(found, list) else None

    def tables(self, key: str) -> list[TomlTable]:
        """Return an array of tables."""
        made: list[TomlTable] = []
        for number, each in enumerate(self.items(key) or []):
            if isinstance(each, dict):
                made.append(TomlTable(each, self.at(key, number), self.problems))
            else:
                self.add(key, f"item {number + 1} is {_kind(each)}, and should be a table")
        return made

    def texts(self, key: str, *, most: int | None = None, unique: bool = True) -> list[str] | None:
        """Return an array of texts, none of which may be there twice; None when it is missing."""
        found = self.items(key)
        if found is None:
            return None
        if most is not None and len(found) > most:
            self.add(key, f"these are {len(found):,} items, and at most {most:,} are read")
            return []
        made: list[str] = []
        seen: set[str] = set()
        for number, each in enumerate(found, 1):
            if not isinstance(each, str):
                self.add(key, f"item {number} is {_kind(each)}, and should be text")
            elif unique and each in seen:
                self.add(key, f"{shorten(each)!r} is there twice", text=each)
            else:
                made.append(each)
                seen.add(each)
        return made


# -- Places in a test file, and the collection of all its faults.
#
# TOML as it is read has no lines any more; here they are found again from the text. A path
# is the way to a value: `("case", 0, "send")` is `send` of the first case.

KeyPath: TypeAlias = "tuple[str | int, ...]"
"""Keys, and positions in arrays from 0."""

_NAME: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_DOTTED: Final = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_HEADER: Final = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]\]?")
_KEY: Final = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")
_PART: Final = re.compile(_NAME)
_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[][{}\n]',
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


class PolicyTestError(UsageError):
    """A test file that cannot be used; `findings` holds all that is wrong with it."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first = findings[0]
        if len(findings) == 1:
            super().__init__(first.message, place=first.place, hint=first.hint)
        else:
            super().__init__(format_findings(findings))
        self.findings = findings


def show_path(path: KeyPath) -> str:
    """Return a path as messages write it; cases and other array items count from 1.

    >>> show_path(("case", 0, "send"))
    'case 1, send'
    >>> show_path(("records", "note", "headers"))
    'records.note.headers'
    """
    shown = ""
    after_item = False
    for part in path:
        if isinstance(part, int):
            shown += f" {part + 1}"
            after_item = True
            continue
        name = part if _PLAIN.fullmatch(part) else f'"{safe_text(part)}"'
        joint = ", " if after_item else "."
        shown += f"{joint}{name}" if shown else name
        after_item = False
    return shown


class TextPlaces:
    """The lines of keys and tables in a text that is legal TOML."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        self._text = text.split("\n")
        self._arrays: dict[KeyPath, int] = {}
        for path, line in self._scan(text):
            self._lines.setdefault(path, line)
        self._begins = sorted(set(self._lines.values()))

    def _scan(self, text: str) -> Iterator[tuple[KeyPath, int]]:
        table: KeyPath = ()
        at, line, depth, fresh = 0, 1, 0, True
        while True:
            if fresh and not depth:
                if header := _HEADER.match(text, at):
                    table = self._enter(header[2], is_array=header[1] == "[[")
                    yield table, line
                    at = header.end()
                elif key := _KEY.match(text, at):
                    yield (*table, *_parts(key[1])), line
                    at = key.end()
            token = _TOKEN.search(text, at)
            if token is None:
                return
            depth += (token[0] in "[{") - (token[0] in "]}")
            line += token[0].count("\n")
            fresh = token[0] == "\n"
            at = token.end()

    def _enter(self, name: str, *, is_array: bool) -> KeyPath:
        """Return the path of the table that a header begins."""
        path: KeyPath = ()
        parts = _parts(name)
        for position, part in enumerate(parts):
            path = (*path, part)
            if is_array and position == len(parts) - 1:
                self._arrays[path] = self._arrays.get(path, -1) + 1
            if path in self._arrays:
                path = (*path, self._arrays[path])
        return path

    def line(self, path: KeyPath, text: str | None = None) -> int | None:
        """Return the line of a path, or of what it is in; of a text in it where there is one."""
        while path and path not in self._lines:
            path = path[:-1]
        first = self._lines.get(path)
        if first is None or text is None:
            return first
        following = [begin for begin in self._begins if begin > first]
        last = following[0] if following else len(self._text) + 1
        for line in range(first, last):
            if text in self._text[line - 1]:
                return line
        return first

    def first_line(self, path: KeyPath, text: str) -> int | None:
        """Return the line where the text of a key begins; None if it is written otherwise."""
        line = self._lines.get(path)
        if line is None:
            return None
        written = text.split("\n")
        if len(written) == 1 and text in self._text[line - 1]:
            return line
        there = self._text[line : line + len(written)]
        same = there[:-1] == written[:-1] and there[-1].startswith(written[-1])
        return line + 1 if len(there) == len(written) and same else None


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]


class Problems:
    """All that is wrong with one test file."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self._places = TextPlaces(text)
        self._findings: list[Finding] = []

    def __bool__(self) -> bool:
        return bool(self._findings)

    def line(self, path: KeyPath) -> int | None:
        """Return the line of a path."""
        return self._places.line(path)

    def first_line(self, path: KeyPath, text: str) -> int | None:
        """Return the line where the text of a key begins; None if it is written otherwise."""
        return self._places.first_line(path, text)

    def add(
        self, path: KeyPath, message: str, hint: str | None = None, text: str | None = None
    ) -> None:
        """Note what is wrong at a path; `text` is a part of its value to look for."""
        shown = show_path(path)
        self._findings.append(
            Finding(
                severity="error",
                place=Place(self.name, self._places.line(path, text)),
                message=f"{shown}: {message}" if shown else message,
                hint=hint,
            )
        )

    def refuse(self) -> None:
        """Raise what was noted, if anything was."""
        if self._findings:
            ordered = sorted(self._findings, key=lambda found: found.place.line or 0)
            raise PolicyTestError(tuple(ordered))


def refused(
    name: str,
    message: str,
    line: int | None = None,
    column: int | None = None,
    hint: str | None = None,
) -> PolicyTestError:
    """Return the error that says one thing about a file."""
    place = Place(name, line, column)
    return PolicyTestError((Finding(severity="error", place=place, message=message, hint=hint),))


def read_bounded(path: Path, name: str, most: int) -> bytes:
    """Return the bytes of a file."""
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise refused(name, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name that no system takes
        raise refused(name, f"it cannot be read: {error}") from error
    if len(raw) > most:
        raise refused(name, f"the file has more than {most:,} bytes")
    return raw
