//! Why a run is not complete.

use core::fmt::{self, Display, Formatter, Write};
use inside::json::{Escaped, Output};
use inside::sys::cuda::{Cuda, Unanswered};
use inside::sys::{Stream, clock, write_all};

/// The CUDA whose drivers compile the kernels: ISA 6.4 is that of 10.1 (PTX ISA, "Release Notes").
pub(crate) const NEEDED: i32 = 10_010;

const OUT_OF_MEMORY: i32 = 2;
const NO_DEVICE: i32 = 100;
const NO_COMPILER: i32 = 221;
const UNSUPPORTED_PTX: i32 = 222;

/// Why a run is not complete.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// An argument is wrong.
    Argument { argument: &'static [u8], why: &'static str },
    /// A line of the input is wrong: its number, and why.
    Line { number: u32, why: &'static str },
    /// The input has ended before the run was complete.
    InputEnded,
    /// Nobody reads the output.
    OutputClosed,
    /// CUDA's library cannot be loaded: the text of the loader.
    NoLibrary(&'static [u8]),
    /// The driver supports this version of CUDA, which is before [`NEEDED`].
    OldDriver(i32),
    /// A call of CUDA failed where it must not.
    Call(Unanswered),
    /// The device has not this much memory left for the buffers of the role: bytes wanted and free.
    NoMemory {
        wanted: usize,
        free: usize,
        call: Unanswered,
    },
    /// The kernel has no memory left for the records.
    NoRoom,
    /// More pieces of work than there is room for.
    TooMany(usize),
    /// The kernel that must fail has not failed.
    NoFault,
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Self {
        Self::Call(unanswered)
    }
}

impl From<fmt::Error> for Failure {
    fn from(_: fmt::Error) -> Self {
        Self::OutputClosed
    }
}

impl Failure {
    /// Prints the `error` event if a call failed, and one line for people. Returns the exit code.
    pub(crate) fn report(self, cuda: Option<&Cuda>, out: &mut Output) -> i32 {
        if let Self::Call(call) | Self::NoMemory { call, .. } = self
            && let Unanswered::Error(name, code) = call
        {
            let _ = Error {
                event: "error",
                call: Some(name.to_bytes()),
                code,
                name: cuda.and_then(|cuda| cuda.error_name(code)),
            }
            .print(out);
        }
        out.flush();
        let mut line = Line {
            bytes: [0; 512],
            used: 0,
        };
        // A line that is too long is cut.
        let _ = write!(line, "tranche-load: {}", Sentence(self, cuda));
        write_all(Stream::Error, line.bytes.get(..line.used).unwrap_or_default());
        write_all(Stream::Error, b"\n");
        match self {
            Self::Argument { .. } | Self::Line { .. } => 2,
            _ => 1,
        }
    }
}

/// An event that tells an error of CUDA, and when it was seen.
pub(crate) struct Error {
    pub(crate) event: &'static str,
    pub(crate) call: Option<&'static [u8]>,
    pub(crate) code: i32,
    pub(crate) name: Option<&'static [u8]>,
}

impl Error {
    pub(crate) fn print(&self, out: &mut Output) -> fmt::Result {
        write!(out, "{{\"event\":\"{}\",\"at\":{}", self.event, clock::now())?;
        if let Some(call) = self.call {
            write!(out, ",\"call\":\"{}\"", Escaped(call))?;
        }
        let name = Escaped(self.name.unwrap_or_default());
        writeln!(out, ",\"code\":{},\"name\":\"{name}\"}}", self.code)
    }
}

/// What is written to standard error.
struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.used..).unwrap_or_default();
        if text.len() > room.len() {
            return Err(fmt::Error);
        }
        room.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        self.used += text.len();
        Ok(())
    }
}

/// A version of CUDA as people write it: 12040 is 12.4.
struct Version(i32);

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

struct Sentence<'a>(Failure, Option<&'a Cuda>);

impl Display for Sentence<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Failure::Argument { argument, why } => match argument.is_empty() {
                true => write!(f, "{why}; --help lists them"),
                false => write!(f, "{}: {why}; --help lists roles and options", Escaped(argument)),
            },
            Failure::Line { number, why } => write!(f, "line {number} of the input: {why}"),
            Failure::InputEnded => f.write_str("the input ended before the run was complete"),
            Failure::OutputClosed => f.write_str("the output cannot be written"),
            Failure::NoLibrary(text) => write!(
                f,
                "CUDA's library cannot be loaded: {}; give the container a GPU",
                Escaped(text)
            ),
            Failure::OldDriver(found) => write!(
                f,
                "the driver is too old for the kernels: it supports CUDA {}, and CUDA {} is needed (driver 418 or later)",
                Version(found),
                Version(NEEDED)
            ),
            Failure::NoMemory { wanted, free, .. } => write!(
                f,
                "the device has no memory left: {wanted} bytes are needed and {free} are free; stop another process, or \
                 give a smaller --bytes"
            ),
            Failure::NoRoom => f.write_str("this machine has no memory left for the records of a run"),
            Failure::TooMany(most) => write!(
                f,
                "more than {most} pieces of work; choose longer ones or a shorter run"
            ),
            Failure::NoFault => f.write_str("the kernel that must fail has not failed"),
            Failure::Call(Unanswered::Missing(name)) => write!(
                f,
                "{} is not in this libcuda.so.1; driver 418 or later has it",
                Escaped(name.to_bytes())
            ),
            Failure::Call(Unanswered::Error(name, code)) => {
                let name = Escaped(name.to_bytes());
                match code {
                    NO_DEVICE => write!(
                        f,
                        "there is no device: {name} returned {code}; give the container a GPU"
                    ),
                    OUT_OF_MEMORY => write!(f, "no memory is left: {name} returned {code}; stop another process"),
                    UNSUPPORTED_PTX => write!(
                        f,
                        "the driver is too old for the kernels, which need CUDA {}: {name} returned {code}",
                        Version(NEEDED)
                    ),
                    NO_COMPILER => write!(
                        f,
                        "libnvidia-ptxjitcompiler.so.1 is not there, which compiles the kernels: {name} returned {code}"
                    ),
                    _ => {
                        let text = self.1.and_then(|cuda| cuda.error_name(code)).unwrap_or(b"an error");
                        write!(f, "{name} returned {} ({code})", Escaped(text))
                    }
                }
            }
        }
    }
}
