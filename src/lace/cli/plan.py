"""`lace plan`: what two laces agree on, as a transcript and its identifier; no lace is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lace.api.policy import LOWERINGS, SELECTOR, Plan, check_same_plan, parse_transcript, plan
from lace.cli.command import command as lace_command
from lace.cli.files import check_target, read_file, written
from lace.cli.policy_files import WantedRules, check_files, refuse_shared_input, warn_of
from lace.cli.policy_options import LOWERING_OPTION
from lace.errors import Place, PolicyError, UsageError

if TYPE_CHECKING:
    from lace.api.policy import ExchangePlan
    from lace.cli.session import Session


def _make(session: Session, operand0: str, operand1: str, lowering: str) -> Plan:
    limits = session.rule_limits()
    wanted = [WantedRules(file, SELECTOR, limits) for file in (operand0, operand1)]
    zero, one = check_files(session, wanted)
    warn_of(session, (*zero.warnings, *one.warnings))
    return plan(zero, one, lowering=lowering)


def _receive(session: Session, argument: str) -> ExchangePlan:
    """Return the plan of a transcript that somebody sent; nothing in it is repaired."""
    file = read_file(session, argument)
    try:
        return parse_transcript(file.raw)
    except PolicyError as error:
        line = error.place.line if error.place else None
        error.place = Place(file.name, line)
        raise


def _document(made: ExchangePlan) -> dict[str, Any]:
    return {
        "id": made.id,
        "lowering": made.lowering,
        "operands": [
            {
                "index": operand.index,
                "facet": operand.facet,
                "module": operand.module_id,
                "origin": operand.origin,
            }
            for operand in made.operands
        ],
        "required_fields": {"all": made.required.all, "names": sorted(made.required.names)},
        "transcript": made.transcript,
    }


@lace_command(
    "plan",
    api="plan",
    piped="The transcript: the very bytes that the E. identifier is made from, without a line feed "
    "behind the last line. With --id or --check the identifier on a line.",
    json_keys={
        "id": "the E. identifier",
        "lowering": "what is asked beyond selection",
        "operands": "both, a list of {index, facet, module, origin}: module is the R. identifier, "
        "origin the label that setup assigns",
        "required_fields": "the advertised fields that the rules need, {all, names}; names is "
        "empty if all are needed",
        "transcript": "the transcript, without a final line feed",
    },
    examples=[
        ("lace plan --operand0 alice.lace --operand1 bob.lace", "the plan of two selectors"),
        (
            "lace plan --operand0 alice.lace --operand1 bob.lace --id",
            "its identifier, which both sides must come to",
        ),
        ("lace plan --check received.plan", "check a transcript that somebody sent"),
        (
            "lace plan --operand0 alice.lace --operand1 bob.lace --provenance plan.sources",
            "also write where each generated rule comes from",
        ),
    ],
)
@click.option(
    "--operand0",
    metavar="FILE",
    help="The selector of the side that connects. - for standard input.",
)
@click.option("--operand1", metavar="FILE", help="The selector of the side that accepts.")
@LOWERING_OPTION
@click.option("--id", "only_id", is_flag=True, help="Write only the E. identifier.")
@click.option(
    "--check",
    "received",
    metavar="FILE",
    help="Check a received transcript and write its identifier. With both operands, also check "
    "that theirs is this plan.",
)
@click.option(
    "--provenance",
    metavar="FILE",
    help="Also write a sidecar: RuleSource, RuleGeneratedBy and RuleOrigin facts that lead each "
    "rule that either side generates back to the rule and the operand it comes from.",
)
@click.pass_obj
def command(
    session: Session,
    operand0: str | None,
    operand1: str | None,
    lowering: str | None,
    only_id: bool,
    received: str | None,
    provenance: str | None,
) -> int:
    """Show the exchange plan of two selectors.

    The plan names both modules, where they come from, the lowering, and the advertised fields
    that the rules need. Two sides that come to the same E. identifier have agreed on policy.
    Rules may be written freely: their canonical text counts. Exposures are no part of a plan.

    A transcript given to --check is refused, exit code 1, unless it is exactly what a plan is
    written as. A sidecar is for people and tools: no rule can read it, and it is no part of a
    plan.
    """
    refuse_shared_input((operand0, operand1, received))
    if (operand0 is None) != (operand1 is None) or (operand0 is None and received is None):
        lacking = "--operand1" if operand0 is not None else "--operand0"
        raise UsageError(
            f"{lacking} FILE is missing", hint="a plan has two operands; or use --check FILE"
        )
    if provenance is not None:
        if operand0 is None:
            raise UsageError(
                "a transcript has no rules to lead back to",
                hint="--provenance needs both: --operand0 FILE --operand1 FILE",
            )
        check_target(provenance)
    made = sidecar = None
    if operand0 is not None and operand1 is not None:
        own = _make(session, operand0, operand1, lowering or LOWERINGS[0])
        made, sidecar = own.agreed, own.provenance if provenance is not None else None
    if received is not None:
        found = _receive(session, received)
        if made is not None:
            check_same_plan(made, found)
        made = found
    if made is None:
        raise AssertionError("there are operands or a transcript")
    if provenance is not None and sidecar is not None:
        with written(provenance) as file:
            file.write(sidecar.text.encode("utf-8"))
    output = session.output
    if output.json:
        output.json_document(_document(made))
    elif only_id or received is not None:
        output.line(made.id)
    else:
        output.text(made.transcript)
    return 0
