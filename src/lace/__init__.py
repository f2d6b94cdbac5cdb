"""Lace: agree on a set of records with another party, and converge on it.

>>> import lace
>>> lace.Blob(b"hi").id
'B.…'
"""

from lace.api import Lace, SigningKey, parse_record
from lace.api import open_lace as open
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
)
from lace.record.ids import RecordId, Verifier
from lace.record.model import Blob, Plex, Seal

__all__ = [
    "Blob",
    "EngineError",
    "Lace",
    "LaceError",
    "LimitExceeded",
    "Plex",
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
    "open",
    "parse_record",
]
