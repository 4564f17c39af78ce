//! What NVIDIA's MPS programs of one driver do differently from those of other drivers: data, which the code that
//! commands the daemon, the stand-in for it (examples/fake-mps) and the suite that compares the two with NVIDIA's own
//! programs (tests/mps) share. Each row was seen on a program, and says where.

/// What `nvidia-cuda-mps-control` and its daemon do, of one version and those after it up to the next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The branch of the driver: 550 of 550.163.01.
    pub major: u32,
    /// The versions that were run, for a person.
    pub seen: &'static str,
    /// How the command line is read.
    pub options: Options,
    /// Who may change defaults and end the daemon.
    pub commanders: Commanders,
    /// What names a device in a command about memory.
    pub memory_limits: MemoryLimits,
    /// Whether `terminate_client`, `ps` and the commands about a client's priority exist.
    pub has_clients: bool,
    /// Whether `get_server_status` exists.
    pub has_server_status: bool,
    /// Whether the daemon writes its number into [`PID_FILE`].
    pub has_pid_file: bool,
    /// Whether the daemon writes the timeout of `quit -t SECONDS` to its log. All accept it.
    pub logs_quit_timeout: bool,
}

/// How the control program reads its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Options {
    /// `-d` or `-f` is the only argument. With anything else, also with two arguments, the program is a front end,
    /// which looks for a daemon.
    OnlyOne,
    /// `-multiuser-server` may be there in addition. Unknown arguments print the usage, exit code 1; the last one of
    /// `-d` and `-f` counts.
    MultiUserServer,
    /// As before, and `-M`, `--daemon`, `-v` and the commands on the command line.
    Getopt,
}

impl Options {
    /// Whether one daemon can serve several users at the same time.
    pub const fn has_multi_user_server(self) -> bool {
        !matches!(self, Self::OnlyOne)
    }
}

/// Who may change defaults, start servers of others and end the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commanders {
    /// Any user that reaches the socket `control`, but for a server of another user and the end of the daemon.
    AnyUser,
    /// Those that connect by `control_privileged`, which its mode allows to the daemon's user and to root. By
    /// `control`, every user may ask, and uid 0 may not change anything either.
    RootAndOwner,
}

/// What names a device in a command about memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimits {
    /// The commands do not exist.
    None,
    /// The number of the device among those that the daemon sees. Any other word is read as 0 with an invalid size:
    /// the command answers nothing, and clears the limit of device 0.
    ByIndex,
    /// The number, or the UUID. The two are kept beside each other, each with a value of its own.
    ByIndexOrUuid,
}

/// All versions that were seen, in order. 580 was seen on an H200 only, because no package of it can be fetched.
pub const VERSIONS: [Version; 5] = [
    Version {
        major: 470,
        seen: "470.256.02, Debian's package",
        options: Options::OnlyOne,
        commanders: Commanders::AnyUser,
        memory_limits: MemoryLimits::None,
        has_clients: false,
        has_server_status: false,
        has_pid_file: false,
        logs_quit_timeout: false,
    },
    Version {
        major: 535,
        seen: "535.261.03, Debian's package",
        options: Options::OnlyOne,
        commanders: Commanders::AnyUser,
        memory_limits: MemoryLimits::ByIndex,
        has_clients: true,
        has_server_status: false,
        has_pid_file: false,
        logs_quit_timeout: true,
    },
    Version {
        major: 550,
        seen: "550.163.01, Debian's package",
        options: Options::OnlyOne,
        commanders: Commanders::RootAndOwner,
        memory_limits: MemoryLimits::ByIndex,
        has_clients: true,
        has_server_status: true,
        has_pid_file: true,
        logs_quit_timeout: true,
    },
    Version {
        major: 555,
        seen: "555.58.02, Debian's package",
        options: Options::MultiUserServer,
        commanders: Commanders::RootAndOwner,
        memory_limits: MemoryLimits::ByIndex,
        has_clients: true,
        has_server_status: true,
        has_pid_file: true,
        logs_quit_timeout: true,
    },
    Version {
        major: 580,
        seen: "580.159.04, on an H200",
        options: Options::Getopt,
        commanders: Commanders::RootAndOwner,
        memory_limits: MemoryLimits::ByIndexOrUuid,
        has_clients: true,
        has_server_status: true,
        has_pid_file: true,
        logs_quit_timeout: true,
    },
];

impl Version {
    /// What is known of a driver of the branch `major`: the row of this branch, or of the nearest one before it.
    /// `None` if the driver is older than all that were seen.
    pub fn of_driver(major: u32) -> Option<&'static Self> {
        VERSIONS.iter().rev().find(|version| version.major <= major)
    }
}

/// The socket that clients connect to, and every user that cannot connect to [`CONTROL_PRIVILEGED`].
///
/// The daemon serves one front end at a time, of all users and of both sockets: while one is connected, also one that
/// says nothing, it closes every other one. That one prints nothing or `Cannot send command to MPS control daemon
/// process`, and ends with 1 or with 0, because its two threads notice the end at the same time. So exit code 0 without
/// an answer does not say that a command was read. Seen on 470, 535, 550 and 555. CUDA processes are served meanwhile.
pub use super::CONTROL;

/// The socket that the front end of uid 0 connects to first.
pub const CONTROL_PRIVILEGED: &str = "control_privileged";

/// What makes a daemon the only one in its directory: a lock of fcntl(2) for writing.
pub const CONTROL_LOCK: &str = "control_lock";

/// The pipe that servers and the daemon itself write their lines to; a thread of the daemon reads it.
pub const LOG: &str = "log";

/// The number of the daemon, in decimal, without an end of line.
pub const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// What the daemon makes in its pipe directory, and the mode of each whatever the umask is; of `control_privileged`,
/// the mode with the umask 022. All versions that were seen do the same, but for the file of the number
/// ([`Version::has_pid_file`]).
pub const FILES: [(&str, u32); 5] = [
    (CONTROL, 0o666),
    (CONTROL_LOCK, 0o666),
    (CONTROL_PRIVILEGED, 0o755),
    (LOG, 0o777),
    (PID_FILE, 0o666),
];

/// What the daemon removes at the command `quit`. A daemon that a signal ends removes nothing.
pub const REMOVED_BY_QUIT: [&str; 2] = [LOG, PID_FILE];

/// The longest path of a socket, in bytes; `control_privileged` is the longest one. With one more, the daemon ends with
/// 1 and says nothing.
pub const LONGEST_SOCKET: usize = 106;

/// The control program: the daemon, and what sends it commands.
pub const PROGRAM: &str = "nvidia-cuda-mps-control";

/// The program that the daemon starts for the first client, found by the daemon's PATH.
pub const SERVER: &str = "nvidia-cuda-mps-server";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_between_two_rows_has_the_lower_one() {
        let row = |major| Version::of_driver(major).map(|version| version.major);
        assert_eq!(row(390), None);
        assert_eq!(row(470), Some(470));
        assert_eq!(row(545), Some(535));
        assert_eq!(row(570), Some(555));
        assert_eq!(row(610), Some(580));
    }

    #[test]
    fn the_rows_are_in_order() {
        assert!(VERSIONS.is_sorted_by_key(|version| version.major));
    }
}
