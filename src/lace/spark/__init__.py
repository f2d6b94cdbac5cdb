"""Spark: the distributed engine, the pipeline over a warehouse, and served warehouses."""
