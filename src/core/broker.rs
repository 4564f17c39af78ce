//! How programs of tranche ask the broker: one connection, one line of JSON each way.
//!
//! The broker (`tranche broker`) is a process of root. It changes the machine for shares (MPS daemons, compute mode,
//! time slice), and it keeps the claims of users who cannot write the ledger of root. Its socket is
//! `<state_dir>/broker.sock`, mode 0666; it knows its clients by SO_PEERCRED (unix(7)).
//!
//! A request is `{"version":1,"command":"prepare",…}`, at most [`MOST_BYTES`] long. Its answer is
//! `{"version":1,"ok":{…}}` or `{"version":1,"error":{"kind","object","what","hint"}}`.

mod client;
mod error_fields;
mod request;

pub use client::{BrokerError, ask, send, tell};
pub use error_fields::ErrorFields;
pub use request::{
    Command, EndClientsRequest, EnterRequest, EnterSubject, FirstTurnAnswer, FirstTurnRequest, LeaveRequest,
    MigMakeAnswer, MigMakeRequest, PrepareRequest, RequestLine, as_text, first_turn, first_turn_refused,
};

/// The broker's socket in the state directory.
pub const SOCKET: &str = "broker.sock";

/// The version of the protocol that this program speaks. The broker also answers requests of the version before.
pub const VERSION: u64 = 1;

/// The most bytes of a request, with its end.
pub const MOST_BYTES: usize = 16 << 10;

/// The most bytes of an answer: a user whom the policy lets hold thousands of shares may list them.
const MOST_ANSWER: usize = 1 << 20;
