//! `exec`: a further process of a container that holds a share gets the environment of the share.
//!
//! Engines give such a process the environment of the image and of the command, without that of CDI. The container's
//! own `config.json` has the right one: tranche removed from it what the image and the tenant had set.

use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::arguments::Exec;
use super::edit::EditedFile;
use crate::is_limit;
use tranche_core::error::{Context, Error, Result};

/// The variable that every MPS share sets.
const PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The environment of a container's share, as entries of the form `NAME=value`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShareEnvironment(Vec<String>);

impl ShareEnvironment {
    /// That of the container in `bundle`; `None` if its share has no environment.
    ///
    /// # Errors
    /// Returns an error if the container's configuration cannot be read.
    pub(super) fn of(bundle: &Path) -> Result<Option<Self>> {
        let bytes = EditedFile::config(Some(bundle), None)?.read()?;
        Self::parse(&bytes).about(bundle.join("config.json").display(), "is not valid JSON")
    }

    fn parse(bytes: &[u8]) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct BundleConfig {
            process: Option<BundleProcess>,
        }
        #[derive(Deserialize)]
        struct BundleProcess {
            env: Option<Vec<String>>,
        }
        let config: BundleConfig = serde_json::from_slice(bytes)?;
        let env = config.process.and_then(|process| process.env).unwrap_or_default();
        let has_pipe = env
            .iter()
            .any(|entry| entry.split_once('=').is_some_and(|(name, _)| name == PIPE));
        let entries = || env.into_iter().filter(|entry| is_limit(entry)).collect();
        Ok(has_pipe.then(entries).map(Self))
    }

    /// Puts it into a process of the OCI specification (config.md, "process").
    ///
    /// # Errors
    /// Returns an error if `process` is not such a process.
    pub(super) fn put_into(&self, process: &[u8]) -> Result<Vec<u8>> {
        let object = "process of exec";
        let mut process: Value = serde_json::from_slice(process).about(object, "is not valid JSON")?;
        let fields = process
            .as_object_mut()
            .ok_or_else(|| Error::failed(object, "is not a JSON object"))?;
        let env = fields.entry("env").or_insert_with(|| Value::Array(Vec::new()));
        if env.is_null() {
            *env = Value::Array(Vec::new());
        }
        let env = env
            .as_array_mut()
            .ok_or_else(|| Error::failed(object, "its env is not a list"))?;
        env.retain(|entry| !entry.as_str().is_some_and(is_limit));
        env.extend(self.0.iter().map(|entry| Value::from(entry.as_str())));
        serde_json::to_vec(&process).about(object, "cannot be written")
    }

    /// Puts it into the arguments of an `exec` without a file. Without an option for the environment, the process gets
    /// the container's, which has the share's already. With one, crun gives it nothing else.
    pub(super) fn put_into_arguments(&self, exec: &Exec, words: &mut Vec<OsString>) {
        let (of_share, other): (Vec<_>, Vec<_>) = exec
            .env
            .iter()
            .partition(|(.., value)| value.to_str().is_some_and(is_limit));
        for (at, count, _) in of_share.iter().rev() {
            words.drain(*at..at + count);
        }
        if !other.is_empty() {
            let options = self.0.iter().flat_map(|entry| ["--env", entry]).map(OsString::from);
            words.splice(exec.at..exec.at, options);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{Action, RuntimeArguments};
    use super::*;
    use serde_json::json;
    use std::ffi::OsStr;

    const CONFIG: &str = r#"{"process":{"env":["PATH=/bin","odd","CUDA_VISIBLE_DEVICES=GPU-1",
        "CUDA_MPS_PIPE_DIRECTORY=/mps","NVIDIA_GPU_MEMORY_LIMIT=7","CUDA_HOME=/c"]}}"#;

    fn share() -> ShareEnvironment {
        ShareEnvironment::parse(CONFIG.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn only_what_the_share_set_is_taken() {
        let entries = [
            "CUDA_VISIBLE_DEVICES=GPU-1",
            "CUDA_MPS_PIPE_DIRECTORY=/mps",
            "NVIDIA_GPU_MEMORY_LIMIT=7",
        ];
        assert_eq!(share().0, entries);
        for config in [
            "{}",
            r#"{"process":null}"#,
            r#"{"process":{"env":null}}"#,
            r#"{"process":{"env":["CUDA_VISIBLE_DEVICES=0","A=1"]}}"#,
        ] {
            assert_eq!(ShareEnvironment::parse(config.as_bytes()).unwrap(), None, "{config}");
        }
    }

    #[test]
    fn a_process_gets_it_in_place_of_its_own() {
        let process = json!({"args": ["a"], "env": ["A=1", "CUDA_MPS_PIPE_DIRECTORY=/evil", "CUDA_VISIBLE_DEVICES=3",
            "CUDA_MPS_UNKNOWN", "odd", 7], "x": 1.10, "cwd": "/"});
        let new: Value = serde_json::from_slice(&share().put_into(process.to_string().as_bytes()).unwrap()).unwrap();
        let mut expected = process.clone();
        expected["env"] = json!([
            "A=1",
            "odd",
            7,
            "CUDA_VISIBLE_DEVICES=GPU-1",
            "CUDA_MPS_PIPE_DIRECTORY=/mps",
            "NVIDIA_GPU_MEMORY_LIMIT=7"
        ]);
        assert_eq!(new, expected);
        for without in [json!({"args": []}), json!({"args": [], "env": null})] {
            let new: Value =
                serde_json::from_slice(&share().put_into(without.to_string().as_bytes()).unwrap()).unwrap();
            assert_eq!(new["env"].as_array().unwrap().len(), 3);
        }
        for odd in ["", "[]", r#"{"env":{}}"#, "{\"env\":"] {
            assert!(share().put_into(odd.as_bytes()).is_err(), "{odd}");
        }
    }

    fn in_arguments(line: &str) -> String {
        let mut words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let Action::Exec(exec) = RuntimeArguments::parse(&words).action else {
            panic!()
        };
        share().put_into_arguments(&exec, &mut words);
        words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn arguments_with_an_environment_get_it() {
        let line = "--root /r exec -e A=1 --env=CUDA_MPS_X=1 -eCUDA_VISIBLE_DEVICES=3 --tty -- ID prog -e CUDA_MPS_Y";
        let expected = "--root /r exec --env CUDA_VISIBLE_DEVICES=GPU-1 --env CUDA_MPS_PIPE_DIRECTORY=/mps \
                        --env NVIDIA_GPU_MEMORY_LIMIT=7 -e A=1 --tty -- ID prog -e CUDA_MPS_Y";
        assert_eq!(in_arguments(line), expected);
    }

    /// crun gives a process either the container's environment or that of the options.
    #[test]
    fn arguments_without_an_environment_stay_so() {
        assert_eq!(in_arguments("exec ID prog -e A=1"), "exec ID prog -e A=1");
        assert_eq!(in_arguments("exec -e CUDA_MPS_X=1 --tty ID prog"), "exec --tty ID prog");
    }
}
