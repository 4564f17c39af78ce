//! What an unquoted word of YAML is to the reference library: a text, a number, a truth value or nothing.
//!
//! The library reads specifications by the rules of YAML 1.1 with some of Go's (sigs.k8s.io/yaml 1.4,
//! `goyaml.v2/resolve.go`): `0666` is the number 438, `on` is true, `1_000` is a number, and `1:30` is a text. The
//! library then writes JSON and reads that, so that a number or a truth value where a text belongs becomes a text
//! again: `1.10` becomes `1.1`.

/// The value of a scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number that 64 bits hold, with a sign or without.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
}

/// The tags by which an author may say what a scalar is. A scalar with any other tag is a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarTag {
    Null,
    Bool,
    Int,
    Float,
    Text,
    Timestamp,
}

impl ScalarTag {
    /// The tag of this suffix below `tag:yaml.org,2002:`.
    pub(super) fn of(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "float" => Self::Float,
            "str" => Self::Text,
            "timestamp" => Self::Timestamp,
            _ => return None,
        })
    }
}

impl Scalar {
    /// What `text` is without a tag and without quotes.
    pub(super) fn plain(text: &str) -> Self {
        word(text)
            .or_else(|| number(text))
            .unwrap_or_else(|| Self::Text(text.to_owned()))
    }

    /// What `text` is with `tag`; `None` if it cannot be that.
    pub(super) fn tagged(tag: ScalarTag, text: &str) -> Option<Self> {
        let plain = Self::plain(text);
        match (tag, plain) {
            (ScalarTag::Text, _) => Some(Self::Text(text.to_owned())),
            (ScalarTag::Float, Self::Int(number)) => Some(Self::Float(number as f64)),
            (ScalarTag::Null, plain @ Self::Null)
            | (ScalarTag::Bool, plain @ Self::Bool(_))
            | (ScalarTag::Int, plain @ Self::Int(_))
            | (ScalarTag::Float, plain @ Self::Float(_)) => Some(plain),
            // A date is a text in JSON.
            (ScalarTag::Timestamp, Self::Text(text)) => Some(Self::Text(text)),
            _ => None,
        }
    }

    /// The text that this is where a text belongs. Nothing is an empty text.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(value) => value.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => short(number),
            Self::Text(text) => text,
        }
    }

    /// The text that this is as a key; `None` if it cannot be one.
    pub(super) fn into_key(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Int(number) if i64::try_from(number).is_err() => None,
            Self::Float(number) if number.is_nan() => Some(".nan".to_owned()),
            Self::Float(number) if number.is_infinite() => Some(format!("{}.inf", if number < 0.0 { "-" } else { "" })),
            other => Some(other.into_text()),
        }
    }

    /// This as a whole number, which `1e3` and `1.0` are too, and a text never is. `None` if it is not one.
    pub(super) fn whole_number(&self) -> Option<i128> {
        match *self {
            Self::Int(number) => Some(number),
            // As its shortest decimal digits, as JSON has it; from there on, JSON has an exponent.
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e21 => number.to_string().parse().ok(),
            _ => None,
        }
    }
}

/// Words with a meaning.
fn word(text: &str) -> Option<Scalar> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// Numbers. Underscores between digits have no meaning.
fn number(text: &str) -> Option<Scalar> {
    match text.as_bytes().first()? {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let plain = text.replace('_', "");
            integer(&plain).map(Scalar::Int).or_else(|| float(&plain))
        }
        _ => None,
    }
}

/// A whole number as Go writes it: `0x1f`, `0b11`, `0o17` and `017`, which is 15.
fn integer(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let below = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (digits, base) = if let Some(digits) = below(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = below(["0b", "0B"]) {
        (digits, 2)
    } else if let Some(digits) = below(["0o", "0O"]) {
        (digits, 8)
    } else {
        match digits.strip_prefix('0') {
            Some(rest) if !rest.is_empty() => (rest, 8),
            _ => (digits, 10),
        }
    };
    // Rust takes a sign here, which was taken already.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(digits, base).ok()?;
    let number = if is_negative { -number } else { number };
    // A number with a plus has to fit into a signed one.
    let most = if text.starts_with('+') {
        i64::MAX.into()
    } else {
        u64::MAX.into()
    };
    (i128::from(i64::MIN)..=most).contains(&number).then_some(number)
}

/// A number with a fraction or an exponent, or one that is too large for [`integer`].
fn float(text: &str) -> Option<Scalar> {
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let number: f64 = text.chars().all(is_of_number).then(|| text.parse().ok())??;
    number.is_finite().then_some(Scalar::Float(number))
}

/// A number with a fraction where a text belongs, as the library writes it: with the digits that a number of 32 bits
/// needs (Go's `FormatFloat(number, 'g', -1, 32)`).
fn short(number: f64) -> String {
    let number = number as f32;
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-Inf" } else { "+Inf" }.to_owned();
    }
    let digits = format!("{number:e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match exponent {
        -4..6 => format!("{number}"),
        _ => format!(
            "{mantissa}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        ),
    }
}
