"""Where records are kept: the store's surface, its two forms, keys and intake."""
