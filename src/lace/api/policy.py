"""Policies of exchanges: their selectors, exposures, plans and previews."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lace.exchange.capabilities import capabilities_of
from lace.policy.disclosure import parse_disclosure
from lace.policy.exposure import (
    PEER,
    Exposure,
    check_viewer,
    missing_facts,
    read_clock,
    with_local_time,
    with_peer,
)
from lace.policy.local import Plan, Policy, exposure_warnings, plan
from lace.policy.operand import operand_of
from lace.policy.operations import (
    coordinate_prefix,
    expose_records,
    list_prefix,
    select_prefix,
    select_record,
    select_records,
)
from lace.policy.plan import LOWERINGS, check_same_plan, parse_transcript
from lace.record.ids import Verifier
from lace.rules.profiles import EXPOSURE, LOCAL_TAI, SELECTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.api import Lace
    from lace.base.limits import Settings
    from lace.facts.lines import Fact as Fact
    from lace.policy.compile import Executable as Executable
    from lace.policy.disclosure import Disclosure as Disclosure
    from lace.policy.disclosure import DisclosureChange as DisclosureChange
    from lace.policy.disclosure import SetChange as SetChange
    from lace.policy.local import Exposing as Exposing
    from lace.policy.local import Rules as Rules
    from lace.policy.operand import Operand as Operand
    from lace.policy.plan import ExchangePlan as ExchangePlan
    from lace.policy.schema import Offer as Offer
    from lace.query.preview import Preview as Preview
    from lace.query.preview import PublicFactChecker
    from lace.rules.program import CheckedProgram

__all__ = [
    "EXPOSURE",
    "LOCAL_TAI",
    "LOWERINGS",
    "PEER",
    "SELECTOR",
    "Exposure",
    "Plan",
    "Policy",
    "Verifier",
    "ask_again",
    "check_offer",
    "check_same_plan",
    "check_viewer",
    "coordinate_prefix",
    "expose_records",
    "exposure_warnings",
    "list_prefix",
    "local_now",
    "missing_facts",
    "operand_of",
    "parse_disclosure",
    "parse_transcript",
    "plan",
    "public_fact_checker",
    "read_clock",
    "register_exposures",
    "select_prefix",
    "select_record",
    "select_records",
    "with_local_time",
    "with_peer",
]

Answer = TypeVar("Answer")


def ask_again(lace: Lace, question: Callable[[], Answer]) -> Answer:
    """Return an answer about a lace; if stored segments are damaged, make them again and retry."""
    from lace.columns.segment_journal import SegmentDamagedError
    from lace.query.result import AnswerLostError

    try:
        return question()
    except (AnswerLostError, SegmentDamagedError):
        lace.store.discard_segments()
        return question()


def register_exposures(
    modules: Iterable[tuple[CheckedProgram, str | None]],
) -> tuple[Exposure, ...]:
    """Return one exposure for each module, for all viewers that it comes with; None is anyone."""
    found: dict[int, tuple[CheckedProgram, set[str | None]]] = {}
    for module, viewer in modules:
        found.setdefault(id(module), (module, set()))[1].add(viewer)
    return tuple(
        Exposure(module, None if None in viewers else frozenset(filter(None, viewers)))
        for module, viewers in found.values()
    )


def check_offer(settings: Settings, policy: Policy) -> None:
    """Refuse a policy whose selector reads a field that is not offered.

    Raises:
        PolicyError: it does.
    """
    capabilities_of(settings, policy)


def local_now(settings: Settings) -> str:
    """Return what exposures read as this side's clock now, as a TAI instant."""
    from lace.api.system import now
    from lace.query.preview import local_instant

    return local_instant(settings, None, now)


def public_fact_checker(option: str, name: str) -> PublicFactChecker:
    """Return a checker of the facts of one file, for a preview.

    Args:
        option: the option that names the file: `--advertised` or `--runtime`.
        name: what findings call the file.
    """
    from lace.query.preview import PublicFactChecker  # what it needs takes long to load

    return PublicFactChecker(option, name)
