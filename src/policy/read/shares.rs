//! Shares of unequal size, each with a name.

use super::entry::{Around, MOST_PARTS};
use super::field::Fields;
use crate::error::Result;
use crate::policy::yaml::Node;
use crate::policy::{Amount, Priority, ShareAsk, Strategy};
use crate::types::{MemorySize, Percent, ShareName};

/// Names that no share may have: `0.any` is any replica, and `all` and `none` are devices.
const RESERVED: [&str; 3] = [ShareName::ANY, "all", "none"];

pub(super) fn read_shares(
    around: Around<'_>,
    fields: &Fields<'_>,
    node: &Node,
    items: &[Node],
    warnings: &mut Vec<String>,
) -> Result<Vec<ShareAsk>> {
    if items.is_empty() {
        return Err(fields
            .wrong(node.place, "shares is empty")
            .hint("write at least one, like {name: big, compute: 80%}"));
    }
    if items.len() > MOST_PARTS as usize {
        return Err(fields
            .wrong(node.place, format!("shares: {} are too many", items.len()))
            .hint(format!("a device is split into at most {MOST_PARTS}")));
    }
    let mut shares: Vec<ShareAsk> = Vec::with_capacity(items.len());
    for item in items {
        let mut share = Fields::of(around.file, "a share", item)?;
        let name = share.parsed::<ShareName>("name")?;
        let compute = share.parsed::<Percent>("compute")?;
        let memory = read_memory(&mut share)?;
        let words = [("normal", Priority::Normal), ("below-normal", Priority::BelowNormal)];
        let priority = share.word("priority", &words)?;
        share.finish()?;
        let Some(name) = name else {
            return Err(share.wrong_as_a_whole("name is missing").hint("write name: big"));
        };
        if name.value.number().is_some() {
            // 0.3 is replica 3 of a device in equal parts: a name must not look like one.
            return Err(share
                .wrong(name.place, format!("name: \"{}\" is a number", name.value))
                .hint("put a letter into the name of a share"));
        }
        if RESERVED
            .iter()
            .any(|word| name.value.as_str().eq_ignore_ascii_case(word))
        {
            return Err(share
                .wrong(
                    name.place,
                    format!("name: \"{}\" has a meaning of its own in device names", name.value),
                )
                .hint("choose another name"));
        }
        if shares.iter().any(|s| s.name == name.value) {
            return Err(share
                .wrong(name.place, format!("name: there are two shares called {}", name.value))
                .hint("choose another name for one of them"));
        }
        if around.strategy == Strategy::TimeSlicing && priority.is_some() {
            warnings.push(format!(
                "{}: share {}: priority has a meaning under MPS only, and is ignored under time-slicing",
                item.place.of(around.file),
                name.value
            ));
        }
        shares.push(ShareAsk {
            place: item.place,
            name: name.value,
            compute: compute.map(|c| c.value),
            memory,
            priority: priority.unwrap_or_default(),
        });
    }
    Ok(shares)
}

fn read_memory(share: &mut Fields<'_>) -> Result<Option<Amount>> {
    let Some(text) = share.text("memory")? else {
        return Ok(None);
    };
    let wrong = |e| share.wrong(text.place, format!("memory: {e}"));
    if text.value.ends_with('%') {
        return Ok(Some(Amount::Percent(text.value.parse().map_err(wrong)?)));
    }
    let size: MemorySize = text.value.parse().map_err(wrong)?;
    if size.mib() == 0 {
        let what = if text.value.bytes().all(|b| b.is_ascii_digit()) {
            format!(
                "memory: {} has no unit, so it is in bytes, which is less than 1 MiB",
                text.value
            )
        } else {
            format!("memory: {} is less than 1 MiB", text.value)
        };
        return Err(share
            .wrong(text.place, what)
            .hint("write a size like 7000Mi or 7Gi, or a percentage like 30%"));
    }
    Ok(Some(Amount::Size(size)))
}
