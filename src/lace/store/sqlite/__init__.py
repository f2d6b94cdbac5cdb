"""The store on disk: one folder with an SQLite database in WAL mode."""
