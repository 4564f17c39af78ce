//! Why the ledger could not be read or changed.

use super::{DamagedBook, Refused};
use crate::error::Error;
use rustix::io::Errno;

/// Why the ledger could not be read or changed. Whatever it is, the disk is as it was.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A rule of the ledger: who holds what is asked for, or what does not fit.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// A book is damaged or has another format, so it is not known what is held of its GPU.
    #[error("{0}")]
    Damaged(#[source] DamagedBook),
    /// The disk is full, or may only be read.
    #[error("{0}")]
    OutOfSpace(#[source] Error),
    /// Anything else: a directory that others can write, a lock that is held for too long, a file that cannot be read.
    #[error("{0}")]
    Failed(#[source] Error),
}

/// What the ledger gives, or why not.
pub type LedgerResult<T> = Result<T, LedgerError>;

impl From<Error> for LedgerError {
    fn from(error: Error) -> Self {
        let number = std::error::Error::source(&error).and_then(|cause| {
            let of_io = || cause.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
            cause.downcast_ref::<Errno>().copied().or_else(of_io)
        });
        match number {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => LedgerError::OutOfSpace(error),
            _ => LedgerError::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_or_read_only_disk_is_told_apart_from_other_failures() {
        for (number, is_space) in [
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::ROFS, true),
            (Errno::ACCESS, false),
        ] {
            let direct = Error::failed("x", "cannot be written").from_source(number);
            let through_std = Error::failed("x", "cannot be written").from_source(std::io::Error::from(number));
            for error in [direct, through_std] {
                let is_out = matches!(LedgerError::from(error), LedgerError::OutOfSpace(_));
                assert_eq!(is_out, is_space, "{number}");
            }
        }
    }
}
