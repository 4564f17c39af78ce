use super::*;
use crate::messages::Severity;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

struct Bed {
    top: tempfile::TempDir,
}

impl Bed {
    fn new() -> (Bed, Messages) {
        let bed = Bed {
            top: tempfile::tempdir().unwrap(),
        };
        let messages = Messages::open(bed.top.path()).unwrap();
        (bed, messages)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join("messages").join(name)
    }

    fn files(&self) -> usize {
        fs::read_dir(self.at("")).unwrap().count()
    }
}

fn message(at: u64, container: &str, text: &str) -> Message {
    Message {
        at,
        container: container.to_owned(),
        hook: "prepare".to_owned(),
        severity: Severity::Remark,
        text: text.to_owned(),
    }
}

fn texts(messages: &Messages) -> Vec<String> {
    let kept = messages.all().unwrap();
    assert_eq!(kept.damaged.len(), 0, "{:?}", kept.damaged);
    kept.messages.into_iter().map(|message| message.text).collect()
}

#[test]
fn messages_come_back_as_they_were_and_in_order() {
    let (bed, messages) = Bed::new();
    assert_eq!(messages.all().unwrap().messages, []);
    let mut failure = message(7, "c2", "third");
    failure.severity = Severity::Failure;
    let first = [message(5, "c1", "first"), message(5, "c1", "second")];
    messages.remember(std::slice::from_ref(&failure)).unwrap();
    messages.remember(&first).unwrap();
    let [one, two] = first;
    assert_eq!(messages.all().unwrap().messages, [one, two, failure]);
    assert_eq!(fs::metadata(bed.at("c1.jsonl")).unwrap().mode() & 0o777, 0o600);
    let again = Messages::existing(bed.top.path(), None).unwrap().unwrap();
    assert_eq!(texts(&again), ["first", "second", "third"]);
    messages.remember(&[]).unwrap();
    assert_eq!(bed.files(), 2);
}

#[test]
fn of_messages_of_one_second_the_one_that_was_written_last_is_the_last() {
    let (_bed, messages) = Bed::new();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    // Neither the order of names nor that of a directory is that of time.
    for (text, container) in [("1", "m"), ("2", "z"), ("3", "a"), ("4", "k")] {
        messages.remember(&[message(7, container, text)]).unwrap();
        pause();
    }
    assert_eq!(texts(&messages), ["1", "2", "3", "4"]);
}

#[test]
fn a_container_keeps_its_newest_messages() {
    let (bed, messages) = Bed::new();
    // The characters that take most room in a file.
    let padding = "\\".repeat(5000);
    for at in 0..1000 {
        messages
            .remember(&[message(at, "c", &format!("{at} {padding}"))])
            .unwrap();
        assert!(fs::metadata(bed.at("c.jsonl")).unwrap().len() <= BYTES);
    }
    let at: Vec<u64> = messages
        .all()
        .unwrap()
        .messages
        .iter()
        .map(|message| message.at)
        .collect();
    assert_eq!(at, (1000 - LINES as u64..1000).collect::<Vec<_>>());
    // Even if all that a hook says at once is more than a file takes.
    let many: Vec<Message> = (0..500).map(|at| message(2000 + at, "c", &padding)).collect();
    messages.remember(&many).unwrap();
    assert_eq!(messages.all().unwrap().messages.last().unwrap().at, 2499);
    assert!(fs::metadata(bed.at("c.jsonl")).unwrap().len() <= BYTES);
    assert_eq!(bed.files(), 1);
}

#[test]
fn old_containers_make_room_for_new_ones() {
    let (bed, messages) = Bed::new();
    for number in 0..FILES {
        messages.remember(&[message(1, &format!("c{number}"), "old")]).unwrap();
        let file = File::options()
            .append(true)
            .open(bed.at(&format!("c{number}.jsonl")))
            .unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 + number as u64);
        file.set_modified(time).unwrap();
    }
    messages.remember(&[message(2, "c0", "again")]).unwrap();
    messages.remember(&[message(3, "new", "one more")]).unwrap();
    assert_eq!(bed.files(), FILES);
    assert!(bed.at("c0.jsonl").exists() && bed.at("new.jsonl").exists() && !bed.at("c1.jsonl").exists());
}

#[test]
fn many_hooks_at_once_lose_nothing() {
    let (bed, _) = Bed::new();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let messages = Messages::open(bed.top.path()).unwrap();
            scope.spawn(move || {
                for number in 0..50 {
                    let text = format!("{thread} {number}");
                    messages
                        .remember(&[message(number, &format!("c{}", number % 25), &text)])
                        .unwrap();
                }
            });
        }
    });
    let messages = Messages::open(bed.top.path()).unwrap();
    let mut seen = texts(&messages);
    seen.sort();
    let mut all: Vec<String> = (0..8).flat_map(|t| (0..50).map(move |n| format!("{t} {n}"))).collect();
    all.sort();
    assert_eq!(seen, all);
}

#[test]
fn what_a_full_disk_cut_off_spoils_no_other_message() {
    let (bed, messages) = Bed::new();
    messages.remember(&[message(1, "c", "first")]).unwrap();
    let mut text = fs::read(bed.at("c.jsonl")).unwrap();
    text.extend_from_slice(b"\n{\"at\":2,\"contai");
    fs::write(bed.at("c.jsonl"), text).unwrap();
    messages.remember(&[message(3, "c", "third")]).unwrap();
    assert_eq!(texts(&messages), ["first", "third"]);
}

#[test]
fn an_id_is_never_a_path_and_never_acts_on_a_terminal() {
    let (bed, messages) = Bed::new();
    let long = "a".repeat(3000);
    for id in ["../../escape", "", ".", "a/b", "\u{1b}[2J", "\0", &long] {
        messages.remember(&[message(1, id, "a\u{202e}b\n")]).unwrap();
    }
    assert_eq!(fs::read_dir(bed.top.path()).unwrap().count(), 1);
    assert_eq!(bed.files(), 7);
    for kept in messages.all().unwrap().messages {
        assert!(
            !kept.container.chars().any(char::is_control) && kept.container.len() < 300,
            "{kept:?}"
        );
        assert_eq!(kept.text, "a\\u{202e}b\\n");
    }
}

#[test]
fn other_things_in_the_directory_are_not_followed() {
    let (bed, messages) = Bed::new();
    fs::write(bed.top.path().join("other"), "other").unwrap();
    symlink("../other", bed.at("link.jsonl")).unwrap();
    nix::unistd::mkfifo(&bed.at("fifo.jsonl"), Mode::S_IRWXU).unwrap();
    assert!(messages.remember(&[message(1, "link", "x")]).is_err());
    assert!(messages.remember(&[message(1, "fifo", "x")]).is_err());
    assert_eq!(fs::read(bed.top.path().join("other")).unwrap(), b"other");
    messages.remember(&[message(1, "c", "x")]).unwrap();
    let kept = messages.all().unwrap();
    assert_eq!((kept.messages.len(), kept.damaged.len()), (1, 2), "{:?}", kept.damaged);
}

#[test]
fn a_file_that_others_wrote_is_shown_escaped() {
    let (bed, messages) = Bed::new();
    let line = r#"{"at":1,"container":"\u001b[2J","hook":"\u202e","severity":"failure","text":"\u0007"}"#;
    fs::write(bed.at("c.jsonl"), line).unwrap();
    let kept = messages.all().unwrap().messages;
    assert_eq!(kept[0].container, "\\u{1b}[2J");
    assert_eq!((kept[0].hook.as_str(), kept[0].text.as_str()), ("\\u{202e}", "\\u{7}"));
}

#[test]
fn nobody_who_kept_nothing_is_told_of_an_error() {
    let top = tempfile::tempdir().unwrap();
    let none = top.path().join("none");
    assert!(Messages::existing(&none, Some(&none)).unwrap().is_none());
    assert!(Messages::existing(top.path(), Some(top.path())).unwrap().is_none());
}
