//! What a container requires of the host: `NVIDIA_REQUIRE_*`.
//!
//! The language is that of NVIDIA's tools (libnvidia-container, `src/cli/dsl.c`; nvidia-container-toolkit,
//! `internal/requirements`). Conditions that are separated by spaces are alternatives, and conditions that are
//! separated by commas must all hold: `cuda>=12.4 brand=tesla,driver>=470,driver<471`.
//!
//! NVIDIA's two tools differ in one point: a property that is unknown, such as `gpu`, is an error in the one and
//! skipped in the other. It is skipped here. In both, a condition on a property that is unknown of the host holds.

use std::cmp::Ordering;
use std::fmt;

use tranche_core::error::{Error, Result};
use tranche_core::types::{ComputeCapability, CudaVersion, DriverVersion};

/// What one variable requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The variable, for messages.
    pub variable: String,
    /// What it requires, in the language of NVIDIA's tools: the variable's value, or what its value stands for.
    pub text: String,
    /// Of these, at least one must hold. Empty if nothing is required that can be checked.
    alternatives: Vec<Alternative>,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Alternative {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    /// A version, compared number by number.
    Version(VersionProperty, Operator, Vec<u64>),
    /// The brand is this one, or is not; in lower case.
    Brand { is: bool, brand: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionProperty {
    Cuda,
    Driver,
    Arch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// What requirements are about. What is `None` is not known, and a condition on it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementFacts {
    /// The driver.
    pub driver: Option<DriverVersion>,
    /// The newest CUDA that the driver supports.
    pub cuda: Option<CudaVersion>,
    /// The GPUs that the container gets: the requirements must hold for each of them.
    pub gpus: Vec<RequiredGpu>,
}

/// What requirements say about a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredGpu {
    /// What people call it: `gpu 0`.
    pub label: String,
    /// Its compute capability.
    pub arch: Option<ComputeCapability>,
    /// Its brand as NVML says it: `tesla`, `geforce`. Letter case does not matter.
    pub brand: Option<String>,
}

impl Requirement {
    /// Reads the value of `variable`.
    ///
    /// # Errors
    /// Returns a usage error about the variable for a condition without an operator or a value, and for a version that
    /// is not digits and dots.
    pub fn parse(variable: &str, text: &str) -> Result<Self> {
        let mut alternatives = Vec::new();
        for words in text.split_whitespace() {
            let mut conditions = Vec::new();
            for word in words.split(',').filter(|word| !word.is_empty()) {
                conditions.extend(Condition::parse(variable, word)?);
            }
            // An alternative of unknown properties alone is no way to satisfy the others.
            if !conditions.is_empty() {
                let text = words.to_owned();
                alternatives.push(Alternative { text, conditions });
            }
        }
        Ok(Self {
            variable: variable.to_owned(),
            text: text.to_owned(),
            alternatives,
        })
    }

    /// The requirement of an image that says by `CUDA_VERSION` alone for which CUDA it was made: that version or a
    /// later one. Its patch level does not matter, and without a minor version it is 0, as NVIDIA's runtime hook
    /// reads it. `None` if the text is not a version.
    pub(super) fn of_cuda_version(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut numbers = version(text.split(['-', '+']).next()?).filter(|numbers| numbers.len() <= 3)?;
        numbers.resize(2, 0);
        let shown: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let text = format!("cuda>={}", shown.join("."));
        let alternative = Alternative {
            text: text.clone(),
            conditions: vec![Condition::Version(
                VersionProperty::Cuda,
                Operator::GreaterEqual,
                numbers,
            )],
        };
        Some(Self {
            variable: "CUDA_VERSION".to_owned(),
            text,
            alternatives: vec![alternative],
        })
    }

    fn holds(&self, host: &RequirementFacts, gpu: &RequiredGpu) -> bool {
        let mut alternatives = self.alternatives.iter();
        self.alternatives.is_empty() || alternatives.any(|one| one.conditions.iter().all(|c| c.holds(host, gpu)))
    }
}

/// Checks what a container requires of the host.
///
/// # Errors
/// Returns an error about the first requirement that does not hold. It says what is required and what is there.
pub fn check(requirements: &[Requirement], host: &RequirementFacts) -> Result<()> {
    let no_gpu = [RequiredGpu::default()];
    let gpus = if host.gpus.is_empty() { &no_gpu[..] } else { &host.gpus };
    for requirement in requirements {
        if let Some(gpu) = gpus.iter().find(|gpu| !requirement.holds(host, gpu)) {
            let required = required(&requirement.alternatives);
            let what = format!("requires {required}, but this host has {}", Compared { host, gpu });
            return Err(Error::failed(&requirement.variable, what).hint(
                "update the driver, use an image for an older CUDA, or set NVIDIA_DISABLE_REQUIRE=1 to start it anyway",
            ));
        }
    }
    Ok(())
}

/// The alternatives for people. Images of CUDA have one for each older driver, which are too many for a line.
fn required(alternatives: &[Alternative]) -> String {
    const MOST: usize = 3;
    let mut texts: Vec<String> = alternatives.iter().take(MOST).map(|one| one.text.clone()).collect();
    match alternatives.len().saturating_sub(MOST) {
        0 => {}
        1 => texts.push("one other combination".to_owned()),
        more => texts.push(format!("one of {more} other combinations")),
    }
    texts.join(" or ")
}

impl Condition {
    /// `None` for a property that is unknown.
    fn parse(variable: &str, text: &str) -> Result<Option<Self>> {
        let is_operator = |c: char| "<>=!".contains(c);
        let wrong = |what: &str| {
            Error::usage(variable, format!("\"{text}\" {what}")).hint("write conditions like cuda>=12.4 or brand=tesla")
        };
        let start = text.find(is_operator).ok_or_else(|| wrong("has no operator"))?;
        let (property, rest) = text.split_at(start);
        let end = rest.find(|c| !is_operator(c)).unwrap_or(rest.len());
        let (operator, value) = rest.split_at(end);
        if value.is_empty() {
            return Err(wrong("has no value"));
        }
        let property = match property.to_ascii_lowercase().as_str() {
            "cuda" => VersionProperty::Cuda,
            "driver" => VersionProperty::Driver,
            "arch" => VersionProperty::Arch,
            "brand" => {
                let is = match operator {
                    "=" => true,
                    "!=" => false,
                    _ => return Err(wrong("compares a brand by another operator than = and !=")),
                };
                let brand = value.to_ascii_lowercase();
                return Ok(Some(Self::Brand { is, brand }));
            }
            "" => return Err(wrong("has no property")),
            _ => return Ok(None),
        };
        let operator = match operator {
            "=" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterEqual,
            _ => return Err(wrong("has an unknown operator")),
        };
        let value = version(value).ok_or_else(|| wrong("does not compare with a version"))?;
        Ok(Some(Self::Version(property, operator, value)))
    }

    fn holds(&self, host: &RequirementFacts, gpu: &RequiredGpu) -> bool {
        match self {
            Self::Brand { is, brand } => {
                let found = gpu.brand.as_ref();
                found.is_none_or(|found| found.eq_ignore_ascii_case(brand) == *is)
            }
            Self::Version(property, operator, wanted) => {
                let found = match property {
                    VersionProperty::Cuda => host.cuda.map(|v| vec![u64::from(v.major), u64::from(v.minor)]),
                    VersionProperty::Arch => gpu.arch.map(|v| vec![u64::from(v.major), u64::from(v.minor)]),
                    VersionProperty::Driver => host.driver.as_ref().and_then(|v| version(v.as_str())),
                };
                found.is_none_or(|found| operator.holds(compare(&found, wanted)))
            }
        }
    }
}

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterEqual => order.is_ge(),
        }
    }
}

/// The numbers of a version; `None` for other text.
fn version(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(tranche_core::types::decimal).collect()
}

/// The order of two versions. A number that is missing is 0: `12` is `12.0`.
fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let at = |list: &[u64], index: usize| list.get(index).copied().unwrap_or(0);
    let orders = (0..a.len().max(b.len())).map(|index| at(a, index).cmp(&at(b, index)));
    orders.fold(Ordering::Equal, Ordering::then)
}

/// What is there, in the order in which requirements name it.
struct Compared<'a> {
    host: &'a RequirementFacts,
    gpu: &'a RequiredGpu,
}

impl fmt::Display for Compared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, gpu) = (self.host, self.gpu);
        let label = |what: String| match gpu.label.as_str() {
            "" => what,
            label => format!("{label} with {what}"),
        };
        let brand = gpu
            .brand
            .as_ref()
            .map(|brand| format!("brand {}", brand.to_ascii_lowercase()));
        let of_gpu = [gpu.arch.map(|arch| format!("arch {arch}")), brand];
        let of_gpu: Vec<String> = of_gpu.into_iter().flatten().collect();
        let facts = [
            host.cuda.map(|cuda| format!("CUDA {cuda}")),
            host.driver.as_ref().map(|driver| format!("driver {driver}")),
            (!of_gpu.is_empty()).then(|| label(of_gpu.join(" and "))),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        f.write_str(&facts.join(", "))
    }
}

#[cfg(test)]
mod tests;
