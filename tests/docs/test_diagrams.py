"""The pictures are made from their texts, and that of the layers has every package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "diagrams"


def test_the_pictures_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "diagrams", tmp_path], check=True)
    made = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert len(made) == len(list(PICTURES.glob("*.txt")))
    found = {path.name: path.read_text("utf-8") for path in PICTURES.glob("*.svg")}
    assert found == made, "run: .venv/bin/python scripts/diagrams"


def test_every_picture_is_shown_on_a_page() -> None:
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert [path.name for path in PICTURES.glob("*.svg") if f"{path.name})" not in pages] == []


def test_the_picture_of_the_layers_has_every_package() -> None:
    text = (PICTURES / "layers.txt").read_text("utf-8")
    shown = {name for names in re.findall(r"= ([a-z_, ]+?) /", text) for name in names.split(", ")}
    source = ROOT / "src" / "lace"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.stem for path in source.glob("*.py") if not path.stem.startswith("__")}
    assert shown == packages | modules
