//! What the arguments ask for.

use crate::failure::Failure;

/// What a process does to the GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Finds how many iterations a request has.
    Calibrate,
    /// Serves requests at the times at which they are intended.
    Serve,
    /// Does requests one after another.
    Batch,
    /// Holds all SMs with long kernels.
    HogSm,
    /// Copies more than the L2 cache holds.
    HogDram,
    /// Copies as much as the L2 cache holds.
    HogL2,
    /// Copies between the host's memory and the device's.
    HogPcie,
    /// Allocates memory until CUDA refuses.
    Greedy,
    /// Makes a kernel fail.
    Fault,
    /// Looks which SMs its blocks get.
    Probe,
    /// Fills memory, and compares each byte of it later.
    Keep,
}

const ROLES: [(&[u8], Role); 11] = [
    (b"calibrate", Role::Calibrate),
    (b"serve", Role::Serve),
    (b"batch", Role::Batch),
    (b"hog-sm", Role::HogSm),
    (b"hog-dram", Role::HogDram),
    (b"hog-l2", Role::HogL2),
    (b"hog-pcie", Role::HogPcie),
    (b"greedy", Role::Greedy),
    (b"fault", Role::Fault),
    (b"probe", Role::Probe),
    (b"keep", Role::Keep),
];

impl Role {
    /// Whether its work is made of requests: a chain of calculations and a copy.
    pub(crate) fn has_requests(self) -> bool {
        matches!(self, Role::Calibrate | Role::Serve | Role::Batch)
    }

    /// Whether its work is made of copies between two blocks of the device's memory.
    pub(crate) fn copies(self) -> bool {
        self.has_requests() || matches!(self, Role::HogDram | Role::HogL2)
    }

    fn takes(self, option: &[u8]) -> bool {
        match option {
            b"--fma" => matches!(self, Role::Serve | Role::Batch),
            b"--bytes" => self.copies() || matches!(self, Role::HogPcie | Role::Keep),
            b"--kind" => self == Role::Fault,
            b"--target-us" => self == Role::Calibrate,
            _ => true,
        }
    }
}

/// How a kernel fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// By an instruction that does that.
    Trap,
    /// By an address that is nobody's.
    Address,
}

/// The arguments.
pub(crate) struct Options {
    pub(crate) role: Role,
    /// Iterations of the chain of a request.
    pub(crate) fma: u64,
    /// Bytes that a copy touches: half of them are read and half of them are written. `None` for the role's own number.
    pub(crate) bytes: Option<u64>,
    pub(crate) kind: Fault,
    /// How long a request takes alone, in microseconds.
    pub(crate) target_us: u64,
    /// Seconds after which the program ends whatever it does.
    pub(crate) deadline: Option<u32>,
}

/// What the arguments say.
pub(crate) enum Arguments {
    Help,
    Version,
    Run(Options),
}

/// The most bytes of a copy: more than any device has.
const MOST_BYTES: u64 = 1 << 40;
/// The most iterations: with more, a request takes minutes.
const MOST_FMA: u64 = 1 << 32;
/// The longest request, in microseconds: ten seconds.
const MOST_US: u64 = 10_000_000;

/// Reads the arguments after the name of the program.
///
/// # Errors
/// Returns the wrong argument, and what is wrong with it.
pub(crate) fn parse(mut arguments: impl Iterator<Item = &'static [u8]>) -> Result<Arguments, Failure> {
    let wrong = |argument, why| Failure::Argument { argument, why };
    let role = match arguments.next() {
        None => return Err(wrong(b"", "a role is missing")),
        Some(b"--help" | b"-h") => return Ok(Arguments::Help),
        Some(b"--version") => return Ok(Arguments::Version),
        Some(name) => ROLES.iter().find(|role| role.0 == name).map(|role| role.1).ok_or(name),
    };
    let role = role.map_err(|name| wrong(name, "not a role"))?;
    let mut options = Options {
        role,
        fma: 0,
        bytes: None,
        kind: Fault::Trap,
        target_us: 3000,
        deadline: None,
    };
    while let Some(option) = arguments.next() {
        if !role.takes(option) {
            return Err(wrong(option, "this role does not take it"));
        }
        let mut number = |least: u64, most: u64| {
            let text = arguments.next().ok_or(wrong(option, "a number is missing"))?;
            parse_number(text)
                .filter(|number| (least..=most).contains(number))
                .ok_or(wrong(text, "not a number that this option takes"))
        };
        match option {
            b"--fma" => options.fma = number(1, MOST_FMA)?,
            // Requests may have no copy.
            b"--bytes" => options.bytes = Some(number(if role.has_requests() { 0 } else { 4096 }, MOST_BYTES)?),
            b"--target-us" => options.target_us = number(1, MOST_US)?,
            b"--deadline" => options.deadline = u32::try_from(number(1, u64::from(u32::MAX))?).ok(),
            b"--kind" => {
                options.kind = match arguments.next() {
                    Some(b"trap") => Fault::Trap,
                    Some(b"address") => Fault::Address,
                    Some(other) => return Err(wrong(other, "not a kind of fault: trap or address")),
                    None => return Err(wrong(option, "a kind is missing: trap or address")),
                }
            }
            other => return Err(wrong(other, "not an option")),
        }
    }
    match role.takes(b"--fma") && options.fma == 0 {
        true => Err(wrong(b"--fma", "this role needs it; calibrate finds the number")),
        false => Ok(Arguments::Run(options)),
    }
}

/// A number in decimal digits.
pub(crate) fn parse_number(text: &[u8]) -> Option<u64> {
    let is_plain = text.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}
