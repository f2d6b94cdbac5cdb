"""The passes over a relational program, in the order in which they run.

Each is a function from program to program. Choosing the order of joins is not among
them: that needs counts, so engines do it with `lace.algebra.passes.order` when they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.algebra.passes.prune import find_counted, find_distinct, prune_columns
from lace.algebra.passes.rank import recognise_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.algebra.nodes import RelationalProgram


PASSES: Final[tuple[Callable[[RelationalProgram], RelationalProgram], ...]] = (
    prune_columns,
    find_counted,
    find_distinct,
    recognise_ranks,
)
