"""Records (010) and their signatures (009): values, bytes, validation."""

__all__: list[str] = []
