use super::*;
use crate::database;
use std::fs;
use tranche_core::ledger::events::EventKind;
use tranche_core::ledger::{
    Ask, Bounds, Change, Claim, ClaimState, ContainerName, HeldPart, Holder, InitProcess, Ledger, World,
};
use tranche_core::types::DeviceKey;

/// A moment of a machine on which every process lives.
pub(crate) struct At(pub(crate) u64);

impl World for At {
    fn is_gone(&self, _: &InitProcess) -> bool {
        false
    }
    fn lives(&self, _: &InitProcess) -> bool {
        true
    }
    fn now(&self) -> u64 {
        1_700_000_000 + self.0
    }
    fn uptime(&self) -> u64 {
        self.0
    }
}

pub(crate) fn gpu(number: u32) -> DeviceKey {
    format!("GPU-8188460b-0e3a-4d7e-9d3a-00000000000{number}")
        .parse()
        .unwrap()
}

/// The uptime of this machine, so that what is still held is held until now.
pub(crate) fn uptime() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    time.tv_sec().cast_unsigned()
}

/// A machine that records events, and its history.
pub(crate) struct Scene {
    pub(crate) top: tempfile::TempDir,
    pub(crate) ledger: Ledger,
    pub(crate) database: Connection,
    pub(crate) intake: Intake,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("events")).unwrap();
        fs::create_dir(top.path().join("data")).unwrap();
        Self {
            ledger: Ledger::open(top.path()).unwrap(),
            database: database::open(&top.path().join("data")).unwrap(),
            intake: Intake::new(top.path()),
            top,
        }
    }

    pub(crate) fn take(&self, uptime: u64, gpu: &DeviceKey, share: u32, uid: u32) -> bool {
        self.take_as(uptime, gpu, share, uid, &format!("{uid}-{share}-{gpu}-{uptime}"))
    }

    /// As a container with this id.
    pub(crate) fn take_as(&self, uptime: u64, gpu: &DeviceKey, share: u32, uid: u32, id: &str) -> bool {
        let ask = Ask {
            device: gpu.clone(),
            part: HeldPart::share(share.to_string().parse().unwrap(), "1/1000".parse().unwrap()),
            bounds: Bounds::default(),
            asked_as: None,
            spec_file: None,
            name: None,
            holder: Holder::Container(ContainerName {
                bundle: "/b".into(),
                id: id.to_owned(),
            }),
            process: None,
            state: ClaimState::Held,
            once: true,
            for_root: false,
            alone: false,
            uid,
            ttl: None,
        };
        let locked = self.ledger.lock().unwrap().recording(uptime);
        let taken = locked.change_scanned(gpu, |book| Ok((book.take(&ask, &At(uptime))?, Change::Made)));
        taken.is_ok()
    }

    pub(crate) fn release(&self, uptime: u64, gpu: &DeviceKey, share: u32) {
        let part = HeldPart::share(share.to_string().parse().unwrap(), "1/1000".parse().unwrap());
        self.end(uptime, gpu, |claim| claim.part == part);
    }

    fn end(&self, uptime: u64, gpu: &DeviceKey, is_meant: impl Fn(&Claim) -> bool) {
        let locked = self.ledger.lock().unwrap().recording(uptime);
        let ended = locked.change(gpu, |book| {
            book.claims.retain(|claim| !is_meant(claim));
            Ok(((), Change::Made))
        });
        ended.unwrap();
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.top.path().join("events/log")
    }

    pub(crate) fn look(&mut self) -> Taken {
        let mut all = Taken::default();
        loop {
            let taken = self.intake.look(&mut self.database).unwrap();
            all.events += taken.events;
            all.unknown += taken.unknown;
            if !taken.is_more {
                return all;
            }
        }
    }

    /// All holds: when they began and ended.
    pub(crate) fn holds(&self) -> Vec<(i64, Option<i64>)> {
        let mut holds = self
            .database
            .prepare("SELECT began, ended FROM holds ORDER BY id")
            .unwrap();
        let rows = holds.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

#[test]
fn each_line_counts_once_however_often_and_in_what_pieces_it_is_read() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    scene.take(110, &gpu(0), 2, 8);
    scene.release(150, &gpu(0), 1);
    let whole = fs::read(scene.log()).unwrap();
    let mut file = File::create(scene.log()).unwrap();
    let mut events = 0;
    for piece in whole.chunks(7) {
        std::io::Write::write_all(&mut file, piece).unwrap();
        let taken = scene.look();
        events += taken.events;
        assert_eq!(taken.unknown, 0);
        assert_eq!(scene.look(), Taken::default());
    }
    assert_eq!((events, scene.holds()), (3, vec![(100, Some(150)), (110, None)]));
    // A program that starts again goes on.
    let data = scene.top.path().join("data");
    drop(std::mem::replace(
        &mut scene.database,
        Connection::open_in_memory().unwrap(),
    ));
    scene.database = database::open(&data).unwrap();
    scene.intake = Intake::new(scene.top.path());
    assert_eq!(scene.look(), Taken::default());
    scene.release(170, &gpu(0), 2);
    assert_eq!(scene.look().events, 1);
    assert_eq!(scene.holds(), [(100, Some(150)), (110, Some(170))]);
}

/// The program is killed between any two steps: what is not committed is read again.
#[test]
fn what_was_not_recorded_is_read_again() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    let files = scene.intake.open().unwrap();
    {
        let transaction = scene.database.transaction().unwrap();
        let mut taken = Taken::default();
        for file in files {
            let about = failed(Path::new("x"));
            scene.intake.read(&transaction, file, &mut taken, &about).unwrap();
        }
        assert_eq!(taken.events, 1);
        // Dropped: rolled back.
    }
    assert!(scene.holds().is_empty());
    assert_eq!((scene.look().events, scene.holds()), (1, vec![(100, None)]));
}

#[test]
fn half_lines_and_unknown_ones_cost_themselves_and_a_newer_file_is_left() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    let text = fs::read_to_string(scene.log()).unwrap();
    let half = &text[..text.len() - 30];
    fs::write(scene.log(), format!("{text}{half}\nflew\t1\t2\t3\t\n")).unwrap();
    scene.release(150, &gpu(0), 1);
    let taken = scene.look();
    // The half has the first line again.
    assert_eq!((taken.events, taken.unknown), (2, 2));
    assert_eq!(scene.holds(), [(100, Some(150))]);
    fs::remove_file(scene.log()).unwrap();
    fs::write(scene.log(), format!("tranche-events 2 x\n{text}")).unwrap();
    assert_eq!(scene.look(), Taken::default());
    assert_eq!(scene.look(), Taken::default());
}

#[test]
fn nothing_is_missed_when_files_get_other_names() {
    let mut scene = Scene::new();
    for number in 0..5 {
        scene.take(100 + number, &gpu(0), 1, 7);
        scene.release(101 + number, &gpu(0), 1);
        // The next writer gives it another name.
        let file = fs::OpenOptions::new().append(true).open(scene.log()).unwrap();
        let mut file = std::io::BufWriter::new(file);
        let line = format!("{}\n", "x".repeat(1000));
        for _ in 0..events::MOST_BYTES / 1000 + 1 {
            std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
        }
        drop(file);
        if number != 2 {
            scene.look();
        }
    }
    scene.look();
    let expected: Vec<_> = (0..5).map(|number| (100 + number, Some(101 + number))).collect();
    assert_eq!(scene.holds(), expected);
}

#[test]
fn lines_that_were_lost_are_made_up_for() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    scene.take(100, &gpu(0), 2, 8);
    scene.look();
    // The disk is full: nothing is recorded.
    let record = scene.top.path().join("events");
    let away = scene.top.path().join("away");
    fs::rename(&record, &away).unwrap();
    scene.release(110, &gpu(0), 1);
    scene.take(115, &gpu(1), 1, 9);
    fs::rename(&away, &record).unwrap();
    // The broker says what is held.
    scene.ledger.lock().unwrap().recording(200).note_all().unwrap();
    scene.look();
    assert_eq!(scene.holds(), [(100, Some(200)), (100, None), (115, None)]);
    // An end whose beginning was lost, and a beginning that shows that an end was lost.
    fs::rename(&record, &away).unwrap();
    scene.take(205, &gpu(1), 2, 9);
    scene.release(206, &gpu(0), 2);
    fs::rename(&away, &record).unwrap();
    scene.release(210, &gpu(1), 2);
    scene.take(220, &gpu(0), 2, 8);
    scene.look();
    let rest = &scene.holds()[1..];
    assert_eq!(rest, [(100, Some(220)), (115, None), (205, Some(210)), (220, None)]);
}

#[test]
fn a_list_that_is_not_complete_ends_nothing() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    scene.take(100, &gpu(0), 2, 8);
    scene.look();
    scene.ledger.lock().unwrap().recording(200).note_all().unwrap();
    let text = fs::read_to_string(scene.log()).unwrap();
    let kept: Vec<&str> = text.lines().collect();
    let holds = kept.iter().position(|line| line.starts_with("holds")).unwrap();
    let without: Vec<&str> = kept
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != holds)
        .map(|(_, line)| *line)
        .collect();
    fs::write(scene.log(), without.join("\n") + "\n").unwrap();
    scene.look();
    assert_eq!(scene.holds(), [(100, None), (100, None)]);
}

#[test]
fn a_boot_ends_what_was_held_when_it_was_last_heard_of() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    scene.take(130, &gpu(0), 2, 7);
    scene.release(131, &gpu(0), 2);
    scene.look();
    fs::remove_file(scene.log()).unwrap();
    fs::write(scene.log(), "tranche-events 1 another-boot\n").unwrap();
    scene.take(5, &gpu(1), 1, 7);
    scene.look();
    assert_eq!(scene.holds(), [(100, Some(131)), (130, Some(131)), (5, None)]);
}

#[test]
fn limits_waits_and_outages_are_recorded() {
    let mut scene = Scene::new();
    scene.take(100, &gpu(0), 1, 7);
    let locked = scene.ledger.lock().unwrap().recording(150);
    let claim = locked
        .change(&gpu(0), |book| Ok((book.claims[0].clone(), Change::None)))
        .unwrap();
    locked.note(EventKind::Overdue, 0, &claim);
    locked.note(EventKind::Busy, 40, &claim);
    locked.note_device(EventKind::Drained, 0, &gpu(1), 0);
    locked.note_device(EventKind::Waits, 0, &gpu(0), 8);
    locked.note_device(EventKind::Waits, 0, &gpu(0), 9);
    locked.note_device(EventKind::Served, 12, &gpu(0), 8);
    locked.note_device(EventKind::Left, 13, &gpu(0), 8);
    drop(locked);
    scene.release(160, &gpu(0), 1);
    scene
        .ledger
        .lock()
        .unwrap()
        .recording(170)
        .note_device(EventKind::Undrained, 0, &gpu(1), 0);
    scene.look();
    let one = |question: &str| -> i64 { scene.database.query_row(question, [], |row| row.get(0)).unwrap() };
    assert_eq!(one("SELECT limited FROM holds WHERE ended = 160"), 1);
    assert_eq!(one("SELECT ended - began FROM outages"), 20);
    assert_eq!(one("SELECT sum(seconds) FROM waits"), 25);
    assert_eq!(one("SELECT uid FROM waits WHERE ended IS NULL"), 9);
    assert_eq!(one("SELECT sum(seconds) FROM busy WHERE uid = 7"), 40);
}

/// Of a start that was killed, its ticket says when it began, and not for whom.
#[test]
fn a_wait_ends_by_its_beginning_too() {
    let mut scene = Scene::new();
    for (second, uid) in [(100, 8), (110, 8), (120, 9)] {
        let locked = scene.ledger.lock().unwrap().recording(second);
        locked.note_device(EventKind::Waits, 0, &gpu(0), uid);
    }
    for (second, seconds, uid) in [(130, 20, 8), (140, 21, 0)] {
        let locked = scene.ledger.lock().unwrap().recording(second);
        locked.note_device(EventKind::Left, seconds, &gpu(0), uid);
    }
    scene.look();
    let mut waits = scene
        .database
        .prepare("SELECT uid, began, ended FROM waits ORDER BY rowid")
        .unwrap();
    let rows = waits.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let rows: Vec<(u32, i64, Option<i64>)> = rows.unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [(8, 100, None), (8, 110, Some(130)), (9, 119, Some(140))]);
}
