"""Drivers: what carries out a machine's effects, over stores, clocks and streams."""

__all__: list[str] = []
