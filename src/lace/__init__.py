"""Lace: agree on a set of records with another party, and converge on it.

>>> import lace
>>> lace.Blob(b"hi").id
'B.…'
"""

from typing import TYPE_CHECKING

from lace.api import Lace, SigningKey, evaluate, parse_record
from lace.api import open_lace as open
from lace.api.exchanges import connect, interlace, serve
from lace.base.tai import Tai
from lace.errors import (
    EngineError,
    LaceError,
    LimitExceeded,
    PolicyError,
    ProtocolError,
    RecordError,
    RuleError,
    StoreError,
    UsageError,
)
from lace.record.ids import RecordId, Verifier
from lace.record.model import Blob, Plex, Seal
from lace.record.paths import Coordinate

if TYPE_CHECKING:
    from lace.api.explain import RuleExplanation, explain, explanations
    from lace.api.links import BlockingLink, Link
    from lace.api.server import Serving
    from lace.api.tables import Table, Versions
    from lace.api.warehouse import Warehouse, open_warehouse
    from lace.exchange.result import Outcome
    from lace.link.events import (
        Arrival,
        EventsMissed,
        LinkAgreed,
        LinkEnded,
        LinkEvent,
        PhaseBegan,
        RecordsStored,
        RoundEnded,
    )
    from lace.link.server import Served
    from lace.link.side import Interlaced, OpenInterlace
    from lace.policy.local import Plan, Policy, plan
    from lace.policy.operations import expose_records, select_prefix, select_record, select_records
    from lace.query.result import Result
    from lace.rules.program import Lacegram
    from lace.store.interface import StoredRecord
    from lace.transport.faults import ServerFullError
    from lace.why.explanation import Explanation

    __version__: str

__all__ = [
    "Arrival",
    "Blob",
    "BlockingLink",
    "Coordinate",
    "EngineError",
    "EventsMissed",
    "Explanation",
    "Interlaced",
    "Lace",
    "LaceError",
    "Lacegram",
    "LimitExceeded",
    "Link",
    "LinkAgreed",
    "LinkEnded",
    "LinkEvent",
    "OpenInterlace",
    "Outcome",
    "PhaseBegan",
    "Plan",
    "Plex",
    "Policy",
    "PolicyError",
    "ProtocolError",
    "RecordError",
    "RecordId",
    "RecordsStored",
    "Result",
    "RoundEnded",
    "RuleError",
    "RuleExplanation",
    "Seal",
    "Served",
    "ServerFullError",
    "Serving",
    "SigningKey",
    "StoreError",
    "StoredRecord",
    "Table",
    "Tai",
    "UsageError",
    "Verifier",
    "Versions",
    "Warehouse",
    "__version__",
    "connect",
    "evaluate",
    "explain",
    "explanations",
    "expose_records",
    "interlace",
    "open",
    "open_warehouse",
    "parse_record",
    "plan",
    "select_prefix",
    "select_record",
    "select_records",
    "serve",
]

if not TYPE_CHECKING:  # a checker knows the names already, and refuses all others
    _LATER = {
        "lace.link.events": (
            "Arrival EventsMissed LinkAgreed LinkEnded LinkEvent "
            "PhaseBegan RecordsStored RoundEnded"
        ),
        "lace.why.explanation": "Explanation",
        "lace.query.result": "Result",
        "lace.link.side": "Interlaced OpenInterlace",
        "lace.api.explain": "RuleExplanation explain explanations",
        "lace.api.server": "Serving",
        "lace.exchange.result": "Outcome",
        "lace.api.links": "BlockingLink Link",
        "lace.api.tables": "Table Versions",
        "lace.policy.local": "Plan Policy plan",
        "lace.policy.operations": "expose_records select_prefix select_record select_records",
        "lace.rules.program": "Lacegram",
        "lace.link.server": "Served",
        "lace.store.interface": "StoredRecord",
        "lace.transport.faults": "ServerFullError",
        "lace.api.warehouse": "Warehouse open_warehouse",
    }
    _MODULE_OF = {name: module for module, names in _LATER.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Load what most programs do without when it is first asked for."""
        if name == "__version__":
            from importlib.metadata import version

            found: object = version("lace")
        elif name in _MODULE_OF:
            from importlib import import_module

            found = getattr(import_module(_MODULE_OF[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
