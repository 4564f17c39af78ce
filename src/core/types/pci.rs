//! PCI addresses.

use std::fmt;

/// The address of a PCI device: domain, bus, device, function.
///
/// It is written as in sysfs (`0000:41:00.0`). NVML's form, with eight digits of domain and capital letters
/// (`00000000:C1:00.0`), is read as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// 16 bits on most machines, 32 behind a VMD controller or on some hypervisors.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

super::parsed_type!(PciAddress, parse, "not a PCI address like 0000:41:00.0");

fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_hex = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok())?
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':')?;
    let address = PciAddress {
        domain: hex(domain, 4..=8)?,
        bus: hex(bus, 2..=2)?.try_into().ok()?,
        device: hex(device, 2..=2)?.try_into().ok()?,
        function: hex(function, 1..=1)?.try_into().ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

super::serde_as_text!(PciAddress);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one_address() {
        let nvml: PciAddress = "00000000:C1:00.0".parse().unwrap();
        assert_eq!(nvml.to_string(), "0000:c1:00.0");
        assert_eq!("0000:c1:00.0".parse::<PciAddress>().unwrap(), nvml);
        let wide: PciAddress = "00010000:01:00.0".parse().unwrap();
        assert_eq!(wide.to_string(), "10000:01:00.0");
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "41:00.0",
            "0000:41:00",
            "0000:41:20.0",
            "0000:41:00.8",
            "0000:+1:00.0",
            "../../:41:00.0",
        ] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }
}
