//! The section `sharing.turns` of a policy.

use super::entry::{Around, kind, read_name};
use super::sections::{TurnsEntry, TurnsSection};
use super::sharing::entries;
use crate::policy::{Access, Parts, Placed, Policy, Split, Strategy, TurnSettings};
use tranche_core::error::Result;
use tranche_core::types::Place;

/// Adds the devices of the section to `policy`, of which the rest is read already.
pub(super) fn read(
    around: Around<'_>,
    place: Place,
    section: TurnsSection,
    policy: &mut Policy,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if policy.access != Access::Enforce {
        // A restore into memory that a stranger has taken meanwhile fails for ever (cuda-checkpoint issue 44).
        let error = around.wrong(place, "sharing.turns: anybody can open the devices");
        return Err(error.hint("write access: enforce below sharing, and read `man tranche-system`"));
    }
    for entry in entries(around, place, "sharing.turns", section.resources)? {
        let split = read_entry(around, entry, section.assume_tested, warnings)?;
        policy.splits.push(split);
    }
    Ok(())
}

fn read_entry(
    around: Around<'_>,
    entry: Placed<TurnsEntry>,
    assume_tested: bool,
    warnings: &mut Vec<String>,
) -> Result<Split> {
    let Placed { place, value: entry } = entry;
    let (name, resource) = read_name(around, place, entry.name)?;
    let missing = |key: &str, hint: &str| {
        let error = around.wrong(place, format!("an entry of resources: {key} is missing"));
        error.hint(hint)
    };
    let settings = TurnSettings {
        holders: entry.holders.ok_or_else(|| missing("holders", "write holders: 4"))?,
        turn: entry.turn.unwrap_or(TurnSettings::TURN),
        idle: entry.idle.unwrap_or(TurnSettings::IDLE),
        host_memory: entry.host_memory.ok_or_else(|| {
            let hint = "write how much memory of the machine suspended work may have, like hostMemory: 64Gi";
            missing("hostMemory", hint)
        })?,
        assume_tested,
    };
    if let Some((key, what)) = settings.mistake() {
        return Err(around.wrong(place, format!("{key} is {what}")));
    }
    warnings.extend(
        settings
            .warning()
            .map(|warning| format!("{}: {warning}", place.of(around.file))),
    );
    let rename = entry.rename.filter(|rename| !rename.value.is_empty());
    Ok(Split {
        strategy: Strategy::Turns,
        resource,
        kind: kind(around, &name, rename.as_ref())?,
        devices: around.each_once(entry.devices)?,
        parts: Parts::Turns(settings),
        fail_requests_greater_than_one: around.fail_requests_greater_than_one,
        place,
    })
}

#[cfg(test)]
mod tests {
    use crate::policy::read::parse;
    use crate::policy::{Parts, Policy};

    fn read(access: &str, entry: &str) -> Result<(Policy, Vec<String>), String> {
        let text = format!(
            "version: v1\nsharing:\n  access: {access}\n  turns:\n    resources: [{{name: nvidia.com/gpu{entry}}}]\n"
        );
        match parse("c.yaml", &text) {
            Ok(read) => Ok((read.policy, read.warnings)),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn an_entry_has_defaults_and_says_which_key_is_wrong() {
        let (policy, warnings) = read("enforce", ", devices: [0, 1], holders: 4, hostMemory: 64Gi").unwrap();
        let Parts::Turns(settings) = &policy.splits[0].parts else {
            panic!()
        };
        assert_eq!(
            (settings.turn.to_string(), settings.idle.to_string()),
            ("15m".into(), "3m".into())
        );
        assert_eq!(settings.host_memory.mib(), 64 << 10);
        assert!(!settings.assume_tested && warnings.is_empty());
        let (_, warnings) = read("enforce", ", holders: 2, turn: 20s, idle: 5s, hostMemory: 1Gi").unwrap();
        assert!(warnings[0].contains("turn: 20s is short"), "{warnings:?}");
        for (access, entry, says) in [
            ("open", ", holders: 4, hostMemory: 64Gi", "anybody can open the devices"),
            ("enforce", ", hostMemory: 64Gi", "holders is missing"),
            ("enforce", ", holders: 4", "hostMemory is missing"),
            (
                "enforce",
                ", holders: 1, hostMemory: 64Gi",
                "holders is 1; write a number from 2 to 64",
            ),
            ("enforce", ", holders: 4, turn: 0s, hostMemory: 64Gi", "turn is 0s"),
            (
                "enforce",
                ", holders: 4, turn: 5m, idle: 6m, hostMemory: 64Gi",
                "idle is 6m; write a time from 1s to the turn, 5m",
            ),
            ("enforce", ", holders: 4, hostMemory: 64Gi, replicas: 2", "replicas"),
        ] {
            let error = read(access, entry).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
