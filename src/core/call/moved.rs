//! The arguments of a hook with their paths moved.

use super::options::ValueKind;
use super::{options_of, verb_and_options};
use crate::types::Side;

/// The command line of a hook, with each path replaced by what `moved` gives for it. The value of an option is in the
/// argument of its option (`--node=/dev/x`) or in the next one.
///
/// Arguments of a hook or an option that is not known are taken for paths of the container, as NVIDIA's `nvidia-ctk cdi
/// transform root` takes all arguments: that is what hooks are about.
pub fn with_moved_paths(args: &[String], moved: impl Fn(Side, &str) -> String) -> Vec<String> {
    let known = verb_and_options(args).map_or(&[][..], |(program, verb, _)| options_of(program, verb));
    let value_of = |option: &str| {
        let found = known.iter().find(|(name, _)| *name == option);
        found.map_or(ValueKind::Container, |(_, value)| *value)
    };
    // What the next argument is.
    let mut next = None;
    let one = |arg: &String| {
        if let Some(value) = next.take() {
            return move_value(value, arg, &moved);
        }
        let Some(option) = arg.strip_prefix("--") else {
            return move_value(ValueKind::Container, arg, &moved);
        };
        match option.split_once('=') {
            Some((name, value)) => format!("--{name}={}", move_value(value_of(name), value, &moved)),
            None => {
                next = known
                    .iter()
                    .find(|(name, value)| *name == option && *value != ValueKind::Flag)
                    .map(|(_, value)| *value);
                arg.clone()
            }
        }
    };
    args.iter().map(one).collect()
}

fn move_value(kind: ValueKind, value: &str, moved: &impl Fn(Side, &str) -> String) -> String {
    match kind {
        ValueKind::Flag | ValueKind::Text => value.to_owned(),
        ValueKind::Host => moved(Side::Host, value),
        ValueKind::Container => {
            let parts: Vec<String> = value.split("::").map(|part| moved(Side::Container, part)).collect();
            parts.join("::")
        }
        ValueKind::Bound => {
            let (container, host) = value.split_once(':').unwrap_or((value, value));
            let (container, host) = (moved(Side::Container, container), moved(Side::Host, host));
            match container == host {
                true => container,
                false => format!("{container}:{host}"),
            }
        }
    }
}
