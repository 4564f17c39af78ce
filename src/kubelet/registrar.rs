//! When a resource is registered with the kubelet.

use std::time::{Duration, Instant};

/// The shortest wait between two attempts.
pub const FIRST: Duration = Duration::from_millis(100);

/// The longest one.
pub const LONGEST: Duration = Duration::from_secs(30);

/// A stream that ends sooner after a registration was ended by another plugin, or by a fault that lasts.
pub const SOON: Duration = Duration::from_secs(10);

/// After this time, a registration that is forgotten is no part of a fight with another plugin.
pub const LASTING: Duration = Duration::from_secs(120);

/// So many checks in a row must find that the kubelet has forgotten the resource.
const MISSES: u32 = 2;

/// Decides when to register. A kubelet that has accepted a registration asks for the list of devices, and reads that
/// stream as long as the registration holds (`pkg/kubelet/cm/devicemanager/plugin/v1beta1`).
#[derive(Debug)]
pub struct Registrar {
    due: Option<Instant>,
    delay: Duration,
    registered: Option<Instant>,
    /// The stream that was opened last, if it is open.
    stream: Option<u64>,
    /// How many checks in a row, since then, found that the kubelet does not have the devices.
    misses: u32,
}

impl Registrar {
    /// One that registers at once.
    pub fn new(now: Instant) -> Self {
        Self {
            due: Some(now),
            delay: FIRST,
            registered: None,
            stream: None,
            misses: 0,
        }
    }

    /// When the next attempt is due.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the kubelet reads the list of devices.
    pub fn is_read(&self) -> bool {
        self.stream.is_some()
    }

    /// There is a new kubelet, which knows nothing of this plugin.
    pub fn kubelet_is_new(&mut self, now: Instant) {
        self.delay = FIRST;
        self.due = Some(now);
        // The streams that are open lead to the kubelet before.
        self.stream = None;
    }

    /// The plugin's socket was removed, and made anew.
    pub fn socket_is_new(&mut self, now: Instant) {
        if self.stream.is_none() {
            self.due = Some(now);
        }
    }

    /// Another plugin had the name of the resource, and has ended: the kubelet forgot both.
    pub fn is_alone_again(&mut self, now: Instant) {
        self.stream = None;
        self.delay = FIRST;
        // By then, the kubelet knows that the old stream has ended.
        self.wait(now);
    }

    /// The kubelet was asked whether it has the devices of the list that it reads. It has not if another plugin
    /// registered the resource, also if that one has ended since. Returns how long to wait before a registration;
    /// `None` if nothing is wrong, or if an attempt is due anyway.
    pub fn checked(&mut self, is_known: bool, now: Instant) -> Option<Duration> {
        self.misses = if is_known { 0 } else { self.misses + 1 };
        // Once, it may not have read the list yet.
        if self.misses < MISSES {
            return None;
        }
        self.stream.take()?;
        if self.registered.is_none_or(|at| now.duration_since(at) >= LASTING) {
            self.delay = FIRST;
        }
        Some(self.wait(now))
    }

    /// The kubelet accepted the registration.
    pub fn registered(&mut self, now: Instant) {
        self.registered = Some(now);
        // If it does not ask for the list, its connection broke in between.
        self.due = Some(now + SOON);
    }

    /// The kubelet did not answer, or refused. Returns how long to wait.
    pub fn failed(&mut self, now: Instant) -> Duration {
        self.wait(now)
    }

    /// The kubelet asked for the list.
    pub fn opened(&mut self, stream: u64) {
        self.stream = Some(stream);
        self.misses = 0;
        if self.registered.is_some() {
            self.due = None;
        }
    }

    /// A stream ended. Returns what follows.
    pub fn ended(&mut self, stream: u64, now: Instant) -> Ended {
        // That of an earlier registration may end late.
        if self.stream != Some(stream) {
            return Ended::Ignored;
        }
        self.stream = None;
        let soon = self.registered.is_some_and(|at| now.duration_since(at) < SOON);
        if !soon {
            self.delay = FIRST;
        }
        let wait = self.wait(now);
        if soon { Ended::Soon(wait) } else { Ended::Late(wait) }
    }

    fn wait(&mut self, now: Instant) -> Duration {
        let wait = self.delay;
        self.delay = (wait * 2).min(LONGEST);
        self.due = Some(now + wait);
        wait
    }
}

/// What the end of a stream means, and after which time to register again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing: another stream is open.
    Ignored,
    /// The kubelet ended or restarted.
    Late(Duration),
    /// The registration did not last.
    Soon(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_kubelet_that_is_away_is_asked_less_and_less_often() {
        let now = Instant::now();
        let mut registrar = Registrar::new(now);
        assert_eq!(registrar.due(), Some(now));
        let waits: Vec<u128> = (0..11).map(|_| registrar.failed(now).as_millis()).collect();
        assert_eq!(
            waits,
            [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
        registrar.kubelet_is_new(now);
        assert_eq!(registrar.due(), Some(now));
        assert_eq!(registrar.failed(now), FIRST);
    }

    #[test]
    fn while_the_list_is_read_nothing_is_due() {
        let now = Instant::now();
        let mut registrar = Registrar::new(now);
        registrar.registered(now);
        assert_eq!(registrar.due(), Some(now + SOON), "the list was not asked for");
        registrar.opened(1);
        assert_eq!(registrar.due(), None);
        assert!(registrar.is_read());
        registrar.socket_is_new(now);
        assert_eq!(registrar.due(), None, "the connection is not that of the file");
    }

    #[test]
    fn the_end_of_the_stream_leads_to_a_registration() {
        let now = Instant::now();
        let mut registrar = Registrar::new(now);
        registrar.registered(now);
        registrar.opened(1);
        let later = now + 60 * SECOND;
        assert_eq!(registrar.ended(1, later), Ended::Late(FIRST));
        assert_eq!(registrar.due(), Some(later + FIRST));
        registrar.socket_is_new(later);
        assert_eq!(registrar.due(), Some(later));
    }

    #[test]
    fn a_plugin_that_is_forgotten_registers_again_and_waits_longer_each_time() {
        let mut now = Instant::now();
        let mut registrar = Registrar::new(now);
        // Before it is registered, this means nothing.
        assert_eq!((0..3).find_map(|_| registrar.checked(false, now)), None);
        for (stream, wait) in [(1, FIRST), (2, 2 * FIRST), (3, 4 * FIRST)] {
            registrar.registered(now);
            registrar.opened(stream);
            for is_known in [false, true, false] {
                assert_eq!(registrar.checked(is_known, now), None);
            }
            assert_eq!(registrar.checked(false, now), Some(wait));
            assert_eq!(registrar.checked(false, now), None, "an attempt is due");
            assert_eq!(registrar.ended(stream, now), Ended::Ignored);
            now += wait;
        }
        registrar.registered(now);
        registrar.opened(4);
        registrar.checked(false, now);
        assert_eq!(registrar.checked(false, now + LASTING), Some(FIRST));
    }

    #[test]
    fn a_plugin_that_is_alone_again_registers_although_its_list_is_read() {
        let now = Instant::now();
        let mut registrar = Registrar::new(now);
        registrar.registered(now);
        registrar.opened(1);
        registrar.is_alone_again(now);
        assert_eq!(registrar.due(), Some(now + FIRST));
        assert_eq!(registrar.ended(1, now), Ended::Ignored);
    }

    #[test]
    fn the_late_end_of_an_old_stream_is_not_the_end_of_the_new_one() {
        let now = Instant::now();
        let mut registrar = Registrar::new(now);
        registrar.registered(now);
        registrar.opened(1);
        registrar.kubelet_is_new(now + SECOND);
        registrar.registered(now + SECOND);
        registrar.opened(2);
        assert_eq!(registrar.ended(1, now + 2 * SECOND), Ended::Ignored);
        assert_eq!(registrar.due(), None);
        assert_eq!(registrar.ended(2, now + 3 * SECOND), Ended::Soon(FIRST));
    }

    #[test]
    fn two_plugins_for_one_resource_do_not_fight_in_a_tight_loop() {
        let mut now = Instant::now();
        let mut registrar = Registrar::new(now);
        let mut waits = Vec::new();
        for stream in 0..12 {
            registrar.registered(now);
            registrar.opened(stream);
            let Ended::Soon(wait) = registrar.ended(stream, now + SECOND / 10) else {
                panic!("it did not last");
            };
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits[..3], [FIRST, 2 * FIRST, 4 * FIRST]);
        assert_eq!(waits[11], LONGEST);
        // It starts afresh after one that lasted.
        registrar.registered(now);
        registrar.opened(99);
        assert_eq!(registrar.ended(99, now + SOON), Ended::Late(FIRST));
    }
}
