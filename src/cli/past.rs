//! What `tranche history` and `tranche report` have in common: they ask `tranche-web`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use tranche_core::error::{Context, Error, Kind, Result};
use tranche_plan::policy::LongTime;
use tranche_protocol::{HISTORY_SOCKET, HistoryAnswer, HistoryRequest};

/// How long the program may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which time, and where to ask.
#[derive(Debug, clap::Args)]
pub(super) struct PastArgs {
    /// Show the time from this long ago until now: 12h, 7d
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: LongTime,
    /// Ask the tranche-web that listens at this socket
    #[arg(long, value_name = "FILE", default_value = HISTORY_SOCKET)]
    socket: PathBuf,
}

impl PastArgs {
    /// The length of the time in seconds.
    pub(super) fn seconds(&self) -> u64 {
        self.since.get().as_secs()
    }

    /// The answer to `request`.
    ///
    /// # Errors
    /// Returns an error if `tranche-web` does not run, or its error.
    pub(super) fn ask(&self, request: &HistoryRequest) -> Result<HistoryAnswer> {
        let about = self.socket.display();
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| {
            let kind = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => Kind::Nothing,
                _ => Kind::Failed,
            };
            let error = Error::new(kind, &about, "tranche-web does not listen there").from_source(error);
            error.hint("systemctl start tranche-web")
        })?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .about(&about, "cannot be waited for")?;
        let mut line = serde_json::to_string(request).about(&about, "cannot be asked")?;
        line.push('\n');
        stream.write_all(line.as_bytes()).about(&about, "cannot be asked")?;
        let mut answer = String::new();
        BufReader::new(stream)
            .read_line(&mut answer)
            .about(&about, "has not answered")?;
        match serde_json::from_str(&answer).about(&about, "has given another answer than is known")? {
            HistoryAnswer::Error(error) => Err(Error::failed("tranche-web", error)),
            answer => Ok(answer),
        }
    }
}
