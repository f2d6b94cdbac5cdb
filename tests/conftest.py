"""Settings for the whole suite: Hypothesis profiles, markers and the pages on conformance."""

from __future__ import annotations

import gc
import importlib.util
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lace
from tests.profiles import load_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.transport.certificates import Certificates

# Not test modules themselves; their assertions are still to be explained.
pytest.register_assert_rewrite(
    "tests.hostile.kit",
    "tests.simulator.side",
    "tests.simulator.world",
    "tests.store.contract",
    "tests.store.samples",
    "tests.unit.exchange.reconciling",
    "tests.unit.transport.bindings",
)

TESTS = Path(__file__).resolve().parent

load_profile()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also for what tests start


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[lace.Lace, lace.Lace]]:
    """Two empty laces with a key each."""
    with lace.open(tmp_path / "left") as left, lace.open(tmp_path / "right") as right:
        for each in (left, right):
            key = lace.SigningKey.generate()
            each.keys.add(key)
            each.keys.set_default(key.verifier)
        yield left, right


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for TLS, made once."""
    from tests.unit.transport.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def spark_session(java_options: str) -> Iterator[Any]:
    """The Spark session of this process, for small tables."""
    from lace.spark.engine.session import open_session
    from tests.spark_session import SETTINGS

    java = {"spark.driver.extraJavaOptions": java_options}
    with open_session("local[2]", settings=SETTINGS | java) as session:
        yield session


@pytest.fixture(scope="session")
def java_options() -> str:
    """For SPARK_SUBMIT_OPTS: Java starts fast and compiles little; queries run as anybody's."""
    from tests.spark_session import java_options

    return java_options()


PARTIAL = pytest.StashKey[bool]()
DESELECTED = pytest.StashKey[list[pytest.Item]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that asks for the pages on conformance."""
    parser.addoption(
        "--conformance-pages",
        metavar="FOLDER",
        help="write which tests name which requirement into FOLDER (with --collect-only)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note whether this run is of a part of the tests only, as far as the arguments tell."""
    chosen = [(config.invocation_params.dir / name).resolve() for name in config.args]
    config.stash[PARTIAL] = chosen != [TESTS] or bool(config.getoption("ignore"))
    config.stash[DESELECTED] = []


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Keep the tests that do not run: they count for the requirements that they name."""
    for item in items[:1]:
        item.config.stash[DESELECTED] += items


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put Spark tests first, so that one worker has them; skip them where PySpark is missing.

    They are the longest, and each worker that has some starts a Java and warms it up.
    """
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    if importlib.util.find_spec("pyspark") is None:
        skip = pytest.mark.skip(reason="PySpark is not installed")
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(skip)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the pages on conformance, if they are asked for and all tests are there.

    What has been made until now stays until the end, so that no collection looks at it again:
    ten thousand tests, and all that they import, are most of what there is.
    """
    from tests.conformance import table

    gc.collect()
    gc.freeze()
    folder = session.config.getoption("--conformance-pages")
    if not folder:
        return
    if session.config.stash[PARTIAL]:
        raise pytest.UsageError("--conformance-pages needs all tests")
    every = [*session.items, *session.config.stash[DESELECTED]]
    register, named = table.read_register(), table.names_of_tests(every)
    table.write_pages(Path(folder), table.format_pages(register, named))
    if faults := table.faults(register, named):
        raise pytest.UsageError("\n".join(faults))


def pytest_unconfigure() -> None:
    """Let what was kept from collections go; some libraries complain of what is left."""
    gc.unfreeze()


@pytest.fixture
def all_tests(request: pytest.FixtureRequest) -> list[pytest.Item] | None:
    """Every test that there is, also those that do not run, where this run has collected all."""
    config = request.config
    every = [*request.session.items, *config.stash[DESELECTED]]
    return None if config.stash[PARTIAL] else every
