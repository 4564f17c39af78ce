//! What is written is what is read, and nothing else is read.

use super::*;
use crate::ledger::{ContainerName, KubernetesObject, PodName};
use proptest::prelude::*;

fn any_claim() -> impl Strategy<Value = Claim> {
    let device = prop_oneof![
        Just("GPU-11111111".to_owned()),
        (0..9u32, 0..9u32).prop_map(|(gi, ci)| format!("GPU-11111111/{gi}/{ci}"))
    ];
    let promise = prop_oneof![
        (1..9u32).prop_map(|turns| format!("{turns}/10")),
        (0u64..1 << 44, any::<u32>()).prop_map(|(memory, compute)| format!("mps:{memory}:{compute}")),
        Just("mps:-:-".to_owned()),
    ];
    let share = ("[a-z0-9]{1,9}", promise).prop_map(|(name, promise)| HeldShare {
        name: name.parse().unwrap(),
        promise: promise.parse().unwrap(),
    });
    let part = prop_oneof![
        Just(HeldPart::Whole),
        prop::collection::vec(share, 1..4).prop_map(HeldPart::Shares)
    ];
    let cgroup = prop::option::of(
        any::<(String, u64, Option<u64>)>().prop_map(|(path, inode, top)| Cgroup { path, inode, top }),
    );
    let process = (any::<(u32, u64, u64)>(), cgroup).prop_map(|((pid, start, namespace), cgroup)| InitProcess {
        pid,
        start,
        namespace,
        cgroup,
    });
    let object = ("[a-z-]{1,9}", any::<String>(), any::<String>());
    let object = object.prop_map(|(namespace, name, uid)| KubernetesObject { namespace, name, uid });
    let container = any::<(String, String)>().prop_map(|(path, id)| ContainerName {
        bundle: format!("/{path}"),
        id,
    });
    let holder = prop_oneof![
        Just(Holder::Person),
        container.clone().prop_map(Holder::Container),
        (any::<u32>(), container).prop_map(|(user, name)| Holder::Rootless { user, name }),
        any::<(String, String)>().prop_map(|(program, id)| Holder::Process { program, id }),
        ("[a-z-]{1,9}", any::<String>()).prop_map(|(namespace, name)| Holder::Pod(PodName { namespace, name })),
        object.prop_map(Holder::ResourceClaim),
    ];
    let holder = (holder, prop::option::of(process));
    let rest = any::<(bool, bool, bool, bool, u32, u64, Option<u64>, Option<u64>, Option<u64>)>();
    let names = any::<(Option<String>, Option<String>, Option<String>)>();
    (device, part, holder, rest, names).prop_map(|(device, part, (holder, process), rest, names)| {
        let (once, for_root, held, joined, uid, since, since_boot, ttl, until) = rest;
        let (name, asked_as, spec_file) = names;
        Claim {
            name,
            device: device.parse().unwrap(),
            part,
            asked_as,
            spec_file,
            state: if held { ClaimState::Held } else { ClaimState::Reserved },
            holder,
            process,
            joined,
            once,
            for_root,
            uid,
            since,
            since_boot,
            ttl,
            until,
        }
    })
}

proptest! {
    #[test]
    fn a_book_is_read_as_it_was_written(claims in prop::collection::vec(any_claim(), 0..5)) {
        let mut book = Book::new("GPU-11111111".parse().unwrap());
        book.claims = claims;
        let text = encode(&book);
        prop_assert_eq!(&decode(&text), &Ok(book));
        let scanned = scan(text.clone()).unwrap();
        prop_assert_eq!(encode(&scanned), text.as_str());
        // Whatever is cut off, at its end or anywhere, is noticed.
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            prop_assert!(decode(&text[..end]).is_err(), "{:?}", &text[..end]);
            prop_assert!(scan(text[..end].to_owned()).is_err(), "{:?}", &text[..end]);
        }
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.remove(lines.len() / 2);
        prop_assert!(decode(&lines.concat()).is_err());
    }

    #[test]
    fn no_text_is_read_that_would_be_written_otherwise(
        line in "[\\t0-9a-z=:/\\\\]{0,60}",
        fields in prop::collection::vec("(|[0-9]{1,3}|=[a-z\\\\]{0,3}|held|once|whole|a=1/2)", 17..19),
    ) {
        for line in [line, fields.join("\t")] {
            let text = summed(&format!("tranche-ledger 3 GPU-11111111\n{line}\nend 1 "));
            if decode(&text).is_ok() {
                prop_assert!(scan(text.clone()).is_ok(), "what is read is scanned: {:?}", &text);
            }
            if let Ok(book) = decode(&text) {
                let again = encode(&book);
                prop_assert_eq!(decode(&again), Ok(book));
            }
        }
    }
}

/// The text of a book with its checksum, without which nothing of it is read.
fn summed(text: &str) -> String {
    format!("{text}{}\n", checksum(text))
}

#[test]
fn later_forms_are_told_apart_from_damage() {
    for good in [
        summed("tranche-ledger 3 GPU-11111111\nend 0 "),
        "tranche-ledger 2 GPU-11111111 5b7c5c1b-3c1a-4d6e-9d2f-6a1f3c8e0b2d\nend 0\n".to_owned(),
    ] {
        assert!(decode(&good).is_ok(), "{good}");
    }
    // The sum is that of other programs (FNV-1a of "foobar").
    assert_eq!(checksum("foobar"), "85944171f73967e8");
    for (text, says) in [
        ("", Unreadable::Damaged(1)),
        ("tranche-ledger 4 GPU-11111111\nanything\n", Unreadable::Format(4)),
        ("tranche-ledger 1 GPU-11111111\nend 0\n", Unreadable::Damaged(1)),
        ("tranche-ledger x GPU-11111111\nend 0\n", Unreadable::Damaged(1)),
        ("tranche-ledger 3 GPU-1\nend 0\n", Unreadable::Damaged(1)),
        ("tranche-ledger 3 GPU-11111111\nend 0\n", Unreadable::Damaged(2)),
        (
            "tranche-ledger 3 GPU-11111111\nend 0 85944171f73967e8\n",
            Unreadable::Damaged(2),
        ),
        (&summed("tranche-ledger 3 GPU-11111111\nend 1 "), Unreadable::Damaged(2)),
        (
            &format!("{}end 0\n", summed("tranche-ledger 3 GPU-11111111\nend 0 ")),
            Unreadable::Damaged(2),
        ),
        (
            &summed("tranche-ledger 3 GPU-11111111\n\nend 1 "),
            Unreadable::Damaged(2),
        ),
        ("tranche-ledger 2 GPU-11111111 b\nend 0\n", Unreadable::Damaged(1)),
        ("tranche-ledger 2 GPU-11111111\nend 0\n", Unreadable::Damaged(1)),
        (
            "tranche-ledger 2 GPU-11111111 5b7c5c1b-3c1a-4d6e-9d2f-6a1f3c8e0b2d\nend 1\n",
            Unreadable::Damaged(2),
        ),
    ] {
        assert_eq!(decode(text), Err(says), "{text:?}");
    }
}

#[test]
fn a_book_of_the_earlier_form_is_read_and_written_anew_with_a_checksum() {
    let line = "\twhole\theld\t0\t5\t\t\t\t\t\t\t=one\t=/b\t7\t8\t9\t10\t=/sys/fs/cgroup/c\t";
    let old = format!("tranche-ledger 2 GPU-11111111 5b7c5c1b-3c1a-4d6e-9d2f-6a1f3c8e0b2d\n{line}\nend 1\n");
    let new = summed(&format!("tranche-ledger 3 GPU-11111111\n{line}\nend 1 "));
    assert_eq!(encode(&decode(&old).unwrap()), new);
    assert_eq!(encode(&scan(old).unwrap()), new);
    let process = decode(&new).unwrap().claims[0].process.clone().unwrap();
    assert_eq!((process.pid, process.cgroup.unwrap().top), (7, None));
}

#[test]
fn a_book_that_was_changed_in_one_byte_is_not_read() {
    let line = "\t0=1/4\theld\t0\t5\t\t\t\t\t\t\t=one\t=/b\t7\t8\t9\t10:1\t=/sys/fs/cgroup/c\t";
    let good = summed(&format!("tranche-ledger 3 GPU-11111111\n{line}\n{line}\nend 2 "));
    assert_eq!(decode(&good).unwrap().claims.len(), 2);
    let mut changes = 0;
    for at in 0..good.len() {
        for byte in 0..=u8::MAX {
            let mut bad = good.clone().into_bytes();
            if std::mem::replace(&mut bad[at], byte) == byte {
                continue;
            }
            // Bytes that are no text are refused before.
            let Ok(bad) = String::from_utf8(bad) else { continue };
            assert!(decode(&bad).is_err() && scan(bad.clone()).is_err(), "{bad:?}");
            changes += 1;
        }
    }
    assert!(changes > 100 * good.len(), "{changes}");
}

#[test]
fn a_text_may_contain_what_separates_fields_and_lines() {
    let text = summed(
        "tranche-ledger 3 GPU-11111111\n\twhole\theld\t0\t5\t\t\t\t=a\\tb\\nc\\\\d\t=\t\t\t\t\t\t\t\t\t\nend 1 ",
    );
    let book = decode(&text).unwrap();
    assert_eq!(book.claims[0].name.as_deref(), Some("a\tb\nc\\d"));
    assert_eq!(book.claims[0].asked_as.as_deref(), Some(""));
    assert_eq!(encode(&book), text);
}

#[test]
fn a_claim_of_an_earlier_version_is_not_for_root() {
    let read = |options: &str| {
        let line = format!("\twhole\theld\t1000\t5\t\t\t{options}\t\t\t\t\t\t\t\t\t\t\t");
        let book = decode(&summed(&format!("tranche-ledger 3 GPU-11111111\n{line}\nend 1 ")));
        book.map(|book| (book.claims[0].once, book.claims[0].for_root))
    };
    assert_eq!(read(""), Ok((false, false)));
    assert_eq!(read("once"), Ok((true, false)));
    assert_eq!(read("for-root"), Ok((false, true)));
    assert_eq!(read("once,for-root"), Ok((true, true)));
    assert_eq!(read("for-root,once"), Err(Unreadable::Damaged(2)));
}

#[test]
fn a_line_with_more_or_less_than_the_fields_of_a_claim_is_damaged() {
    let read = |cgroup: &str, rest: &str| {
        let line = format!("\twhole\theld\t0\t5\t\t\t\t\t\t\t\t\t\t\t\t{cgroup}\t{rest}");
        decode(&summed(&format!("tranche-ledger 3 GPU-11111111\n{line}\nend 1 "))).map(|book| book.claims.len())
    };
    assert_eq!(read("\t", ""), Ok(1));
    for cgroup in ["7\t=/c", "7:1\t=/c", "\t=/c", "7\t", ":\t"] {
        assert_eq!(
            read(cgroup, ""),
            Err(Unreadable::Damaged(2)),
            "a cgroup without a process, or half of one"
        );
    }
    assert_eq!(read("\t", "x"), Err(Unreadable::Damaged(2)));
    assert_eq!(read("\t", "\t"), Err(Unreadable::Damaged(2)));
}
