"""Records (010) and their signatures (009): values, bytes, validation."""
