use super::*;
use std::fs;

fn marks(database: &Connection) -> i64 {
    database
        .query_row("SELECT count(*) FROM devices", [], |row| row.get(0))
        .unwrap()
}

fn mark(database: &Connection) {
    let number = marks(database);
    database
        .execute("INSERT INTO devices (name) VALUES (?1)", [number.to_string()])
        .unwrap();
}

#[test]
fn sqlite_does_not_damage_its_journal_and_loads_no_extension() {
    assert!(rusqlite::version_number() >= LEAST_SQLITE, "{}", rusqlite::version());
    let top = tempfile::tempdir().unwrap();
    let database = open(top.path()).unwrap();
    let loaded = database.query_row("SELECT load_extension('/nowhere')", [], |_| Ok(()));
    let error = loaded.unwrap_err().to_string();
    assert!(
        error.contains("not authorized") || error.contains("no such function"),
        "{error}"
    );
}

#[test]
fn what_was_recorded_is_found_again() {
    let top = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let database = open(top.path()).unwrap();
        assert_eq!(marks(&database), number);
        mark(&database);
    }
}

#[test]
fn a_second_program_and_a_newer_database_are_refused_in_one_line() {
    let top = tempfile::tempdir().unwrap();
    let first = open(top.path()).unwrap();
    let error = open(top.path()).unwrap_err().to_string();
    assert!(error.ends_with("is used by another tranche-web"), "{error}");
    first.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    drop(first);
    let error = open(top.path()).unwrap_err().to_string();
    assert!(
        error.contains("has form 2, and this program writes 1; a newer tranche wrote it"),
        "{error}"
    );
    assert!(top.path().join(FILE).exists());
}

/// Ordinary questions do not see a page that is damaged: the check at the start does.
#[test]
fn a_damaged_database_is_set_aside_with_its_journal() {
    for place in [0, 20, 4096, 3 * 4096 + 5] {
        let top = tempfile::tempdir().unwrap();
        let database = open(top.path()).unwrap();
        (0..200).for_each(|_| mark(&database));
        database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(database);
        let file = top.path().join(FILE);
        let mut bytes = fs::read(&file).unwrap();
        bytes[place..place + 64].fill(0xA5);
        fs::write(&file, &bytes).unwrap();
        fs::write(top.path().join("history.sqlite-wal"), "of the damaged one").unwrap();
        let database = open(top.path()).unwrap();
        assert_eq!(marks(&database), 0, "{place}");
        assert_eq!(fs::read(top.path().join("history.sqlite.damaged")).unwrap(), bytes);
        // SQLite itself removes a journal that does not belong to the file. In no case is it that of the new one.
        let journal = fs::read(top.path().join("history.sqlite-wal")).unwrap_or_default();
        assert!(!journal.starts_with(b"of the"), "{place}");
    }
}

/// What cannot be opened at all keeps its journal.
#[test]
fn the_journal_moves_along() {
    let top = tempfile::tempdir().unwrap();
    for end in FILES {
        fs::write(top.path().join(format!("{FILE}{end}")), end).unwrap();
    }
    set_aside(&top.path().join(FILE)).unwrap();
    let mut names: Vec<_> = fs::read_dir(top.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, FILES.map(|end| format!("{FILE}.damaged{end}")));
}

#[test]
fn what_is_old_is_removed_and_what_is_held_stays() {
    let top = tempfile::tempdir().unwrap();
    let database = open(top.path()).unwrap();
    database
        .execute_batch(
            "INSERT INTO boots VALUES (1, 'a', 1000000, 500);
             INSERT INTO holds (boot, device, part, uid, who, joined, used, began, ended) VALUES
               (1, 1, '', 0, '', 0, 1, 0, 99), (1, 1, '', 0, '', 0, 1, 0, 101), (1, 1, '', 0, '', 0, 1, 0, NULL);
             INSERT INTO waits VALUES (1, 94, 99, 0, 1, 5, 1), (1, 94, NULL, 0, 1, 0, 0);",
        )
        .unwrap();
    assert_eq!(forget(&database, 1_000_200, Duration::from_secs(100)).unwrap(), 2);
    let left: i64 = database
        .query_row("SELECT count(*) FROM holds", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 2);
}
