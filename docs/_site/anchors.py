"""Anchors beside headings: those written as `<a id="g07"></a>`, and the ids of requirements.

A written anchor shows as nothing, here and wherever else Markdown is read. An entry of the
register, a list item that begins with its id, is an anchor by itself. Links to both are checked
like all others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CollectAnchors"]

ANCHOR = re.compile(r'<a id="([^"]+)">')
REGISTER = "reference/requirements/"
LOGGER = logging.getLogger(__name__)


class CollectAnchors(SphinxTransform):
    """Tells MyST which anchors a page has beside its headings."""

    default_priority = 800  # headings have theirs by now; links within the page are next

    def apply(self, **_options: object) -> None:
        """Add the anchors of one page; one that is there twice is a warning."""
        known: dict[str, tuple[int, str, str]] = getattr(self.document, "myst_slugs", {})
        known = self.env.metadata[self.env.docname].setdefault("myst_slugs", known)
        for node in self.document.findall(nodes.raw):
            for name in ANCHOR.findall(node.astext()):
                if name in known:
                    LOGGER.warning("the anchor %s is there twice", name, location=node)
                known[name] = (node.line or 0, name, name)
        if self.env.docname.startswith(REGISTER):
            known.update(self.entries())
        self.document.myst_slugs = known

    def entries(self) -> Iterator[tuple[str, tuple[int, str, str]]]:
        """Make an anchor of each list item that begins with the id of a requirement."""
        for item in self.document.findall(nodes.list_item):
            first = next(iter(item.findall(nodes.literal)), None)
            if first is not None and re.fullmatch(r"\d{3}-\d{2,3}", first.astext()):
                item["ids"].append(first.astext())
                yield first.astext(), (item.line or 0, first.astext(), first.astext())
