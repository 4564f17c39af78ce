//! A machine's clock that is wrong, for the programs of a test: the kernel has none for a few processes, so a library
//! that is loaded before the others answers for it. It says nothing of the time since boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library, and by how much the clock is wrong.
#[derive(Debug)]
pub struct OtherClock {
    library: PathBuf,
    offset: PathBuf,
}

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    char text[32] = {0};
    int file = open(OFFSET, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, at, zone);
    if (result == 0 && at) at->tv_sec += offset();
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

impl OtherClock {
    /// A clock that is right, whose library is in `directory`.
    ///
    /// # Errors
    /// Returns that there is no C compiler, or that the library cannot be written.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let [library, offset, source] = ["clock.so", "clock-offset", "clock.c"].map(|name| directory.join(name));
        fs::write(&source, SOURCE)?;
        let clock = Self { library, offset };
        clock.set(0);
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&clock.library)
            .arg(&source);
        let built = compiler
            .arg(format!("-DOFFSET=\"{}\"", clock.offset.display()))
            .output()?;
        match built.status.success() {
            true => Ok(clock),
            false => Err(io::Error::other(String::from_utf8_lossy(&built.stderr).into_owned())),
        }
    }

    /// Lets `command` see this clock.
    pub fn show(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
    }

    /// From now on the clock is wrong by so many seconds.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set(&self, seconds: i64) {
        // At once: a program may read it at this moment.
        let new = self.offset.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(&new, &self.offset).unwrap();
    }
}
