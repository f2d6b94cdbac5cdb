"""One run of a command: its options, where its lace is, its settings, and the log entry it leaves.

Settings come from the defaults, the `lace.toml` of the lace, `LACE_…` variables and
`--set`, the later over the earlier.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.api import (
    SETTINGS_FILE,
    NoStoreError,
    Operation,
    StoreBusyError,
    StoreUnavailableError,
    now,
    open_lace,
    read_settings_file,
    refuse_file,
)
from lace.api.system import Settings, SettingSource, describe_settings, resolve_settings
from lace.cli.approvals import ForeignLaceError, refuse_foreign
from lace.cli.failures import Terminated, describe_failure
from lace.cli.output import DeclinedError, Output
from lace.errors import LaceError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.api import Lace
    from lace.api.rules import RuleLimits
    from lace.api.system import SettingValue


FOLDER_NAME: Final = ".lace"
FOLDER_VARIABLE: Final = "LACE_DIR"
_PREFIX: Final = "LACE_"


@dataclass(slots=True)
class Change:
    """A lace that a command changes, and what the log will say of it.

    `result` holds counts, identifiers, addresses and messages: never data, never a secret.
    """

    lace: Lace
    result: dict[str, object] = field(default_factory=dict)
    exit_code: int = 0


def making(folder: Path) -> str:
    """Return the command line that makes a lace in a folder.

    >>> making(Path("my notes"))
    "lace --lace 'my notes' init"
    """
    return f"lace --lace {shlex.quote(str(folder))} init"


class Session:
    """The state of one run."""

    def __init__(self, environ: Mapping[str, str], output: Output | None = None) -> None:
        self.environ = environ
        self.output = output or Output()
        self.output.color = not environ.get("NO_COLOR")
        self.lace_option: str | None = None
        self.set_options: dict[str, SettingValue] = {}
        self.debug = False
        self.durable = "nothing was changed"
        """What stays when a signal ends this run, in words."""
        self._warned = False
        self._left_aside = False

    @property
    def named_folder(self) -> Path | None:
        """The folder that `--lace` or the environment names."""
        named = self.lace_option or self.environ.get(FOLDER_VARIABLE)
        return Path(named) if named else None

    def find_folder(self) -> Path | None:
        """Return the folder of the lace: the named one, or the nearest one upward."""
        if self.named_folder:
            return self.named_folder
        here = Path.cwd()
        for folder in (here, *here.parents):
            found = folder / FOLDER_NAME
            if os.path.isdir(found):  # noqa: PTH112 - Path's fails where a folder is closed to us
                refuse_foreign(found)
                return found
        return None

    def find_settings(self) -> Path | None:
        """Return the folder of the lace whose settings count for a command that needs no lace.

        A lace that was found and is not this user's own is left aside, with a warning.
        """
        try:
            return self.find_folder()
        except ForeignLaceError as error:
            if not self._left_aside:
                self.output.warn(f"its settings are left aside: {error}")
            self._left_aside = True
            return None

    def folder(self) -> Path:
        """Return the folder of the lace."""
        found = self.find_folder()
        if found is None:
            raise NoStoreError(
                "there is no lace here, nor in any folder above",
                hint="make one with `lace init`, or name one with --lace DIR",
            )
        return found

    def settings(
        self, folder: Path | None, faults: list[SettingError] | None = None
    ) -> tuple[Settings, dict[str, str]]:
        """Return the settings for a lace, and where each comes from."""
        sources = []
        if folder:
            refuse_file(folder)
            try:
                sources = [read_settings_file(folder / SETTINGS_FILE)]
            except SettingError as error:
                if faults is None:
                    raise
                faults.append(error)
        return resolve_settings([*sources, *self._own_sources()], faults)

    def rule_limits(self) -> RuleLimits:
        """Return the limits for rules that the settings give, with or without a lace."""
        from lace.api.rules import limits_of  # most commands have no rules

        return limits_of(self.settings(self.find_settings())[0])

    def peer_rule_limits(self) -> RuleLimits:
        """Return the limits for rules of a peer that the settings give."""
        from lace.api.rules import peer_limits_of  # most commands have no rules

        return peer_limits_of(self.settings(self.find_settings())[0])

    def _own_sources(self) -> list[SettingSource]:
        known = {f"{_PREFIX}{name.upper()}": name for name, _meaning, _unit in describe_settings()}
        found: list[SettingSource] = []
        for variable in sorted(self.environ):
            if not variable.startswith(_PREFIX) or variable == FOLDER_VARIABLE:
                continue
            if variable in known:
                values = {known[variable]: self.environ[variable]}
                found.append(SettingSource(f"environment {variable}", values))
            elif not self._warned:
                self._warn_unknown(variable, [*known, FOLDER_VARIABLE])
        self._warned = True
        return [*found, SettingSource("--set", self.set_options)]

    def _warn_unknown(self, variable: str, known: list[str]) -> None:
        import difflib  # only on the way to a warning

        begun = [name for name in known if name.startswith(variable)]
        near = begun or difflib.get_close_matches(variable, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "`lace config show` lists all settings"
        self.output.warn(f"the environment variable {variable} is no setting; {hint}")

    def open(
        self, command: str, *, folder: Path | None = None, create: bool = False, write: bool = True
    ) -> Lace:
        """Open the lace, with the settings of this run."""
        place = folder or self.folder()
        self.settings(place)  # here a wrong value is reported with its origin
        given: dict[str, object] = {}
        for source in self._own_sources():
            given.update(source.values)
        try:
            return open_lace(
                place, create=create, read_only=not write, settings=given, purpose=f"lace {command}"
            )
        except NoStoreError as error:
            if not create:
                error.hint = f"make one: `{making(place)}`"
            raise

    def reading(self, command: str, folder: Path | None = None) -> Lace:
        """Open the lace for a command that only reads it."""
        return self.open(command, folder=folder, write=False)

    def asking(self, command: str, folder: Path | None = None) -> Lace:
        """Open the lace for a command that asks it: segments stay up to date if possible."""
        try:
            return self.open(command, folder=folder)
        except (StoreUnavailableError, StoreBusyError):
            return self.reading(command, folder)

    @contextmanager
    def changing(
        self,
        command: str,
        *,
        folder: Path | None = None,
        create: bool = False,
        durable: str = "what was stored before this stays; run it again to go on",
    ) -> Iterator[Change]:
        """Open the lace for a command that changes it; the log gets an entry in any case."""
        started = now()
        with self.open(command, folder=folder, create=create) as lace:
            change = Change(lace)
            self.durable = durable
            try:
                yield change
            except (Exception, KeyboardInterrupt, Terminated) as error:
                self._log_failure(change, command, started, error)
                raise
            finally:
                if lace.store.segments.warning:
                    self.output.warn(f"{lace.store.segments.warning}; nothing stored is lost")
            self.log(change, command, started)

    def _log_failure(
        self, change: Change, command: str, started: str, error: BaseException
    ) -> None:
        if isinstance(error, (StoreBusyError, DeclinedError)):
            return  # the log would have to wait for the same writer; or nothing was tried
        failure = describe_failure(error)
        change.exit_code = failure.exit_code
        if change.exit_code == 2:
            return  # nothing was tried yet
        change.result.update(failure.logged(error))
        self.log(change, command, started)

    def log(self, change: Change, command: str, started: str) -> None:
        """Add an entry to the log; a failure to do so never hides what the command did."""
        operation = Operation(
            started=started,
            finished=now(),
            command=command,
            exit_code=change.exit_code,
            result=change.result,
        )
        try:
            change.lace.log(operation)
        except LaceError as error:
            self.output.warn(f"the log of the lace has no entry for this: {error}")
