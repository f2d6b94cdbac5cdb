"""Captured exchanges: read, replayed and checked without a store, a peer or a network."""
