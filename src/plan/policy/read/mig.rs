//! The section `mig`.

use crate::mig::Layout;
use crate::policy::Placed;
use tranche_core::error::{Error, Result, parts};

/// How the section divides GPUs: layouts in the form of `--layout`.
pub(super) fn layouts(file: &str, section: Vec<Placed<String>>) -> Result<Vec<Layout>> {
    let layout = |Placed { place, value }: Placed<String>| {
        value.parse().map_err(|error: Error| {
            let (object, what, hint) = parts(&error);
            let placed = Error::usage(place.of(file), format!("{object} {what}"));
            match hint {
                Some(hint) => placed.hint(hint),
                None => placed,
            }
        })
    };
    section.into_iter().map(layout).collect()
}

#[cfg(test)]
mod tests {
    use crate::policy::DeviceSet;
    use crate::policy::read::parse;

    #[test]
    fn layouts_have_the_form_of_the_command_line() {
        let text = "version: v1\nmig:\n  layout:\n  - 0:2x1g.5gb,3g.20gb@4\n  - 1:off\n  - all:empty\n";
        let read = parse("c.yaml", text).unwrap();
        assert_eq!(read.warnings, [""; 0]);
        let layouts: Vec<String> = read.policy.mig_layouts.iter().map(ToString::to_string).collect();
        assert_eq!(layouts, ["0:2x1g.5gb,3g.20gb@4", "1:off", "all:empty"]);
        for nothing in ["version: v1\n", "mig: {}\n", "mig: {layout: []}\n"] {
            assert_eq!(parse("c.yaml", nothing).unwrap().policy.mig_layouts, [], "{nothing}");
        }
    }

    #[test]
    fn instances_are_made_on_demand_where_the_policy_says_so() {
        let on_demand = |text: &str| parse("c.yaml", text).unwrap().policy.mig_on_demand;
        assert_eq!(on_demand("version: v1\n"), None);
        assert_eq!(on_demand("mig: {onDemand: {devices: all}}\n"), Some(DeviceSet::All));
        let Some(DeviceSet::List(list)) = on_demand("mig: {onDemand: {devices: [1, GPU-01234567]}}\n") else {
            panic!()
        };
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn mistakes_are_refused_with_their_place() {
        for (text, expected) in [
            ("{layout: [\"0:3g\"]}", "c.yaml:1:16: layout 0:3g "),
            (
                "{layout: [all]}",
                "c.yaml:1:16: layout all has no colon after the GPU; expected GPU:PROFILE",
            ),
            ("{layout: 0:off}", "c.yaml:1:15: layout: expected a list"),
            (
                "{layouts: []}",
                "c.yaml:1:7: \"layouts\" is unknown in mig; did you mean layout?",
            ),
        ] {
            let error = parse("c.yaml", &format!("mig: {text}\n")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}\n{error}");
        }
    }
}
