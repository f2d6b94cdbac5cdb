"""Encoding, digests, text, time and limits: what every other package stands on."""
