"""Engines: ways to evaluate rules over facts; all give the same answers."""

__all__: list[str] = []
