"""Drawing with Graphviz: its program `dot`, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

from lace.errors import LaceError

__all__ = ["DrawingError", "draw_svg"]

_PROGRAM: Final = "dot"
_SECONDS: Final = 60
_INSTEAD: Final = "or use --format dot and draw it elsewhere"


class DrawingError(LaceError):
    """A graph cannot be drawn on this machine."""

    exit_code = 3


def draw_svg(dot: str) -> str:
    """Return a graph of the DOT language as an SVG picture.

    Raises:
        DrawingError: Graphviz is not installed, or failed.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise DrawingError(
            "drawing needs Graphviz, and its program `dot` is not installed",
            hint=f"install the package graphviz, {_INSTEAD}",
        )
    try:
        done = subprocess.run(  # noqa: S603 - the Graphviz that this machine's owner chose
            [program, "-Tsvg"],
            input=dot.encode("utf-8"),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DrawingError(
            f"Graphviz did not finish in {_SECONDS} seconds",
            hint=f"draw fewer rules, {_INSTEAD}",
        ) from error
    except OSError as error:
        raise DrawingError(
            f"{program} cannot be run: {error.strerror}", hint=f"mend it, {_INSTEAD}"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise DrawingError(
            f"Graphviz failed with exit code {done.returncode}: {said or 'it does not say why'}",
            hint=f"mend it, {_INSTEAD}",
        )
    return done.stdout.decode("utf-8", "replace")
