"""ILTP: the bytes of an exchange on a stream, and the addresses of its ends (060)."""
