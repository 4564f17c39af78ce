//! A process that is a container's init.

use std::process::{Child, Command, Stdio};

/// It runs until it is dropped.
pub struct Init(Child);

impl Init {
    pub fn new() -> Init {
        Init(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
