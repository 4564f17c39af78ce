//! The files of `tests/parity/`: what NVIDIA's generator gives on a test host, and where we mean to differ.
//!
//! | line | what it says |
//! |---|---|
//! | `# text` | nothing; the first says how the list was made |
//! | `args OPTION…` | both generators were given these options |
//! | `none # reason` | NVIDIA's gives no specification here, so there is nothing to compare |
//! | `FACT` | both give it (see [`super::facts_of_spec`] for what a fact is) |
//! | `- FACT # reason` | they give it, and we do not, for this reason |
//! | `+ FACT # reason` | we give it, and they do not; a `*` in it stands for anything |

/// A file of `tests/parity/`.
#[derive(Debug, Default)]
pub struct Parity {
    /// The options that both generators get.
    pub arguments: Vec<String>,
    /// Why there is nothing to compare.
    pub none: Option<String>,
    /// What both give.
    pub both: Vec<String>,
    /// What they alone give.
    pub theirs: Vec<String>,
    /// What we alone give; with `*`.
    pub ours: Vec<String>,
}

/// Reads such a file. An error names the line.
pub fn parse(text: &str) -> Result<Parity, String> {
    let mut parity = Parity::default();
    for (number, line) in text.lines().enumerate() {
        let reason = || {
            let (fact, reason) = line
                .split_once(" # ")
                .ok_or(format!("line {}: no reason", number + 1))?;
            Ok::<_, String>((fact[2..].trim().to_owned(), reason.trim().to_owned()))
        };
        match line {
            "" => {}
            _ if line.starts_with('#') => {}
            _ if line.starts_with("args ") => {
                parity.arguments = line.split_whitespace().skip(1).map(str::to_owned).collect();
            }
            _ if line.starts_with("none ") => parity.none = Some(reason()?.1),
            _ if line.starts_with("- ") => parity.theirs.push(reason()?.0),
            _ if line.starts_with("+ ") => parity.ours.push(reason()?.0),
            _ => parity.both.push(line.to_owned()),
        }
    }
    Ok(parity)
}

/// What is not as the file says, one line each: facts that we lack or have too many, and differences that are none.
pub fn compare(parity: &Parity, facts: &[String]) -> Vec<String> {
    let has = |fact: &String| facts.contains(fact);
    let mut wrong = Vec::new();
    wrong.extend(
        parity
            .both
            .iter()
            .filter(|f| !has(f))
            .map(|f| format!("we do not give: {f}")),
    );
    wrong.extend(
        parity
            .theirs
            .iter()
            .filter(|f| has(f))
            .map(|f| format!("no difference any more: - {f}")),
    );
    for fact in facts {
        if !parity.both.contains(fact) && !parity.theirs.contains(fact) && !parity.ours.iter().any(|p| matches(p, fact))
        {
            wrong.push(format!("they do not give: {fact}"));
        }
    }
    for pattern in &parity.ours {
        if !facts.iter().any(|f| matches(pattern, f)) {
            wrong.push(format!("no difference any more: + {pattern}"));
        }
    }
    wrong
}

/// Whether a text is as a pattern says, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text
            .strip_prefix(before)
            .is_some_and(|rest| (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(after, &rest[at..]))),
    }
}
