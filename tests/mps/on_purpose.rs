//! What the fake does otherwise than NVIDIA's programs on purpose.

/// What differs, and why. These are not part of the comparison: each needs a GPU, or is a choice of a test.
pub(crate) const ON_PURPOSE: [(&str, &str); 5] = [
    (
        "its server starts without a GPU, and accepts clients",
        "so that tests see shares with clients; the comparison makes it fail like the real one (`server: refuse`)",
    ),
    (
        "its clients get their limits as text, and its server runs as the daemon's user",
        "a client of it is no CUDA process, and the programs of a test are in directories of root",
    ),
    (
        "quit ends the clients of running servers at once",
        "how long the real one waits depends on their kernels",
    ),
    (
        "a failed server ends its clients' connections at once",
        "the real daemon tries again, six times within half a second, before it does",
    ),
    (
        "a false length in a record of the log ends it at once",
        "the real one reads beyond its buffer, and ends by SIGSEGV some commands later",
    ),
];

/// Situations in which the two differ, and why. None does.
pub(crate) const SITUATIONS: [(&str, &str); 0] = [];
