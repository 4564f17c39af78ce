//! Writes a specification as text: equal specifications give equal bytes.

use super::Spec;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_core::text::shown_json;

/// The format of a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// The extension of a file's name, without the dot. Engines read files with these two only.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Yaml => "yaml",
            Format::Json => "json",
        }
    }

    /// The format by a file's name: `.json`, `.yaml` or `.yml`, in upper or lower case.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Format::Json),
            "yaml" | "yml" => Some(Format::Yaml),
            _ => None,
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "yaml" => Ok(Format::Yaml),
            "json" => Ok(Format::Json),
            _ => Err(Error::usage(format!("format \"{text}\""), "is unknown").hint("use yaml or json")),
        }
    }
}

/// The file to which a specification for `path` is written, and its format. The extension `.yaml` or `.json` decides;
/// otherwise that of `format` is added (`x.yml` becomes `x.yml.yaml`, because no engine reads `.yml`).
pub fn file_of(path: &Path, format: Format) -> (PathBuf, Format) {
    match path.extension().and_then(|e| e.to_str()) {
        Some("yaml") => (path.to_owned(), Format::Yaml),
        Some("json") => (path.to_owned(), Format::Json),
        _ => {
            let mut name = path.as_os_str().to_owned();
            name.push(".");
            name.push(format.extension());
            (name.into(), format)
        }
    }
}

/// `spec` as text in `format`.
///
/// `comments` become the header of a YAML file, which engines ignore. JSON has no comments.
///
/// # Errors
/// Returns an error if the encoder fails, which no specification causes.
pub fn encode(spec: &Spec, format: Format, comments: &[String]) -> Result<String> {
    match format {
        Format::Yaml => yaml(spec, comments),
        Format::Json => {
            // Without indentation, which would double the size of a file with a thousand shares. Engines parse all of
            // it at each start of a container.
            let mut text = serde_json::to_string(spec).about("specification", "cannot be written as JSON")?;
            text.push('\n');
            Ok(shown_json(&text).into_owned())
        }
    }
}

/// The comments of a YAML file's header, as [`encode`] takes them.
pub fn comments_of(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .skip_while(|line| *line == "---")
        .map_while(|line| line.strip_prefix('#'))
        .map(|line| line.trim().to_owned())
        .collect()
}

fn yaml(spec: &Spec, comments: &[String]) -> Result<String> {
    let mut text = String::from("---\n");
    for comment in comments {
        // A line break would end the comment.
        let _ = writeln!(text, "# {}", comment.replace(|c: char| c.is_control(), " "));
    }
    let options = serde_saphyr::ser_options! {
        // One line for each value, because people compare these files.
        prefer_block_scalars: false,
    };
    let body =
        serde_saphyr::to_string_with_options(spec, options).about("specification", "cannot be written as YAML")?;
    text.push_str(&body);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::{ContainerEdits, Device, Hook, parse};
    use super::*;

    /// Values that some YAML parser takes for something else than text.
    #[test]
    fn text_stays_text() {
        let odd = [
            "0",
            "a,b",
            "[a]",
            "{a: b}",
            "--of=a, b",
            "0:1",
            "1:30",
            "no",
            "on",
            "y",
            "null",
            "~",
            "1e3",
            "0x1f",
            "0o7",
            ".5",
            "1_000",
            "2001-01-01",
            "017",
            "08",
            "0b11",
            "0_17",
            "+1",
            "-017",
            "1.",
            "-.5",
            "+.inf",
            ".NaN",
            "N",
            "OFF",
            "<<",
            "=",
            "1:30:45",
            "a: b",
            "- a",
            "#x",
            "a #b",
            "",
            " a",
            "a ",
            "é",
            "a\nb",
            "'",
            "\"",
            "\\",
            "!x",
            "&a",
            "*a",
            "%x",
            "@x",
            "`x",
            "{",
            "[",
        ];
        let spec = Spec {
            version: "0.5.0".into(),
            kind: "a.b/c".into(),
            devices: odd
                .iter()
                .map(|name| Device {
                    name: (*name).into(),
                    annotations: [((*name).to_owned(), (*name).to_owned())].into(),
                    edits: ContainerEdits {
                        env: odd.iter().map(|o| (*o).to_owned()).collect(),
                        hooks: vec![Hook {
                            args: odd.iter().map(|o| (*o).to_owned()).collect(),
                            ..Hook::default()
                        }],
                        ..ContainerEdits::default()
                    },
                })
                .collect(),
            ..Spec::default()
        };
        let text = encode(&spec, Format::Yaml, &["for people\nkind: x".into()]).unwrap();
        assert!(
            text.starts_with("---\n# for people kind: x\ncdiVersion: \"0.5.0\"\n")
                || text.starts_with("---\n# for people kind: x\ncdiVersion: '0.5.0'\n"),
            "{text}"
        );
        assert!(text.contains("- name: \"0:1\"\n"), "{text}");
        assert!(!text.contains("- no\n") && !text.contains("- 2001-01-01\n"), "{text}");
        assert_eq!(parse::spec(text.as_bytes()).unwrap(), spec);
        let json = encode(&spec, Format::Json, &[]).unwrap();
        assert_eq!(parse::spec(json.as_bytes()).unwrap(), spec);
        assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
    }

    #[test]
    fn names_of_files() {
        let name = |p: &str, f| file_of(Path::new(p), f).0.display().to_string();
        assert_eq!(name("a/x.yaml", Format::Json), "a/x.yaml");
        assert_eq!(name("x.json", Format::Yaml), "x.json");
        assert_eq!(name("x.yml", Format::Yaml), "x.yml.yaml");
        assert_eq!(name("nvidia", Format::Json), "nvidia.json");
        assert_eq!(Format::of_path(Path::new("x.YML")), Some(Format::Yaml));
        assert_eq!(Format::of_path(Path::new("x.txt")), None);
    }
}
