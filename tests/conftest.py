"""Settings for the whole suite: Hypothesis profiles, markers and the requirement report."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.unit.transport.certificates import Certificates

# Not test modules themselves; their assertions are still to be explained.
pytest.register_assert_rewrite(
    "tests.hostile.kit",
    "tests.simulator.side",
    "tests.simulator.world",
    "tests.store.contract",
    "tests.store.samples",
    "tests.unit.interlacing.reconciling",
    "tests.unit.transport.bindings",
)

ROOT = Path(__file__).resolve().parent.parent
REGISTER = ROOT / "docs" / "reference" / "requirements"

# A shared machine can be slow at any moment, so no profile has a deadline.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for TLS, made once."""
    from tests.unit.transport.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """A Spark session for small tables: what takes long there is to compile, not to run."""
    from lace.engines.spark.session import open_session

    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    with open_session("local[2]", settings=settings) as session:
        yield session


NAMED_IDS = pytest.StashKey[set[str]]()
WORKER_KEY = "lace_requirement_ids"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that asks for the requirement report."""
    parser.addoption(
        "--requirement-report",
        metavar="FILE",
        default=os.environ.get("LACE_REQUIREMENT_REPORT"),
        help="write which requirement ids no collected test names, as Markdown, into FILE",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start with no requirement named."""
    config.stash[NAMED_IDS] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip Spark tests where PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        skip = pytest.mark.skip(reason="PySpark is not installed")
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(skip)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the requirement ids of the tests that are going to run."""
    named = session.config.stash[NAMED_IDS]
    for item in session.items:
        for marker in item.iter_markers("requirement"):
            named.update(str(name) for name in marker.args)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's ids to the controlling process."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        named = session.config.stash[NAMED_IDS]
        output[WORKER_KEY] = sorted(named)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's ids over."""
    output = getattr(node, "workeroutput", None) or {}
    node.config.stash[NAMED_IDS].update(output.get(WORKER_KEY, ()))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Write the report and say in a few lines what it holds."""
    target = config.getoption("--requirement-report")
    if not target:
        return
    named = config.stash[NAMED_IDS]
    register = read_register()
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_report(register, named), "utf-8")
    missing = [name for name in register if name not in named]
    terminalreporter.section("requirements")
    terminalreporter.write_line(
        f"{len(register) - len(missing)} of {len(register)} requirement ids are named by a test"
    )
    if missing:
        terminalreporter.write_line(f"without a test: {', '.join(format_ranges(missing))}")
    terminalreporter.write_line(f"details: {target}")


def read_register() -> dict[str, str]:
    """All requirement ids with their text, in the order of the register."""
    found: dict[str, str] = {}
    for page in sorted(REGISTER.glob("*.md")):
        for match in re.finditer(r"^- `(\d{3}-\d{2,3})` (.+)$", page.read_text("utf-8"), re.M):
            found[match[1]] = match[2]
    return found


def format_ranges(names: Iterable[str]) -> list[str]:
    """Shorten sorted ids: 020-43, 020-44, 020-45 becomes 020-43…45."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        document, number = name.split("-")
        if runs and runs[-1][0] == document and runs[-1][2] == int(number) - 1:
            runs[-1] = (document, runs[-1][1], int(number))
        else:
            runs.append((document, int(number), int(number)))
    return [
        f"{document}-{first:02}" + (f"…{last:02}" if last > first else "")
        for document, first, last in runs
    ]


def format_report(register: Mapping[str, str], named: set[str]) -> str:
    """Format the report as Markdown: first what no test names, then unknown ids."""
    missing = [name for name in register if name not in named]
    lines = ["# Requirements without a test", ""]
    lines += [f"- `{name}` {register[name]}" for name in missing] or ["None."]
    unknown = sorted(named - set(register))
    if unknown:
        lines += ["", "# Ids that tests name and the register does not have", ""]
        lines += [f"- `{name}`" for name in unknown]
    return "\n".join(lines) + "\n"
