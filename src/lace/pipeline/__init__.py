"""The Spark pipeline over a warehouse folder: stages from tables to tables. Needs `lace[spark]`."""

__all__: list[str] = []
