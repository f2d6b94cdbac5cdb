"""When an evaluation would say what was said before: nothing that it reads has changed.

At a fixed point a store, a policy and what a peer claims are in a state of which everything
is known: what may be sent is what was advertised, and nothing is left to be requested. The
name of that state is kept with the cursor. An exchange that finds both sides in it again need not
evaluate anything, however many records there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.store.sqlite.counters import Counters

__all__ = ["StateNames"]

_LABEL: Final = "lace-state/1"


class StateNames:
    """Names of the states in which evaluations of one policy give one answer.

    Args:
        executable: the compiled policy.
    """

    def __init__(self, executable: Executable) -> None:
        self._read = {key for each in executable.programs for key in each.required_base}
        policy = "\n\n".join(each.canonical for each in executable.programs)
        self._policy = f"{_LABEL}\n{executable.index}\n{executable.viewer}\n{policy}"

    def name(self, counters: Counters, runtime: Iterable[Fact]) -> str | None:
        """Return the name of a state of the store, under the runtime facts that rules read.

        None for a store of a version that has no mark of its records.
        """
        if counters.key_xor is None or counters.removal_sequence is None:
            return None
        facts = sorted(
            fact for fact in runtime if PredicateKey(fact[0], len(fact) - 1) in self._read
        )
        return b64a.encode(digest(f"{self._policy}\n{counters!r}\n{facts!r}".encode()))
