"""Queries over a store: results, the choice of the engine, previews and disclosure."""
