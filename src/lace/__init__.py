"""Lace: agree on a set of records with another party, and converge on it.

>>> import lace
>>> lace.Blob(b"hi").id
'B.…'
"""

from typing import TYPE_CHECKING

from lace.api import Lace, SigningKey, evaluate, parse_record
from lace.api import open_lace as open
from lace.base.tai import Tai
from lace.converging import connect, interlace
from lace.errors import (
    EngineError,
    LaceError,
    LimitExceeded,
    PolicyError,
    ProtocolError,
    RecordError,
    RuleError,
    StoreError,
)
from lace.record.ids import RecordId, Verifier
from lace.record.model import Blob, Plex, Seal

if TYPE_CHECKING:
    from lace.policy.local import Policy
    from lace.rules.program import Lacegram

__all__ = [
    "Blob",
    "EngineError",
    "Lace",
    "LaceError",
    "Lacegram",
    "LimitExceeded",
    "Plex",
    "Policy",
    "PolicyError",
    "ProtocolError",
    "RecordError",
    "RecordId",
    "RuleError",
    "Seal",
    "SigningKey",
    "StoreError",
    "Tai",
    "Verifier",
    "connect",
    "evaluate",
    "interlace",
    "open",
    "parse_record",
]

if not TYPE_CHECKING:  # a checker knows the name already, and refuses all others

    def __getattr__(name: str) -> object:
        """Load the rule language when it is first asked for: most programs do without."""
        if name == "Lacegram":
            from lace.rules.program import Lacegram as found
        elif name == "Policy":
            from lace.policy.local import Policy as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found
