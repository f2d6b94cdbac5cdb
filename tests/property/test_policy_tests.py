"""Whatever a test file holds: it is read, or refused with all that is wrong; and cases run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lace.base.limits import DEFAULT_SETTINGS
from lace.policytests.model import PolicyTests
from lace.policytests.reader import read_tests
from lace.policytests.run import Coverage, Runner
from lace.policytests.tables import PolicyTestError

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from lace.errors import Finding

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "policies"
TEXTS = [
    (EXAMPLES / name).read_text("utf-8")
    for name in ("team.lacetest.toml", "evidence.lacetest.toml")
]
TOKEN = re.compile(r'"""|"[^"\n]*"|\[\[?[^\]\n]*\]\]?|[A-Za-z_-]+|.', re.DOTALL)
VALUES = st.sampled_from(
    ['""', "1", "-1.5", "true", "[]", "{}", "2024-01-01", '"note"', '["note"]', '"${note}"', '"["']
) | st.text(max_size=5)

pytestmark = pytest.mark.property


@st.composite
def changed_texts(draw: st.DrawFn) -> str:
    """An example of which some tokens are gone, swapped or other ones."""
    tokens = TOKEN.findall(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(tokens) - 1))
        match draw(st.sampled_from(["drop", "replace", "swap", "repeat"])):
            case "drop":
                tokens[at] = ""
            case "replace":
                tokens[at] = draw(VALUES)
            case "swap":
                other = draw(st.integers(0, len(tokens) - 1))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                tokens[at] += "\n" + tokens[at]
    return "".join(tokens)


def read_or_findings(path: str) -> PolicyTests | tuple[Finding, ...]:
    try:
        return read_tests(path)
    except PolicyTestError as error:
        return error.findings


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_changed_example(tmp_path: Path, data: DataObject) -> None:
    folder = tmp_path / "policies"
    if not folder.exists():
        shutil.copytree(EXAMPLES, folder)
    path = folder / "changed.lacetest.toml"
    path.write_bytes(data.draw(changed_texts()).encode("utf-8", "surrogatepass"))
    found = read_or_findings(str(path))
    if not isinstance(found, PolicyTests):
        assert found
        assert all(each.message and str(each).startswith(str(path)) for each in found)
        return
    runner = Runner(found, DEFAULT_SETTINGS, Coverage())
    for case in found.cases:
        assert runner.run(case).to_json()["name"] == case.name
