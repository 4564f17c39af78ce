//! Hostile input to podman's precreate hook, and an output that goes nowhere.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::process::{Command, Stdio};

use crate::run::Ended;
use crate::shim::{Shim, asking};
use crate::trial::{Attack, Trial};

/// Runs the hook with this input and output. What it printed is in `stdout` of the scene, unless `output` is another
/// file.
fn run(shim: &Shim, input: File, output: &str) -> Ended {
    let mut hook = shim.command(&["hook", "precreate"]);
    let line: Vec<OsString> = std::iter::once(hook.get_program())
        .chain(hook.get_args())
        .map(Into::into)
        .collect();
    let environment: Vec<_> = hook
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    hook = Command::new("/bin/sh");
    // The limits end a program that reads or computes without end.
    hook.args([
        "-c",
        &format!("ulimit -t 20; ulimit -v 524288; exec \"$@\" {output}"),
        "sh",
    ])
    .args(line);
    hook.env_clear().envs(environment).current_dir(shim.at(""));
    let ended = hook.stdin(input).stderr(Stdio::piped()).output().unwrap();
    Ended {
        code: ended.status.code().unwrap_or(-1),
        stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        ..Ended::default()
    }
}

fn input(shim: &Shim, bytes: &[u8]) -> File {
    fs::write(shim.at("input"), bytes).unwrap();
    File::open(shim.at("input")).unwrap()
}

fn share() -> String {
    asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]).to_string()
}

fn twin(trial: &mut Trial) {
    let shim = Shim::new();
    let ended = run(&shim, input(&shim, share().as_bytes()), "> stdout");
    let printed = fs::read_to_string(shim.at("stdout")).unwrap_or_default();
    let is_edited = ended.code == 0 && printed.contains("CUDA_MPS_PIPE_DIRECTORY=");
    trial.record_twin(
        "precreate",
        &Vec::from_iter((!is_edited).then(|| format!("{printed:.200} {}", ended.stderr))),
    );
}

/// One line, no configuration, and nothing is held.
fn failed(shim: &Shim, ended: &Ended) -> Vec<String> {
    let mut wrong = Vec::new();
    if ended.code != 1 || ended.stderr.lines().count() != 1 || ended.stderr.len() > 16 << 10 {
        wrong.push(format!("not refused in one line: {} {:.300}", ended.code, ended.stderr));
    }
    if shim.subject.is_real() && !shim.held().is_empty() {
        wrong.push(format!("something is held for nobody: {:?}", shim.held()));
    }
    let printed = fs::metadata(shim.at("stdout")).map_or(0, |file| file.len());
    wrong.extend((printed > 0).then(|| format!("{printed} bytes were printed")));
    wrong
}

#[test]
fn an_input_that_is_no_configuration() {
    Attack::new(
        "precreate::an_input_that_is_no_configuration",
        "the configuration has no end, is larger than any, is cut off, not JSON, or a directory",
    )
    .run_one_way(|trial| {
        twin(trial);
        let whole = share();
        let large = format!("{}{whole}", " ".repeat(17 << 20));
        for (name, text) in [
            ("large", &large[..]),
            ("cut", &whole[..whole.len() - 2]),
            ("not JSON", "NVIDIA_VISIBLE_DEVICES"),
            ("two", &format!("{whole}{whole}")),
            ("twice", &format!("{},\"process\":{{}}}}", &whole[..whole.len() - 1])),
        ] {
            let shim = Shim::new();
            let mut ended = run(&shim, input(&shim, text.as_bytes()), "> stdout");
            ended.wrong = failed(&shim, &ended);
            trial.record(name, &ended);
        }
        for name in ["/dev/zero", "/"] {
            let shim = Shim::new();
            let mut ended = run(&shim, File::open(name).unwrap(), "> stdout");
            ended.wrong = failed(&shim, &ended);
            trial.record(name, &ended);
        }
    });
}

/// podman would go on with the configuration that it has, and the share would be held for nobody.
#[test]
fn an_output_that_goes_nowhere() {
    Attack::new(
        "precreate::an_output_that_goes_nowhere",
        "standard output is closed, full, only open to read, or a pipe without a reader",
    )
    .run_one_way(|trial| {
        twin(trial);
        for output in [">&-", "> /dev/full", "1< input", "> /dev/full 2> /dev/null", "nobody"] {
            let shim = Shim::new();
            let given = input(&shim, share().as_bytes());
            let mut ended = match output {
                "nobody" => without_reader(&shim, given),
                _ => run(&shim, given, output),
            };
            if output.contains("2>") {
                ended.stderr = "hidden\n".to_owned();
            }
            ended.wrong = failed(&shim, &ended);
            trial.record(output, &ended);
        }
    });
}

/// The standard output is a pipe of which nobody has the other end.
fn without_reader(shim: &Shim, given: File) -> Ended {
    let path = shim.at("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    drop(reader);
    let mut hook = shim.command(&["hook", "precreate"]);
    let ended = hook
        .stdin(given)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    Ended {
        code: ended.status.code().unwrap_or(-1),
        stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        ..Ended::default()
    }
}
