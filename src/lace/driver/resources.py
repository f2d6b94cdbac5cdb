"""What the links of one server share: the load of their intakes.

A server owns one `Resources` and gives it to each of its links; a link without a server has its
own. Nothing of it is global to the process, and every part may be used from any thread.
"""

from __future__ import annotations

from lace.driver.intake import IntakeLoad

__all__ = ["Resources"]


class Resources:
    """The shared parts.

    Attributes:
        intake_load: which links hold records that are to be stored.
    """

    def __init__(self) -> None:
        self.intake_load = IntakeLoad()
