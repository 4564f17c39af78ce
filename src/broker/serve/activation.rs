//! The socket that a service manager gives a process (sd_listen_fds(3)).
//!
//! The crate sd-notify gives numbers of descriptors, which only `unsafe` makes owned; listenfd takes a socket without
//! LISTEN_PID, too.

use crate::sys::descriptor::inherited;
use std::os::fd::OwnedFd;

/// The first descriptor that is given.
const FIRST: i32 = 3;

/// A copy of the socket that was given to this process; `None` if none was. `pid` and `count` are LISTEN_PID and
/// LISTEN_FDS.
///
/// # Errors
/// Returns an error if more than one was given, or if the descriptor is closed.
pub(super) fn given_socket(pid: Option<&str>, count: Option<&str>) -> std::io::Result<Option<OwnedFd>> {
    if pid != Some(std::process::id().to_string().as_str()) {
        return Ok(None);
    }
    match count {
        None | Some("" | "0") => Ok(None),
        Some("1") => inherited(FIRST).map(Some),
        Some(_) => Err(std::io::Error::other("more than one socket was given")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_only_by_the_process_that_it_was_given_to() {
        let me = std::process::id().to_string();
        let given = |pid: Option<&str>, count: Option<&str>| given_socket(pid, count).map(|fd| fd.is_some());
        assert!(!given(None, Some("1")).unwrap());
        assert!(!given(Some("1"), Some("1")).unwrap(), "it was given to the parent");
        assert!(!given(Some(&me), None).unwrap());
        assert!(given(Some(&me), Some("2")).is_err());
    }
}
