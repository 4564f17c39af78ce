//! Keeps the ResourceSlices of the node at the API server equal to the desired ones.
//!
//! The kubelet deletes the slices of all drivers when it starts, so they are watched and restored. When the driver
//! ends, they stay: the kubelet deletes them 30 s later, and a driver that is back before finds them.

use super::difference::{Actual, Difference, Published, difference, pool};
use super::pace::{Pacing, Repeats};
use super::probe::{kept, probe};
use super::slices::{DesiredSlice, Form, NodeRef, slices};
use crate::api::{why, within};
use crate::ready::{Part, Ready};
use crate::said::{Said, Topic};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Error, ResourceExt};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tranche_protocol::DraDevices;

/// The events of a watch.
type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<ResourceSlice>, Error>> + Send>>;

/// How many warnings about a layout are reported.
const MOST_WARNINGS: usize = 8;

/// What remains when a watch ends without an error: the API server closes it, or it lasted as long as it should.
enum Watched {
    Event(Box<Result<WatchEvent<ResourceSlice>, Error>>),
    End,
}

/// Publishes the slices of one driver.
pub struct Publisher {
    api: Api<ResourceSlice>,
    nodes: Api<PartialObjectMeta<Node>>,
    driver: String,
    node: NodeRef,
    said: Said,
    ready: Ready,
    pacing: Pacing,
    /// What the API server has, as far as it is known.
    actual: Actual,
    /// What the broker has answered last.
    devices: Option<DraDevices>,
    /// Whether the API server keeps all fields, and when it is asked again; `None` as long as nothing depends on it.
    form: Option<(Form, Instant)>,
    published: Option<Published>,
    /// When something was sent last.
    sent: Option<Instant>,
    /// When a change by others was seen that is not dealt with.
    changed: Option<Instant>,
    restored: Repeats,
    failed: Repeats,
    /// The kinds of faults that this series of failures has reported: a status of HTTP, or 0.
    reported: BTreeSet<u16>,
}

impl Publisher {
    /// One for the node `node`, which publishes nothing yet.
    pub fn new(client: Client, driver: &str, node: NodeRef, said: Said, ready: Ready, pacing: Pacing) -> Self {
        Self {
            api: Api::all(client.clone()),
            nodes: Api::all(client),
            driver: driver.to_owned(),
            node,
            said,
            ready,
            pacing,
            actual: Actual::new(),
            devices: None,
            form: None,
            published: None,
            sent: None,
            changed: None,
            restored: Repeats::default(),
            failed: Repeats::default(),
            reported: BTreeSet::new(),
        }
    }

    /// Publishes what `devices` has, whenever it changes, and restores what others change. As long as `devices` has
    /// `None`, the slices stay as they are. It returns when nobody can change `devices` any more.
    pub async fn work(mut self, mut devices: watch::Receiver<Option<DraDevices>>) {
        self.devices = devices.borrow_and_update().clone();
        loop {
            let end = match self.read().await {
                Ok(version) => self.follow(version, &mut devices).await,
                Err(e) => Err(e),
            };
            match end {
                Ok(true) => return,
                Ok(false) => {}
                Err(e) => self.fail(&e),
            }
            if self.failed.is_any() {
                sleep(self.failed.pause(&self.pacing)).await;
            }
        }
    }

    /// As [`within`], for this publisher.
    async fn within<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(self.pacing.answer, call).await
    }

    fn selector(&self) -> String {
        format!("spec.driver={},spec.nodeName={}", self.driver, self.node.name)
    }

    /// Reads the slices. Returns the version from which a watch goes on.
    async fn read(&mut self) -> Result<String, Error> {
        let params = ListParams::default().fields(&self.selector());
        let list = self.within(self.api.list(&params)).await?;
        self.actual.clear();
        for slice in list.items {
            self.keep(slice);
        }
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    /// Publishes and watches until the slices have to be read again (`false`), or the driver ends (`true`).
    async fn follow(
        &mut self,
        mut version: String,
        devices: &mut watch::Receiver<Option<DraDevices>>,
    ) -> Result<bool, Error> {
        let mut events: Option<Events> = None;
        loop {
            let due = self.due();
            if due.is_some_and(|due| due <= Instant::now()) {
                if !self.publish().await? {
                    return Ok(false);
                }
                continue;
            }
            let open = match &mut events {
                Some(open) => open,
                None => events.insert(self.open(&version).await?),
            };
            if due.is_none() {
                self.is_well();
            }
            let at = due.unwrap_or_else(|| Instant::now() + self.pacing.most);
            tokio::select! {
                event = open.next() => match event.map_or(Watched::End, |event| Watched::Event(Box::new(event))) {
                    Watched::End => {
                        events = None;
                        // A server that closes each watch at once gets one a second.
                        sleep(self.pacing.least / 4).await;
                    }
                    Watched::Event(event) => match self.take(*event)? {
                        Some(newer) => version = newer,
                        None => return Ok(false),
                    },
                },
                changed = devices.changed() => {
                    if changed.is_err() {
                        return Ok(true);
                    }
                    self.devices = devices.borrow_and_update().clone();
                }
                () = sleep_until(at.into()) => {}
            }
        }
    }

    async fn open(&self, version: &str) -> Result<Events, Error> {
        let seconds = u32::try_from(self.pacing.watch.as_secs()).unwrap_or(u32::MAX).max(1);
        let params = WatchParams::default().fields(&self.selector()).timeout(seconds);
        let events = self.within(self.api.watch(&params, version)).await?;
        // A connection that is cut without a word has no end of its own.
        let end = sleep(Duration::from_secs(u64::from(seconds) + 5));
        Ok(Box::pin(events.take_until(end)))
    }

    /// Takes an event. Returns the version after it; `None` if the slices have to be read again.
    fn take(&mut self, event: Result<WatchEvent<ResourceSlice>, Error>) -> Result<Option<String>, Error> {
        let version = match event? {
            WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                let version = slice.resource_version();
                self.keep(slice);
                version
            }
            WatchEvent::Deleted(slice) => {
                self.actual.remove(&slice.name_any());
                slice.resource_version()
            }
            WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version),
            // The versions of the past are forgotten.
            WatchEvent::Error(status) if status.code == 410 => None,
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        };
        if self.changed.is_none() && !self.step().is_some_and(|(_, difference)| difference.is_none()) {
            self.changed = Some(Instant::now());
        }
        Ok(version)
    }

    /// Keeps a slice, unless a newer one is known: a watch reports what this program did after the answer to it.
    fn keep(&mut self, mut slice: ResourceSlice) {
        let number = |slice: &ResourceSlice| slice.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        let name = slice.name_any();
        let known = self.actual.get(&name).and_then(number);
        if known.is_none_or(|known| number(&slice).is_none_or(|read| read >= known)) {
            slice.metadata.managed_fields = None;
            self.actual.insert(name, slice);
        }
    }

    /// What should be published, and what that takes. `None` if it is not known yet: the broker has not answered, or
    /// the API server has to be asked first.
    fn step(&mut self) -> Option<(Vec<DesiredSlice>, Difference)> {
        let form = self.wanted_form()?;
        let devices = self.devices.as_ref()?;
        let desired = slices(devices, &self.driver, &self.node, form);
        self.report(&desired.warnings);
        let difference = difference(&desired.slices, &self.actual, self.published.as_ref(), &self.node);
        Some((desired.slices, difference))
    }

    /// `None` if the API server has to be asked.
    fn wanted_form(&self) -> Option<Form> {
        match self.form {
            Some((form, _)) => Some(form),
            None => {
                let devices = self.devices.as_ref()?;
                let of = |form| slices(devices, &self.driver, &self.node, form).slices;
                (of(Form::Full) == of(Form::Plain)).then_some(Form::Full)
            }
        }
    }

    fn report(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return self.said.is_well(&Topic::Layout);
        }
        let more = warnings.len().saturating_sub(MOST_WARNINGS);
        let mut text = warnings[..warnings.len() - more].join("; ");
        if more > 0 {
            text = format!("{text}; {more} more");
        }
        self.said.warn(Topic::Layout, text);
    }

    /// When the API server is asked for its form again: one that keeps all fields is believed until it drops one.
    fn asked_again(&self) -> Option<Instant> {
        self.form.filter(|(form, _)| *form != Form::Full).map(|(_, at)| at)
    }

    /// When something has to be sent; `None` if nothing has.
    fn due(&mut self) -> Option<Instant> {
        self.devices.as_ref()?;
        let now = Instant::now();
        let again = self.asked_again();
        if again.is_some_and(|at| at <= now) {
            return again;
        }
        let is_repeat = match self.step() {
            Some((_, difference)) if difference.is_none() => {
                self.changed = None;
                return again;
            }
            Some((desired, _)) => self.published.as_ref().is_some_and(|last| last.slices == desired),
            None => false,
        };
        let pause = match is_repeat && self.restored.is_any() {
            true => self.restored.pause(&self.pacing),
            false => self.pacing.least,
        };
        let earliest = self.sent.map(|sent| sent + pause);
        // The kubelet deletes one slice after the other.
        let settled = self.changed.map(|changed| changed + self.pacing.least / 4);
        Some(now.max(earliest.unwrap_or(now)).max(settled.unwrap_or(now)))
    }

    /// Sends what is due. Returns whether what the API server has is still known.
    async fn publish(&mut self) -> Result<bool, Error> {
        if self.asked_again().is_some_and(|at| at <= Instant::now()) || self.wanted_form().is_none() {
            let form = self.within(probe(&self.api, &self.driver, &self.node)).await?;
            self.set_form(form);
        }
        let Some((desired, difference)) = self.step() else {
            return Ok(true);
        };
        if difference.is_none() {
            return Ok(true);
        }
        let now = Instant::now();
        self.sent = Some(now);
        self.changed = None;
        match self.published.as_ref().is_some_and(|last| last.slices == desired) {
            true => {
                self.restored.again(now, &self.pacing);
                // Slices of a node that was deleted are deleted with it. One of the same name is another node, and what
                // belongs to the old one would be deleted again and again.
                let node = self.within(self.nodes.get_metadata(&self.node.name)).await?;
                if let Some(uid) = node.metadata.uid {
                    self.node.uid = uid;
                }
            }
            false => self.restored.end(),
        }
        self.published = Some(Published {
            generation: difference.generation,
            slices: desired.clone(),
        });
        self.send(&desired, &difference).await
    }

    async fn send(&mut self, desired: &[DesiredSlice], difference: &Difference) -> Result<bool, Error> {
        let create = difference.create.iter().map(|place| (*place, None));
        let update = difference.update.iter().map(|(place, name)| (*place, Some(name)));
        let mut all: Vec<(usize, Option<&String>)> = create.chain(update).collect();
        all.sort();
        let mut form = Form::Full;
        for (place, name) in all {
            let Some(wanted) = desired.get(place) else { continue };
            let pool = pool(&self.node, difference.generation, desired);
            let mut object = wanted.object(&self.driver, &self.node, pool);
            let answer = match name {
                None => self.within(self.api.create(&PostParams::default(), &object)).await,
                Some(name) => {
                    if let Some(known) = self.actual.get(name) {
                        let owners = object.metadata.owner_references.take();
                        object.metadata = known.metadata.clone();
                        object.metadata.owner_references = owners;
                    }
                    let params = PostParams::default();
                    self.within(self.api.replace(name, &params, &object)).await
                }
            };
            match answer {
                Ok(got) => {
                    form = form.max(kept(&object, &got));
                    self.keep(got);
                }
                // Somebody was faster: the kubelet at its start, or another instance of the driver.
                Err(Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        if form != Form::Full {
            // What is published now is wrong, and is not left for a second.
            self.set_form(form);
            self.sent = None;
        }
        for name in &difference.delete {
            match self.within(self.api.delete(name, &DeleteParams::default())).await {
                Ok(_) => drop(self.actual.remove(name)),
                Err(Error::Api(status)) if status.code == 404 => drop(self.actual.remove(name)),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn set_form(&mut self, form: Form) {
        self.form = Some((form, Instant::now() + self.pacing.probe));
        let text = match form {
            Form::Full => return self.said.is_well(&Topic::Gates),
            Form::Uncounted => {
                "the API server drops the counters of ResourceSlices (DRAPartitionableDevices is on from Kubernetes \
                 1.36): no instance of MIG is made for a claim"
            }
            Form::Plain => {
                "the API server drops fields of ResourceSlices (DRAConsumableCapacity, DRADeviceTaints and \
                 DRAPartitionableDevices are on from Kubernetes 1.36): shares are published as plain devices, devices \
                 that are held or unhealthy are left out, and no instance of MIG is made for a claim"
            }
        };
        self.said.warn(Topic::Gates, text.to_owned());
    }

    fn fail(&mut self, error: &Error) {
        let code = match error {
            Error::Api(status) => status.code,
            _ => 0,
        };
        self.failed.again(Instant::now(), &self.pacing);
        // Messages of one fault differ in versions and times.
        if self.reported.insert(code) {
            let what = format!("the ResourceSlices of this node cannot be published: {}", why(error));
            self.ready.set(Part::Slices, Some(what.clone()));
            self.said.warn(Topic::Slices, what);
        }
    }

    fn is_well(&mut self) {
        if self.devices.is_some() {
            self.ready.set(Part::Slices, None);
        }
        if !self.failed.is_any() {
            return;
        }
        self.failed.end();
        self.reported.clear();
        self.said.is_well(&Topic::Slices);
        // A server that was away may be another version now.
        if let Some((Form::Uncounted | Form::Plain, again)) = &mut self.form {
            *again = Instant::now();
        }
    }
}
