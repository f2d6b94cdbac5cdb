"""Which files an ingest reads."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING

import pytest

from lace.errors import UsageError
from lace.spark.pipeline.ingest import Source, describe_source, find_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.records", "a.records", "sub/c.records", ".hidden", "_part", "sub/.git/d"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def names(tree: Path, *given: str) -> list[str]:
    found = find_files([str(tree / name) for name in given])
    return [path.relative_to(tree).as_posix() for path in found]


def test_files_folders_and_patterns(tree: Path) -> None:
    assert names(tree, "b.records", "a.records") == ["a.records", "b.records"]
    assert names(tree, "") == ["a.records", "b.records", "sub/c.records"]
    assert names(tree, "*.records", "a.records") == ["a.records", "b.records"]
    assert names(tree, "**/c*") == ["sub/c.records"]
    assert names(tree, "s*") == ["sub/c.records"]
    assert names(tree, ".hidden") == [".hidden"]  # named, so meant


def test_a_name_with_signs_of_a_pattern_is_a_file_first(tree: Path) -> None:
    (tree / "x[1]").write_bytes(b"")
    assert names(tree, "x[1]") == ["x[1]"]


@pytest.mark.parametrize("given", ["nothing", "*.none", "empty"])
def test_names_without_files_are_refused(tree: Path, given: str) -> None:
    (tree / "empty").mkdir()
    with pytest.raises(UsageError) as caught:
        names(tree, given)
    assert given in str(caught.value)


def test_what_is_no_file_is_refused(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(UsageError, match="it is no file"):
        names(tree, "pipe")
    assert "pipe" not in names(tree, "")


def test_compressed_files_are_refused_by_name(tree: Path) -> None:
    (tree / "z.records.gz").write_bytes(gzip.compress(b"records"))
    with pytest.raises(UsageError, match=r"compressed \(gzip\).*gunzip -k z\.records\.gz"):
        names(tree, "")


def test_a_name_that_is_not_utf8_is_refused(tree: Path) -> None:
    with open(os.fsencode(tree) + b"/\xff", "wb"):  # noqa: PTH123 - bytes
        pass
    with pytest.raises(UsageError, match="not UTF-8"):
        names(tree, "")


def test_a_source_is_path_size_and_digest(tree: Path) -> None:
    before = describe_source(tree / "a.records")
    assert before == Source(str(tree / "a.records"), 9, before.digest)
    (tree / "a.records").write_bytes(b"A.records")
    assert describe_source(tree / "a.records").digest != before.digest
