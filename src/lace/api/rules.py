"""Rules: checked, formatted, named and drawn; no lace is needed."""

from __future__ import annotations

from lace.rules.canonical import Canonical, canonicalize
from lace.rules.checks.warnings import parse_allowed
from lace.rules.dependencies import format_dot, format_graph
from lace.rules.findings import MAX_KEPT, format_findings, in_order
from lace.rules.limits import RuleLimits, limits_of, peer_limits_of
from lace.rules.profiles import PROFILES, Profile, profile_named
from lace.rules.program import CheckedProgram, Lacegram, check_source
from lace.rules.source import format_source
from lace.rules.syntax import PredicateKey, Variable

__all__ = [
    "MAX_KEPT",
    "PROFILES",
    "Canonical",
    "CheckedProgram",
    "Lacegram",
    "PredicateKey",
    "Profile",
    "RuleLimits",
    "Variable",
    "canonicalize",
    "check_source",
    "format_dot",
    "format_findings",
    "format_graph",
    "format_source",
    "in_order",
    "limits_of",
    "parse_allowed",
    "peer_limits_of",
    "profile_named",
]
