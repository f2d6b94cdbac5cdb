-- Version 1 of the store. SQL lives in this package only.

CREATE TABLE record (
    store_record_id INTEGER PRIMARY KEY,  -- rising, given from counter.high_water, never used again
    id BLOB NOT NULL,                     -- type letter and 32 digest bytes: sorts as the hash text
    group_path TEXT,
    app TEXT,
    name TEXT,
    tai TEXT,
    signed_by TEXT,
    bytes BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX record_by_id ON record (id);
CREATE INDEX record_by_coordinate ON record (group_path, app, name, tai)
    WHERE group_path IS NOT NULL;
CREATE INDEX record_by_tai ON record (tai) WHERE tai IS NOT NULL;
CREATE INDEX record_without_coordinate ON record (id) WHERE group_path IS NULL;

CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counter (name, value) VALUES ('high_water', 0), ('records', 0), ('record_bytes', 0);

CREATE TABLE operation (
    operation_id INTEGER PRIMARY KEY AUTOINCREMENT,
    started TEXT NOT NULL,    -- TAI
    finished TEXT NOT NULL,   -- TAI
    command TEXT NOT NULL,
    exit_code INTEGER NOT NULL,
    result TEXT NOT NULL      -- JSON object
) STRICT;
