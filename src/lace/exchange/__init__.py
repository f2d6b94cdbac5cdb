"""The interlace machine: how two stores converge on a set of records (050)."""
