//! A part of a device in the calendar's file: its shares, each with its name and its size.

use crate::types::{HeldPart, HeldShare, Promise};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn whole() -> HeldPart {
    HeldPart::Whole
}

pub(super) fn is_whole(part: &HeldPart) -> bool {
    *part == HeldPart::Whole
}

pub(super) fn serialize<S: Serializer>(part: &HeldPart, serializer: S) -> Result<S::Ok, S::Error> {
    let shares = part.shares().iter();
    let shares: Vec<_> = shares
        .map(|share| (share.name.clone(), share.promise.to_string()))
        .collect();
    shares.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HeldPart, D::Error> {
    let shares: Vec<(_, String)> = Vec::deserialize(from)?;
    let share = |(name, promise): (_, String)| -> Result<HeldShare, D::Error> {
        let promise: Promise = promise.parse().map_err(D::Error::custom)?;
        Ok(HeldShare { name, promise })
    };
    match shares.is_empty() {
        true => Err(D::Error::custom("no share")),
        false => shares
            .into_iter()
            .map(share)
            .collect::<Result<_, _>>()
            .map(HeldPart::Shares),
    }
}
