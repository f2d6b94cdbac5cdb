"""What a server adds to the log of its lace: links that moved something, and changes of rules."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lace.api import now
from lace.cli.failures import describe_failure
from lace.cli.outcomes import exit_code_of, logged_result, logged_rules
from lace.errors import LaceError
from lace.store.sqlite.store import Operation

if TYPE_CHECKING:
    from types import TracebackType

    from lace.api import Lace
    from lace.cli.session import Session
    from lace.link.server import Served
    from lace.policy.local import Policy

__all__ = ["ServeLog"]


class ServeLog:
    """Writes entries in a thread of its own: links do not wait for the disk.

    At the end of a `with` block all entries are written.

    Args:
        session: the run, which is warned when an entry cannot be written.
        lace: the lace that is served.
    """

    def __init__(self, session: Session, lace: Lace) -> None:
        self._session, self._lace = session, lace
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lace-log")
        self._last_rules: dict[str, Any] | None = None

    def __enter__(self) -> None:
        self._thread.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.__exit__(kind, error, trace)

    def add_link(self, served: Served) -> None:
        """Add an entry for a link, if something moved on it or was rejected."""
        outcome = served.outcome
        if outcome is None:
            return
        if not (outcome.received or outcome.rejected or outcome.counters.bytes_sent):
            return  # a link that brings nothing new is not logged
        self._add("serve", logged_result(outcome), exit_code_of(outcome), served.seconds)

    def add_rules(self, policy: Policy) -> None:
        """Add an entry for rules that count from now on, unless they are those of the last one."""
        result = logged_rules(policy)
        if result != self._last_rules:
            self._add("serve rules", result)
        self._last_rules = result

    def add_refused_rules(self, error: LaceError) -> None:
        """Add an entry for rules that were read again and are not legal."""
        self._last_rules = None  # that they are legal again is told
        self._add("serve rules", describe_failure(error).logged(error), error.exit_code)

    def _add(
        self, command: str, result: dict[str, Any], exit_code: int = 0, seconds: float = 0.0
    ) -> None:
        finished = now()
        operation = Operation(
            started=finished.shift(-round(seconds * 1e9)),
            finished=finished,
            command=command,
            exit_code=exit_code,
            result=result,
        )
        self._thread.submit(self._write, operation)

    def _write(self, operation: Operation) -> None:
        try:
            self._lace.log(operation)
        except LaceError as error:
            self._session.output.warn(f"the log of the lace has no entry for this: {error}")
