//! The list of mounts that a process sees.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::mount::MountId;

/// The mounts of the namespace that this process is in (`/proc/thread-self/mountinfo`, proc(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable(Vec<Mounted>);

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    id: u64,
    parent: u64,
    /// The path in its file system that is mounted: `/`, or for a bind mount often another.
    pub root: PathBuf,
    /// Where it is mounted.
    pub at: PathBuf,
    /// The type of its file system, such as `ext4`.
    pub kind: OsString,
    /// Whether a mount that is made below this one appears in other mount namespaces too, for example on the host.
    pub(super) is_shared: bool,
    /// The options of its file system.
    options: Vec<u8>,
}

impl MountTable {
    /// Reads the list.
    pub fn read() -> io::Result<MountTable> {
        Ok(Self::parse(&fs::read("/proc/thread-self/mountinfo")?))
    }

    /// Parses such a list. A line of another format is left out.
    fn parse(text: &[u8]) -> MountTable {
        MountTable(text.split(|byte| *byte == b'\n').filter_map(Mounted::parse).collect())
    }

    /// The mount that `handle` is on.
    pub fn of(&self, handle: impl AsFd) -> Option<&Mounted> {
        let MountId(id) = MountId::of(handle).ok()?;
        self.0.iter().find(|mount| mount.id == id)
    }

    /// The mounts below `top`, oldest first.
    pub fn below<'a>(&'a self, top: &'a Mounted) -> impl Iterator<Item = &'a Mounted> {
        let is_below = |mount: &&Mounted| mount.id != top.id && mount.at.starts_with(&top.at);
        self.0.iter().filter(is_below)
    }
}

impl Mounted {
    /// `id parent major:minor root mount-point options [optional-field]... - type source options`
    fn parse(line: &[u8]) -> Option<Mounted> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        Some(Mounted {
            id: number(fields.first()?)?,
            parent: number(fields.get(1)?)?,
            root: unescaped(fields.get(3)?).into(),
            at: unescaped(fields.get(4)?).into(),
            kind: OsStr::from_bytes(fields.get(dash + 1)?).to_owned(),
            is_shared: fields.get(6..dash)?.iter().any(|field| field.starts_with(b"shared:")),
            options: fields.get(dash + 3)?.to_vec(),
        })
    }

    /// Whether it is mounted directly on `other`.
    pub fn is_on(&self, other: &Mounted) -> bool {
        self.parent == other.id
    }

    /// Whether it shows a part of a file system and not all of it.
    pub fn is_part(&self) -> bool {
        self.root != Path::new("/")
    }

    /// The SELinux context of all files on it, if it has one.
    pub fn label(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.options).ok()?;
        // A label with categories has commas and is in quotes.
        let value = text.split_once("context=").map(|(_, value)| value)?;
        let label = match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => value.split(',').next(),
        };
        label.filter(|label| !label.is_empty()).map(str::to_owned)
    }
}

/// Space, tab, line break and backslash are written as `\` and three octal digits.
fn unescaped(field: &[u8]) -> OsString {
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(3).unwrap_or((&[], part));
        let code = std::str::from_utf8(code).ok();
        // Anything else is not an escape of the kernel, and stays as it is.
        let (byte, rest) = match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (byte, rest),
            None => (b'\\', part),
        };
        bytes.push(byte);
        bytes.extend_from_slice(rest);
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_an_escape_stays() {
        assert_eq!(unescaped(br"\040a\134040\9\04"), r" a\040\9\04");
        assert_eq!(unescaped(b""), "");
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let text = br#"102 74 254:0 /store/a\040b /m/a\040b rw,relatime shared:3 master:1 - ext4 /dev/vda rw,discard
103 102 0:51 / /m/a\040b/proc rw - proc proc rw
104 102 0:60 / /m/a\040b/etc rw - overlay overlay rw,context="system_u:object_r:container_file_t:s0:c1,c2",lowerdir=/x
105 74 0:61 / /m/a\040bc rw - tmpfs tmpfs rw,context=system_u:object_r:tmp_t:s0,size=1k
106 74 0:61 / /n rw master:1 - tmpfs shared:3 rw,shared:3
what is this
"#;
        let table = MountTable::parse(text);
        let shared: Vec<bool> = table.0.iter().map(|mount| mount.is_shared).collect();
        assert_eq!(shared, [true, false, false, false, false]);
        let top = &table.0[0];
        assert_eq!((top.at.to_str(), top.is_part()), (Some("/m/a b"), true));
        let below: Vec<_> = table.below(top).map(|mount| mount.at.to_str().unwrap()).collect();
        assert_eq!(below, ["/m/a b/proc", "/m/a b/etc"]);
        assert!(table.0[1].is_on(top) && !table.0[3].is_on(top) && !table.0[1].is_part());
        assert_eq!(table.0[1].kind, "proc");
        assert_eq!(unescaped(b"/a040\\040x\\134040\\04"), "/a040 x\\040\\04");
        let labels: Vec<_> = table.0.iter().map(Mounted::label).collect();
        let label = |text: &str| Some(text.to_owned());
        assert_eq!(
            labels,
            [
                None,
                None,
                label("system_u:object_r:container_file_t:s0:c1,c2"),
                label("system_u:object_r:tmp_t:s0"),
                None
            ]
        );
    }
}
