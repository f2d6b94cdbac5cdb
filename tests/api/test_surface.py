"""The public names and how they are called: a change of `surface.txt` is a change of Lace.

To take a change in: `python -m tests.api.test_surface > tests/api/surface.txt`, and say it in
the changelog.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import lace
from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "python.md"
MADE_BY_LACE = {
    "BlockingLink",
    "Explanation",
    "Lace",
    "Link",
    "OpenInterlace",
    "Outcome",
    "Plan",
    "Result",
    "Serving",
    "Served",
    "Table",
    "Warehouse",
}
"""Classes of which a program gets values and makes none: how they are made may change."""


def surface() -> Iterator[str]:
    for name in sorted(lace.__all__):
        found = getattr(lace, name)
        if not callable(found):
            yield name
        elif not inspect.isclass(found):
            yield f"{name}{_signature(found)}"
        elif issubclass(found, LaceError):
            yield f"{name}({found.__mro__[1].__name__}), exit code {found.exit_code}"
        else:
            yield name if name in MADE_BY_LACE else f"{name}{_signature(found)}"
            yield from _members(name, found)


def _members(name: str, kind: type) -> Iterator[str]:
    own = {
        member: value
        for each in reversed(kind.__mro__)
        if each.__module__.partition(".")[0] == "lace"
        for member, value in vars(each).items()
    }
    for member, value in sorted(own.items()):
        if member.startswith("_") and member not in {"_repr_html_", "__enter__", "__aenter__"}:
            continue
        if isinstance(value, property) and value.fget is not None:
            yield f"{name}.{member} -> {inspect.signature(value.fget).return_annotation}"
        elif isinstance(value, (classmethod, staticmethod)) or inspect.isfunction(value):
            yield f"{name}.{member}{_signature(getattr(kind, member))}"


def _signature(found: object) -> str:
    """Return a signature without defaults that are long: those are of settings."""
    signature = inspect.signature(found)  # type: ignore[arg-type]  # a function or a class
    parameters = [
        each
        if each.default is each.empty or len(repr(each.default)) < 40
        else each.replace(default=...)
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters)).replace("'", "")


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_surface_is_as_it_was() -> None:
    pinned = (HERE / "surface.txt").read_text("utf-8").splitlines()
    assert list(surface()) == pinned


def test_every_public_name_is_on_the_reference_page() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in lace.__all__ if f"`{name}`" not in text] == []


def test_public_functions_say_what_they_take_and_give() -> None:
    for name in lace.__all__:
        found = getattr(lace, name)
        assert found.__doc__ or name == "LinkEvent", name
        if inspect.isfunction(found):
            hints = inspect.signature(found)
            assert hints.return_annotation is not inspect.Signature.empty, name
    assert get_type_hints(lace.RecordId.__new__)["return"] is not None


def test_importing_takes_little() -> None:
    """Neither Java nor PySpark, and nothing else that takes long to load."""
    program = (
        "import sys, lace; "
        "heavy = {'pyspark', 'pyarrow', 'py4j', 'numpy', 'asyncio', 'rich', 'click', 'ssl'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run(program) == "[]\n"


def test_a_warehouse_and_a_table_are_named_without_spark() -> None:
    program = (
        "import sys, lace; lace.Warehouse, lace.Table, lace.Link, lace.Serving; "
        "print(sorted({'pyspark', 'pyarrow', 'py4j'} & set(sys.modules)))"
    )
    assert run(program) == "[]\n"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in surface())
