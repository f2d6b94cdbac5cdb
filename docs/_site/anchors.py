"""Anchors written as `<a id="g07"></a>`: known to links, as headings are.

Such an anchor shows as nothing, here and wherever else Markdown is read. Links to it are checked
like all others.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

__all__ = ["CollectAnchors"]

ANCHOR = re.compile(r'<a id="([^"]+)">')
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
        self.document.myst_slugs = known
