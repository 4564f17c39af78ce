//! The selectors of classes and requests, as the scheduler evaluates them
//! (`dynamic-resource-allocation/cel/compile.go`).

use super::objects::{list, text};
use cel::{Context, Env, Value as CelValue, extensions};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Whether all selectors of `spec`, a class or a request, have `device` of `driver`. An error of an expression stops
/// the scheduler, so it fails the test.
pub(super) fn select(spec: &Value, driver: &str, device: &Device) -> bool {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings).unwrap();
    let env = Arc::new(env);
    list(&spec["selectors"]).iter().all(|selector| {
        let expression = text(&selector["cel"]["expression"]);
        let program = env.compile(expression).unwrap_or_else(|e| panic!("{expression}: {e}"));
        let mut context = Context::with_env(env.clone());
        context.add_variable_from_value("device", variable(driver, device));
        match program.execute(&context) {
            Ok(CelValue::Bool(is_selected)) => is_selected,
            other => panic!("{}: {expression}: {other:?}", device.name),
        }
    })
}

/// The variable `device`: a domain without attributes is an empty map, and a name without a domain is of the driver's.
fn variable(driver: &str, device: &Device) -> HashMap<String, CelValue> {
    let empty = |domain: &str| (domain.to_owned(), HashMap::new());
    let mut domains: HashMap<String, HashMap<String, CelValue>> =
        ["gpu.nvidia.com", "gpu.tranche.dev"].map(empty).into();
    for (name, attribute) in device.attributes.iter().flatten() {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        let domain = domains.entry(domain.to_owned()).or_default();
        domain.insert(name.to_owned(), value(attribute));
    }
    let shared = device.allow_multiple_allocations == Some(true);
    HashMap::from([
        ("driver".to_owned(), driver.into()),
        ("allowMultipleAllocations".to_owned(), shared.into()),
        ("attributes".to_owned(), domains.into()),
    ])
}

/// A version is a text here: no selector of these manifests compares one.
fn value(attribute: &DeviceAttribute) -> CelValue {
    let text = attribute.string.as_ref().or(attribute.version.as_ref());
    match (attribute.int, attribute.bool) {
        (Some(int), _) => int.into(),
        (_, Some(bool)) => bool.into(),
        _ => text.unwrap().as_str().into(),
    }
}
