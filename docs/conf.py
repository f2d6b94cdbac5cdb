"""How Sphinx builds the documentation: `make docs` writes it into build/site.

The pages are Markdown, read by MyST. Nothing is fetched, neither while the site is built nor
while it is read: no fonts, scripts or styles from other hosts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent / "_site"))

from anchors import CollectAnchors
from lace_lexer import LaceLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Lace"
author = "the Lace authors"
html_title = "Lace"

extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["_site", "diagrams/*.txt"]

# A heading of a page can be linked to as page.md#its-words; a link that leads nowhere is an error.
myst_heading_anchors = 5
nitpicky = True

html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# Blocks without a language are what a command prints, a format or a grammar.
highlight_language = "text"


def setup(app: Sphinx) -> None:
    """Add what the pages need beside Sphinx and MyST."""
    app.add_lexer("lace", LaceLexer)
    app.add_transform(CollectAnchors)
