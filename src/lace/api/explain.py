"""What the ids in messages mean: the rule, the reason for it, a fault and its remedy.

The texts are data, in `explanations.toml`, and are read when they are first asked for.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base.arguments import check_argument
from lace.base.text import shorten
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RuleExplanation", "explain", "explanations"]

_PAGES: Final = {
    "006": "records.md#base64-ascend",
    "009": "records.md#signatures",
    "010": "records.md",
    "020": "requirements/020-facts-and-views.md",
    "030": "requirements/030-datalog.md",
    "040": "requirements/040-exchange-policy.md",
    "050": "requirements/050-interlace.md",
    "060": "requirements/060-iltp.md",
}
_NEAR: Final = 3
"""How many ids an unknown one is met with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleExplanation:
    """What an id in a message means.

    `statement` is the rule and `reason` why it exists. `fault` is an example that breaks it,
    `remedy` the same example put right. `page` is in the folder docs/reference.
    """

    id: str
    statement: str
    reason: str
    fault: str
    remedy: str
    page: str


def explanations() -> Mapping[str, RuleExplanation]:
    """Return what every id means, by id: those of specifications first, then decisions."""
    text = files("lace.api").joinpath("explanations.toml").read_text("utf-8")
    return MappingProxyType(
        {
            name: RuleExplanation(
                id=name,
                statement=entry["statement"],
                reason=entry["reason"],
                fault=entry["fault"].strip("\n"),
                remedy=entry["remedy"].strip("\n"),
                page=entry.get("page") or _page(name),
            )
            for name, entry in tomllib.loads(text).items()
        }
    )


def explain(id: str) -> RuleExplanation:
    """Return what an id in a message means; brackets and case do not matter.

    >>> explain("[030-37]").statement
    'Every variable in the head of a rule must occur in a positive atom of its body.'

    Raises:
        UsageError: no message shows such an id.
    """
    check_argument(id, str, "id is the id of a rule, as text")
    known = explanations()
    wanted = id.strip().removeprefix("[").removesuffix("]").lower()
    for name, found in known.items():
        if name.lower() == wanted:
            return found
    near = get_close_matches(wanted, [name.lower() for name in known], n=_NEAR, cutoff=0.5)
    meant = ", ".join(name for name in known if name.lower() in near)
    instead = f"near it are {meant}; " if meant else ""
    raise UsageError(
        f"no message shows the id {shorten(id)!r}",
        hint=f"{instead}`lace explain` lists all of them",
    )


def _page(name: str) -> str:
    page = _PAGES[name.partition("-")[0]]
    return f"{page}#{name}" if page.startswith("requirements/") else page
