"""The embedded engine: from a relational program to steps, fixed points and increments."""
