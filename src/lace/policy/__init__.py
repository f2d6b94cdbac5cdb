"""Exchange policy: operands, origins and the plan that two laces agree on (040)."""
