"""Reading a built site: the anchors of its pages, where they link to, and what they load."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Page", "dead_links", "foreign_loads", "read_pages"]

# What a browser fetches by itself when it shows a page.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
STYLE_LOAD = re.compile(r"url\(\s*['\"]?([^'\")]*)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page(HTMLParser):
    """One page of the site."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in LOADED and value:
                self.loads.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


def read_pages(site: Path) -> dict[Path, Page]:
    return {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}


def dead_links(pages: dict[Path, Page]) -> list[str]:
    """Links within the site that lead to no file, or to no anchor of it."""
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            missing = not target.exists()
            if missing or (anchor and target in pages and anchor not in pages[target].anchors):
                found.append(f"{path.name}: {link}")
    return found


def foreign_loads(site: Path, pages: dict[Path, Page]) -> list[str]:
    """What a reader's browser would fetch from another host."""
    loaded = [(path, load) for path, page in pages.items() for load in page.loads]
    for pattern in ("*.css", "*.svg"):
        for path in site.rglob(pattern):
            found = STYLE_LOAD.findall(path.read_text("utf-8"))
            loaded += [(path, called or imported) for called, imported in found]
    return [
        f"{path.name}: {load}"
        for path, load in loaded
        if load.startswith("//") or urlsplit(load).scheme in ("http", "https", "ftp")
    ]
