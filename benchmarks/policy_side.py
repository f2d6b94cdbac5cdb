"""Lace's side of the policy benchmarks, in one fresh process that tells its steps.

`python -m benchmarks.policy_side ACTION FOLDER`: `plain` evaluates both selectors over all
records, `gated` the same selectors as an exchange in which the peer's sees a tenth of them,
`further` follows the exchange while records come.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lace
from benchmarks.measure import Steps
from benchmarks.workloads import W1, W3
from lace.policy.local import prepare_exchange
from lace.policy.operand import operand_of
from lace.query.store_query import StoreSession
from lace.rules.profiles import SELECT_HAVE, SELECTOR
from lace.rules.program import Lacegram
from tests.oracle.store_policy import StorePolicy

if TYPE_CHECKING:
    from lace.policy.compile import Executable

__all__ = ["EXPOSURE", "OURS", "THEIRS", "VIEWER", "exchange"]

VIEWER: Final = f"V.{'0' * 43}.H3"
OURS: Final = (W1 + W3).replace("Selected(P)", "SelectHave(P)") + (
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'u').\n"
)
THEIRS: Final = OURS.replace("Member(", "Friend(")
EXPOSURE: Final = """\
AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'keys').
AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding').
AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'team'), Field(P,'App',_,'chat').
AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'pub'), Field(P,'App',_,'wiki').
"""
"""Shows a tenth of the records of a workload."""


def exchange(ours: str = OURS, theirs: str = THEIRS) -> Executable:
    """Return the exchange that is measured."""
    policy = lace.Policy(select=ours, exposures=[(EXPOSURE, VIEWER)])
    return prepare_exchange(policy, operand_of(theirs, 1), VIEWER).executable


def _plain(folder: Path, steps: Steps) -> None:
    """Evaluate both selectors without a gate."""
    rules = [Lacegram.parse(text, profile=SELECTOR).program for text in (OURS, THEIRS)]
    store = lace.open(folder)
    with steps.step("first"):
        session = StoreSession(store.store, max_value_bytes=store.settings.max_value_bytes)
        counts = [session.evaluate(each).count(SELECT_HAVE) for each in rules]
    steps.count("selected", counts[0])


def _policy(folder: Path) -> tuple[lace.Lace, StorePolicy]:
    store = lace.open(folder)
    limit = store.settings.max_value_bytes
    return store, StorePolicy(exchange(), store.store, max_value_bytes=limit)


def _gated(folder: Path, steps: Steps) -> None:
    """Evaluate them as an exchange does."""
    _store, policy = _policy(folder)
    with steps.step("first"):
        counts = policy.evaluate([]).counts
    steps.count("send", counts[0])


def _further(folder: Path, steps: Steps) -> None:
    """Follow the exchange while batches come; compare with evaluating anew."""
    store, policy = _policy(folder)
    counts = policy.evaluate([]).counts
    for path in sorted(folder.parent.glob(f"{folder.stem}-further-*.lace")):
        store.import_file(path)
        with steps.step("update"):
            counts = policy.evaluate([]).counts
    again = _policy(folder)[1].evaluate([]).counts
    if counts != again:
        raise RuntimeError(f"incremental {counts} is not what evaluating anew gives: {again}")
    steps.count("send", counts[0])


if __name__ == "__main__":
    told = Steps()
    {"plain": _plain, "gated": _gated, "further": _further}[sys.argv[1]](Path(sys.argv[2]), told)
    told.tell()
