"""The example of the page on exchange plans is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lace.policy.operand import operand_of
from lace.policy.origin import OPAQUE_LABEL
from lace.policy.plan import LOWERINGS, MAX_TRANSCRIPT_BYTES, make_plan

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "plans.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example() -> None:
    zero, one = (block for block in BLOCKS if block.startswith("SelectHave"))
    plan = make_plan(operand_of(zero, 0), operand_of(one, 1))
    assert plan.transcript in BLOCKS
    for text in (plan.id, *(each.module_id for each in plan.operands)):
        assert f"`{text}`" in PAGE
    vectors = json.loads((ROOT / "tests" / "vectors" / "plans.json").read_text("utf-8"))
    for text in (*vectors[0]["opaque"], *vectors[0]["origins"]):
        assert f"| `{text}` |" in PAGE


def test_names_and_numbers() -> None:
    for text in (*LOWERINGS, OPAQUE_LABEL.decode()):
        assert f"`{text}`" in PAGE
    assert f"{MAX_TRANSCRIPT_BYTES:,} bytes" in PAGE
