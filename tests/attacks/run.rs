//! A run of the hook as under an engine: in a mount namespace, with limits, and with the lists of mounts around it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, Uid};

use crate::stage::Stage;
use crate::subject::Subject;
use crate::support::old_kernel::has_openat2;

/// The container's namespace. What the hook laid over files of the image is kept, because it goes with the namespace.
const ENTER: &str = r#"
root=$1 lists=$2; shift 2
PREPARE
cat /proc/self/mountinfo > "$lists/before"
cd "$root" || exit 99
RUN
cat /proc/self/mountinfo > "$lists/after"
n=0
cmp -s "$lists/before" "$lists/after" || while read -r _ _ _ _ at _; do
    case $at in "$root"/*) ;; *) continue ;; esac
    [ -f "$at" ] && ! grep -qF " $at " "$lists/before" || continue
    n=$((n + 1)) && cp "$at" "$lists/cover.$n" 2> /dev/null && stat -c '%a %u:%g' "$at" > "$lists/cover.$n.mode"
    printf '%s' "${at#"$root"}" > "$lists/cover.$n.path"
done < "$lists/after"
AFTER
exit $code
"#;

/// The host's namespace, where a scene has one: of mounts that are shared between it and the container.
const HOST: &str = r#"
root=$1 lists=$2
HOST_PREPARE
cat /proc/self/mountinfo > "$lists/host.before"
unshare -m --propagation unchanged sh -c "$ENTER" sh "$@"
code=$?
cat /proc/self/mountinfo > "$lists/host.after"
exit $code
"#;

/// The hook under its limits, and the machine's uptime around it. The limit of processor time is more than the one
/// second that the program gives itself: one that reaches it did not keep its own.
const RUN: &str = r#"read -r start rest < /proc/uptime
(ulimit -c 0; ulimit -t 2; ulimit -d 262144; exec "$@")
code=$?
read -r end rest < /proc/uptime
echo "$start $end" > "$lists/took""#;

/// The same where nothing is mounted: a namespace costs more than all else.
const LIMITS: &str = r#"
lists=$2; shift 2
RUN
exit $code
"#;

/// The exit codes for SIGXCPU: ours, and a shell's.
const XCPU: i32 = -24;
const XCPU_OF_A_SHELL: i32 = 128 + 24;

/// Longer than any run takes on a machine that is not stuck.
const HANGS: Duration = Duration::from_secs(60);

/// A program that must fail gets less time, because some attacks hang it: this, or four times what the slowest run of
/// the real program has taken so far on this machine.
const HANGS_IF_NAIVE: Duration = Duration::from_secs(4);

/// The longest run of the real program so far, in milliseconds.
static SLOWEST: AtomicU64 = AtomicU64::new(0);

/// How long a run of `subject` may take before it counts as one that hangs.
fn patience(subject: &Subject) -> Duration {
    let slowest = Duration::from_millis(SLOWEST.load(Ordering::Relaxed));
    match subject.is_real() {
        true => HANGS,
        false => (slowest * 4).clamp(HANGS_IF_NAIVE, HANGS),
    }
}

/// What a run left behind.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stderr: String,
    /// What lay over files of the image when the hook had ended.
    pub(crate) covers: Vec<Cover>,
    /// From the hook's start to its end, on the wall's clock, to hundredths of a second.
    pub(crate) took: Duration,
    /// The processor time of the program, where it was measured.
    pub(crate) processor: Duration,
    pub(crate) wrong: Vec<String>,
}

/// A file that was laid over one of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Its path in the container.
    pub(crate) path: String,
    /// Mode and owner.
    pub(crate) mode: String,
    pub(crate) bytes: Vec<u8>,
}

/// Runs the hook and looks at all that can be seen without the files of the scene.
pub(crate) fn run(stage: &Stage) -> Ended {
    let root = stage.image("/");
    let lists = crate::stage::temporary();
    let list = |name: &str| fs::read_to_string(lists.path().join(name));
    let mut command = namespaces(stage);
    command
        .arg("sh")
        .arg(root.as_os_str().to_str().unwrap().trim_end_matches('/'))
        .arg(lists.path());
    if !stage.environment.is_empty() {
        command.arg("env");
    }
    for (name, value) in &stage.environment {
        let mut both = name.clone();
        both.push("=");
        both.push(value);
        command.arg(both);
    }
    command
        .args(&stage.wrapper)
        .arg(stage.subject.hook())
        .args(["hook", stage.verb.name]);
    command.arg(format!("--state-dir={}", stage.scene.state_dir().display()));
    command.args(stage.verb.arguments).args(&stage.more);
    let mut fence = vec![stage.scene.at("")];
    fence.extend(stage.fence.iter().cloned());
    let fence: Vec<&Path> = fence.iter().map(PathBuf::as_path).collect();
    command.args(stage.subject.arguments(&fence)).current_dir(&root);
    let here = mounts_here();
    let (code, stderr) = finish(command, stage.state.as_bytes(), &stage.subject);
    let mut wrong = complaints(code, &stderr);
    wrong.extend(new_mounts(&here, &mounts_here(), &root));
    if let (Ok(before), Ok(after), false) = (list("before"), list("after"), stage.mounts_move) {
        wrong.extend(new_mounts(&before, &after, &root));
        wrong.extend(covers_that_do_harm(&before, &after, &root));
    }
    if let (Ok(before), Ok(after)) = (list("host.before"), list("host.after")) {
        wrong.extend(new_mounts(&before, &after, Path::new("/nowhere")));
    }
    let covers = covers(lists.path());
    let took = seconds_between(&list("took").unwrap_or_default());
    Ended {
        code,
        stderr,
        covers,
        took,
        processor: Duration::ZERO,
        wrong,
    }
}

/// The mounts that this thread sees.
fn mounts_here() -> String {
    fs::read_to_string("/proc/thread-self/mountinfo").unwrap()
}

/// The beginning of a command in the namespaces that the scene needs.
fn namespaces(stage: &Stage) -> Command {
    let enter = ENTER
        .replace("RUN", RUN)
        .replace("PREPARE", &stage.before)
        .replace("AFTER", &stage.after);
    // These three never mount.
    let mounts = !matches!(
        stage.verb.name,
        "create-symlinks" | "update-application-profile" | "chmod"
    );
    let mut command;
    if !stage.host.is_empty() {
        command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c"]);
        command.arg(HOST.replace("HOST_PREPARE", &stage.host));
    } else if Uid::effective().is_root() && (mounts || !stage.before.is_empty() || !stage.after.is_empty()) {
        command = Command::new("unshare");
        command.args(["-m", "--propagation", "slave", "sh", "-c"]).arg(&enter);
    } else {
        command = Command::new("sh");
        command.args(["-c", &LIMITS.replace("RUN", RUN)]);
    }
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    if !stage.host.is_empty() {
        // Its text is too long for one more level of quotes. The hook does not look at its environment.
        command.env("ENTER", enter);
    }
    command
}

/// How a command ended.
pub(crate) struct Finished {
    /// Its exit code, or the negative number of a signal.
    pub(crate) code: i32,
    pub(crate) stderr: String,
    /// The processor time of the process and of the programs that it became, without its children.
    pub(crate) processor: Duration,
}

/// Runs a command to its end: its exit code, or the negative number of a signal, and what it said.
pub(crate) fn finish(command: Command, input: &[u8], subject: &Subject) -> (i32, String) {
    let finished = finish_measured(command, input, subject);
    (finished.code, finished.stderr)
}

/// As [`finish`], with the processor time.
pub(crate) fn finish_measured(mut command: Command, input: &[u8], subject: &Subject) -> Finished {
    let start = Instant::now();
    let most = patience(subject);
    // A pipe, as engines have it: a limit on the size of files does not hold for it.
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let said = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = (&mut stderr).take(16 << 20).read_to_end(&mut bytes);
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    });
    // A program may end without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    // Not waited for yet, so that the kernel still has what the process used.
    let ended = || {
        waitid(
            Id::Pid(pid),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT,
        )
        .unwrap()
    };
    while ended() == WaitStatus::StillAlive {
        if start.elapsed() > most {
            // Both the shell and the hook: a process that waits for a FIFO would wait for ever.
            killpg(pid, Signal::SIGKILL).unwrap();
            child.wait().unwrap();
            return Finished {
                code: -1,
                stderr: "it hangs".to_owned(),
                processor: Duration::ZERO,
            };
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    if subject.is_real() {
        let took = u64::try_from(start.elapsed().as_millis()).unwrap();
        SLOWEST.fetch_max(took, Ordering::Relaxed);
    }
    // proc_pid_schedstat: nanoseconds on a processor come first.
    let used = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let used = used.split_whitespace().next().unwrap().parse().unwrap();
    let status = child.wait().unwrap();
    let signal = status.signal().unwrap_or(1);
    Finished {
        code: status.code().unwrap_or(-signal),
        stderr: said.join().unwrap(),
        processor: Duration::from_nanos(used),
    }
}

/// What the shell noted of the machine's uptime before and after; nothing where it did not come to that.
fn seconds_between(text: &str) -> Duration {
    let times: Vec<f64> = text.split_whitespace().map(|t| t.parse().unwrap()).collect();
    match times[..] {
        [start, end] => Duration::from_secs_f64((end - start).max(0.0)),
        _ => Duration::ZERO,
    }
}

/// What is wrong with an exit code and with what was said.
fn complaints(code: i32, stderr: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    // A walk without openat2 can be made as long as an image likes: then the hook ends itself by a signal after a
    // second of work. Anything else is a program that aborts or crashes, or that others had to end.
    let ended_itself = !has_openat2() && matches!(code, XCPU | XCPU_OF_A_SHELL);
    if !(0..=2).contains(&code) && !ended_itself {
        wrong.push(format!("exit code {code}"));
    }
    for line in stderr.lines() {
        if ended_itself && line.starts_with("CPU time limit exceeded") {
            continue;
        }
        let foreign = line.chars().any(|c| c.is_control() || is_bidirectional(c));
        if !line.starts_with("tranche-oci: hook") || foreign {
            wrong.push(format!("a line that is not ours: {line:?}"));
        }
    }
    if code != 0 && stderr.is_empty() && !ended_itself {
        wrong.push("it failed without a word".to_owned());
    }
    wrong
}

/// Marks that reorder what a terminal shows.
pub(crate) fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Mounts that are new and not below the root.
fn new_mounts(before: &str, after: &str, root: &Path) -> Vec<String> {
    let gone = before.lines().filter(|line| !after.lines().any(|now| now == *line));
    let outside = added(before, after).filter(|line| {
        let at = line.split(' ').nth(4).unwrap_or_default();
        !Path::new(at).starts_with(root) || Path::new(at) == root
    });
    outside
        .chain(gone)
        .map(|line| format!("a mount of the host: {line}"))
        .collect()
}

fn added<'a>(before: &'a str, after: &'a str) -> impl Iterator<Item = &'a str> {
    after
        .lines()
        .filter(move |line| !before.lines().any(|old| old == *line))
}

/// Mounts in the root that can be written, or that would appear elsewhere too.
fn covers_that_do_harm(before: &str, after: &str, root: &Path) -> Vec<String> {
    let inside = added(before, after).filter(|line| {
        let at = line.split(' ').nth(4).unwrap_or_default();
        Path::new(at).starts_with(root)
    });
    let harmful = inside.filter(|line| {
        let options = line.split(' ').nth(5).unwrap_or_default();
        let shared = line
            .split(' ')
            .skip(6)
            .take_while(|word| *word != "-")
            .any(|word| word.starts_with("shared:"));
        !options.split(',').any(|option| option == "ro") || shared
    });
    harmful
        .map(|line| format!("a cover that can be written, or is shared: {line}"))
        .collect()
}

fn covers(lists: &Path) -> Vec<Cover> {
    let text = |name: String| fs::read_to_string(lists.join(name));
    (1..)
        .map_while(|n| {
            Some(Cover {
                path: text(format!("cover.{n}.path")).ok()?,
                mode: text(format!("cover.{n}.mode")).unwrap_or_default().trim().to_owned(),
                bytes: fs::read(lists.join(format!("cover.{n}"))).unwrap_or_default(),
            })
        })
        .collect()
}

/// Runs a command to its end: its exit code, -1 if it hangs, and all that it said, to 64 MiB.
pub(crate) fn said(mut command: Command, subject: &Subject) -> (i32, String) {
    let most = patience(subject);
    let said = tempfile::NamedTempFile::new_in(crate::stage::in_memory()).unwrap();
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(File::options().append(true).open(said.path()).unwrap())
        .stderr(File::options().append(true).open(said.path()).unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > most {
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
            killpg(group, Signal::SIGKILL).unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut bytes = Vec::new();
    said.reopen().unwrap().take(64 << 20).read_to_end(&mut bytes).unwrap();
    let code = status.map_or(-1, |status| status.code().unwrap_or(-status.signal().unwrap_or(1)));
    (code, String::from_utf8_lossy(&bytes).into_owned())
}
