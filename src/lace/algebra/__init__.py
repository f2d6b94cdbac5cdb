"""Relational programs: what rules are lowered to and what engines run."""
