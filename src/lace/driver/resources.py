"""What the links of one server share: the load of their intakes, and memory for evaluations.

A server owns one `Resources` and gives it to each of its links; a link without a server has its
own. Nothing of it is global to the process, and every part may be used from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.driver.intake import IntakeLoad
from lace.driver.memory_pool import MemoryPool

if TYPE_CHECKING:
    from lace.base.limits import Settings

__all__ = ["Resources"]


class Resources:
    """The shared parts.

    Args:
        settings: how much there is of them.

    Attributes:
        intake_load: which links hold records that are to be stored.
        memory: what evaluations of peers' rules hold.
    """

    def __init__(self, settings: Settings) -> None:
        self.intake_load = IntakeLoad()
        self.memory = MemoryPool(settings.peer_memory_pool)
