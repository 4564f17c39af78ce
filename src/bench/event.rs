//! What `tranche-load` prints: one JSON object a line. The program may run in a container, so nothing of it is believed
//! before it was checked: lines and their number are bounded, and its texts are escaped.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeSet;
use tranche_core::error::{Error, Result};
use tranche_core::text::{cut, shown};

/// The version of the lines that is read.
pub const VERSION: u32 = 1;

/// The longest line in bytes: the numbers of all multiprocessors of the largest GPU are a few hundred.
const LONGEST_LINE: usize = 1 << 16;

/// The most lines of one process: a line for each request, and some around them.
const MOST_LINES: usize = 2 * crate::schedule::MOST_REQUESTS;

/// The longest text in an event, in bytes.
const LONGEST_TEXT: usize = 128;

/// A line of `tranche-load`. Names `at` are times of `CLOCK_MONOTONIC`; `intended`, `began` and `done` count from the
/// beginning that the program was given. All times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase", deny_unknown_fields)]
pub enum Event {
    /// The program can begin.
    Ready(Ready),
    /// How long a request is.
    Calibrated {
        /// Iterations of one request.
        fma: u64,
        /// How long it takes alone.
        request_ns: u64,
    },
    /// A request was served. Its latency is `done` less `intended`.
    Served {
        /// When it should have begun.
        intended: u64,
        /// When it began.
        began: u64,
        /// When its result was there.
        done: u64,
    },
    /// A request was not begun before the end.
    Late {
        /// When it should have begun.
        intended: u64,
    },
    /// A piece of work of another role than `serve`.
    Finished {
        /// When it began.
        began: u64,
        /// When it was done.
        done: u64,
        /// How much it was: requests, kernels or bytes.
        units: u64,
    },
    /// How much `greedy` got.
    Allocated {
        /// Bytes.
        bytes: u64,
        /// In so many pieces.
        blocks: u64,
    },
    /// What `greedy` did not get.
    Refused {
        /// The call of CUDA.
        #[serde(deserialize_with = "text")]
        call: String,
        /// Its error.
        code: u32,
        /// The name of that error.
        #[serde(deserialize_with = "text")]
        name: String,
        /// The bytes it asked for.
        bytes: u64,
    },
    /// Where the blocks of `probe` ran.
    Probed {
        /// The numbers of the multiprocessors.
        sms: BTreeSet<u32>,
        /// How many blocks there were.
        blocks: u64,
    },
    /// What `keep` found in the memory that it had filled.
    Compared {
        /// The bytes that were compared.
        bytes: u64,
        /// How many numbers of 8 bytes are other ones.
        wrong: u64,
    },
    /// The error that `fault` caused has arrived.
    Faulted {
        /// When.
        at: u64,
        /// CUDA's error.
        code: u32,
        /// Its name.
        #[serde(deserialize_with = "text")]
        name: String,
    },
    /// A call of CUDA failed that must not fail. The program ends.
    Error {
        /// When.
        at: u64,
        /// The call.
        #[serde(deserialize_with = "text")]
        call: String,
        /// Its error.
        code: u32,
        /// The name of that error.
        #[serde(deserialize_with = "text")]
        name: String,
    },
    /// The program did all that it was asked for.
    End {
        /// When.
        at: u64,
    },
}

/// What a process of `tranche-load` sees of its device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// When it was ready.
    pub at: u64,
    /// How long the first calls of CUDA took, up to the end of the first kernel.
    pub context_ns: u64,
    /// The version of the lines.
    pub version: u32,
    /// The product.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// The UUID.
    #[serde(deserialize_with = "text")]
    pub uuid: String,
    /// Multiprocessors, as CUDA reports them: under MPS those below the ceiling.
    pub sms: u32,
    /// The size of the L2 cache.
    pub l2_bytes: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Memory that is free.
    pub free_bytes: u64,
    /// Compute capability: major and minor.
    pub capability: [u32; 2],
    /// The version of CUDA that the driver has: 12040 is 12.4.
    pub driver: u32,
}

/// Text of the program, short and harmless.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(shown(&cut(&text, LONGEST_TEXT)).into_owned())
}

impl Event {
    /// Reads a line.
    fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        // By way of a value: an enum with a tag keeps fields aside, and its numbers with them, until the tag is known.
        let value: Value = serde_json::from_slice(line)?;
        let event = Self::deserialize(value)?;
        let invalid = |why: &str| Err(serde_json::Error::custom(why));
        match event {
            Self::Served { intended, began, done } if intended > began || began > done => {
                invalid("a request ended before it began, or began before it arrived")
            }
            Self::Finished { began, done, .. } if began > done => invalid("work ended before it began"),
            Self::Ready(Ready { version, .. }) if version != VERSION => {
                invalid(&format!("the program speaks version {version}, expected {VERSION}"))
            }
            event => Ok(event),
        }
    }
}

/// Reads the output of one process, in whatever pieces it arrives.
#[derive(Debug)]
pub struct Reader {
    /// How errors call the process: `serve in mps-50-50`.
    of: String,
    /// The line that has not ended yet.
    rest: Vec<u8>,
    lines: usize,
    ended: bool,
}

impl Reader {
    /// For the process that errors call by this name.
    pub fn new(of: impl Into<String>) -> Self {
        Self {
            of: of.into(),
            rest: Vec::new(),
            lines: 0,
            ended: false,
        }
    }

    /// Whether the last line of a complete run was read.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The events of the lines that end in `bytes`.
    ///
    /// # Errors
    /// Returns an error for a line that is too long, not an event, or not possible, for too many lines, and for one
    /// after the last. The process should be ended then.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            let more = line.unwrap_or(piece);
            if self.rest.len() + more.len() > LONGEST_LINE {
                return Err(self.invalid(&format!("has more than {LONGEST_LINE} bytes")));
            }
            self.rest.extend_from_slice(more);
            if line.is_some() {
                let whole = std::mem::take(&mut self.rest);
                events.push(self.event(&whole)?);
            }
        }
        Ok(events)
    }

    /// Called at the end of the output.
    ///
    /// # Errors
    /// Returns an error if the last line has no end.
    pub fn finish(&self) -> Result<()> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.invalid("has no end")),
        }
    }

    fn event(&mut self, line: &[u8]) -> Result<Event> {
        if self.ended {
            return Err(self.invalid("follows the event \"end\""));
        }
        if self.lines == MOST_LINES {
            return Err(self.invalid(&format!("is one more than {MOST_LINES}")));
        }
        let event = Event::parse(line).map_err(|error| self.invalid(&cut(&error.to_string(), LONGEST_TEXT)))?;
        self.lines += 1;
        self.ended = matches!(event, Event::End { .. });
        Ok(event)
    }

    fn invalid(&self, why: &str) -> Error {
        let line = self.lines + 1;
        Error::failed(&self.of, format!("line {line} of its output: {why}")).hint("this cell is not measured")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tranche_core::error::line;

    const READY: &str = r#"{"event":"ready","at":5,"context_ns":7,"version":1,"name":"NVIDIA H200","uuid":"GPU-1","sms":132,"l2_bytes":1,"memory_bytes":2,"free_bytes":3,"capability":[9,0],"driver":12040}"#;

    fn read(text: &str) -> Result<Vec<Event>> {
        Reader::new("serve").read(text.as_bytes())
    }

    #[test]
    fn each_line_of_the_protocol_is_read() {
        let lines = [
            READY,
            r#"{"event":"calibrated","fma":18446744073709551615,"request_ns":3000000}"#,
            r#"{"event":"served","intended":1,"began":2,"done":3}"#,
            r#"{"event":"late","intended":9}"#,
            r#"{"event":"finished","began":2,"done":3,"units":4}"#,
            r#"{"event":"allocated","bytes":1,"blocks":2}"#,
            r#"{"event":"refused","call":"cuMemAlloc_v2","code":2,"name":"CUDA_ERROR_OUT_OF_MEMORY","bytes":3}"#,
            r#"{"event":"probed","sms":[5,0,1,1],"blocks":12}"#,
            r#"{"event":"compared","bytes":8,"wrong":1}"#,
            r#"{"event":"faulted","at":1,"code":715,"name":"CUDA_ERROR_ILLEGAL_INSTRUCTION"}"#,
            r#"{"event":"error","at":1,"call":"cuLaunchKernel","code":4,"name":"x"}"#,
            r#"{"event":"end","at":77}"#,
        ];
        let events = read(&(lines.join("\n") + "\n")).unwrap();
        assert_eq!(events.len(), lines.len());
        assert_eq!(
            events[1],
            Event::Calibrated {
                fma: u64::MAX,
                request_ns: 3_000_000
            }
        );
        assert_eq!(
            events[7],
            Event::Probed {
                sms: [0, 1, 5].into(),
                blocks: 12
            }
        );
        assert!(matches!(&events[0], Event::Ready(ready) if ready.sms == 132 && ready.capability == [9, 0]));
    }

    #[test]
    fn what_is_not_an_event_is_one_line_of_error() {
        for (text, words) in [
            ("{}", "missing field `event`"),
            ("", "line 1 of its output: EOF"),
            ("[1]", "invalid type"),
            (r#"{"event":"launched"}"#, "unknown variant `launched`"),
            (r#"{"event":"late","intended":-1}"#, "invalid value"),
            (r#"{"event":"late","intended":1.5}"#, "line 1"),
            (r#"{"event":"late","intended":"1"}"#, "invalid type"),
            (r#"{"event":"late","intended":1,"more":2}"#, "unknown field `more`"),
            (
                r#"{"event":"served","intended":5,"began":4,"done":9}"#,
                "began before it arrived",
            ),
            (
                r#"{"event":"served","intended":1,"began":9,"done":4}"#,
                "ended before it began",
            ),
            (
                r#"{"event":"finished","began":9,"done":4,"units":1}"#,
                "ended before it began",
            ),
            (
                &READY.replace("\"version\":1", "\"version\":2"),
                "speaks version 2, expected 1",
            ),
            ("{\"event\":\"\u{1b}[31m\\u202e\\nx\"}", "line 1"),
            (&"[".repeat(5000), "recursion limit"),
            (
                &format!("{{\"event\":\"{}\"}}", "x".repeat(9000)),
                "unknown variant `xxx",
            ),
        ] {
            let error = line(&read(&format!("{text}\n")).unwrap_err());
            assert!(
                error.contains(words) && error.starts_with("serve: line 1"),
                "{text}: {error}"
            );
            assert!(
                error.len() < 300 && !error.contains(['\n', '\u{1b}', '\u{202e}']),
                "{error}"
            );
        }
    }

    #[test]
    fn texts_of_events_are_short_and_harmless() {
        let name = format!("\\u001b[2J\\n\\u202e{}", "y".repeat(500));
        let events = read(&format!("{}\n", READY.replace("NVIDIA H200", &name))).unwrap();
        let Event::Ready(ready) = &events[0] else { panic!() };
        assert!(
            ready.name.starts_with("\\u{1b}[2J\\n\\u{202e}yy") && ready.name.len() < 160,
            "{}",
            ready.name
        );
    }

    #[test]
    fn lines_and_their_number_are_bounded() {
        let mut reader = Reader::new("hog-sm");
        for _ in 0..64 {
            reader.read(&[b' '; 1024]).unwrap();
        }
        let error = line(&reader.read(b" ").unwrap_err());
        assert!(
            error.starts_with("hog-sm: line 1 of its output: has more than 65536 bytes"),
            "{error}"
        );
        let mut reader = Reader::new("serve");
        for _ in 0..MOST_LINES / 1000 {
            reader
                .read("{\"event\":\"late\",\"intended\":1}\n".repeat(1000).as_bytes())
                .unwrap();
        }
        assert!(reader.read(b"{\"event\":\"end\",\"at\":1}\n").is_err());
    }

    #[test]
    fn nothing_follows_the_end_and_half_a_line_is_an_error() {
        let mut reader = Reader::new("serve");
        assert!(!reader.has_ended());
        reader.read(b"{\"event\":\"end\",\"at\":1}\n").unwrap();
        assert!(reader.has_ended() && reader.finish().is_ok());
        assert!(line(&reader.read(b"{}\n").unwrap_err()).contains("follows the event"));
        let mut reader = Reader::new("serve");
        assert_eq!(reader.read(b"{\"event\":").unwrap(), []);
        assert!(line(&reader.finish().unwrap_err()).contains("line 1 of its output: has no end"));
    }

    proptest! {
        /// Pipes cut lines anywhere.
        #[test]
        fn pieces_give_the_same_events_as_the_whole(cuts in prop::collection::vec(1_usize..40, 1..60)) {
            let text = format!("{READY}\n{{\"event\":\"late\",\"intended\":3}}\n{{\"event\":\"end\",\"at\":4}}\n");
            let whole = read(&text).unwrap();
            let (mut reader, mut rest, mut events) = (Reader::new("serve"), text.as_bytes(), Vec::new());
            for cut in cuts.iter().cycle() {
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                events.extend(reader.read(piece).unwrap());
                rest = left;
                if rest.is_empty() { break; }
            }
            prop_assert_eq!(events, whole);
        }

        #[test]
        fn no_input_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Err(error) = Reader::new("serve").read(&bytes) {
                prop_assert!(!line(&error).contains('\n'));
            }
        }
    }
}
