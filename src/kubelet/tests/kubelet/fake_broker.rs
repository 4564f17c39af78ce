//! A broker that offers what a test says, behind the socket and the protocol of the real one.

use crate::offers;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use tranche_core::broker::{MOST_BYTES, SOCKET};
use tranche_core::error::{Error, Result, parts};
use tranche_core::ledger::PodName;
use tranche_core::types::Strategy;
use tranche_protocol::{
    AllocatedDevice, DraDevices, GivenDevice, Offer, Offers, PodPlacement, PolicyAnswer, PrepareClaimRequest,
    PreparedClaim, Request, Taken,
};

/// What a claim gets for each of its devices, in words, or why it gets nothing.
pub(crate) type Judge = Box<dyn Fn(&[AllocatedDevice]) -> Result<Vec<String>> + Send>;

/// What the broker knows.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) offers: Vec<Offer>,
    /// Which of them a container gets, by the policy.
    pub(crate) placement: Option<PodPlacement>,
    /// Each request that changes something, in order.
    pub(crate) asked: Vec<String>,
    /// The longest request, in bytes.
    pub(crate) longest: usize,
    /// How often it was asked what it offers.
    pub(crate) looks: usize,
    /// The policy of the cluster.
    pub(crate) policy: Option<String>,
    /// What is wrong with the policy of the node, if the last one stays in force.
    pub(crate) wrong_policy: Option<String>,
    /// What is offered to a driver for dynamic resource allocation.
    pub(crate) dra: DraDevices,
    /// Why no claim is prepared.
    pub(crate) refusal: Option<String>,
    /// Who holds each device for now.
    pub(crate) held: Option<String>,
    /// Says what the devices of a claim are given as; without it, all are given.
    pub(crate) judge: Option<Judge>,
    /// What the judge said, by the CDI names.
    pub(crate) given: BTreeMap<String, String>,
    /// Whether every request is refused.
    pub(crate) is_broken: bool,
    /// Whether no request is answered.
    pub(crate) is_silent: bool,
}

#[derive(Clone)]
pub(crate) struct FakeBroker {
    node: Arc<Mutex<Node>>,
    state_dir: PathBuf,
}

impl FakeBroker {
    /// One that does not listen yet.
    pub(crate) fn new(state_dir: &Path, offers: Vec<Offer>) -> Self {
        let node = Node {
            offers,
            ..Node::default()
        };
        Self {
            node: Arc::new(Mutex::new(node)),
            state_dir: state_dir.to_owned(),
        }
    }

    pub(crate) fn listen(&self) {
        let listener = UnixListener::bind(self.state_dir.join(SOCKET)).unwrap();
        let node = self.node.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let node = node.clone();
                thread::spawn(move || answer(stream.unwrap(), &node));
            }
        });
    }

    pub(crate) fn node(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap()
    }

    /// Changes what is offered, and writes the file that a broker writes then.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Offer>)) {
        change(&mut self.node().offers);
        let temporary = self.state_dir.join(".status.json.tmp");
        std::fs::write(&temporary, "{}").unwrap();
        std::fs::rename(temporary, self.state_dir.join("status.json")).unwrap();
    }

    /// A container outside Kubernetes takes a part of a device, or all of it.
    pub(crate) fn hold(&self, device: &str, share: Option<&str>) {
        self.change(|offers| {
            let offer = offers.iter_mut().find(|offer| offer.device == device).unwrap();
            offer.taken.push(offers::taken(share, None));
        });
    }

    /// It ends.
    pub(crate) fn release(&self, device: &str) {
        self.change(|offers| {
            let offer = offers.iter_mut().find(|offer| offer.device == device).unwrap();
            offer.taken.retain(|taken| taken.pod.is_some());
        });
    }

    /// The ids that are reserved for a pod.
    pub(crate) fn reserved(&self, pod: &str) -> BTreeSet<String> {
        let node = self.node();
        let mut found = BTreeSet::new();
        for offer in &node.offers {
            for taken in offer.taken.iter().filter(|taken| taken.pod == Some(offers::pod(pod))) {
                found.insert(match &taken.share {
                    Some(share) => format!("{}.{share}", offer.device),
                    None => offer.device.clone(),
                });
            }
        }
        found
    }
}

fn answer(stream: UnixStream, node: &Mutex<Node>) {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    let mut node = node.lock().unwrap();
    if node.is_silent {
        drop(node);
        // Until the client goes.
        let _ = (&stream).read(&mut [0]);
        return;
    }
    node.longest = node.longest.max(line.len());
    let answer = match Request::parse(line.trim_end().as_bytes()) {
        _ if node.is_broken => Err(Error::failed("plan", "cannot be read")),
        _ if line.len() > MOST_BYTES => Err(Error::failed("request", "is too long")),
        Ok(Request::Offers(_)) => {
            node.looks += 1;
            Ok(json!(Offers {
                offers: node.offers.clone(),
                wrong_policy: node.wrong_policy.clone(),
                placement: node.placement,
                reserved: None,
            }))
        }
        Ok(Request::Reserve(request)) => {
            node.asked
                .push(format!("reserve {} {}", request.pod.name, request.devices.join(",")));
            node.reserve(&request.pod, &request.devices)
        }
        Ok(Request::GiveUp(request)) => {
            node.asked
                .push(format!("give up {} {}", request.pod.name, request.devices.join(",")));
            node.give_up(&request.pod, &request.devices);
            Ok(json!({}))
        }
        Ok(Request::Policy(request)) => node.policy(request.text),
        Ok(Request::DraDevices(_)) => Ok(json!(node.dra)),
        Ok(Request::PrepareClaim(request)) => node.prepare(request),
        Ok(Request::UnprepareClaim(request)) => {
            node.asked.push(format!("unprepare {}", request.uid));
            node.dra.claims.retain(|claim| claim.uid != request.uid);
            Ok(json!({}))
        }
        other => Err(Error::failed("request", format!("{other:?}"))),
    };
    let answer = match answer {
        Ok(ok) => json!({"version": 1, "ok": ok}),
        Err(error) => {
            let (object, what, hint) = parts(&error);
            json!({"version": 1, "error": {"kind": "failed", "object": object, "what": what, "hint": hint}})
        }
    };
    // The client may have gone.
    let _ = writeln!(&stream, "{answer}");
}

impl Node {
    fn offer(&mut self, id: &str) -> Option<(&mut Offer, Option<String>)> {
        let device = id.split('.').next()?;
        let mut offers = self.offers.iter_mut().filter(|offer| offer.device == device);
        let offer = offers.find(|offer| offer.has(id))?;
        let share = id.strip_prefix(offer.device.as_str())?.strip_prefix('.');
        let share = share.map(str::to_owned);
        Some((offer, share))
    }

    fn prepare(&mut self, request: PrepareClaimRequest) -> Result<Value> {
        let PrepareClaimRequest { claim, devices, .. } = &request;
        self.asked.push(format!("prepare {} {}", claim.uid, json!(devices)));
        if let Some(why) = &self.refusal {
            return Err(Error::failed("resource claim", why));
        }
        if let Some(held) = &self.held {
            // As the broker refuses one that does not ask again.
            if !request.waits {
                return Err(Error::failed("resource claim", held));
            }
            return Ok(json!(PreparedClaim {
                cdi: Vec::new(),
                held: Some(held.clone()),
                given: Vec::new(),
            }));
        }
        let mut cdi = Vec::new();
        for device in devices {
            let share = device.share_id.iter().map(|share| format!("-{share}"));
            let name = format!(
                "nvidia.com/claim={}-{}{}",
                claim.uid,
                device.device,
                share.collect::<String>()
            );
            cdi.push(name);
        }
        if let Some(judge) = &self.judge {
            self.given.extend(cdi.iter().cloned().zip(judge(devices)?));
        }
        if !self.dra.claims.contains(claim) {
            self.dra.claims.push(claim.clone());
        }
        let given = devices.iter().map(|device| {
            let limits = GivenDevice {
                uuid: Some(format!("GPU-of-{}", device.device)),
                strategy: if device.share_id.is_some() {
                    Strategy::Mps
                } else {
                    Strategy::Dedicated
                },
                share: device.share_id.clone(),
                memory: device.memory,
                compute: device.compute,
            };
            (!device.admin).then_some(limits)
        });
        let given = given.collect();
        Ok(json!(PreparedClaim { cdi, held: None, given }))
    }

    /// One that says `wrong` is refused.
    fn policy(&mut self, text: Option<String>) -> Result<Value> {
        if text.as_ref().is_some_and(|text| text.contains("wrong")) {
            return Err(Error::failed("the cluster's policy", "line 1: wrong"));
        }
        let changed = self.policy != text;
        self.policy = text;
        Ok(json!(PolicyAnswer {
            changed,
            warnings: Vec::new()
        }))
    }

    /// All of them, or none.
    fn reserve(&mut self, pod: &PodName, ids: &[String]) -> Result<Value> {
        for id in ids {
            let Some((offer, _)) = self.offer(id) else {
                return Err(Error::failed("device", format!("{id} is not offered")));
            };
            if let Some(other) = offer.taken(id).filter(|taken| taken.pod.as_ref() != Some(pod)) {
                return Err(Error::failed("device", format!("{id} is held by {}", other.by)));
            }
        }
        for id in ids {
            if let Some((offer, share)) = self.offer(id)
                && offer.taken(id).is_none()
            {
                let pod = pod.clone();
                let by = pod.to_string();
                offer.taken.push(Taken {
                    share,
                    pod: Some(pod),
                    by,
                });
            }
        }
        Ok(json!({}))
    }

    fn give_up(&mut self, pod: &PodName, ids: &[String]) {
        for id in ids {
            if let Some((offer, share)) = self.offer(id) {
                offer
                    .taken
                    .retain(|taken| taken.pod.as_ref() != Some(pod) || taken.share != share);
            }
        }
    }
}
