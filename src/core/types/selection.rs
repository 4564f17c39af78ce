//! Conditions on a device that is not named: `memory>=40Gi,product=A100`.

use super::MemorySize;
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Conditions on a device. All of them must hold; without conditions, every device will do.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// The device has at least this much memory in all.
    pub memory: Option<MemorySize>,
    /// The device's product name contains this text, in any letter case.
    pub product: Option<String>,
}

impl Selection {
    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the conditions hold for a device with this product name and this memory. A device whose memory is not
    /// known does not have any amount of it.
    pub fn matches(&self, product: &str, memory: Option<MemorySize>) -> bool {
        let has_memory = |least: MemorySize| memory.is_some_and(|memory| memory >= least);
        let is_product = |part: &String| product.to_lowercase().contains(&part.to_lowercase());
        self.memory.is_none_or(has_memory) && self.product.as_ref().is_none_or(is_product)
    }
}

impl FromStr for Selection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |condition: &str, what: &str| {
            Error::usage(format!("selection \"{condition}\""), what)
                .hint("expected conditions like memory>=40Gi,product=A100")
        };
        let mut selection = Self::default();
        for condition in text.split(',').map(str::trim) {
            if let Some(size) = condition.strip_prefix("memory>=") {
                let size = size.trim().parse::<MemorySize>();
                let size = size.map_err(|error| wrong(condition, "is invalid").from_source(error))?;
                if selection.memory.replace(size).is_some() {
                    return Err(wrong(condition, "is the second condition on the memory"));
                }
            } else if let Some(product) = condition.strip_prefix("product=") {
                let product = product.trim();
                if product.is_empty() || product.chars().any(char::is_control) {
                    return Err(wrong(condition, "has no name of a product"));
                }
                if selection.product.replace(product.to_owned()).is_some() {
                    return Err(wrong(condition, "is the second condition on the product"));
                }
            } else {
                return Err(wrong(condition, "is not a condition on a device"));
            }
        }
        Ok(selection)
    }
}

impl fmt::Display for Selection {
    /// Writes the conditions so that the same ones are read: a size of memory is not rounded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |bytes: u64| match (bytes % (1 << 30), bytes % (1 << 20)) {
            (0, _) => format!("{}Gi", bytes >> 30),
            (_, 0) => format!("{}Mi", bytes >> 20),
            _ => bytes.to_string(),
        };
        let memory = self.memory.map(|size| format!("memory>={}", exact(size.bytes())));
        let product = self.product.as_ref().map(|product| format!("product={product}"));
        let conditions: Vec<String> = [memory, product].into_iter().flatten().collect();
        f.pad(&conditions.join(","))
    }
}

super::serde_as_text!(Selection);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_written_as_they_are_read() {
        for text in [
            "memory>=40Gi",
            "memory>=100Mi",
            "memory>=1000001",
            "product=A100",
            "memory>=40Gi,product=RTX PRO 6000",
        ] {
            let read: Selection = text.parse().unwrap();
            assert!(!read.is_empty());
            assert_eq!(read.to_string(), text);
        }
        let read: Selection = "product=a100,memory>=40Gi".parse().unwrap();
        assert_eq!(read.memory, Some(MemorySize::from_mib(40 * 1024)));
        assert_eq!(read.product.as_deref(), Some("a100"));
    }

    #[test]
    fn what_is_not_a_condition_is_refused_by_name() {
        for (text, what) in [
            ("", "selection \"\": is not a condition"),
            ("memory>40Gi", "selection \"memory>40Gi\": is not a condition"),
            ("memory>=", "selection \"memory>=\": is invalid"),
            ("memory>=40Gi,memory>=50Gi", "is the second condition on the memory"),
            ("product=", "has no name of a product"),
            ("product=A100,", "selection \"\": is not a condition"),
            ("product=A,product=B", "is the second condition on the product"),
        ] {
            let line = crate::error::line(&text.parse::<Selection>().unwrap_err());
            assert!(line.contains(what), "{text}: {line}");
        }
    }

    #[test]
    fn every_condition_must_hold() {
        let gib = |gib: u64| Some(MemorySize::from_mib(gib * 1024));
        let product = "NVIDIA A100-SXM4-40GB";
        let matches = |text: &str, memory| text.parse::<Selection>().unwrap().matches(product, memory);
        assert!(Selection::default().matches(product, None));
        assert!(matches("memory>=40Gi", gib(40)) && !matches("memory>=40Gi", gib(39)));
        assert!(!matches("memory>=40Gi", None));
        assert!(matches("product=a100", None) && !matches("product=H100", None));
        assert!(!matches("product=a100,memory>=80Gi", gib(40)));
    }
}
