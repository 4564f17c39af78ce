//! Connections for which there is no place. They are refused, but what they give back is taken.
//!
//! The request of each is read for a moment, without a thread and without waiting for it: so a user who opens
//! connections without end, and says nothing on them, keeps nobody's release from being read.

use super::connection::turn_away;
use super::peer::BrokerClient;
use nix::poll::{PollFd, PollFlags};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tranche_core::broker::MOST_BYTES;
use tranche_protocol::Request;
use tranche_state::accounts::Account;

/// For how long the request of such a client is read. A client that writes to a closed socket may not read what was
/// sent to it.
const PATIENCE: Duration = Duration::from_millis(200);

/// How many are read at the same time. Of more, the user with the most loses the oldest.
const MOST: usize = 64;

/// The connections of which the request is read.
#[derive(Debug, Default)]
pub(super) struct BeyondPlaces {
    waiting: Vec<Refused>,
}

/// One connection.
#[derive(Debug)]
struct Refused {
    stream: UnixStream,
    peer: BrokerClient,
    account: Account,
    /// What has come of its request.
    line: Vec<u8>,
    until: Instant,
}

/// A request that gives something back.
#[derive(Debug)]
pub(super) struct GivenBack {
    pub(super) stream: UnixStream,
    pub(super) peer: BrokerClient,
    pub(super) account: Account,
    pub(super) request: Request,
}

impl BeyondPlaces {
    /// Reads the request of this connection from now on.
    pub(super) fn add(&mut self, stream: UnixStream, peer: BrokerClient, account: Account) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.waiting.len() >= MOST {
            self.turn_one_away();
        }
        self.waiting.push(Refused {
            stream,
            peer,
            account,
            line: Vec::new(),
            until: Instant::now() + PATIENCE,
        });
    }

    /// What is waited for, in the order in which [`Self::read`] takes it.
    pub(super) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        let watched = |refused| -> PollFd<'_> {
            let refused: &Refused = refused;
            PollFd::new(refused.stream.as_fd(), PollFlags::POLLIN)
        };
        self.waiting.iter().map(watched)
    }

    /// When the first of them has been read for long enough.
    pub(super) fn until(&self) -> Option<Instant> {
        self.waiting.first().map(|refused| refused.until)
    }

    /// Reads those that `is_ready` says something of, refuses all whose request is whole or took too long, and returns
    /// the requests that give something back.
    pub(super) fn read(&mut self, is_ready: &[bool]) -> Vec<GivenBack> {
        let now = Instant::now();
        let mut given_back = Vec::new();
        let mut stay = Vec::new();
        for (index, mut refused) in self.waiting.drain(..).enumerate() {
            // One that is not said to be ready came after that was looked at.
            let has_more = !is_ready.get(index).copied().unwrap_or(false) || refused.read_more();
            match asks_for(&refused.line) {
                Some(request) => given_back.push(GivenBack {
                    stream: refused.stream,
                    peer: refused.peer,
                    account: refused.account,
                    request,
                }),
                None if has_more && now < refused.until => stay.push(refused),
                None => turn_away(&refused.stream),
            }
        }
        self.waiting = stay;
        given_back
    }

    fn turn_one_away(&mut self) {
        let mut counts: HashMap<Account, usize> = HashMap::new();
        for refused in &self.waiting {
            *counts.entry(refused.account).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let oldest = most.and_then(|(account, _)| self.waiting.iter().position(|of| of.account == account));
        if let Some(oldest) = oldest {
            turn_away(&self.waiting.remove(oldest).stream);
        }
    }
}

impl Refused {
    /// Reads what has come. Whether the rest of the line may still come.
    fn read_more(&mut self) -> bool {
        let mut piece = [0; 4096];
        while self.line.len() < MOST_BYTES {
            match (&self.stream).read(&mut piece) {
                Ok(0) => return false,
                Ok(read) => {
                    let new = piece.get(..read).unwrap_or_default();
                    self.line.extend_from_slice(new);
                    if new.contains(&b'\n') {
                        return false;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// The request in `read`, if it is whole and gives something back.
fn asks_for(read: &[u8]) -> Option<Request> {
    let end = read.iter().position(|byte| *byte == b'\n')?;
    let request = Request::parse(read.get(..end)?).ok()?;
    matches!(request, Request::Release(_) | Request::Leave(_)).then_some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// One more connection of `account`, and its other end.
    fn connection(beyond: &mut BeyondPlaces, account: Account) -> UnixStream {
        let (here, there) = UnixStream::pair().unwrap();
        let peer = BrokerClient::of(&here).unwrap();
        beyond.add(here, peer, account);
        there
    }

    fn all_are_ready(beyond: &mut BeyondPlaces) -> Vec<GivenBack> {
        let ready = vec![true; beyond.watched().count()];
        beyond.read(&ready)
    }

    fn answer(mut client: &UnixStream) -> String {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_release_is_taken_in_pieces_and_everything_else_is_refused() {
        let mut beyond = BeyondPlaces::default();
        let release = connection(&mut beyond, Account::User(7));
        let list = connection(&mut beyond, Account::User(7));
        let silent = connection(&mut beyond, Account::User(7));
        (&release).write_all(b"{\"version\":1,\"command\":\"rel").unwrap();
        (&list).write_all(b"{\"version\":1,\"command\":\"list\"}\n").unwrap();
        assert!(all_are_ready(&mut beyond).is_empty());
        assert!(answer(&list).contains("too many requests at once"));
        (&release)
            .write_all(b"ease\",\"what\":\"a\",\"force\":false}\n")
            .unwrap();
        let given_back = all_are_ready(&mut beyond);
        assert!(
            matches!(
                &given_back[..],
                [GivenBack {
                    request: Request::Release(_),
                    ..
                }]
            ),
            "{given_back:?}"
        );
        assert_eq!(beyond.waiting.len(), 1);
        std::thread::sleep(PATIENCE);
        assert!(beyond.until().unwrap() <= Instant::now());
        assert!(all_are_ready(&mut beyond).is_empty() && beyond.waiting.is_empty());
        assert!(answer(&silent).contains("too many requests at once"));
    }

    #[test]
    fn who_has_the_most_makes_room_for_the_next() {
        let mut beyond = BeyondPlaces::default();
        let first = connection(&mut beyond, Account::User(8));
        let many: Vec<UnixStream> = (0..MOST * 2)
            .map(|_| connection(&mut beyond, Account::User(7)))
            .collect();
        assert_eq!(beyond.waiting.len(), MOST);
        assert!(answer(&many[0]).contains("too many requests at once"));
        (&first)
            .write_all(b"{\"version\":1,\"command\":\"release\",\"what\":\"a\",\"force\":false}\n")
            .unwrap();
        assert_eq!(all_are_ready(&mut beyond).len(), 1);
    }
}
