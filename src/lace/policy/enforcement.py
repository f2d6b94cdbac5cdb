"""A compiled policy over base facts: what may be sent and requested, kept up to date.

The peer's operand is evaluated by itself, in an enclave that holds what its view shows and
nothing else; the intersection comes after. What changed since the last question is worked
out from the change alone, through all four programs.

The enclave is told of changes when a question is asked, all at once: what its view has more
and less than at the question before. How a change came about, in how many steps, and whether
facts were read again meanwhile is nothing that its view shows.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lace.algebra.lower import lower_program
from lace.columns.index import RowSet
from lace.columns.keys import nothing
from lace.columns.relation import Relation
from lace.engine.budget import Budget, Statistics
from lace.engine.enclave import Enclave
from lace.engine.engine import Evaluation, EvaluationSession
from lace.engine.factbase import Changes, Difference, only
from lace.engine.load import GroupedFacts, group_facts, intern_constants
from lace.engine.state import EvaluationState
from lace.facts.catalogue import RECORD_PREDICATES
from lace.policy.exposure import PUBLIC, check_public, scope_name, split_local
from lace.rules.profiles import (
    CAN_QUERY_RECORD,
    LOCAL_TAI,
    MAY_REQUEST,
    MAY_SEND,
    SELECT_ADVERTISED,
    SELECT_HAVE,
)
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from lace.columns.dictionary import Ids
    from lace.engine.budget import Clock, Supervisor
    from lace.engine.factbase import FactBase
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable


_HAVE: Final = PredicateKey("Have", 1)


class Permissions:
    """What a policy allows at one moment; texts are made when they are asked for."""

    def __init__(self, answer: Evaluation) -> None:
        self._answer = answer

    @cached_property
    def may_send(self) -> frozenset[str]:
        """The records that may be sent, by hash."""
        return frozenset(record for (record,) in self._answer.texts(MAY_SEND))

    @cached_property
    def may_request(self) -> frozenset[str]:
        """The records that may be requested, by hash."""
        return frozenset(record for (record,) in self._answer.texts(MAY_REQUEST))

    def numbers(self, predicate: PredicateKey) -> Ids:
        """Return the records of `MaySend` or `MayRequest` by their numbers in the base."""
        return self._answer.relation(predicate).columns()[0]

    @property
    def counts(self) -> tuple[int, int]:
        """How many records may be sent, and how many requested."""
        return self._answer.count(MAY_SEND), self._answer.count(MAY_REQUEST)


@dataclass(slots=True)
class _Selected:
    """What the lowering reads of the operands, in numbers of the base."""

    relations: dict[PredicateKey, Relation]
    lowered: Evaluation


class Enforcement:
    """The programs of a policy over one fact base, and the enclave of the peer's operand.

    The base holds the record facts, and gets the public ones: advertisements of the peer
    and runtime facts. The enclave outlives a base that is numbered or read again
    (`take_base`), so what the peer's operand does depends on what its view shows only.
    """

    def __init__(
        self,
        executable: Executable,
        base: FactBase,
        clock: Clock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.executable = executable
        self._clock = clock
        self._supervisor = supervisor
        self._look = nothing if supervisor is None else supervisor.check
        self._enclave: Enclave | None = None
        self._unseen = Difference(base)  # by the enclave
        our, their = executable.our_scope, executable.their_scope
        self._ours = (scope_name(our, SELECT_HAVE), scope_name(our, SELECT_ADVERTISED))
        self._theirs = (scope_name(their, SELECT_HAVE), scope_name(their, SELECT_ADVERTISED))
        self._read_by_lowering = frozenset(
            {*self._ours, _HAVE, *(PUBLIC & set(executable.lowering.required_base))}
        )
        self._their_public = PUBLIC & set(executable.theirs.required_base)
        self._identifying = {
            scope_name(their, PredicateKey(found.name, found.arity)): found.identifying
            for found in RECORD_PREDICATES.values()
        }
        self._base = base
        self.take_base(base)

    def take_base(self, base: FactBase) -> None:
        """Go on with other base facts; what the enclave holds is compared with them later."""
        if base is not self._base:
            base.change(_facts_of(self._base, PUBLIC | {LOCAL_TAI}), look=self._look)
        self._base = base
        self._session = EvaluationSession(base, self._clock, self._supervisor)
        self._selected: _Selected | None = None
        self._unseen = Difference(base)

    @property
    def base(self) -> FactBase:
        """The base facts, records' and public ones."""
        return self._base

    @property
    def their_work(self) -> int:
        """The rows that the peer's operand has visited so far."""
        return self._enclave.work if self._enclave is not None else 0

    @property
    def shown(self) -> Ids:
        """The records that the viewer may query, by their numbers in the base, as last asked.

        One that is allowed and not here is among them.
        """
        if self._selected is None:
            raise AssertionError("nothing has been asked")
        return self._selected.relations[CAN_QUERY_RECORD].columns()[1]

    # -- changes -------------------------------------------------------------------------------

    def set_public(self, facts: Iterable[Fact]) -> None:
        """Say what is advertised and what the runtime facts are; replaces what was said.

        `_LocalTAI` may be among them: exposures read it, and the peer's operand does not.
        """
        public, local = split_local(facts)
        wanted, held = set(public), set(_facts_of(self._base, PUBLIC))
        self.change_public(sorted(wanted - held), sorted(held - wanted))
        self.set_local_time(*(fact[1] for fact in local))

    def change_public(
        self, added: Iterable[Fact] | GroupedFacts, removed: Iterable[Fact] | GroupedFacts = ()
    ) -> None:
        """Say what is advertised and true of the runtime besides, and what no longer is.

        What comes was not there, and what goes was; the order of facts does not matter.
        """
        come, gone = group_facts(added), group_facts(removed)
        check_public(come)
        if not come and not gone:
            return
        with self._undone_on_failure():
            changes = self._base.change(come, gone, self._look)
            self._unseen.note(only(changes, self._their_public), self._look)
            self._update(changes)

    def set_local_time(self, *instants: str) -> None:
        """Say what exposures read as `_LocalTAI`; replaces what was said, none takes it back."""
        wanted = {(LOCAL_TAI.name, each) for each in instants}
        held = set(_facts_of(self._base, {LOCAL_TAI}))
        if wanted != held:
            with self._undone_on_failure():
                come, gone = sorted(wanted - held), sorted(held - wanted)
                self._update(self._base.change(come, gone, self._look))

    def _their_public_relations(self) -> dict[PredicateKey, Relation]:
        present = self._base.relations
        return {key: present.get(key) or Relation(key.arity) for key in self._their_public}

    def release(self) -> None:
        """Free what the peer's operand has made; the next question evaluates it again."""
        self._enclave, self._selected = None, None

    def update(self, changes: Changes) -> None:
        """Bring everything up to date with a change that the base has made."""
        with self._undone_on_failure():
            self._update(changes)

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """See that nothing is built upon what is half done: the next question compares."""
        try:
            yield
        except BaseException:
            self._selected = None
            self._session.forget()
            raise

    def _update(self, changes: Changes) -> None:
        if not changes:
            return
        made = self._session.update(changes)
        view, ours = made.get(self.executable.view), made.get(self.executable.ours)
        if view is None or ours is None:
            self._selected = None  # the next question begins again
            return
        self._unseen.note(only(view, self.executable.view_predicates), self._look)
        shown = only(view, (CAN_QUERY_RECORD,))
        changed = only(ours, self._read_by_lowering)
        self._select(
            Changes({**changed.added, **shown.added}, {**changed.removed, **shown.removed})
        )

    def _see(self, enclave: Enclave) -> None:
        """Show the enclave what it has not seen yet."""
        unseen, self._unseen = self._unseen, Difference(self._base)
        try:
            changes = enclave.change_columns(*unseen.columns)
            if changes is None:
                self._selected = None
            else:
                self._select(self._translated(only(changes, self._theirs)))
        except BaseException:
            self._selected = None
            raise

    def _translated(self, changes: Changes) -> Changes:
        return Changes(
            {key: self._in_base(found) for key, found in changes.added.items()},
            {key: self._in_base(found) for key, found in changes.removed.items()},
        )

    def _in_base(self, relation: Relation) -> Relation:
        """Return rows of the enclave in numbers of the base."""
        if self._enclave is None:
            raise AssertionError("rows of an enclave come from one")
        return Relation.of(tuple(map(self._enclave.in_base, relation.columns())), relation.rows)

    def _select(self, changes: Changes) -> None:
        """Bring the lowering up to date with what the operands select."""
        if self._base.make_room():  # the enclave had texts that the base did not
            self.take_base(self._base)
        if self._selected is None or not changes:
            return
        relations = self._selected.relations
        for key in {*changes.added, *changes.removed}:
            relations[key] = self._changed(key, relations.get(key), changes)
        self._selected.lowered.update(relations, changes, self._lowering_budget())

    def _changed(self, key: PredicateKey, present: Relation | None, changes: Changes) -> Relation:
        """Return what the lowering now reads of a predicate."""
        if key in self._ours:
            return self._session.evaluate(self.executable.ours, ()).state.relations[key]
        if key == CAN_QUERY_RECORD:
            return self._session.evaluate(self.executable.view, ()).state.relations[key]
        if key not in self._theirs:
            return self._base.relations[key]
        made = present or Relation(key.arity)
        if key in changes.removed:
            columns, rows = changes.removed[key].columns(), changes.removed[key].rows
            gone = RowSet.of(columns, rows, self._base.size, self._look)
            made = made.without(gone, columns, self._look)
        if key in changes.added:
            made = made.with_rows(changes.added[key].columns(), changes.added[key].rows)
        return made

    def _lowering_budget(self) -> Budget:
        statistics = Statistics(self._clock) if self._clock is not None else Statistics()
        return Budget(self.executable.lowering, statistics, supervisor=self._supervisor)

    # -- questions -----------------------------------------------------------------------------

    def evaluate(self) -> Permissions:
        """Return what may be sent and requested now."""
        if self._selected is not None and self._enclave is not None:
            self._see(self._enclave)
        if self._selected is None:
            self._selected = self._begin()
        return Permissions(self._selected.lowered.copy())

    def _begin(self) -> _Selected:
        executable = self.executable
        visible = executable.view_predicates
        asked = (*visible, CAN_QUERY_RECORD)
        view = self._session.evaluate(executable.view, asked).state.relations
        ours = self._session.evaluate(executable.ours, self._ours).state.relations
        shown = {key: view.get(key) or Relation(key.arity) for key in visible}
        shown |= self._their_public_relations()
        if self._enclave is None:
            self._enclave = Enclave(
                executable.theirs,
                shown,
                self._identifying,
                self._base,
                self._clock,
                self._supervisor,
            )
        else:
            self._enclave.replace(shown, self._base)
        self._unseen = Difference(self._base)
        theirs = self._enclave.evaluate(self._theirs).state.relations
        relations = {key: ours[key] for key in self._ours}
        relations[CAN_QUERY_RECORD] = view.get(CAN_QUERY_RECORD) or Relation(2)
        relations |= {key: self._in_base(theirs[key]) for key in self._theirs}
        intern_constants(executable.lowering, self._base.dictionary)
        if self._base.make_room():
            self.take_base(self._base)
            return self._begin()
        for key in executable.lowering.required_base:
            if key in self._base.relations:
                relations.setdefault(key, self._base.relations[key])
        return _Selected(relations, self._lower(relations))

    def _lower(self, relations: Mapping[PredicateKey, Relation]) -> Evaluation:
        base, lowering = self._base, self.executable.lowering
        state = EvaluationState(
            lower_program(lowering),
            base.dictionary,
            base.size,
            dict(relations),
            self._lowering_budget(),
            base.verdicts,
        )
        made = Evaluation(lowering, state)
        made.run()
        return made


def _facts_of(base: FactBase, predicates: AbstractSet[PredicateKey]) -> list[Fact]:
    return [
        (key.name, *row)
        for key in sorted(predicates & base.relations.keys())
        for row in base.dictionary.rows(base.relations[key].columns(), base.relations[key].rows)
    ]
