"""The rule language: text, syntax, checks, canonical form and identifiers (030)."""
