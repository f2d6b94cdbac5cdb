"""One Spark session for all tests of the pipeline, and records to work on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey
from tests.spark.samples import make_records
from tests.spark_session import JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal


@pytest.fixture(scope="session")
def spark(spark_session: Any) -> Any:
    """The session of this process, which the commands use as well."""
    return spark_session


@pytest.fixture(scope="module", autouse=True)
def _java_of_clusters() -> Iterator[None]:
    """Have the Java of masters and workers compile little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", JAVA)
        yield


@pytest.fixture(autouse=True)
def _java_of_others(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the Java of commands that run as processes start fast and compile little."""
    if request.node.get_closest_marker("spark"):
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", request.getfixturevalue("java_options"))


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
