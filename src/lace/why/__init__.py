"""Explanations: why a fact holds, why it does not, and how both are shown."""
