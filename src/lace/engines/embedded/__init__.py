"""The embedded engine: columns of interned texts, NumPy, and nothing to install or start."""

__all__: list[str] = []
