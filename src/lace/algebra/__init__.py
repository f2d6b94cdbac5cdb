"""Relational programs: what rules are lowered to and what engines run."""

__all__: list[str] = []
