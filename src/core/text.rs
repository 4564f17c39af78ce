//! Text from elsewhere (file names, container ids, driver strings) as a terminal or a log may show it.

use std::borrow::Cow;

/// A number of things, such as `1 link` or `3 links`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Whether Go's `strconv.ParseBool`, by which NVIDIA's programs read switches, takes `text` for true.
pub fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// `text` with every character escaped that changes how a terminal shows the text around it.
///
/// These are control characters (escape sequences begin with one, and a line break would begin a line of its own in a
/// log), the marks that change the direction of text (CVE-2021-42574), and characters without a width, with which two
/// different names look the same. Text that has none of them comes back as it is.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden, |c, safe| safe.extend(c.escape_default()))
}

/// `text`, which has lines, as [`shown`] gives each of its lines.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_hidden(c) && c != '\n',
        |c, safe| safe.extend(c.escape_default()),
    )
}

/// JSON that means the same, with what [`shown`] escapes written as JSON escapes it. JSON's own encoder leaves the
/// marks that change the direction of text as they are; outside of its strings it writes nothing of the kind but line
/// breaks.
pub fn shown_json(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_hidden(c) && c != '\n',
        |c, safe| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        },
    )
}

/// `text` with each character for which `acts` is true written by `escape`.
fn escaped(text: &str, acts: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.chars().any(&acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match acts(c) {
            true => escape(c, &mut safe),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// At most `most` bytes of `text`, with `…` at the end if it was cut.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", beginning(text, most.saturating_sub('…'.len_utf8())))
}

/// The lines of `text` as one, for a message that quotes another program: its reason may be in any of them.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for next in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        line.push_str(match line.chars().last() {
            None => "",
            Some('.' | ':' | ';' | ',' | '!') => " ",
            Some(_) => "; ",
        });
        line.push_str(next);
    }
    line
}

/// As many whole characters of `text` as fit in `most` bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let mut ends = (0..=most.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// The most names that a list in a line has.
const MOST_NAMES: usize = 8;

/// `names` as a list in a line: at most eight, then how many more there are.
pub fn some<T: AsRef<str>>(names: &[T]) -> String {
    let listed: Vec<&str> = names.iter().take(MOST_NAMES).map(AsRef::as_ref).collect();
    let listed = listed.join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// The most names that an error offers in place of the one that was asked for.
const MOST_CANDIDATES: usize = 5;

/// The length in bytes of the longest name that a person types. A longer one is compared with no other: the time of a
/// comparison is the product of both lengths, and an image chooses one of them.
const LONGEST_TYPED: usize = 256;

/// What is there in place of `asked`, for an error: at most five of `known`, the nearest in spelling first, then how
/// many more there are. Names that are equally near, and those that are not like `asked`, keep their order.
pub fn candidates<T: AsRef<str>>(asked: &str, known: &[T]) -> String {
    nearest(asked, &known.iter().map(AsRef::as_ref).collect::<Vec<&str>>())
}

fn nearest(asked: &str, known: &[&str]) -> String {
    let edits = |name: &str| {
        let longest = asked.len().max(name.len());
        let edits = (longest <= LONGEST_TYPED).then(|| strsim::osa_distance(asked, name));
        // What differs in more than its half is like nothing that was typed.
        edits.filter(|edits| edits * 2 <= longest).unwrap_or(usize::MAX)
    };
    let mut left: Vec<(usize, &str)> = known.iter().map(|name| (edits(name), *name)).collect();
    let mut listed = String::new();
    // One after the other: a sort would be more code than all of this.
    for number in 0..MOST_CANDIDATES {
        let Some((at, _)) = left.iter().enumerate().min_by_key(|(_, (edits, _))| *edits) else {
            break;
        };
        if number > 0 {
            listed.push_str(", ");
        }
        listed.push_str(left.remove(at).1);
    }
    if !left.is_empty() {
        listed.push_str(&format!(" and {} more", left.len()));
    }
    listed
}

/// Whether a terminal acts on `c` instead of showing it. The ranges are those of Unicode's categories Cc, Cf, Zl and Zp
/// (Unicode 16.0, DerivedGeneralCategory.txt), without the signs of Cf that have a shape (Arabic number signs and
/// others).
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_one() {
        for (text, line) in [
            ("", ""),
            ("\n a \n\nb\n", "a; b"),
            (
                "could not be reset:\n  GPU 0: In use.\nEnd",
                "could not be reset: GPU 0: In use. End",
            ),
        ] {
            assert_eq!(one_line(text), line, "{text}");
        }
    }

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        assert_eq!(shown("a\u{1b}[31mb\rc\nd\u{9b}e"), "a\\u{1b}[31mb\\rc\\nd\\u{9b}e");
        for mark in [
            '\u{61c}',
            '\u{200e}',
            '\u{200f}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{200b}',
            '\u{2028}',
            '\u{2029}',
            '\u{feff}',
            '\u{e0041}',
            '\0',
            '\u{7f}',
            '\u{85}',
        ] {
            let shown = shown(&format!("x{mark}y")).into_owned();
            assert!(!shown.contains(mark) && shown.starts_with("x\\"), "{mark:?}: {shown}");
        }
    }

    #[test]
    fn json_means_the_same_with_nothing_hidden_in_it() {
        let value = "a\u{202e}b\u{e0041}c\u{7f}\n";
        let text = serde_json::to_string_pretty(&[value]).unwrap();
        let shown = shown_json(&text);
        assert!(shown.contains("a\\u202eb\\udb40\\udc41c\\u007f\\n"), "{shown}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [value]);
        assert!(matches!(shown_json("[\n  \"é\"\n]\n"), Cow::Borrowed(_)));
        assert_eq!(shown_lines("a\u{1b}\nb\tc\n"), "a\\u{1b}\nb\\tc\n");
    }

    #[test]
    fn a_list_stops_at_eight_names() {
        let names: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        assert_eq!(some(&names), "0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
        assert_eq!(some(&names[..8]), "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(some::<String>(&[]), "");
    }

    #[test]
    fn candidates_are_at_most_five_and_the_nearest_comes_first() {
        let names: Vec<String> = (0..8).map(|n| format!("nvidia.com/gpu={n}")).collect();
        let asked = "nvidia.com/gpu=6.big";
        assert_eq!(
            candidates(asked, &names).split(", ").next(),
            Some("nvidia.com/gpu=6"),
            "{}",
            candidates(asked, &names)
        );
        assert!(candidates(asked, &names).ends_with("=3 and 3 more"));
        assert_eq!(candidates("", &["bb", "a"]), "bb, a");
        let long = "x".repeat(100_000);
        assert_eq!(candidates(&long, &["bb", "a"]), "bb, a");
        assert_eq!(
            candidates("ab", &[long.as_str(), "xyz", "ac"]),
            format!("ac, {long}, xyz")
        );
        assert_eq!(candidates::<String>("a", &[]), "");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for plain in ["nvidia.com/gpu=0.3", "/srv/böse Kiste/東京", "a\\b", "…", ""] {
            assert!(matches!(shown(plain), Cow::Borrowed(same) if same == plain), "{plain}");
        }
    }
}
