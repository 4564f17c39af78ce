//! What users need to map ids into user namespaces of their own.

use super::file_system::FileSystem;
use super::machine::Machine;
use crate::doctor::{IdMaps, PowerlessProgram};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The programs that map them, where distributions install them (newuidmap(1)).
const PROGRAMS: [&str; 2] = ["/usr/bin/newuidmap", "/usr/bin/newgidmap"];

/// The lists of who has which ids (subuid(5)).
const LISTS: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

/// The first id that programs give to users (`SUB_UID_MIN` of login.defs(5)).
const FIRST_ID: u64 = 100_000;

/// The extended attribute with capabilities, which some distributions give these programs in place of the setuid bit.
const CAPABILITIES: &str = "security.capability";

/// The most bytes of that attribute (`struct vfs_ns_cap_data` of linux/capability.h has 24).
const LONGEST: usize = 64;

/// What the machine has for that.
pub(super) fn of(machine: &Machine) -> IdMaps {
    let programs = PROGRAMS.iter().filter_map(|path| machine.file(path));
    let lists = LISTS.map(|path| {
        let text = machine.file(path).and_then(|path| fs::read_to_string(path).ok());
        text.unwrap_or_default()
    });
    let is_elsewhere = machine
        .file("/etc/nsswitch.conf")
        .is_some_and(|path| names_another_source(&path));
    let user = machine.is_here.then(asking_user).flatten();
    let user = user.filter(|user| !is_elsewhere && lists.iter().any(|list| !has_ids(list, user)));
    IdMaps {
        powerless: programs.filter_map(|path| powerless(machine, path)).collect(),
        without_ids: user.map(|user| user.name),
        first_free: lists.iter().map(|list| first_free(list)).fold(FIRST_ID, u64::max),
    }
}

/// A user who would start containers.
struct User {
    name: String,
    number: u32,
}

/// The user who runs this program, or for whom sudo runs it, if that is not root. The name is that of passwd(5), or
/// else the number.
fn asking_user() -> Option<User> {
    let for_user = std::env::var("SUDO_UID").ok().and_then(|text| text.parse().ok());
    let number = match nix::unistd::getuid().as_raw() {
        0 => for_user.unwrap_or_default(),
        user => user,
    };
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = users.find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(number)));
    let name = entry.and_then(|fields| fields.first().map(ToString::to_string));
    (number != 0).then(|| User {
        name: name.unwrap_or_else(|| number.to_string()),
        number,
    })
}

/// The fields of each entry of a list: user, first id, number of ids.
fn entries(list: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    list.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let (user, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((user, first.parse().ok()?, count.parse().ok()?))
    })
}

fn has_ids(list: &str, user: &User) -> bool {
    let number = user.number.to_string();
    entries(list).any(|(of, _, count)| (of == user.name || of == number) && count > 0)
}

fn first_free(list: &str) -> u64 {
    let ends = entries(list).map(|(_, first, count)| first.saturating_add(count));
    ends.max().unwrap_or_default()
}

/// Whether users get their ids from something else than files (nsswitch.conf(5), subid).
fn names_another_source(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("subid:"));
    lines.any(|sources| sources.split_whitespace().any(|source| source != "files"))
}

/// Whether a program that maps ids gets no right to do so.
fn powerless(machine: &Machine, path: PathBuf) -> Option<PowerlessProgram> {
    let data = fs::metadata(&path).ok()?;
    let is_setuid = data.mode() & 0o4000 != 0 && data.uid() == 0;
    let mut bytes = [0; LONGEST];
    let has_capability = rustix::fs::getxattr(&path, CAPABILITIES, &mut bytes).is_ok_and(|length| length > 0);
    if !is_setuid && !has_capability {
        return Some(PowerlessProgram { path, nosuid: None });
    }
    let file_system = machine.is_here.then(|| FileSystem::of(&path)).flatten()?;
    let nosuid = file_system.ignores_setuid().then_some(file_system.at)?;
    let nosuid = Some(nosuid);
    Some(PowerlessProgram { path, nosuid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_belong_to_a_name_or_a_number() {
        let user = User {
            name: "ann".to_owned(),
            number: 1000,
        };
        for (list, has) in [
            ("ann:100000:65536\n", true),
            ("bob:1:2\n1000:165536:65536\n", true),
            ("ann:100000:0\n", false),
            ("anna:100000:65536\n# ann:1:1\nann:x:1\n", false),
            ("", false),
        ] {
            assert_eq!(has_ids(list, &user), has, "{list}");
        }
        assert_eq!(first_free("a:100000:65536\nb:300000:10\nc:200000:65536\n"), 300_010);
    }

    #[test]
    fn a_program_has_its_right_by_its_mode_or_by_a_capability() {
        use std::os::unix::fs::PermissionsExt;
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("newuidmap");
        fs::write(&path, "").unwrap();
        let machine = Machine {
            root: Some(top.path().to_owned()),
            is_here: false,
            spec_dirs: Vec::new(),
            policy: None,
            state_dir: None,
        };
        let with_mode = |mode: u32| {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            powerless(&machine, path.clone())
        };
        let without = PowerlessProgram {
            path: path.clone(),
            nosuid: None,
        };
        assert_eq!(with_mode(0o755), Some(without));
        assert_eq!(with_mode(0o4755), None);
        // cap_setuid=ep, as setcap(8) writes it (vfs_cap_data of version 2).
        let mut capability = [0; 20];
        capability[..5].copy_from_slice(&[1, 0, 0, 2, 1 << 7]);
        match rustix::fs::setxattr(&path, CAPABILITIES, &capability, rustix::fs::XattrFlags::empty()) {
            Ok(()) => assert_eq!(with_mode(0o755), None),
            Err(error) => eprintln!("not tested with a capability: {error}"),
        }
    }

    #[test]
    fn ids_may_come_from_a_directory_service() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("nsswitch.conf");
        for (text, is_elsewhere) in [
            ("subid: files\n", false),
            ("passwd: sss\n", false),
            ("subid:\tsss\n", true),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(names_another_source(&file), is_elsewhere, "{text}");
        }
    }
}
