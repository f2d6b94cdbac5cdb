"""`lace explain`: what an id in a message means."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lace.api.explain import explain, explanations
from lace.base.text import safe_text
from lace.cli.command import command as lace_command
from lace.cli.output import TableColumn

if TYPE_CHECKING:
    from lace.api.explain import RuleExplanation
    from lace.cli.output import Output
    from lace.cli.session import Session


@lace_command(
    "explain",
    piped="The text that a terminal shows. Without ID a line for each id, tab-separated: id, rule.",
    json_keys={
        "id": "the id; without ID there is one line for each",
        "statement": "the rule",
        "reason": "why it exists",
        "fault": "an example that breaks it",
        "remedy": "the same example put right",
        "page": "where to read more, in docs/reference",
    },
    api="explain, explanations",
    examples=[
        ("lace explain 030-37", "what the id [030-37] at the end of an error means"),
        ("lace explain", "every id that a message can show"),
        ("lace explain g31 --json", "a decision of Lace on the texts, as JSON"),
    ],
)
@click.argument("name", metavar="[ID]", required=False)
@click.pass_obj
def command(session: Session, name: str | None) -> int:
    """Explain an id that a message shows.

    The rule, why it exists, an example that breaks it, and the example put right. Brackets
    around ID and its case do not matter. Without ID, all ids are listed. No lace is needed.
    """
    output = session.output
    found = [explain(name)] if name is not None else list(explanations().values())
    if output.json:
        for each in found:
            output.json_line(asdict(each))
    elif name is not None:
        _show(output, found[0])
    else:
        columns = (TableColumn("id", style="bold", no_wrap=True), TableColumn("rule"))
        output.show([(each.id, each.statement) for each in found], columns)
    return 0


def _show(output: Output, found: RuleExplanation) -> None:
    output.styled_line((f"{found.id}: ", "bold"), (found.statement, ""))
    output.say(f"Why: {found.reason}")
    for heading, example in (("Wrong:", found.fault), ("Right:", found.remedy)):
        output.line("")
        output.styled_line((heading, "bold"))
        for line in example.split("\n"):
            output.say(f"  {safe_text(line)}")
    output.line("")
    output.say(f"More: docs/reference/{found.page}")
