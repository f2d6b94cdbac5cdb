"""Benchmarks: ratios taken in one run, against the sum of the parts or a peer."""

__all__: list[str] = []
