//! Numbers as the daemon reads them, by sscanf(3) and strtoull(3): what follows a number is not looked at, and a number
//! that is too large is cut to its lowest bits.

/// The digits that `text` begins with after a sign, and whether the sign is a minus. White space before it is skipped.
fn digits(text: &str) -> Option<(bool, &str, &str)> {
    let text = text.trim_start();
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    (end > 0).then(|| (negative, &unsigned[..end], &unsigned[end..]))
}

/// `%d`: the number and the rest of the text.
pub(crate) fn int(text: &str) -> Option<(i32, &str)> {
    let (negative, digits, rest) = digits(text)?;
    let number = digits.parse::<i64>().unwrap_or(i64::MAX);
    #[allow(clippy::cast_possible_truncation, reason = "what scanf does")]
    let number = number as i32;
    Some((if negative { number.wrapping_neg() } else { number }, rest))
}

/// `%lf`: the number that `text` begins with.
pub(crate) fn float(text: &str) -> Option<f64> {
    let text = text.trim_start();
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        let end = hexadecimal.find(|c: char| !c.is_ascii_hexdigit());
        let digits = &hexadecimal[..end.unwrap_or(hexadecimal.len())];
        return u32::from_str_radix(digits, 16).ok().map(f64::from);
    }
    let lengths = (1..=text.len()).rev().filter(|end| text.is_char_boundary(*end));
    lengths
        .map(|end| &text[..end])
        .find_map(|part| part.parse::<f64>().ok())
}

/// A size of memory in bytes: a number by strtoull(3), and `G` or `g`. Without it, or with another letter, it is in
/// MiB.
pub(crate) fn size(text: &str) -> u64 {
    let Some((negative, digits, rest)) = digits(text) else {
        return 0;
    };
    let number = match digits.parse::<u64>() {
        Ok(number) if negative => number.wrapping_neg(),
        Ok(number) => number,
        Err(_) => u64::MAX,
    };
    let shift = if rest.starts_with(['G', 'g']) { 30 } else { 20 };
    number << shift
}
