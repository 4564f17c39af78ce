//! The value of `--link`: `TARGET::PATH`.

use super::options::{cut, each, wrong};
use crate::error::Result;
use crate::types::{ContainerPath, Link};
use std::collections::BTreeMap;

/// Whether `--link` can carry `link`: the mark between target and path must be found again.
pub(super) fn can_be_written(link: &Link) -> bool {
    let Link { path, target } = link;
    !target.is_empty() && cut(target).is_none() && !target.ends_with(':') && cut(path.as_str()).is_none()
}

/// The arguments that ask for `links`. A link that cannot be written is left out.
pub(super) fn write(links: &[Link]) -> Vec<String> {
    let links = links.iter().filter(|link| can_be_written(link));
    each("link", links.map(|link| format!("{}::{}", link.target, link.path))).collect()
}

/// Adds the link that `value` asks for.
///
/// # Errors
/// Returns a usage error for a value that is not of the form `TARGET::PATH`.
pub(super) fn take(links: &mut Vec<Link>, value: &str) -> Result<()> {
    let link = cut(value).and_then(|(target, path)| {
        Some(Link {
            target: target.to_owned(),
            path: container_path(path)?,
        })
    });
    let what = "is not TARGET::PATH with an absolute path in normal form";
    links.push(link.filter(can_be_written).ok_or_else(|| wrong("link", value, what))?);
    Ok(())
}

/// A path of the container that is written in normal form: absolute, without `.`, `..` and doubled slashes. Not the
/// root.
pub(super) fn container_path(text: &str) -> Option<ContainerPath> {
    let path = ContainerPath::new(text).ok()?;
    (path.as_str() == text && !path.file_name().is_empty()).then_some(path)
}

/// `links` without repetitions.
///
/// # Errors
/// Returns a usage error if two links have the same path and different targets.
pub(super) fn unique(mut links: Vec<Link>) -> Result<Vec<Link>> {
    let mut targets: BTreeMap<&str, &str> = BTreeMap::new();
    let mut is_new = Vec::with_capacity(links.len());
    for link in &links {
        let first = targets.insert(link.path.as_str(), &link.target);
        if let Some(first) = first.filter(|first| *first != link.target) {
            let value = format!("{}::{}", link.target, link.path);
            return Err(wrong("link", &value, format!("already a link to {first}")));
        }
        is_new.push(first.is_none());
    }
    let mut is_new = is_new.into_iter();
    links.retain(|_| is_new.next() != Some(false));
    Ok(links)
}
