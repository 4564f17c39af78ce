//! Requests that were made, and are answered now or later.

use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, with everything that was said.
    Done(String),
    /// Refused, with the reason.
    Refused(String),
    /// Nothing that means one of the two: the client or the broker has ended.
    None(String),
}

/// A request that was made.
pub(crate) enum Request {
    /// A program that says its answer by its end.
    Program { child: Child, said: PathBuf },
    /// A program that was started by `tranche run`. It says `held` and its number, and runs until its input ends.
    Running { child: Option<Child>, said: PathBuf },
    /// A question to the broker's socket.
    Asked(Option<JoinHandle<Answer>>),
}

impl Request {
    /// Starts a program, whose words go into a file in `directory`.
    pub(crate) fn program(command: &mut Command, directory: &Path) -> Self {
        let (child, said) = spawn(command, directory);
        Self::Program { child, said }
    }

    /// Starts `tranche run`.
    pub(crate) fn running(command: &mut Command, directory: &Path) -> Self {
        let (child, said) = spawn(command.stdin(Stdio::piped()), directory);
        Self::Running {
            child: Some(child),
            said,
        }
    }

    /// Does something with the broker.
    pub(crate) fn ask(what: impl FnOnce() -> Answer + Send + 'static) -> Self {
        Self::Asked(Some(thread::spawn(what)))
    }

    /// The answer, if there is one by now. It is given once.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        match self {
            Self::Program { child, said } => {
                let status = child.try_wait().unwrap()?;
                let text = text(said);
                let _ = fs::remove_file(said);
                Some(match status.code() {
                    Some(0) => Answer::Done(text),
                    Some(_) => Answer::Refused(text),
                    None => Answer::None(format!("{status}: {text}")),
                })
            }
            Self::Running { child, said } => {
                let now = text(said);
                if number_of(&now).is_some() {
                    return Some(Answer::Done(now));
                }
                let status = child.as_mut()?.try_wait().unwrap()?;
                Some(match status.code() {
                    Some(_) => Answer::Refused(text(said)),
                    None => Answer::None(status.to_string()),
                })
            }
            Self::Asked(thread) => {
                if !thread.as_ref()?.is_finished() {
                    return None;
                }
                Some(thread.take()?.join().unwrap())
            }
        }
    }

    /// Kills the client. Returns whether it is a process that can be killed.
    pub(crate) fn kill(&mut self) -> bool {
        match self {
            Self::Program { child, .. } | Self::Running { child: Some(child), .. } => {
                let _ = child.kill();
                let _ = child.wait();
                true
            }
            _ => false,
        }
    }

    /// The program that `tranche run` has started.
    pub(crate) fn into_running(self) -> Option<Running> {
        match self {
            Self::Running { child, said } => Some(Running::Program(child?, number_of(&text(&said))?)),
            _ => None,
        }
    }
}

/// What holds something while it runs.
pub(crate) enum Running {
    /// The init of a container.
    Init(Child),
    /// `tranche run`, and the number of its program.
    Program(Child, u64),
}

impl Running {
    /// The number of the process that is recorded as the holder.
    pub(crate) fn pid(&self) -> u64 {
        match self {
            Self::Init(child) => child.id().into(),
            Self::Program(_, pid) => *pid,
        }
    }

    pub(crate) fn end(&mut self) {
        match self {
            Self::Init(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            // This closes its input.
            Self::Program(child, _) => drop(child.wait()),
        }
    }
}

/// The number of a program that says that it runs.
fn number_of(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.strip_prefix("held ")?.parse().ok())
}

fn spawn(command: &mut Command, directory: &Path) -> (Child, PathBuf) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let said = directory.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
    let file = File::create(&said).unwrap();
    command.stdout(file.try_clone().unwrap()).stderr(file);
    (command.spawn().unwrap(), said)
}

/// What was said, without warnings about the machine.
fn text(said: &Path) -> String {
    let text = fs::read_to_string(said).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with(" WARN"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Asks the broker as the user that this thread belongs to.
pub(crate) fn ask(socket: &Path, command: &str, mut fields: Value) -> Answer {
    fields["version"] = json!(1);
    fields["command"] = json!(command);
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return Answer::Refused("there is no broker".to_owned());
    };
    // The broker may have refused the connection by now.
    let _ = stream.write_all(format!("{fields}\n").as_bytes());
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    let Ok(answer) = serde_json::from_str::<Value>(&line) else {
        return Answer::None(line);
    };
    match answer.get("ok") {
        Some(ok) => Answer::Done(ok.to_string()),
        None => Answer::Refused(answer["error"].to_string()),
    }
}
