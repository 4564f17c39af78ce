//! Which options the control program of the driver takes. It is asked, because a package may bring another version than
//! the kernel module has.

use super::environment::DaemonEnvironment;
use std::time::Duration;
use tranche_core::execute::Program;
use tranche_host::program;

/// One daemon for the processes of all users.
pub(in crate::control) const MANY_USERS: &str = "-multiuser-server";

/// Where no daemon can work, and none runs.
const NOWHERE: &str = "/dev/null/none";

/// How long the program may take. One that takes the option and does not end has answered, too.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most that it may print.
const MOST_BYTES: usize = 64 << 10;

/// Whether the control program can start one daemon for the processes of all users. A program that cannot takes two
/// arguments for a wish to command a daemon, and finds none (seen on 470, 535 and 550).
pub(in crate::control) fn takes_many_users(control: &std::path::Path, environment: &DaemonEnvironment) -> bool {
    let mut asked = Program::new(control);
    asked.args(["-f", MANY_USERS]).envs(environment.search());
    asked.env("CUDA_MPS_PIPE_DIRECTORY", NOWHERE);
    asked.env("CUDA_MPS_LOG_DIRECTORY", NOWHERE);
    match program::run(asked, "", PATIENCE, MOST_BYTES) {
        Ok(ran) => {
            let said = [ran.stdout, ran.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            !said.contains("Cannot find MPS control daemon") && !said.contains("-h,--help")
        }
        Err(error) => matches!(error, program::ProgramError::Silent(_)),
    }
}
