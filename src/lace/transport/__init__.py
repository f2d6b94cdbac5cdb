"""Transports: streams of bytes over standard input and output, sockets and WebSockets (060)."""
