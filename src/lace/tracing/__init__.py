"""Captured exchanges, read and judged without a lace, a peer or a network."""

__all__: list[str] = []
