"""Rules: the parser, the checks, the formatter and the canonical form take any text.

Only `RuleError` (for operands also `PolicyError`) comes out; what is accepted has a canonical
form that is accepted again under the same identifier, and formatting changes no meaning.
"""

from __future__ import annotations

import contextlib
import json

from fuzz.harness import ROOT, Target
from lace.errors import PolicyError, RuleError
from lace.policy.operand import SELECTOR_FACET, receive_operand
from lace.rules.limits import PEER_LIMITS
from lace.rules.profiles import EXPOSURE, QUERY, SELECTOR
from lace.rules.program import check_canonical, check_source, find_all
from lace.rules.source import format_source

__all__ = ["TARGET"]

_VECTORS = ROOT / "tests" / "vectors" / "rules"
_PIECES = (
    *(b"Have(P)", b"Field(P,'Group',_,'u')", b"not ", b":-", b".", b",", b"(", b")", b"'", b"\\"),
    *(b"SelectHave(P) :- Have(P).\n", b"SelectAdvertised(P,S) :- Advertised(P,S).\n", b"_", b"#"),
    *(b"#[", b"]", b"Cardinality(Have(P),'>=','2')", b"P != Q", b"StartsWith(P,'a')", b"\r", b"\t"),
    *(b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"e\xcc\x81", b"\xff", b"AllowQueryRecord(V,P) :- "),
)


def _seeds() -> list[bytes]:
    found = [path.read_bytes() for path in sorted((_VECTORS / "findings").glob("*.lace"))]
    kept = json.loads((_VECTORS / "vectors.json").read_text("utf-8"))
    return found + [each["source"].encode("utf-8") for each in kept["valid"]]


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    for profile in (QUERY, SELECTOR, EXPOSURE):
        findings = find_all(raw, profile=profile)
        errors = [each for each in findings if each.severity == "error"]
        try:
            program = check_source(raw, profile=profile)
        except RuleError as error:
            assert errors, error
            continue
        assert not errors, errors
        canonical = program.canonical.encode("utf-8")
        again = check_canonical(canonical, profile=profile)
        assert again.id == program.id, "another identifier"
        assert again.canonical == program.canonical, "not canonical"
    _check_formatted(raw)
    try:
        module = check_source(raw, profile=SELECTOR, limits=PEER_LIMITS).id
    except RuleError:
        module = "R." + "0" * 43
    with contextlib.suppress(RuleError, PolicyError):
        receive_operand(raw, index=0, module_id=module, facet=SELECTOR_FACET)


def _check_formatted(raw: bytes) -> None:
    try:
        formatted = format_source(raw)
    except RuleError:
        return
    assert format_source(formatted) == formatted, "formatted twice"


TARGET = Target(name="rules", check=check, seeds=_seeds, pieces=_PIECES)
