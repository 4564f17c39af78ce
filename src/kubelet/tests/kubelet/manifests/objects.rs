//! The objects of a manifest.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// The objects of one file.
pub(super) struct Objects(Vec<Value>);

impl Objects {
    /// Those of `manifests/FILE.yaml`.
    pub(super) fn read(file: &str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubelet/manifests");
        let text = fs::read_to_string(dir.join(format!("{file}.yaml"))).unwrap();
        Self(serde_saphyr::from_multiple(&text).unwrap())
    }

    /// The classes of the chart with this `dra.driverName`, with the name of an extended resource or without it.
    pub(super) fn classes(driver: &str, is_extended: bool) -> Self {
        let Self(mut classes) = Self::read("classes");
        for class in &mut classes {
            let expression = &mut class["spec"]["selectors"][0]["cel"]["expression"];
            let of_driver = text(expression).replace(
                "device.driver == 'gpu.tranche.dev'",
                &format!("device.driver == '{driver}'"),
            );
            *expression = of_driver.into();
            if !is_extended {
                class["spec"]["extendedResourceName"] = Value::Null;
            }
        }
        Self(classes)
    }

    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// The specification of the object with this name.
    pub(super) fn spec(&self, kind: &str, name: &Value) -> &Value {
        let mut objects = self.of_kind(kind);
        let found = objects.find(|object| object["metadata"]["name"] == *name);
        &found.unwrap_or_else(|| panic!("{kind} {name} is not in the manifest"))["spec"]
    }

    /// The names and specifications of all pods, with those that the Deployments make.
    pub(super) fn pods(&self) -> Vec<(String, &Value)> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut pods: Vec<_> = self.of_kind("Pod").map(|pod| (name(pod), &pod["spec"])).collect();
        for deployment in self.of_kind("Deployment") {
            for replica in 0..deployment["spec"]["replicas"].as_u64().unwrap() {
                let pod = format!("{}-{replica}", name(deployment));
                pods.push((pod, &deployment["spec"]["template"]["spec"]));
            }
        }
        pods
    }
}

/// The elements of a list; none if it is not there.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The text of a field.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}
