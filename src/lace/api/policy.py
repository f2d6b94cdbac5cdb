"""Policies of exchanges: their selectors, exposures, plans and previews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.policy.local import Policy as Policy
from lace.policy.operations import (
    coordinate_prefix,
    expose_records,
    list_prefix,
    select_prefix,
    select_record,
    select_records,
)
from lace.policy.plan import LOWERINGS

if TYPE_CHECKING:
    from lace.policy.local import Exposing as Exposing
    from lace.policy.local import Rules as Rules

__all__ = [
    "LOWERINGS",
    "Policy",
    "coordinate_prefix",
    "expose_records",
    "list_prefix",
    "select_prefix",
    "select_record",
    "select_records",
]
