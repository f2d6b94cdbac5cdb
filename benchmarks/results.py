"""The table of results, on the terminal and in RESULTS.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["RESULTS", "Row", "Section", "replace_sections", "write_results"]

RESULTS = Path(__file__).parent / "RESULTS.md"
_INTRODUCTION = """\
# Benchmark results

The latest table, as `{command}` wrote it on {date}.

Machine: {machine}.

Processor time counts the process and its children. Machines are noisy: the ratios,
taken in one run, say more than the seconds.
"""


@dataclass(frozen=True)
class Row:
    """One figure; without a target it is there for information."""

    name: str
    measured: str
    target: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, str, str, str]:
        verdict = {None: "", True: "yes", False: "**no**"}[self.met]
        return self.name, self.measured, self.target, verdict


@dataclass(frozen=True)
class Section:
    """A benchmark's title, figures and drawings; these lie beside RESULTS.md."""

    title: str
    rows: list[Row]
    images: tuple[str, ...] = ()

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", "| figure | measured | target | met |"]
        lines.append("| --- | --- | --- | --- |")
        lines += [f"| {' | '.join(row.cells())} |" for row in self.rows]
        for image in self.images:
            lines += ["", f"![{self.title}]({image})"]
        return "\n".join(lines) + "\n"


def write_results(sections: list[Section], *, command: str, date: str, machine: str) -> None:
    """Write RESULTS.md anew."""
    head = _INTRODUCTION.format(command=command, date=date, machine=machine)
    RESULTS.write_text("\n".join([head, *(section.markdown() for section in sections)]), "utf-8")


def replace_sections(text: str, sections: list[Section], *, command: str, date: str) -> str:
    """Return the text of RESULTS.md with some sections measured again, each with a note of that.

    A section that is not there yet is added at the end.
    """
    head, *parts = text.split("\n## ")
    for section in sections:
        titles = [part.partition("\n")[0] for part in parts]
        title, table = section.markdown().removeprefix("## ").split("\n\n", 1)
        note = f"Measured again on {date}: `{command}`."
        made = f"{title}\n\n{note}\n\n{table}"
        if section.title in titles:
            parts[titles.index(section.title)] = made
        else:
            parts.append(made)
    return "\n## ".join([head, *parts])
