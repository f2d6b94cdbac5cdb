"""The repository keeps its own rules: layers, exports, cited ids, and a clone that stands alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lace"
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_LINES = 900
MAX_LAYERS = 18
EXPORTING = ("__init__.py", "api/")
"""The only places with `__all__`: what a program may use."""

# Spelled in two pieces, so that this file does not name them itself.
REGISTRIES = tuple(
    name + ending
    for name, ending in (
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("crates", ".io"),
        ("anaconda", ".org"),
        ("maven.apache", ".org"),
        ("repo1.maven", ".org"),
    )
)
HOMES = re.compile(r"(?<![\w.~$}-])/(?:home|Users|root|work)/[A-Za-z0-9_]")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def repository_files() -> list[Path]:
    """Every file that belongs to the repository: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = done.stdout.decode().split("\0")
    return [ROOT / name for name in sorted(set(names)) if name and (ROOT / name).is_file()]


def register_ids() -> set[str]:
    pages = (ROOT / "docs" / "reference" / "requirements").glob("*.md")
    return {
        match[1]
        for page in pages
        for match in re.finditer(r"^- `(\d{3}-\d{2,3})` ", page.read_text("utf-8"), re.MULTILINE)
    }


def test_import_contract() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_has_a_docstring_and_a_fair_size() -> None:
    texts = {name_of(path): path.read_text("utf-8") for path in MODULES}
    bare = [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert not bare, "no module docstring"
    long = [name for name, text in texts.items() if len(text.splitlines()) > MAX_LINES]
    assert not long, f"over {MAX_LINES} lines: split it"


def test_only_what_a_program_may_use_is_exported() -> None:
    found = [
        name_of(path)
        for path in MODULES
        if re.search(r"^__all__\b", path.read_text("utf-8"), re.MULTILINE)
        and not path.relative_to(SOURCE).as_posix().startswith(EXPORTING)
    ]
    assert not found


def importers() -> dict[str, set[str]]:
    """Return which modules import each module."""
    names = {
        path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        for path in MODULES
    }
    found: dict[str, set[str]] = {name: set() for name in names.values()}
    for path, here in names.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for each in node.names:
                full = f"{node.module}.{each.name}"
                found.get(full if full in found else node.module, set()).add(here)
    return found


def test_a_module_that_one_sibling_imports_says_why_it_is_apart() -> None:
    """A slice of a parent belongs in the parent, unless there is a reason."""
    without = []
    for name, users in importers().items():
        path = SOURCE.parent / f"{name.replace('.', '/')}.py"
        package = name.rpartition(".")[0]
        if len(users) > 1 or {each.rpartition(".")[0] for each in users} != {package}:
            continue
        if path.exists() and "Apart from " not in (
            ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        ):
            without.append(name)
    assert not without


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_the_root_holds_no_modules() -> None:
    """Every concept is in a package; the root has the error tree and the two entries."""
    files = {path.name for path in SOURCE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "errors.py", "py.typed"}


def test_the_import_contract_has_few_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = [each["layers"] for each in contracts["contracts"] if each["id"] == "layers"]
    assert len(layers) <= MAX_LAYERS


def test_register_numbers_follow_one_another() -> None:
    ids = sorted(register_ids())
    assert ids
    for document in {name.split("-")[0] for name in ids}:
        numbers = [int(name.split("-")[1]) for name in ids if name.startswith(document)]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_cited_requirements_exist() -> None:
    known = register_ids()
    unknown: list[str] = []
    for path in [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]:
        if path == Path(__file__):
            continue
        text = path.read_text("utf-8")
        cited = set(re.findall(r"\[(0[2-6]0-\d{2,3})\]", text))
        for marker in re.findall(r"mark\.requirement\(([^)]*)\)", text):
            cited.update(re.findall(r"[\"']([^\"']+)[\"']", marker))
        unknown += [f"{name_of(path)}: {name}" for name in sorted(cited - known)]
    assert not unknown


def test_no_registry_host_and_no_path_of_this_machine() -> None:
    own = [re.escape(str(path)) for path in (ROOT, Path.home()) if len(path.parts) > 2]
    paths = re.compile("|".join([HOMES.pattern, *(rf"(?<![\w.]){path}(?![\w-])" for path in own)]))
    found: list[str] = []
    for file in repository_files():
        text = file.read_bytes().decode("utf-8", "replace")
        found += [f"{name_of(file)}: {host}" for host in REGISTRIES if host in text]
        found += [f"{name_of(file)}: {match[0]}" for match in paths.finditer(text)]
    assert not found


@pytest.mark.parametrize("path", sorted(ROOT.glob("requirements*.lock")), ids=name_of)
def test_lock_holds_only_versions_and_hashes(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "://" not in text
    for line in text.splitlines():
        assert re.fullmatch(
            r"[a-z0-9][a-z0-9._-]*==\S+( ; .+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?| *#.*|",
            line,
        ), line


def test_locks_agree() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "lock", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_locks_are_whole() -> None:
    """They are installed without a look at what packages ask for: all of that is in them."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_lace_stays_light() -> None:
    heavy = ("pyspark", "numpy", "rich", "click", "lace.rules")
    code = f"import sys, lace; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_page_on_the_architecture_names_every_layer() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    cells = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+)(?: \*planned\*)? \| (?:yes)? ?\| ", page, re.MULTILINE
    )
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = [each["layers"] for each in contracts["contracts"] if each["id"] == "layers"]
    assert named == set(re.findall(r"\w+", " ".join(layers)))


def test_the_page_on_the_architecture_says_who_runs_an_event_loop() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    (places,) = re.findall(r"^\| asyncio \| (.*) \|$", page, re.MULTILINE)
    using = {
        path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for path in MODULES
        if re.search(r"^\s*(?:import|from) asyncio\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert set(re.findall(r"`(\w+)`", places)) == using


def test_only_validation_restores_records() -> None:
    """The type is the proof: what comes from elsewhere is no ValidRecord."""
    allowed = {"lace/record/validate.py", "lace/store/validation.py"}
    users = {
        str(path.relative_to(SOURCE.parent))
        for path in MODULES
        if "restore_valid" in path.read_text("utf-8")
    }
    assert users == allowed
