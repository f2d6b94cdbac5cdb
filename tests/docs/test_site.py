"""The documentation site: it builds without a warning, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.docs.site import dead_links, foreign_loads, read_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/RESULTS.md")
FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def markdown_links(page: Path) -> list[str]:
    """The targets of the links of a page, those in code left out."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text("utf-8")))
    return LINK.findall(text)


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "work", DOCS, site], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = read_pages(site)
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert written <= {path.relative_to(site.resolve()) for path in pages}
    assert dead_links(pages) == []
    assert foreign_loads(site, pages) == []
    linked = [(ROOT / name, link) for name in OUTSIDE for link in markdown_links(ROOT / name)]
    for page, link in linked:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve()
        if anchor and target.is_relative_to(DOCS):
            built = (site / target.relative_to(DOCS)).with_suffix(".html").resolve()
            assert anchor in pages[built].anchors, f"{page.name}: {link}"


def test_the_site_is_built_into_a_clean_folder() -> None:
    """Pages that are no more leave no file behind."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    (built,) = [at for at, line in enumerate(lines) if "-m sphinx" in line]
    assert lines[built - 1] == "rm -rf build/site"
    assert lines[built].endswith("build/site")


def test_dead_links_and_foreign_loads_are_found(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text(
        '<a id="here" href="#here"></a><a href="#there"></a><a href="two.html#x"></a>'
        '<a href="three.html"></a><script src="https://example.org/a.js"></script>'
    )
    (tmp_path / "two.html").write_text('<p id="y"></p><link href="own.css"><img src="//a/b.png">')
    (tmp_path / "own.css").write_text("@import 'http://example.org/b.css'; a { b: url(c.png) }")
    pages = read_pages(tmp_path)
    assert dead_links(pages) == [
        "one.html: #there",
        "one.html: two.html#x",
        "one.html: three.html",
    ]
    assert foreign_loads(tmp_path, pages) == [
        "one.html: https://example.org/a.js",
        "two.html: //a/b.png",
        "own.css: http://example.org/b.css",
    ]


def test_the_links_of_pages_outside_of_the_site_lead_to_files() -> None:
    for name in OUTSIDE:
        page = ROOT / name
        for link in markdown_links(page):
            parts = urlsplit(link)
            if not parts.scheme and parts.path:
                assert (page.parent / parts.path).exists(), f"{name}: {link}"


def test_links_to_other_hosts_are_well_formed() -> None:
    for page in [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OUTSIDE)]:
        for link in markdown_links(page):
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", f"{page.name}: {link}"
                assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), (
                    f"{page.name}: {link}"
                )


def test_the_tour_names_files_that_are_there() -> None:
    tour = (DOCS / "explanation" / "tour.md").read_text("utf-8")
    named = [
        name for name in re.findall(r"`([\w/]+(?:\.py)?)`", tour) if re.search(r"/|\.py", name)
    ]
    assert len(named) > 40
    missing = [n for n in named if not (ROOT / "src" / "lace" / n).exists() | (ROOT / n).exists()]
    assert not missing
