"""The page on policy tests says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lace.policytests import model as records
from lace.policytests import reader
from lace.policytests import reader as case_reader
from lace.policytests import reader as rule_texts
from lace.policytests.model import _KEY_CONTEXT
from lace.policytests.reader import read_tests
from lace.policytests.tables import PolicyTestError
from lace.query.preview import Gate

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "policy-tests.md").read_text("utf-8")
HOW_TO = (ROOT / "docs" / "how-to" / "test-policies.md").read_text("utf-8")
EXAMPLES = ROOT / "examples" / "policies"


@pytest.mark.parametrize(
    "name", ["team.lace", "team-view.lace", "team.lacetest.toml", "evidence.lacetest.toml"]
)
def test_the_examples_are_on_the_page(name: str) -> None:
    assert f"\n{(EXAMPLES / name).read_text('utf-8').rstrip()}\n```\n" in PAGE


def test_every_key_is_on_the_page() -> None:
    known = {
        *reader._KEYS,
        *case_reader._PLAIN,
        *case_reader._POLICY,
        *records._KEYS,
        "file",
        "text",
        "viewer",
        "seed",
        "stands_for",
    } - {"keys", "records", "expose", "case"}
    missing = [key for key in known if f"`{key}`" not in PAGE and f"{key} = " not in PAGE]
    assert not missing
    for header in ("[keys]", "[[expose]]", "[records.NAME]", "[[case]]"):
        assert f"`{header}`" in PAGE


def test_sizes_and_defaults() -> None:
    for size in (
        f"{reader.MAX_TEST_FILE_BYTES:,} bytes",
        f"{rule_texts.MAX_RULE_FILE_BYTES:,} bytes",
        f"cases of a file | {reader.MAX_CASES:,} ",
        f"records of a file | {records.MAX_RECORDS:,} ",
        f"{records.MAX_DATA_BYTES:,} bytes",
        f"{case_reader.MAX_FACTS:,} each",
        f"`{records.DEFAULT_TAI}`",
        f"`{_KEY_CONTEXT}`",
    ):
        assert size in PAGE, size


def test_every_gate_is_on_the_page() -> None:
    section = PAGE.partition("| what decided |")[2].partition("\n## ")[0]
    short = {Gate.NOT_THEIRS: "not in theirs"}
    shown = [gate for gate in Gate if gate is not Gate.FORMAT]
    assert not [gate for gate in shown if short.get(gate, gate.value) not in section]


def test_the_first_case_of_the_how_to(tmp_path: Path) -> None:
    first, exposure = re.findall(r"^```toml\n(.*?)```$", HOW_TO, re.MULTILINE | re.DOTALL)[:2]
    for name in ("mine.lace", "theirs.lace", "view.lace"):
        (tmp_path / name).write_text("", "utf-8")
    path = tmp_path / "policy.lacetest.toml"
    path.write_text(first + exposure, "utf-8")
    tests = read_tests(str(path))
    assert tests.exposures[0].viewers == (tests.keys["alice"].verifier,)


def test_every_snippet_of_the_how_to_is_known_to_the_reader(tmp_path: Path) -> None:
    """They are parts of a file, so names may be missing, and keys never."""
    snippets = re.findall(r"^```toml\n(.*?)```$", HOW_TO, re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 6
    for snippet in snippets:
        path = tmp_path / "policy.lacetest.toml"
        path.write_text(snippet, "utf-8")
        with pytest.raises(PolicyTestError) as caught:
            read_tests(str(path))
        assert not [each for each in caught.value.findings if "no such key" in each.message]
