//! Quantities of Kubernetes, in the form in which the API server sends them back: with the largest suffix that keeps
//! the number whole (`apimachinery/pkg/api/resource/quantity.go`).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The most memory that is written, in MiB. The API server computes with bytes in 63 bits.
pub const MOST_MIB: u64 = 1 << 42;

/// `mib` MiB in bytes, [`MOST_MIB`] at most: `140Gi`.
pub fn mebibytes(mib: u64) -> Quantity {
    scaled(mib.min(MOST_MIB), 1024, &["Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// A number without a unit: `100`, and `1k` for 1000.
pub fn number(number: u64) -> Quantity {
    scaled(number.min(i64::MAX as u64), 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn scaled(mut number: u64, base: u64, suffixes: &[&str]) -> Quantity {
    if number == 0 {
        return Quantity("0".to_owned());
    }
    let mut at = 0;
    while number.is_multiple_of(base) && at + 1 < suffixes.len() {
        number /= base;
        at += 1;
    }
    let suffix = suffixes.get(at).copied().unwrap_or_default();
    Quantity(format!("{number}{suffix}"))
}

/// The number that a quantity is, in thousandths, rounded up; `None` if it is not a valid quantity.
pub fn thousandths(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.as_str();
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    // Nothing that Kubernetes accepts has more digits, and none of the multiplications below is too large.
    if whole.len() > 19 || fraction.len() > 19 {
        return None;
    }
    let all: i128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_i128.checked_pow(fraction.len().try_into().ok()?)?;
    let (numerator, denominator) = factor(suffix)?;
    let numerator = all.checked_mul(numerator)?.checked_mul(1000)?;
    let denominator = divisor.checked_mul(denominator)?;
    Some(sign * numerator.checked_add(denominator - 1)?.checked_div(denominator)?)
}

/// What a suffix multiplies by, as a fraction.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let decimal = |power: u32| 10_i128.checked_pow(power);
    let binary = |power: u32| 1024_i128.checked_pow(power);
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, decimal(9)?),
        "u" => (1, decimal(6)?),
        "m" => (1, decimal(3)?),
        "k" => (decimal(3)?, 1),
        "M" => (decimal(6)?, 1),
        "G" => (decimal(9)?, 1),
        "T" => (decimal(12)?, 1),
        "P" => (decimal(15)?, 1),
        "E" => (decimal(18)?, 1),
        "Ki" => (binary(1)?, 1),
        "Mi" => (binary(2)?, 1),
        "Gi" => (binary(3)?, 1),
        "Ti" => (binary(4)?, 1),
        "Pi" => (binary(5)?, 1),
        "Ei" => (binary(6)?, 1),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            match u32::try_from(power) {
                Ok(power) => (decimal(power)?, 1),
                Err(_) => (1, decimal(power.unsigned_abs())?),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_the_api_server_writes_them() {
        assert_eq!(mebibytes(0).0, "0");
        assert_eq!(mebibytes(143_771).0, "143771Mi");
        assert_eq!(mebibytes(143_360).0, "140Gi");
        assert_eq!(mebibytes(u64::MAX).0, "4Ei");
        assert_eq!(number(100).0, "100");
        assert_eq!(number(1500).0, "1500");
        assert_eq!(number(2000).0, "2k");
        assert_eq!(number(u64::MAX).0, i64::MAX.to_string());
    }

    #[test]
    fn each_form_of_a_quantity_has_one_value() {
        let value = |text: &str| thousandths(&Quantity(text.to_owned()));
        assert_eq!(value("1Gi"), Some(1 << 30).map(|bytes: i128| bytes * 1000));
        assert_eq!(value("1024Mi"), value("1Gi"));
        assert_eq!(value("1.5Gi"), value("1536Mi"));
        assert_eq!(value("100m"), Some(100));
        assert_eq!(value("0.1m"), Some(1));
        assert_eq!(value("1e3"), value("1k"));
        assert_eq!(value("1E"), value("1e18"));
        assert_eq!(value("2e-3"), Some(2));
        assert_eq!(value("-1"), Some(-1000));
        for wrong in [
            "",
            ".",
            "Gi",
            "1.2.3",
            "1gi",
            "1e",
            "e3",
            "1e999",
            "9999999999999999999999",
        ] {
            assert_eq!(value(wrong), None, "{wrong}");
        }
    }
}
