"""Columns: texts as numbers, relations, indexes, and the segment files that hold them."""
