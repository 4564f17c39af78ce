//! A static program under crun alone: a container's start with hooks and without, in turns.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Compiles a static program from C into `directory`.
pub(crate) fn compile(directory: &Path, name: &str, source: &str) -> PathBuf {
    let (file, program) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-o"]).arg(&program).arg(&file);
    assert!(compiler.status().unwrap().success(), "cannot compile {name}");
    program
}

/// The value in the middle.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A hook as a specification has it.
pub(crate) fn hook(oci: &Path, arguments: &[String]) -> Value {
    let args: Vec<&str> = ["tranche-oci"]
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .collect();
    json!([{"path": oci, "args": args, "env": ["PATH="]}])
}

/// Makes the root directory of a container in `bundle`, with a program that does nothing.
pub(crate) fn root(bundle: &Path) {
    let root = bundle.join("rootfs");
    for directory in ["proc", "dev"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    compile(&root, "program", "int main(void) { return 0; }\n");
}

/// A configuration of such a container, with `hooks`.
pub(crate) fn config(hooks: &Value) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": {"terminal": false, "user": {"uid": 0, "gid": 0}, "args": ["/program"], "cwd": "/", "env": []},
        "root": {"path": "rootfs", "readonly": false},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}]},
        "hooks": hooks
    })
}

/// The command that starts the container of `bundle` and waits for its end.
pub(crate) fn run(bundle: &Path, id: &str) -> Command {
    let mut crun = Command::new("crun");
    crun.args(["--cgroup-manager=disabled", "run", "--bundle"]).arg(bundle);
    crun.arg(id)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    crun
}

/// Medians of a whole start and end of a container, with each of these `hooks` in turns. `reset` is called before each
/// start.
///
/// # Errors
/// What crun said, where it cannot run here.
pub(crate) fn starts(
    bundle: &Path,
    hooks: &[Value],
    rounds: usize,
    mut reset: impl FnMut(),
) -> Result<Vec<Duration>, String> {
    root(bundle);
    let configs: Vec<Value> = hooks.iter().map(config).collect();
    let mut times = vec![Vec::new(); configs.len()];
    for _ in 0..rounds {
        for (config, times) in configs.iter().zip(&mut times) {
            reset();
            fs::write(bundle.join("config.json"), config.to_string()).unwrap();
            let start = Instant::now();
            match run(bundle, "tranche-bench").output() {
                Ok(output) if output.status.success() => times.push(start.elapsed()),
                Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(times.into_iter().map(median).collect())
}
