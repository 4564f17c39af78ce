//! What the tests share. Each test binary includes this module once.
//!
//! `fake_host` and `facts_of_spec` are also included by `examples/fake-host.rs`, and some files by the benchmarks.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

pub(crate) mod bless;
pub(crate) mod changing;
pub(crate) mod cuda_client;
pub(crate) mod engines;
pub(crate) mod facts_of_spec;
pub(crate) mod fake_host;
pub(crate) mod fake_mps;
pub(crate) mod glibc_image;
pub(crate) mod init;
pub(crate) mod installed;
pub(crate) mod nvidia_packages;
pub(crate) mod old_kernel;
pub(crate) mod on_host;
pub(crate) mod openmetrics;
pub(crate) mod own_mounts;
pub(crate) mod parity;
pub(crate) mod programs;
pub(crate) mod rights;
pub(crate) mod scene;
pub(crate) mod session;
pub(crate) mod skip;
pub(crate) mod strict_json;
pub(crate) mod test_cgroup;
pub(crate) mod typist;
pub(crate) mod until;

pub(crate) use fake_host::{ld_so_cache, stub_elf};
pub(crate) use until::{seconds_waited, until};
