//! Where programs are installed.

/// The directories in which packages install programs, in the order in which a program is searched. `PATH` is not used
/// for programs that run as root at each start: it may be anything.
pub const PROGRAM_DIRS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
