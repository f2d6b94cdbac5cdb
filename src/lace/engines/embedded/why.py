"""Why a fact holds in an evaluation, or why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.engines.embedded.derivations import derive
from lace.engines.embedded.heights import finished_state, heights_for
from lace.engines.embedded.lookups import Lookups
from lace.engines.embedded.misses import find_absence
from lace.engines.explanation import Explanation, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engines.embedded.engine import Evaluation
    from lace.rules.syntax import PredicateKey

__all__ = ["explain_fact"]


def explain_fact(evaluation: Evaluation, key: PredicateKey, values: Sequence[str]) -> Explanation:
    """Explain a fact, whether it holds or not.

    The same rules over the same facts give the same explanation, in whatever order the
    facts came.

    Raises:
        LimitExceeded: finding the explanation would go beyond a limit of an evaluation.
    """
    fact = (key.name, *values)
    evaluation.run([key])
    lookups = Lookups(finished_state(evaluation))
    if lookups.height(key, values) is None:
        return Explanation(fact, absence=find_absence(evaluation.checked, lookups, fact))
    if not evaluation.checked.dependencies.is_derived(key):
        return Explanation(fact, (Step(fact),))
    heights = heights_for(evaluation, key)
    steps = derive(evaluation.checked, finished_state(evaluation), heights, fact)
    return Explanation(fact, steps)
