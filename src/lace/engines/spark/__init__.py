"""The Spark engine: the session that it runs in, and rules over tables. Needs `lace[spark]`."""

__all__: list[str] = []
