-- Version 3 of the store: where records lie by coordinate and by time, in tables of their own.
--
-- An index takes an entry as soon as its row is inserted: records that arrive in the order of
-- their hashes have theirs on pages all over it. Into a table the entries of a whole transaction
-- are put in their own order, and each of its pages is found, read and written once.

CREATE TABLE coordinate (
    group_path TEXT NOT NULL,
    app TEXT NOT NULL,
    name TEXT NOT NULL,
    tai TEXT NOT NULL,
    store_record_id INTEGER NOT NULL,
    PRIMARY KEY (group_path, app, name, tai, store_record_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE moment (
    tai TEXT NOT NULL,
    store_record_id INTEGER NOT NULL,
    PRIMARY KEY (tai, store_record_id)
) STRICT, WITHOUT ROWID;

INSERT INTO coordinate (group_path, app, name, tai, store_record_id)
SELECT group_path, app, name, tai, store_record_id
FROM record
WHERE group_path IS NOT NULL AND app IS NOT NULL AND name IS NOT NULL AND tai IS NOT NULL
ORDER BY group_path, app, name, tai, store_record_id;

INSERT INTO moment (tai, store_record_id)
SELECT tai, store_record_id FROM record WHERE tai IS NOT NULL ORDER BY tai, store_record_id;

DROP INDEX record_by_coordinate;
DROP INDEX record_by_tai;

CREATE TRIGGER record_removed AFTER DELETE ON record WHEN old.group_path IS NOT NULL
BEGIN
    DELETE FROM coordinate
    WHERE group_path = old.group_path AND app = old.app AND name = old.name AND tai = old.tai
        AND store_record_id = old.store_record_id;
    DELETE FROM moment WHERE tai = old.tai AND store_record_id = old.store_record_id;
END;

-- The StoreRecordId up to which both have entries. A process of an older version that has the
-- lace open knows nothing of them: it may read on, and what it wants to store is refused.
INSERT INTO counter (name, value) SELECT 'placed', value FROM counter WHERE name = 'high_water';

CREATE TRIGGER counter_raised BEFORE UPDATE ON counter
WHEN new.name = 'high_water' AND new.value > (SELECT value FROM counter WHERE name = 'placed')
BEGIN
    SELECT raise(ABORT, 'a newer Lace has changed the store meanwhile; start this one again');
END;
