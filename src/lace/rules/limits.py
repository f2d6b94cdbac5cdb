"""How large rules and their evaluation may grow: 030's limits, with defaults for two callers.

One's own rules get generous limits, a peer's rules tighter ones; both are at least
what 030 asks every implementation to support. Checks of a program use three of them,
the others are for engines.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from lace.errors import SettingError

if TYPE_CHECKING:
    from lace.base.limits import Settings

__all__ = ["MINIMUM_LIMITS", "OWN_LIMITS", "PEER_LIMITS", "RuleLimits", "limits_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """The limits of one evaluation; each field is the name of its setting.

    >>> RuleLimits(max_rules=10).max_arity
    8
    """

    max_base_facts: int = 2**26
    max_runtime_facts: int = 2**24
    max_derived_facts: int = 2**26
    max_rules: int = 4096
    max_iterations: int = 100_000
    max_arity: int = 8
    max_value_bytes: int = 1024
    max_work: int = 2**36
    max_rule_line_bytes: int = 65_536

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SettingError(f"limit {entry.name} takes a whole number, not {value!r}")


def limits_of(settings: Settings) -> RuleLimits:
    """Return the limits that settings give to rules of one's own.

    An operator may set them below what 030 asks of defaults.
    """
    return RuleLimits(**{entry.name: getattr(settings, entry.name) for entry in fields(RuleLimits)})


OWN_LIMITS: Final = RuleLimits()
"""For rules of one's own."""
PEER_LIMITS: Final = RuleLimits(
    max_derived_facts=2**23, max_rules=256, max_iterations=10_000, max_work=2**33
)
"""For rules that came from a peer."""
MINIMUM_LIMITS: Final = RuleLimits(
    max_base_facts=2**20,
    max_runtime_facts=2**20,
    max_derived_facts=2**18,
    max_rules=256,
    max_iterations=1000,
    max_work=0,
    max_rule_line_bytes=0,
)
"""What 030 says that defaults are not below; it says nothing about work and lines."""
