//! How each request is made: by the programs that people and engines run, and by the socket as the kubelet's
//! programs do.

use crate::life::{Life, Pending};
use crate::machine::PARTS;
use crate::operation::{Act, What};
use crate::oracle::Holder;
use crate::request::{Answer, Request, Running, ask};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The name of the claim of a user who hangs up again and again.
const RESTLESS: u8 = 9;

/// How long such a user waits each time.
const BEFORE_HANGING_UP: Duration = Duration::from_millis(600);

impl Life<'_> {
    /// Begins to ask for something. Returns whether that means anything now.
    pub(crate) fn make(&mut self, act: &Act, row: &'static str) -> bool {
        let (holder, what, wait) = match *act {
            Act::Create { who, name, what, wait } => (Holder::Claim(who, name), what, wait),
            Act::Run { who, name, what, wait } => (Holder::Program(who, name), what, wait),
            Act::Start { who, name, what, .. } => (Holder::Container(who, name), what, 0),
            Act::Reserve { pod, what } => (Holder::Pod(pod), what, 0),
            Act::Prepare { claim, what } => (Holder::Resource(claim), what, 0),
            _ => return false,
        };
        let held = self.oracle.holds.get(&holder).copied();
        if self.is_pending(&holder) {
            return false;
        }
        // The kubelet asks again for what was allocated, and a process that runs is not started again.
        let what = match &holder {
            Holder::Pod(_) | Holder::Resource(_) => held.map_or(what, |held| held.what),
            Holder::Program(..) | Holder::Container(..) if held.is_some() => return false,
            // What somebody may have is asked for again, and nothing else under its name.
            Holder::Claim(..) => match held {
                Some(held) if !held.is_sure => held.what,
                _ => what,
            },
            _ => what,
        };
        let request = match &holder {
            Holder::Claim(who, name) => self.create(*who, *name, what, wait),
            Holder::Program(who, _) => self.run(*who, what, wait),
            Holder::Container(..) => {
                let elsewhere = matches!(act, Act::Start { elsewhere: true, .. });
                self.container(&holder, what, elsewhere)
            }
            Holder::Pod(pod) => self.reserve(*pod, what),
            Holder::Resource(claim) => self.prepare(*claim, what),
            Holder::OutOfService(_) => return false,
        };
        self.begin_make(row, holder, what, wait, request);
        true
    }

    fn create(&self, who: u32, name: u8, what: What, wait: u8) -> Request {
        let mut arguments = vec!["claim".to_owned(), "create".into(), format!("--name=c{name}")];
        match what {
            What::Shares(gpu, number) => {
                arguments.extend([format!("--device={gpu}"), format!("--shares={number}")]);
            }
            What::Whole(gpu) => arguments.push(format!("--device={gpu}")),
            What::Any => arguments.push("--device=any".to_owned()),
            What::Instance(profile) => arguments.push(format!("--mig={}", profile.name())),
        }
        self.waiting(who, arguments, wait)
    }

    fn waiting(&self, who: u32, mut arguments: Vec<String>, wait: u8) -> Request {
        if wait > 0 {
            arguments.push(format!("--wait={wait}s"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Request::program(&mut self.machine.command(who, &arguments), &self.machine.at("said"))
    }

    fn run(&self, who: u32, what: What, wait: u8) -> Request {
        let share = match what {
            What::Shares(gpu, _) => format!("--share={gpu}.any"),
            What::Whole(gpu) => format!("--share={gpu}"),
            What::Any => "--share=any".to_owned(),
            What::Instance(profile) => format!("--share=mig-{}.any", profile.name()),
        };
        let wait = format!("--wait={wait}s");
        let mut arguments = vec!["run", &share];
        if wait != "--wait=0s" {
            arguments.push(&wait);
        }
        arguments.extend(["--", "/bin/sh", "-c", "echo held $$; exec cat"]);
        Request::running(&mut self.machine.command(who, &arguments), &self.machine.at("said"))
    }

    /// A container whose engine runs the hook of the specification.
    fn container(&mut self, holder: &Holder, what: What, elsewhere: bool) -> Request {
        let Holder::Container(who, name) = *holder else {
            unreachable!("a container")
        };
        let mut init = self.machine.program(who, Path::new("/bin/sleep"), &["1000"]);
        let init = init.stdout(Stdio::null()).spawn().unwrap();
        let pid = init.id();
        self.runs(holder.clone(), Running::Init(init));
        // setpriv changes its user before it becomes sleep.
        let comm = format!("/proc/{pid}/comm");
        crate::support::until("it is sleep", || {
            std::fs::read_to_string(&comm).unwrap().trim_end() == "sleep"
        });
        let mut arguments = vec!["hook".to_owned(), "claim".to_owned()];
        let gpu = match what {
            What::Shares(gpu, _) => {
                arguments.extend([
                    "--share=any".to_owned(),
                    format!("--size=1/{PARTS}"),
                    format!("--of={PARTS}"),
                ]);
                gpu
            }
            What::Whole(gpu) => {
                arguments.push("--whole".to_owned());
                gpu
            }
            _ => unreachable!("a container asks by name"),
        };
        arguments.extend([
            format!("--label=gpu {gpu}"),
            format!("--device={}", self.machine.key(gpu)),
        ]);
        arguments.push(format!("--state-dir={}", self.machine.at("state").display()));
        let id = format!("k{who}-{name}");
        let state = json!({"ociVersion": "1.0.2", "id": id, "status": "creating", "pid": pid,
            "bundle": self.machine.at(&id), "annotations": {}});
        let file = self.machine.at("said").join(format!("{id}.state"));
        std::fs::write(&file, state.to_string()).unwrap();
        let hook = self.machine.at("tranche-oci");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = match elsewhere {
            // As seen by a clock that is another one: the time since boot of a container differs.
            true => {
                let mut all = vec!["--time", "--boottime", "100000", "--fork", hook.to_str().unwrap()];
                all.extend(arguments);
                self.machine.program(who, Path::new("/usr/bin/unshare"), &all)
            }
            false => self.machine.program(who, &hook, &arguments),
        };
        command.stdin(File::open(file).unwrap());
        Request::program(&mut command, &self.machine.at("said"))
    }

    /// As the device plugin asks, for parts that are free by what it was offered.
    fn reserve(&self, pod: u8, what: What) -> Request {
        let socket = self.machine.at("state/broker.sock");
        let allocated = Arc::clone(&self.allocated);
        let (gpu, number) = parts(what);
        let key = self.machine.key(gpu).to_owned();
        Request::ask(move || {
            let choose = |_: &[String]| free_parts(&socket, &key, number);
            let ids = match allocate(&allocated, &Holder::Pod(pod), choose) {
                Ok(ids) => ids,
                Err(answer) => return answer,
            };
            let pod = json!({"namespace": "shop", "name": format!("p{pod}")});
            ask(&socket, "reserve", json!({"pod": pod, "devices": ids}))
        })
    }

    /// As the driver of resource claims asks, for an instance that a scheduler would choose.
    fn prepare(&self, claim: u8, what: What) -> Request {
        let socket = self.machine.at("state/broker.sock");
        let allocated = Arc::clone(&self.allocated);
        Request::ask(move || {
            let choose = |others: &[String]| match what {
                What::Instance(profile) => room_for(&socket, profile.name(), others).map(|name| vec![name]),
                what => Ok(vec![format!("gpu-{}", parts(what).0)]),
            };
            let names = match allocate(&allocated, &Holder::Resource(claim), choose) {
                Ok(names) => names,
                Err(answer) => return answer,
            };
            let devices = match what {
                What::Instance(_) => json!([{"device": names[0]}]),
                what => json!([{"device": names[0], "share_id": format!("s{claim}"), "shares": parts(what).1}]),
            };
            let object = json!({"namespace": "lab", "name": format!("t{claim}"), "uid": uid(claim)});
            let request = json!({"claim": object, "devices": devices, "asked_at": u64::MAX});
            ask(&socket, "prepare-claim", request)
        })
    }

    /// Forgets what was allocated to a pod or a resource claim.
    pub(crate) fn forget_allocation(&self, holder: &Holder) {
        self.allocated.lock().unwrap().remove(holder);
    }

    /// Begins to give something back. Returns whether that means anything now.
    pub(crate) fn release(&mut self, act: &Act, row: &'static str) -> bool {
        let holder = match *act {
            Act::Release { who, name } => Holder::Claim(who, name),
            Act::GiveUp { pod } => Holder::Pod(pod),
            Act::Unprepare { claim } => Holder::Resource(claim),
            _ => return false,
        };
        if self.is_pending(&holder) {
            return false;
        }
        let socket = self.machine.at("state/broker.sock");
        let request = match holder {
            Holder::Pod(pod) => {
                let Some(ids) = self.allocated.lock().unwrap().get(&holder).cloned() else {
                    return false;
                };
                Request::ask(move || {
                    let pod = json!({"namespace": "shop", "name": format!("p{pod}")});
                    ask(&socket, "give-up", json!({"pod": pod, "devices": ids}))
                })
            }
            Holder::Resource(claim) => {
                Request::ask(move || ask(&socket, "unprepare-claim", json!({"uid": uid(claim)})))
            }
            Holder::Claim(who, name) => {
                let name = format!("c{name}");
                Request::program(
                    &mut self.machine.command(who, &["claim", "release", &name]),
                    &self.machine.at("said"),
                )
            }
            _ => return false,
        };
        let what = self.oracle.holds.get(&holder).map_or(What::Any, |hold| hold.what);
        self.begin_release(row, holder, what, request);
        true
    }

    /// A user who hangs up again and again: what is kept free for each of these requests may be no more than for one.
    pub(crate) fn rejoin(&mut self, who: u32, what: What, times: u8, row: &'static str) -> bool {
        let holder = Holder::Claim(who, RESTLESS);
        if self.is_pending(&holder) || self.oracle.holds.contains_key(&holder) || !self.is_well() {
            return false;
        }
        let request = self.create(who, RESTLESS, what, 60);
        self.begin_make(row, holder.clone(), what, 60, request);
        self.restless.insert(holder, (what, times));
        true
    }

    /// Those hang up who have waited for a moment, and wait again.
    pub(crate) fn hang_up_and_wait_again(&mut self) {
        let due = |pending: &Pending| {
            let restless = self.restless.contains_key(&pending.holder);
            restless && pending.began.elapsed() > BEFORE_HANGING_UP
        };
        let Some(place) = self.pending.iter().position(due) else {
            return;
        };
        let (holder, row) = (self.pending[place].holder.clone(), self.pending[place].row);
        let Some((what, left)) = self.restless.get(&holder).copied() else {
            return;
        };
        self.kill_pending(place);
        if left == 0 || !self.is_well() {
            self.restless.remove(&holder);
            return;
        }
        self.restless.insert(holder.clone(), (what, left - 1));
        let request = self.create(holder.who(), RESTLESS, what, 60);
        self.begin_make(row, holder, what, 60, request);
    }
}

/// What Kubernetes has allocated: to each pod the parts, and to each resource claim the device. It knows that
/// before it asks the broker, and asks again for the same.
pub(crate) type Allocated = Arc<Mutex<BTreeMap<Holder, Vec<String>>>>;

/// What is allocated to `holder`: as before, or chosen beside what resource claims have.
fn allocate(
    allocated: &Allocated,
    holder: &Holder,
    choose: impl FnOnce(&[String]) -> Result<Vec<String>, Answer>,
) -> Result<Vec<String>, Answer> {
    let mut allocated = allocated.lock().unwrap();
    if let Some(before) = allocated.get(holder) {
        return Ok(before.clone());
    }
    let others: Vec<String> = allocated.values().flatten().cloned().collect();
    let chosen = choose(&others)?;
    allocated.insert(holder.clone(), chosen.clone());
    Ok(chosen)
}

fn parts(what: What) -> (u8, u8) {
    match what {
        What::Shares(gpu, number) => (gpu, number),
        What::Whole(gpu) => (gpu, 0),
        _ => unreachable!("Kubernetes asks by device"),
    }
}

/// The UID of a resource claim.
fn uid(claim: u8) -> String {
    format!("aaaaaaaa-0000-4000-8000-00000000000{claim}")
}

/// Parts of a device that the kubelet would allocate: nobody has them.
fn free_parts(socket: &Path, key: &str, number: u8) -> Result<Vec<String>, Answer> {
    let offers = match ask(socket, "offers", json!({})) {
        Answer::Done(offers) => serde_json::from_str::<Value>(&offers).unwrap(),
        other => return Err(other),
    };
    let nothing = || Answer::Refused("the kubelet has nothing to allocate: held".to_owned());
    let all = offers["offers"].as_array().unwrap();
    let offer = all.iter().find(|offer| offer["device"] == key).ok_or_else(nothing)?;
    let taken = offer["taken"].as_array().cloned().unwrap_or_default();
    if number == 0 {
        return if taken.is_empty() {
            Ok(vec![key.to_owned()])
        } else {
            Err(nothing())
        };
    }
    let is_free = |share: &u8| {
        !taken
            .iter()
            .any(|taken| taken["share"].as_str() == Some(&share.to_string()))
    };
    let free = (0..PARTS).filter(is_free).take(number.into());
    let free: Vec<String> = free.map(|share| format!("{key}.{share}")).collect();
    if free.len() < usize::from(number) {
        Err(nothing())
    } else {
        Ok(free)
    }
}

/// An instance of this profile for which nobody else leaves no room, and no other claim: that is for the scheduler
/// to count.
fn room_for(socket: &Path, profile: &str, allocated: &[String]) -> Result<String, Answer> {
    let devices = match ask(socket, "dra-devices", json!({})) {
        Answer::Done(devices) => serde_json::from_str::<Value>(&devices).unwrap(),
        other => return Err(other),
    };
    let divided = devices["divided"].as_array().cloned().unwrap_or_default();
    let instances = divided
        .iter()
        .flat_map(|gpu| gpu["instances"].as_array().cloned().unwrap_or_default());
    let instances: Vec<Value> = instances.collect();
    let is_allocated = |one: &&Value| allocated.iter().any(|name| one["name"] == name.as_str());
    let taken: Vec<String> = instances.iter().filter(is_allocated).flat_map(units).collect();
    let has_room = |one: &&Value| one["held_by"].is_null() && !units(one).iter().any(|unit| taken.contains(unit));
    let one = instances.iter().find(|one| one["profile"] == profile && has_room(one));
    let name = one.and_then(|one| one["name"].as_str().map(str::to_owned));
    name.ok_or_else(|| Answer::Refused("the scheduler finds no room: held".to_owned()))
}

/// The units of the GPU's memory that an instance takes.
fn units(one: &Value) -> Vec<String> {
    let all = one["consumes"].as_object().into_iter().flatten();
    all.map(|(name, _)| name.clone())
        .filter(|name| name.starts_with("memory-unit"))
        .collect()
}
