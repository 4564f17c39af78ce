//! What the controllers and the scheduler make of a pod: its claims, and what each of them gets.

use super::objects::{Objects, list, text};
use super::selectors::select;
use crate::dra::allocator::{Allocator, Got, Request};
use crate::fake_api::NODE;
use k8s_openapi::api::resource::v1::Device;
use serde_json::{Value, json};

/// A cluster with one node.
pub(super) struct Scheduler<'a> {
    pub(super) driver: &'a str,
    /// The classes of the chart.
    pub(super) classes: &'a Objects,
    pub(super) manifest: &'a Objects,
    pub(super) allocator: Allocator,
    /// How many parts of shared devices it has given.
    pub(super) shares: usize,
}

/// A claim of a pod.
pub(super) struct PodClaim {
    /// Its own name.
    pub(super) name: String,
    /// The containers that use all of it or a request of it, by their names.
    pub(super) users: Vec<(String, Option<String>)>,
    spec: Value,
}

impl Scheduler<'_> {
    /// The claims of a pod: those of templates, those with names of their own, and the one for extended resources.
    pub(super) fn claims(&self, pod: &str, spec: &Value) -> Vec<PodClaim> {
        let mut claims = Vec::new();
        for claim in list(&spec["resourceClaims"]) {
            let local = text(&claim["name"]);
            let (name, of) = match &claim["resourceClaimName"] {
                Value::Null => {
                    let template = self
                        .manifest
                        .spec("ResourceClaimTemplate", &claim["resourceClaimTemplateName"]);
                    (format!("{pod}-{local}"), &template["spec"])
                }
                name => (text(name).to_owned(), self.manifest.spec("ResourceClaim", name)),
            };
            claims.push(PodClaim {
                name,
                users: users(spec, local),
                spec: of.clone(),
            });
        }
        claims.extend(self.extended(pod, spec));
        claims
    }

    /// The claim that the scheduler makes for the extended resources of a pod (KEP-5004). A name that no class has is
    /// one of a device plugin: the claim has a class that does not exist, and the pod waits as it would for the
    /// plugin.
    fn extended(&self, pod: &str, spec: &Value) -> Option<PodClaim> {
        let (mut users, mut requests) = (Vec::new(), Vec::new());
        for (number, container) in list(&spec["containers"]).iter().enumerate() {
            let limits = container["resources"]["limits"].as_object().into_iter().flatten();
            for (place, (resource, count)) in limits.enumerate() {
                let mut classes = self.classes();
                let class = classes.find(|class| class["spec"]["extendedResourceName"] == resource.as_str());
                let class = class.map_or(Value::Null, |class| class["metadata"]["name"].clone());
                let name = format!("container-{number}-request-{place}");
                users.push((text(&container["name"]).to_owned(), Some(name.clone())));
                requests.push(json!({"name": name, "exactly": {"deviceClassName": class, "count": count}}));
            }
        }
        (!requests.is_empty()).then(|| PodClaim {
            name: format!("{pod}-extended-resources"),
            users,
            spec: json!({"devices": {"requests": requests}}),
        })
    }

    /// The classes of the manifest and of the chart.
    fn classes(&self) -> impl Iterator<Item = &Value> {
        let own = self.manifest.of_kind("DeviceClass");
        own.chain(self.classes.of_kind("DeviceClass"))
    }

    /// The results and the configurations of a claim; `None` if it has to wait.
    pub(super) fn allocate(&mut self, claim: &PodClaim) -> Option<Value> {
        let devices = &claim.spec["devices"];
        let requests: Vec<(&str, &Value, Value)> = list(&devices["requests"])
            .iter()
            .map(|request| self.request(request))
            .collect::<Option<_>>()?;
        let driver = self.driver.to_owned();
        let selectors: Vec<_> = requests
            .iter()
            .map(|(_, exactly, class)| {
                |device: &Device| select(class, &driver, device) && select(exactly, &driver, device)
            })
            .collect();
        let asked = requests.iter().zip(&selectors).map(|((_, exactly, _), selector)| {
            let capacity = exactly["capacity"]["requests"].as_object().into_iter().flatten();
            Request {
                count: exactly["count"].as_u64().unwrap_or(1).try_into().unwrap(),
                capacity: capacity.map(|(name, amount)| (name.as_str(), text(amount))).collect(),
                selector,
            }
        });
        let asked: Vec<Request<'_>> = asked.collect();
        let constraints = list(&devices["constraints"]);
        assert!(constraints.len() < 2 && constraints.iter().all(|one| list(&one["requests"]).is_empty()));
        let matching = constraints.first().map(|one| text(&one["matchAttribute"]));
        let got = self.allocator.allocate_all(&asked, matching)?;
        let of_class = requests.iter().flat_map(|(name, _, class)| {
            let config = list(&class["config"]).iter();
            config.map(move |config| json!({"source": "FromClass", "requests": [name], "opaque": config["opaque"]}))
        });
        let of_claim = list(&devices["config"])
            .iter()
            .map(|config| json!({"source": "FromClaim", "requests": config["requests"], "opaque": config["opaque"]}));
        let config: Vec<Value> = of_class.chain(of_claim).collect();
        let results: Vec<Value> = got
            .iter()
            .map(|got| self.result(requests[got.request].0, got))
            .collect();
        Some(json!({"results": results, "config": config}))
    }

    /// The name of a request, what it asks for, and its class; `None` if the class does not exist.
    fn request<'r>(&self, request: &'r Value) -> Option<(&'r str, &'r Value, Value)> {
        // `v1beta1` has no alternatives, and no word between.
        let exactly = request.get("exactly").unwrap_or(request);
        let mut classes = self.classes();
        let class = classes.find(|class| class["metadata"]["name"] == exactly["deviceClassName"])?;
        Some((text(&request["name"]), exactly, class["spec"].clone()))
    }

    fn result(&mut self, request: &str, got: &Got) -> Value {
        let mut result = json!({"request": request, "driver": self.driver, "pool": NODE, "device": got.device});
        if let Some(consumed) = &got.consumed {
            self.shares += 1;
            let amounts = consumed
                .iter()
                .map(|(name, amount)| (name.clone(), json!(amount.to_string())));
            result["shareID"] = json!(format!("5f3c2b1a-0000-4000-8000-{:012}", self.shares));
            result["consumedCapacity"] = amounts.collect();
        }
        result
    }
}

/// The containers that use the claim `local`.
fn users(spec: &Value, local: &str) -> Vec<(String, Option<String>)> {
    let mut users = Vec::new();
    for container in list(&spec["containers"]) {
        let claims = list(&container["resources"]["claims"]).iter();
        for claim in claims.filter(|claim| claim["name"] == local) {
            let request = claim["request"].as_str().map(str::to_owned);
            users.push((text(&container["name"]).to_owned(), request));
        }
    }
    users
}
