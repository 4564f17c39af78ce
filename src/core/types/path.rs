//! Paths, each with a type that says to which tree it belongs.
//!
//! Both are absolute, without `.`, `..` or doubled slashes, and valid UTF-8, because a CDI spec (JSON or YAML) carries
//! nothing else.

use crate::error::{Context, Error};
use std::fmt;
use std::path::Path;

macro_rules! path {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Takes an absolute path; `.`, `..` and doubled slashes are resolved as text.
            ///
            /// # Errors
            /// Returns a usage error if the path is relative or not valid UTF-8.
            pub fn new(path: impl AsRef<Path>) -> Result<Self, Error> {
                let path = path.as_ref();
                let text = path
                    .to_str()
                    .ok_or_else(|| Error::usage(path.display(), "path is not valid UTF-8"))?;
                clean(text)
                    .map(Self)
                    .ok_or_else(|| Error::usage(format!("\"{text}\""), "path is not absolute"))
            }

            /// `/`
            pub fn root() -> Self {
                Self("/".to_owned())
            }

            /// The path as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The path for the standard library.
            pub fn as_path(&self) -> &Path {
                Path::new(&self.0)
            }

            /// `self` with `below` under it; `below` may begin with a slash and cannot climb out.
            pub fn join(&self, below: &str) -> Self {
                let mut parts: Vec<&str> = Vec::new();
                push_clean(&mut parts, below);
                let base = if self.0 == "/" { "" } else { self.0.as_str() };
                if parts.is_empty() {
                    return self.clone();
                }
                Self(format!("{base}/{}", parts.join("/")))
            }

            /// The last part of the path; empty for `/`.
            pub fn file_name(&self) -> &str {
                self.0.rsplit('/').next().unwrap_or("")
            }

            /// The directory that holds this path; `/` holds itself.
            pub fn parent(&self) -> Self {
                match self.0.rsplit_once('/') {
                    Some((dir, _)) if !dir.is_empty() => Self(dir.to_owned()),
                    _ => Self("/".to_owned()),
                }
            }

            /// The rest of the path below `prefix`, beginning with a slash (`/` for `prefix` itself); `None` if the
            /// path is not below it. `/dev/nvidia0` is not below `/dev/nvidia`.
            pub fn below(&self, prefix: &str) -> Option<&str> {
                let prefix = prefix.trim_end_matches('/');
                let rest = self.0.strip_prefix(prefix)?;
                match rest {
                    "" => Some("/"),
                    r if r.starts_with('/') => Some(r),
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        super::serde_as_text!($name);
    };
}

path!(
    /// A path on the host, as the engine has to name it.
    HostPath
);

impl HostPath {
    /// Takes a path that may be relative to the working directory: engines start hooks in other directories.
    ///
    /// # Errors
    /// Returns an error if the path is empty, has no absolute form, or is not valid UTF-8.
    pub fn absolute(path: &Path) -> Result<Self, Error> {
        Self::new(std::path::absolute(path).about(path.display(), "has no absolute path")?)
    }
}

path!(
    /// A path as a process in the container sees it.
    ContainerPath
);

super::words! {
    /// The tree that a path belongs to.
    pub enum Side: "tree" {
        /// The host, where the engine follows the path.
        Host = "host",
        /// The container.
        Container = "container",
    }
}

fn push_clean<'a>(parts: &mut Vec<&'a str>, text: &'a str) {
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
}

fn clean(text: &str) -> Option<String> {
    if !text.starts_with('/') || text.contains('\0') {
        return None;
    }
    // Most paths are clean: a hook parses a hundred of them at each start of a container.
    if text.split('/').skip(1).all(|part| !matches!(part, "" | "." | "..")) {
        return Some(text.to_owned());
    }
    let mut parts = Vec::new();
    push_clean(&mut parts, text);
    Some(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaned_and_absolute() {
        let p = |s: &str| HostPath::new(s).map(|p| p.as_str().to_owned());
        assert_eq!(p("/a//b/./c/../d/").unwrap(), "/a/b/d");
        assert_eq!(p("/../..").unwrap(), "/");
        assert!(p("a").is_err());
        assert!(p("").is_err());
        assert!(p("/a\0b").is_err());
    }

    #[test]
    fn join_cannot_climb() {
        let root = HostPath::new("/run/nvidia/driver").unwrap();
        assert_eq!(root.join("../../etc").as_str(), "/run/nvidia/driver/etc");
        assert_eq!(HostPath::new("/").unwrap().join("/dev").as_str(), "/dev");
        assert_eq!(root.join("/"), root);
    }

    #[test]
    fn below_counts_whole_parts() {
        let node = HostPath::new("/dev/nvidia0").unwrap();
        assert_eq!(node.below("/dev"), Some("/nvidia0"));
        assert_eq!(node.below("/"), Some("/dev/nvidia0"));
        assert_eq!(node.below("/dev/nvidia"), None);
        assert_eq!(node.parent().as_str(), "/dev");
        assert_eq!(node.file_name(), "nvidia0");
    }
}
