"""Signing keys: made, imported, chosen, removed; secrets are never shown."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey
from tests.cli.running import call, on_terminal, process

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Result


def test_new_and_list(folder: Path) -> None:
    first, second = call("key", "new").lines[0], call("key", "new").lines[0]
    listed = call("key", "list").lines
    assert sorted(listed) == sorted([f"{first}\tdefault", second])
    shown = call("key", "list", "--json").json_lines()
    assert {entry["verifier"]: entry["default"] for entry in shown} == {first: True, second: False}
    for path in (folder / "keys").glob("*.secret"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_new_as_json(folder: Path) -> None:
    assert folder.is_dir()
    made = call("key", "new", "--json").json()
    assert made == {"verifier": made["verifier"], "added": True, "default": True}


def test_default(folder: Path) -> None:
    assert folder.is_dir()
    call("key", "new")
    second = call("key", "new").lines[0]
    assert call("key", "default", second).lines == [second]
    assert f"{second}\tdefault" in call("key", "list").lines
    assert call("key", "default", "V.x").code == 2
    unknown = SigningKey.generate().verifier
    done = call("key", "default", unknown)
    assert done.code == 1
    assert "lace key list" in done.err


def test_remove(folder: Path, verifier: str) -> None:
    assert folder.is_dir()
    asked = call("key", "remove", verifier)
    assert asked.code == 2
    assert "--yes" in asked.err
    assert call("key", "list").lines == [f"{verifier}\tdefault"]
    done = call("key", "remove", verifier, "--yes")
    assert (done.code, done.lines) == (0, [verifier])
    assert call("key", "list").lines == []
    assert call("key", "remove", verifier, "--yes").code == 1


def test_remove_asks_at_a_terminal(folder: Path, verifier: str) -> None:
    assert folder.is_dir()
    assert on_terminal("key", "remove", verifier, typed=b"n\n").code == 1
    assert len(call("key", "list").lines) == 1
    assert on_terminal("key", "remove", verifier, typed=b"y\n").code == 0
    assert call("key", "list").lines == []


def test_import(folder: Path) -> None:
    assert folder.is_dir()
    key = SigningKey.generate()
    given = key.secret_text().encode() + b"\n"
    assert call("key", "import", given=given).lines == [key.verifier]
    again = call("key", "import", "--json", given=given).json()
    assert again == {"verifier": key.verifier, "added": False, "default": True}
    assert call("put", "--group", "g", "--app", "a", "--name", "n", "--sign").code == 0


def test_import_at_a_terminal_hides_the_secret(folder: Path) -> None:
    assert folder.is_dir()
    key = SigningKey.generate()
    shown = on_terminal("key", "import", typed=key.secret_text().encode() + b"\n")
    assert shown.code == 0
    assert key.verifier in shown.out
    assert key.secret_text() not in shown.out


@pytest.mark.parametrize("given", [b"", b"&.abc.H3", b"\xff\xfe", b"x" * 10_000])
def test_import_of_nonsense(folder: Path, given: bytes) -> None:
    assert folder.is_dir()
    done = call("key", "import", given=given)
    assert done.code == 1
    assert "[009-secret]" in done.err
    assert call("key", "list").lines == []


def test_secrets_are_never_shown(folder: Path) -> None:
    """Neither in answers nor in errors, the log, the settings or with --debug."""
    key = SigningKey.generate()
    secret = key.secret_text()
    body = secret[2:45]
    cut = secret[:-1].encode()
    results: list[Result] = [
        process("key", "import", "--debug", given=secret.encode()),
        process("key", "import", "--json", "--debug", given=secret.encode()),
        process("key", "import", "--debug", "--json", given=cut),
        process("key", "import", "--debug", "--json", given=secret.encode() + b"~"),
        process("key", "import", secret, "--debug", "--json"),
        process("key", "default", secret, "--debug", "--json"),
        process("key", "remove", secret, "--yes", "--debug"),
        process("put", "--key", secret, "--group", "g", "--app", "a", "--name", "n", "--debug"),
        process("get", secret, "--debug", "--json"),
        process("key", "list", "--json", "--debug"),
        process("log", "--json", "--debug"),
        process("status", "--json", "--debug"),
        process("doctor", "--json", "--debug"),
        process("config", "show", "--debug"),
        process("put", "--group", "g", "--app", "a", "--name", "n", "--sign", "--debug"),
        process("facts", "--debug"),
    ]
    path = folder / "keys" / f"{key.verifier}.secret"
    path.chmod(0o640)
    refused = process(
        "put", "--group", "g", "--app", "a", "--name", "n", "--sign", "--debug", "--json"
    )
    assert refused.code == 1
    assert "0640" in refused.err
    results.append(refused)
    path.chmod(0o600)
    path.write_text(secret[:-1])
    results.append(process("put", "--group", "g", "--app", "a", "--name", "n", "--sign", "--debug"))
    assert results[-1].code == 1
    assert any("Traceback" in result.err for result in results)
    for result in results:
        assert body not in result.out + result.err
        assert body[:20] not in result.out + result.err
