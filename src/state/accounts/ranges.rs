//! Subordinate uids, as `/etc/subuid` lists them (subuid(5)): `OWNER:FIRST:COUNT`, where the owner is a name or a uid.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tranche_core::bounded;

/// The most bytes of a file: some 100,000 lines.
const MOST_BYTES: u64 = 4 << 20;

/// Who may become which uid.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    owners: Vec<String>,
    /// By the first uid, in their order, and without overlaps.
    segments: Vec<Segment>,
    /// Why a uid that is in no range may be somebody's subordinate one; `None` if every range is known.
    pub(super) incomplete: Option<String>,
}

/// Uids that have the same owners.
#[derive(Debug)]
struct Segment {
    first: u64,
    /// The first uid after them.
    end: u64,
    /// Positions in the list of owners: up to [`MOST_OWNERS`] of them.
    owners: Vec<usize>,
}

/// A user can be an owner by its name and by its uid. More owners than that are always several users.
const MOST_OWNERS: usize = 3;

impl Ranges {
    /// Reads the file `subuid`, and finds in `nsswitch` whether ranges are kept elsewhere.
    pub(super) fn read(subuid: &Path, nsswitch: &Path) -> Self {
        let mut ranges = match text(subuid) {
            Ok(text) => Self::parse(&text, &subuid.display().to_string()),
            Err(error) => Self {
                incomplete: Some(format!("{}: cannot be read: {error}", subuid.display())),
                ..Self::default()
            },
        };
        match text(nsswitch) {
            // shadow asks the first source and no other one (shadow, lib/nss.c), and no source has to answer who owns a
            // uid: the one of SSSD and FreeIPA does not.
            Ok(text) => {
                if let Some(source) = source(&text).filter(|source| *source != "files") {
                    let at = nsswitch.display();
                    ranges.incomplete = Some(format!(
                        "{at}: subordinate uids come from {source}, which names no owners"
                    ));
                }
            }
            Err(error) => ranges.incomplete = Some(format!("{}: cannot be read: {error}", nsswitch.display())),
        }
        ranges
    }

    /// Parses the text of the file `at`. A line that is not a range may be one for other programs, which read numbers
    /// more freely: then the result is incomplete.
    fn parse(text: &str, at: &str) -> Self {
        let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
        let mut edges: Vec<(u64, bool, usize)> = Vec::new();
        let mut incomplete = None;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((owner, first, end)) = range(line) else {
                incomplete.get_or_insert_with(|| format!("{at}:{}: is not a range of subordinate uids", number + 1));
                continue;
            };
            if first == end {
                continue;
            }
            let next = ids.len();
            let owner = *ids.entry(owner).or_insert(next);
            edges.extend([(first, true, owner), (end, false, owner)]);
        }
        let mut owners = vec![String::new(); ids.len()];
        for (owner, id) in ids {
            if let Some(place) = owners.get_mut(id) {
                owner.clone_into(place);
            }
        }
        edges.sort_unstable();
        Self {
            owners,
            segments: segments(&edges),
            incomplete,
        }
    }

    /// The owners of the ranges that `uid` is in: each once, and not all if there are many.
    pub(super) fn owners(&self, uid: u32) -> impl Iterator<Item = &str> {
        let uid = u64::from(uid);
        let after = self.segments.partition_point(|segment| segment.first <= uid);
        let segment = after.checked_sub(1).and_then(|at| self.segments.get(at));
        let owners = segment.filter(|segment| uid < segment.end);
        let owners = owners.map_or(&[][..], |segment| &segment.owners);
        owners.iter().map(|id| self.owners.get(*id).map_or("", String::as_str))
    }

    /// Whether a uid that is in no range is certainly nobody's subordinate one.
    pub(super) fn is_complete(&self) -> bool {
        self.incomplete.is_none()
    }
}

/// Cuts ranges into segments. `edges` are the first uids of ranges (true) and the uids after their last ones, in order.
fn segments(edges: &[(u64, bool, usize)]) -> Vec<Segment> {
    let mut segments = Vec::new();
    // How many ranges of each owner the present uid is in.
    let mut inside: BTreeMap<usize, usize> = BTreeMap::new();
    let mut first = 0;
    for &(at, begins, owner) in edges {
        if at > first && !inside.is_empty() {
            segments.push(Segment {
                first,
                end: at,
                owners: inside.keys().copied().take(MOST_OWNERS).collect(),
            });
        }
        first = at;
        let count = inside.entry(owner).or_default();
        // The end of a range comes before the beginning of another one of the same owner at the same uid.
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            inside.remove(&owner);
        }
    }
    segments
}

/// The owner of a range, its first uid and the uid after its last one.
fn range(line: &str) -> Option<(&str, u64, u64)> {
    let (owner, rest) = line.split_once(':')?;
    let (first, count) = rest.split_once(':')?;
    let (first, count): (u64, u64) = (
        tranche_core::types::decimal(first)?,
        tranche_core::types::decimal(count)?,
    );
    let end = first.checked_add(count)?;
    (!owner.is_empty() && end <= u64::from(u32::MAX) + 1).then_some((owner, first, end))
}

/// The first source of subordinate ids in the text of nsswitch.conf(5).
fn source(text: &str) -> Option<&str> {
    let sources = text.lines().find_map(|line| line.trim_start().strip_prefix("subid:"))?;
    sources.split_ascii_whitespace().next()
}

/// The text of a file; empty if it does not exist.
fn text(path: &Path) -> io::Result<String> {
    let file = match bounded::regular_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        file => file?,
    };
    String::from_utf8(bounded::read(file, MOST_BYTES)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(ranges: &Ranges, uid: u32) -> Vec<&str> {
        ranges.owners(uid).collect()
    }

    #[test]
    fn a_uid_has_the_owners_of_all_ranges_that_it_is_in() {
        let text = "# a comment\n\nann:100000:65536\nbob:165536:10\n1000:100010:5\nann:165500:40\ndan:0:0\n";
        let ranges = Ranges::parse(text, "subuid");
        assert!(ranges.is_complete(), "{:?}", ranges.incomplete);
        for (uid, expected) in [
            (99_999, &[][..]),
            (100_000, &["ann"]),
            (100_009, &["ann"]),
            (100_010, &["ann", "1000"]),
            (100_014, &["ann", "1000"]),
            (100_015, &["ann"]),
            (165_535, &["ann"]),
            (165_536, &["ann", "bob"]),
            (165_540, &["bob"]),
            (165_545, &["bob"]),
            (165_546, &[]),
            (0, &[]),
            (u32::MAX, &[]),
        ] {
            assert_eq!(owners(&ranges, uid), expected, "{uid}");
        }
    }

    #[test]
    fn the_last_uids_are_in_ranges_and_none_beyond_is() {
        let ranges = Ranges::parse("containers:2147483647:2147483648\nann:4294967295:1\n", "subuid");
        assert!(ranges.is_complete());
        assert_eq!(owners(&ranges, 2_147_483_646), [""; 0]);
        assert_eq!(owners(&ranges, 2_147_483_647), ["containers"]);
        assert_eq!(owners(&ranges, u32::MAX), ["ann"]);
    }

    #[test]
    fn a_line_that_is_not_a_range_makes_the_list_incomplete() {
        for line in [
            "ann",
            "ann:1",
            ":100000:65536",
            "ann:100000:65536:",
            "ann:0x186a0:65536",
            "ann:-1:5",
            "ann: 100000:65536",
            "ann:100000:65536 ",
            "ann:100000:",
            "ann:4294967295:2",
            "ann:18446744073709551615:18446744073709551615",
            "ann:99999999999999999999:1",
        ] {
            let ranges = Ranges::parse(&format!("bob:5:5\n{line}\n"), "subuid");
            let why = ranges.incomplete.clone().unwrap_or_default();
            assert_eq!(why, "subuid:2: is not a range of subordinate uids", "{line}");
            assert_eq!(owners(&ranges, 7), ["bob"], "the others are known");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_makes_the_list_incomplete_and_a_missing_one_is_empty() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        let read = |subuid: &str, nsswitch: &str| Ranges::read(&at(subuid), &at(nsswitch)).incomplete;
        assert_eq!(read("missing", "missing"), None);
        std::fs::write(at("binary"), b"ann:1:\xff\n").unwrap();
        std::fs::File::create(at("huge"))
            .unwrap()
            .set_len(MOST_BYTES + 1)
            .unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["binary", "huge", "fifo", "."] {
            let why = read(name, "missing").unwrap();
            assert!(why.contains("cannot be read"), "{why}");
        }
        for (text, is_complete) in [
            ("passwd: files sss\n", true),
            ("subid: files\n", true),
            ("  subid:   files sss\n", true),
            ("subid: sss\n", false),
            ("passwd: files\nsubid:\tsss files\n", false),
        ] {
            std::fs::write(at("nsswitch"), text).unwrap();
            assert_eq!(read("missing", "nsswitch").is_none(), is_complete, "{text}");
        }
    }

    #[test]
    fn a_file_of_the_most_lines_is_looked_up_at_once() {
        // All ranges overlap, which makes the most segments of the most owners.
        let lines = (0..60_000).map(|n| format!("u{n}:{}:1000000\n", 100_000 + n));
        let text: String = lines.collect();
        let ranges = Ranges::parse(&text, "subuid");
        assert_eq!(owners(&ranges, 100_000), ["u0"]);
        assert_eq!(owners(&ranges, 100_001), ["u0", "u1"]);
        assert_eq!(owners(&ranges, 500_000).len(), MOST_OWNERS);
        assert!(ranges.segments.len() <= 120_000);
    }
}
