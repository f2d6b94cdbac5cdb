"""How many examples property tests take: a profile of Hypothesis, chosen by HYPOTHESIS_PROFILE."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["IS_DEEP", "examples", "load_profile"]

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_USUAL = 100


def load_profile() -> None:
    """Register the profiles, and load the one that is asked for; `dev` if none is.

    A shared machine can be slow at any moment, so no profile has a deadline.
    """
    patient = [HealthCheck.too_slow]
    settings.register_profile("dev", deadline=None)
    settings.register_profile(
        "ci",
        deadline=None,
        derandomize=True,
        max_examples=25,
        print_blob=True,
        suppress_health_check=patient,
    )
    for name, count in (("slow", 200), ("deep", 5_000)):
        settings.register_profile(
            name, deadline=None, max_examples=count, print_blob=True, suppress_health_check=patient
        )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def examples(count: int, *, least: int = 10) -> int:
    """Return how many examples a test takes that takes `count` in the profile `dev`.

    Args:
        count: a hundred is what a test takes that does not say anything.
        least: how many it takes in the profile `ci`, though they be more than a quarter.
    """
    usual = settings().max_examples
    scaled = count * usual // _USUAL
    return max(min(scaled, max(count, usual)), min(count, least))
