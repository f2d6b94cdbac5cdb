"""Exposures: local modules that say which records a viewer may query (020, 040).

A module is registered for named verifiers or for anyone. Of those registered for a
viewer every one has to allow a record; where none is registered, nothing is exposed.
A wider view is made by a rule: a module may allow a record for several reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.arguments import kind_of
from lace.base.text import shorten
from lace.errors import PolicyError, RecordError
from lace.record.ids import Verifier
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.profiles import EXPOSURE, LOCAL_TAI
from lace.rules.program import CheckedProgram, Lacegram, check_source

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Exposure", "active_exposures", "check_viewer", "exposure_of", "read_clock"]


def check_viewer(text: str) -> str:
    """Return a verifier for which something may be exposed.

    Raises:
        PolicyError: it is an opaque label, which anyone can come to have, or no verifier.
    """
    if not isinstance(text, str):
        raise PolicyError(
            f"a viewer is a verifier's text, not {kind_of(text)}",
            rule="G05",
            hint="as in str(key.verifier)",
        )
    if text.startswith("Opq_"):
        raise PolicyError(
            f"nothing can be exposed to {shorten(text)!r}, a label of one exchange",
            rule="X6",
            hint="name the peer's verifier (V.….H3), or expose to anyone",
        )
    try:
        return str(Verifier(text))
    except RecordError as error:
        raise PolicyError(
            f"{shorten(text)!r} is no viewer: {error.message}",
            rule="G05",
            hint="a viewer is a verifier, V.….H3, as `lace key list` prints it",
        ) from error


@dataclass(frozen=True, slots=True)
class Exposure:
    """A module that says what may be queried, and for whom; `viewers` None is for anyone."""

    module: CheckedProgram
    viewers: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.module.profile != EXPOSURE:
            raise PolicyError(
                f"a module of profile {self.module.profile.name} cannot expose anything",
                rule="040-19",
                hint="check it with the profile exposure",
            )
        for viewer in self.viewers or ():
            check_viewer(viewer)

    def is_for(self, viewer: str) -> bool:
        """Tell whether the module is registered for a viewer."""
        return self.viewers is None or viewer in self.viewers


def exposure_of(
    rules: Lacegram | CheckedProgram | str | bytes,
    *viewers: str,
    anyone: bool = False,
    limits: RuleLimits = OWN_LIMITS,
    name: str | None = None,
) -> Exposure:
    """Return an exposure for some viewers, or for anyone; which of both has to be said.

    Raises:
        RuleError: the rules are no legal exposure module; `findings` has all that is wrong.
        PolicyError: a viewer is no verifier, or nobody is named.
    """
    if anyone is bool(viewers):
        raise PolicyError(
            "an exposure is for viewers that it names, or for anyone",
            rule="G05b",
            hint="name verifiers, or say anyone=True",
        )
    match rules:
        case Lacegram(program):
            checked = program
        case CheckedProgram():
            checked = rules
        case _:
            checked = check_source(rules, profile=EXPOSURE, limits=limits, name=name)
    if checked.profile != EXPOSURE:
        checked = check_source(
            checked.canonical, profile=EXPOSURE, limits=checked.limits, name=checked.source
        )
    return Exposure(checked, frozenset(viewers) or None)


def active_exposures(exposures: Iterable[Exposure], viewer: str) -> tuple[Exposure, ...]:
    """Return the exposures that are registered for a viewer, in their order."""
    return tuple(exposure for exposure in exposures if exposure.is_for(viewer))


def read_clock(exposures: Iterable[Exposure]) -> bool:
    """Tell whether one of some exposures reads this side's clock, `_LocalTAI`."""
    return any(LOCAL_TAI in exposure.module.required_base for exposure in exposures)
