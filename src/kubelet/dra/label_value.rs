//! Texts for people as values of labels and of taints.

/// The longest value, in bytes (`LabelValueMaxLength` of `apimachinery/pkg/util/validation`).
const MOST: usize = 63;

/// `text` as a value: letters, digits, `-`, `_` and `.`, the latter three not at an end, with a `-` between words. One
/// that is too long ends with a whole word. It is empty if nothing of the text can be in a value.
pub(super) fn label_value(text: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let words = text.split(|c| !is_valid(c)).filter(|word| !word.is_empty());
    let mut value = words.collect::<Vec<_>>().join("-");
    if value.len() > MOST {
        let end = value[..=MOST].rfind('-').unwrap_or(MOST);
        value.truncate(end);
    }
    value.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_of_a_label() {
        assert_eq!(label_value("NVIDIA H200"), "NVIDIA-H200");
        assert_eq!(label_value(" (a) "), "a");
        assert_eq!(label_value("ä"), "");
        assert_eq!(label_value("10:00 UTC (the fan)"), "10-00-UTC-the-fan");
        assert_eq!(label_value(&"x".repeat(100)).len(), MOST);
        let long = label_value(&"seven77 ".repeat(10));
        assert_eq!(long, ["seven77"; 7].join("-") + "-seven77");
        assert_eq!(long.len(), MOST);
        assert_eq!(label_value(&"eight888 ".repeat(10)), ["eight888"; 7].join("-"));
    }
}
