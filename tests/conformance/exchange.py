"""Two people with stores of a few records, and what a policy lets one do with the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lace.engine.factbase import FactBase
from lace.facts.extract import facts_of_records
from lace.policy.compile import Executable, compile_policy
from lace.policy.enforcement import Enforcement
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from tests.store.samples import plex, seal, valid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.policy.enforcement import Permissions
    from lace.policy.exposure import Exposure
    from lace.record.model import Record

Fact = tuple[str, ...]

KEYS = json.loads((Path(__file__).parents[1] / "vectors" / "keys.json").read_text("utf-8"))
ALICE, BOB, CAROL = (str(entry["verifier"]) for entry in KEYS[:3])

ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
"""A selector that is content with everything."""
EXPOSE_X = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'X')."
EXPOSE_ALL = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."

SHOWN = plex("shown", group="X", at=1)
OTHER = plex("other", group="X", at=2, headers=[("about+Link", f"see {SHOWN.id}")])
HIDDEN = plex("hidden", group="Y", at=3, headers=[("about+Link", f"see {SHOWN.id}")])
SEALED = seal(HIDDEN)
BAIT = str(plex("bait", group="X", at=4).id)
"""A record that the peer advertises and nobody here has."""
ADVERTISED: list[Fact] = [
    ("Advertised", BAIT, ALICE),
    ("AdvertisedField", BAIT, ALICE, "Group", "0", "X"),
]


def facts(*records: Record) -> list[Fact]:
    """Return the facts of records that are stored here."""
    return list(facts_of_records(valid(*records)))


STORE = facts(SHOWN, OTHER, HIDDEN, SEALED)


def policy(
    *exposures: Exposure,
    ours: str = ALL,
    theirs: str = ALL,
    viewer: str | None = ALICE,
    index: int = 1,
    lowering: str = "standard-v1",
) -> Executable:
    """Return the policy of one side; without a viewer, of one whose peer has proven nothing."""
    texts = (theirs, ours) if index else (ours, theirs)
    operands = tuple(operand_of(text, number) for number, text in enumerate(texts))
    plan = make_plan(operands[0], operands[1], lowering)
    who = plan.operands[1 - index].origin if viewer is None else viewer
    return compile_policy(plan, operands, index=index, exposures=exposures, viewer=who)


def enforce(
    executable: Executable, store: Iterable[Fact], public: Iterable[Fact] = ADVERTISED
) -> Permissions:
    """Return what a policy allows over the facts of a store."""
    base = FactBase(max_value_bytes=1024)
    base.change(store)
    enforcement = Enforcement(executable, base)
    enforcement.set_public(public)
    return enforcement.evaluate()


def finds(body: str, *exposures: Exposure, store: Iterable[Fact] = STORE, rules: str = "") -> bool:
    """Tell whether a peer's rule finds something here: whether its bait is taken."""
    bait = f"SelectAdvertised(P,S) :- Advertised(P,S), {body}."
    theirs = "\n".join(part for part in ("SelectHave(P) :- Have(P).", bait, rules) if part)
    return BAIT in enforce(policy(*exposures, theirs=theirs), store).may_request
