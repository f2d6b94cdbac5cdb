-- Version 2 of the store: what tells whether facts kept beside the database are still those of
-- its records.

CREATE TABLE removal (
    sequence INTEGER PRIMARY KEY,  -- rising, given from counter.removal_sequence, never used again
    id BLOB NOT NULL               -- the key of a record that was taken out
) STRICT;

INSERT INTO counter (name, value) VALUES ('removal_sequence', 0);
-- The XOR of all stored records' keys, as `key_number` makes numbers of them.
INSERT INTO counter (name, value) SELECT 'key_xor', key_xor(id) FROM record;
