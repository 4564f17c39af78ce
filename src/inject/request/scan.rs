//! Whether a `config.json` can ask for anything, by a look at its bytes.
//!
//! Most containers ask for nothing, and to parse their configuration only to see this would be most of the work. What
//! is looked for are the names without which there is no request. A name that JSON writes by an escape (`\u004eVIDIA`,
//! or `\/` for a slash) has other bytes, so an escape of a character that occurs in a name counts as a name.

use memchr::{memchr, memmem};

use super::{LEGACY, MOUNTS, OWN_ANNOTATIONS, OWN_VARIABLES, VISIBLE};
use tranche_plan::policy::RuntimeSettings;

/// Whether the configuration may ask for something. If not, it does not.
pub(super) fn may_ask(config: &[u8], settings: &RuntimeSettings) -> bool {
    let mut names = vec![VISIBLE, LEGACY, OWN_VARIABLES, OWN_ANNOTATIONS];
    // Not the path: `//` and `.` may be in it.
    names.extend(MOUNTS.rsplit('/').next());
    let configured = settings.swarm_resource.iter().chain(&settings.annotation_prefixes);
    names.extend(configured.map(String::as_str));
    names.iter().any(|name| memmem::find(config, name.as_bytes()).is_some()) || has_escaped_name(config, &names)
}

/// Whether a character of one of the `names` is escaped somewhere.
fn has_escaped_name(config: &[u8], names: &[&str]) -> bool {
    let mut rest = config;
    while let Some(at) = memchr(b'\\', rest) {
        let escape = &rest[at + 1..];
        if let Some(unit) = escaped(escape) {
            // A character beyond U+FFFF is written by two escapes, each of a surrogate.
            let is_surrogate = char::from_u32(unit).is_none();
            let is_it = |c: char| u32::from(c) == unit || is_surrogate && c > '\u{ffff}';
            if names.iter().any(|name| name.contains(is_it)) {
                return true;
            }
        }
        rest = escape.get(1..).unwrap_or_default();
    }
    false
}

/// What an escape means, whose bytes follow the backslash: a character of Unicode or a surrogate. `None` if it is not a
/// valid escape: then nothing parses the file.
fn escaped(escape: &[u8]) -> Option<u32> {
    let character = match escape.first()? {
        b'u' => {
            let digits = std::str::from_utf8(escape.get(1..5)?).ok()?;
            return u32::from_str_radix(digits, 16).ok();
        }
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => *other,
    };
    Some(u32::from(character))
}
