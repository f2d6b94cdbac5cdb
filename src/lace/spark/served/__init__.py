"""Warehouses behind a server."""
