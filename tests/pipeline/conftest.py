"""One Spark session for all tests of the pipeline, and records to work on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey
from lace.engines.spark.session import open_session
from tests.pipeline.samples import make_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session; its Java compiles little, because nothing here runs for long."""
    settings = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with open_session("local[2]", settings=settings) as session:
        yield session


@pytest.fixture(scope="session")
def records() -> list[Blob | Plex | Seal]:
    """Some of all types, with repeated headers, links and data that looks like records."""
    return make_records(SigningKey.generate(), 120)


@pytest.fixture
def file(tmp_path: Path, records: list[Blob | Plex | Seal]) -> Path:
    """A file of the records."""
    path = tmp_path / "some.records"
    path.write_bytes(b"".join(record.bytes for record in records))
    return path
