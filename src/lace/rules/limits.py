"""How large rules and their evaluation may grow: 030's limits, with defaults for two callers.

One's own rules get generous limits, a peer's rules tighter ones; both are at least
what 030 asks every implementation to support. Checks of a program use three of them,
the others are for engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base.arguments import check_argument
from lace.base.limits import parse_setting
from lace.base.text import shorten
from lace.errors import LimitExceeded, SettingError

if TYPE_CHECKING:
    from lace.base.limits import Settings


Limits: TypeAlias = "RuleLimits | Mapping[str, object]"
"""Limits as a program gives them: all of them, or some by the names of their settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """The limits of one evaluation; each field is the name of its setting.

    Those of a peer's rules have settings of their own: `setting` tells their names.

    >>> RuleLimits(max_rules=10).max_arity
    8
    """

    max_base_facts: int = 2**26
    max_runtime_facts: int = 2**24
    max_derived_facts: int = 2**26
    max_derived_bytes: int = 2**36
    max_rules: int = 4096
    max_atoms: int = 16_384
    max_rules_bytes: int = 2**24
    max_iterations: int = 100_000
    max_arity: int = 8
    max_value_bytes: int = 1024
    max_work: int = 2**36
    max_rule_line_bytes: int = 65_536
    max_memory: int = 2**62
    max_cpu_seconds: int = 2**31
    of_peer: bool = False

    def __post_init__(self) -> None:
        for name in _names():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SettingError(f"limit {name} takes a whole number, not {value!r}")

    def setting(self, limit: str) -> str:
        """Return the name of the setting that a limit comes from.

        >>> PEER_LIMITS.setting("max_work")
        'peer_max_work'
        """
        return f"peer_{limit}" if self.of_peer and limit in _OF_PEER else limit


def check_arity(name: str, arity: int, limits: RuleLimits) -> None:
    """Refuse a fact of too many values."""
    if arity > limits.max_arity:
        raise LimitExceeded(
            f"a fact of {shorten(name)} has {arity:,} values",
            limit="max_arity",
            allowed=limits.max_arity,
            observed=arity,
            rule="030-117",
        )


_OF_PEER: Final = frozenset(
    {
        "max_atoms",
        "max_cpu_seconds",
        "max_derived_bytes",
        "max_derived_facts",
        "max_iterations",
        "max_memory",
        "max_rules",
        "max_rules_bytes",
        "max_work",
    }
)
"""The limits that a peer's rules have settings of their own for."""
_OF_PEER_ALONE: Final = frozenset({"max_cpu_seconds", "max_memory"})
"""Those that rules of one's own have no setting for."""


def _names() -> list[str]:
    return [entry.name for entry in fields(RuleLimits) if entry.name.startswith("max_")]


def limits_of(settings: Settings) -> RuleLimits:
    """Return the limits that settings give to rules of one's own.

    An operator may set them below what 030 asks of defaults.
    """
    return RuleLimits(
        **{name: getattr(settings, name) for name in _names() if name not in _OF_PEER_ALONE}
    )


def peer_limits_of(settings: Settings) -> RuleLimits:
    """Return the limits that settings give to rules that came from a peer."""
    own = {name: getattr(settings, f"peer_{name}") for name in sorted(_OF_PEER)}
    return replace(limits_of(settings), of_peer=True, **own)


OWN_LIMITS: Final = RuleLimits()
"""For rules of one's own."""
UNLIMITED: Final = RuleLimits(of_peer=False, **dict.fromkeys(_names(), 2**62))
"""For text that has been checked before."""


def read_limits(limits: Limits, default: RuleLimits = OWN_LIMITS) -> RuleLimits:
    """Return the limits that a program gives; those that it does not name are the default.

    Values are numbers or texts, as `--set` takes them.

    >>> read_limits({"max_work": 1000, "max_derived_bytes": "64MiB"}).max_work
    1000
    """
    if isinstance(limits, RuleLimits):
        return limits
    check_argument(limits, Mapping, "limits are a mapping from names of settings to values")
    values = {name: parse_setting(name, value) for name, value in limits.items()}
    for name in values.keys() - set(_names()):
        raise SettingError(
            f"{name} is no limit of rules", hint=f"the limits are {', '.join(sorted(_names()))}"
        )
    return replace(default, of_peer=default.of_peer, **values)


PEER_LIMITS: Final = RuleLimits(
    max_derived_facts=2**23,
    max_derived_bytes=2**28,
    max_rules=256,
    max_atoms=1024,
    max_rules_bytes=2**20,
    max_iterations=10_000,
    max_work=2**33,
    max_memory=2**29,
    max_cpu_seconds=10,
    of_peer=True,
)
"""For rules that came from a peer."""
MINIMUM_LIMITS: Final = RuleLimits(
    max_base_facts=2**20,
    max_runtime_facts=2**20,
    max_derived_facts=2**18,
    max_derived_bytes=0,
    max_rules=256,
    max_atoms=0,
    max_rules_bytes=0,
    max_iterations=1000,
    max_work=0,
    max_rule_line_bytes=0,
    max_memory=0,
    max_cpu_seconds=0,
)
"""What 030 says that defaults are not below; of work, memory, atoms and lines it says nothing."""
