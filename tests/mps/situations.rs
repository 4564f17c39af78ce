//! What is not an answer to one command: the command line, files and modes, what is stale, signals, the end, who may
//! command, servers, and connections that say nothing.

use crate::bed::{Bed, Daemon, Ran};
use crate::compare::Transcript;
use crate::raw::{CLIENT, CREDENTIALS, FRONT_END, connected, heard};
use nix::sys::signal::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::Duration;
use tranche_core::mps::version::{CONTROL, CONTROL_LOCK, CONTROL_PRIVILEGED, LOG, PID_FILE};

pub(crate) fn run(bed: &Bed, transcript: &mut Transcript) {
    options(bed, transcript);
    lengths(bed, transcript);
    files(bed, transcript);
    stale(bed, transcript);
    two_daemons(bed, transcript);
    signals(bed, transcript);
    quit(bed, transcript);
    users(bed, transcript);
    servers(bed, transcript);
    many_users(bed, transcript);
    connections(bed, transcript);
    logs(bed, transcript);
}

/// How a start went.
fn started(result: &Result<Daemon, Ran>) -> String {
    match result {
        Ok(_) => "listens".to_owned(),
        Err(ran) => ran.line(),
    }
}

/// Ends a daemon in the background, by its directory.
fn end_background(bed: &Bed) {
    if bed.listens() {
        bed.say("quit");
        // It answers before it has removed its files.
        std::thread::sleep(Duration::from_millis(60));
    }
}

/// A line about a front end that may have been closed because of another one, or by a server that failed. Whether it
/// then prints a line on stderr, and whether its exit code is 1 or 0, is left to chance: its two threads notice the end
/// at the same time.
fn unless_refused(ran: &Ran) -> String {
    let is_silent = ran.err.is_empty() || ran.err == "Cannot send command to MPS control daemon process\n";
    match ran.how.as_str() {
        "exit 0" | "exit 1" if ran.out.is_empty() && is_silent => {
            "closed, with a code that is left to chance".to_owned()
        }
        _ => ran.line(),
    }
}

fn options(bed: &Bed, transcript: &mut Transcript) {
    let lines = [
        "",
        "-h",
        "--help",
        "-v",
        "-x",
        "d",
        "-d",
        "-f",
        "-d -f",
        "-f -d",
        "-f -f",
        "-d -d",
        "-f -multiuser-server",
        "-multiuser-server -f",
        "-d -multiuser-server",
        "-multiuser-server",
        "-f -M",
        "-M",
        "-f x",
        "-h -f",
        "-f -h",
        "get_server_list",
    ];
    for line in lines {
        bed.clear();
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = bed.start(&words);
        let mut lines = vec![started(&result)];
        if let Err(ran) = &result
            && ran.how == "exit 0"
            && bed.listens()
        {
            lines.push("a daemon listens".to_owned());
        }
        lines.push(bed.files("pipe"));
        drop(result);
        end_background(bed);
        transcript.note(&format!("options: {line}"), lines);
    }
}

/// `control_privileged` is the longer one of the two sockets.
fn lengths(bed: &Bed, transcript: &mut Transcript) {
    for length in [105, 106, 107, 108] {
        bed.clear();
        let more = length - bed.pipe().join(CONTROL_PRIVILEGED).as_os_str().len() - 1;
        let pipe = bed.pipe().join("x".repeat(more));
        fs::create_dir(&pipe).unwrap();
        for option in ["-f", "-d"] {
            let mut command = bed.program(&[option]);
            command.env("CUDA_MPS_PIPE_DIRECTORY", &pipe);
            let ran = bed.run(command, "");
            let has = |name: &str| pipe.join(name).exists();
            let line = format!(
                "{}, control {}, control_privileged {}",
                ran.how,
                has(CONTROL),
                has(CONTROL_PRIVILEGED)
            );
            if has(CONTROL) && option == "-d" {
                let mut quit = bed.program(&[]);
                quit.env("CUDA_MPS_PIPE_DIRECTORY", &pipe);
                bed.run(quit, "quit\n");
            }
            for name in [CONTROL, CONTROL_PRIVILEGED] {
                let _ = fs::remove_file(pipe.join(name));
            }
            transcript.note(&format!("a socket of {length} bytes, {option}"), vec![line]);
        }
    }
}

fn files(bed: &Bed, transcript: &mut Transcript) {
    for mask in ["022", "077", "000"] {
        for option in ["-f", "-d"] {
            bed.clear();
            fs::remove_dir(bed.at("log")).unwrap();
            fs::remove_dir(bed.at("pipe")).unwrap();
            let mut command = Command::new("/bin/sh");
            let program = bed.program(&[option]);
            command.arg("-c").arg(format!("umask {mask}; exec \"$@\"")).arg("sh");
            command.arg(program.get_program()).args(program.get_args());
            command
                .env_clear()
                .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let result = bed.start_command(command);
            std::thread::sleep(Duration::from_millis(30));
            let mode = |name: &str| {
                let meta = fs::metadata(bed.at(name));
                meta.map_or_else(
                    |_| "absent".to_owned(),
                    |meta| format!("{:o}", meta.permissions().mode() & 0o7777),
                )
            };
            let lines = vec![
                format!("pipe {}: {}", mode("pipe"), bed.files("pipe")),
                format!("log {}: {}", mode("log"), bed.files("log")),
            ];
            drop(result);
            end_background(bed);
            transcript.note(&format!("files: umask {mask}, {option}"), lines);
        }
    }
    bed.clear();
    let mut command = bed.program(&["-f"]);
    command.env("CUDA_MPS_PIPE_DIRECTORY", bed.at("pipe/a/b"));
    transcript.note(
        "the parent of the pipe directory is missing",
        vec![bed.run(command, "").line()],
    );
    bed.clear();
    fs::remove_dir(bed.pipe()).unwrap();
    fs::write(bed.pipe(), "").unwrap();
    transcript.note(
        "the pipe directory is a file",
        vec![bed.run(bed.program(&["-f"]), "").line()],
    );
    bed.clear();
    transcript.note(
        "uid 1000 in a directory of root, -f",
        vec![bed.run(bed.program_as(1000, &["-f"]), "").line()],
    );
    bed.clear();
    transcript.note(
        "uid 1000 in a directory of root, -d",
        vec![bed.run(bed.program_as(1000, &["-d"]), "").line()],
    );
    bed.clear();
    let mut command = bed.program(&["-f"]);
    command.env("CUDA_MPS_LOG_DIRECTORY", bed.at("log/a/b"));
    let result = bed.start_command(command);
    transcript.note(
        "the parent of the log directory is missing, -f",
        vec![started(&result), bed.files("log")],
    );
}

fn stale(bed: &Bed, transcript: &mut Transcript) {
    let kill = |bed: &Bed| {
        let mut daemon = bed.start(&["-f"]).unwrap();
        daemon.signal(Signal::SIGKILL)
    };
    bed.clear();
    let how = kill(bed);
    let lines = vec![how, bed.files("pipe"), bed.say("get_server_list").line()];
    transcript.note("after SIGKILL", lines);
    let result = bed.start(&["-f"]);
    let lines = vec![
        started(&result),
        bed.say("get_default_active_thread_percentage").line(),
        bed.files("pipe"),
    ];
    drop(result);
    transcript.note("a start after SIGKILL", lines);
    bed.clear();
    kill(bed);
    fs::write(bed.pipe().join(PID_FILE), "123456789").unwrap();
    let result = bed.start(&["-f"]);
    let number = result.as_ref().map_or(0, |daemon| daemon.process.id()).to_string();
    let written = fs::read_to_string(bed.pipe().join(PID_FILE)).unwrap();
    let written = match written.strip_prefix(&number) {
        Some(rest) => format!("NUMBER{}", &"123456789"[9 - rest.len()..]),
        None => written,
    };
    let is_rest_kept = written.len() > "NUMBER".len();
    drop(result);
    transcript.note(
        "a longer number in a stale pid file stays behind the new one",
        vec![format!("{is_rest_kept}")],
    );
    for name in [CONTROL, CONTROL_PRIVILEGED] {
        bed.clear();
        fs::write(bed.pipe().join(name), "x").unwrap();
        let result = bed.start(&["-f"]);
        transcript.note(&format!("a file at {name}"), vec![started(&result), bed.files("pipe")]);
        drop(result);
        bed.clear();
        fs::create_dir(bed.pipe().join(name)).unwrap();
        let ran = bed.run(bed.program(&["-f"]), "");
        transcript.note(&format!("a directory at {name}"), vec![ran.how, bed.files("pipe")]);
    }
    for name in [LOG, CONTROL_LOCK, PID_FILE] {
        for exists in [true, false] {
            bed.clear();
            let target = bed.at("other");
            if exists {
                fs::write(&target, "a file of the host").unwrap();
                fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
            }
            symlink(&target, bed.pipe().join(name)).unwrap();
            let result = bed.start(&["-f"]);
            std::thread::sleep(Duration::from_millis(40));
            let after = match fs::metadata(&target) {
                Ok(meta) => {
                    let text = fs::read(&target).unwrap();
                    let is_kept = text == b"a file of the host";
                    let is_empty = text.is_empty();
                    format!(
                        "mode {:o}, kept {is_kept}, empty {is_empty}",
                        meta.permissions().mode() & 0o7777
                    )
                }
                Err(_) => "absent".to_owned(),
            };
            let what = if exists { "a file" } else { "nothing" };
            transcript.note(&format!("a link at {name} to {what}"), vec![started(&result), after]);
        }
    }
}

fn two_daemons(bed: &Bed, transcript: &mut Transcript) {
    bed.clear();
    let first = bed.start(&["-f"]).unwrap();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let of_first = locks
        .lines()
        .filter(|line| line.contains(&format!(" {} ", first.process.id())));
    let kinds: Vec<String> = of_first
        .map(|line| line.split_whitespace().skip(1).take(3).collect::<Vec<_>>().join(" "))
        .collect();
    transcript.note("the lock", kinds);
    for option in ["-f", "-d"] {
        let ran = bed.run(bed.program(&[option]), "");
        transcript.note(
            &format!("a second daemon, {option}"),
            vec![ran.line(), bed.say("get_server_list").line()],
        );
    }
}

fn signals(bed: &Bed, transcript: &mut Transcript) {
    let signals = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGPIPE,
    ];
    for signal in signals {
        bed.clear();
        let mut daemon = bed.start(&["-f"]).unwrap();
        let how = daemon.signal(signal);
        transcript.note(&format!("signal {signal}"), vec![how, bed.files("pipe")]);
    }
}

fn quit(bed: &Bed, transcript: &mut Transcript) {
    for command in [
        "quit",
        "quit -t 1",
        "quit -t 0",
        "quit -t x",
        "quit -t",
        "quit x",
        "  quit",
    ] {
        bed.clear();
        let mut daemon = bed.start(&["-f"]).unwrap();
        let ran = bed.say(command);
        let how = daemon.end();
        let lines = vec![ran.line(), how, bed.files("pipe"), bed.log(&daemon).join("\n")];
        transcript.note(&format!("the end by {command}"), lines);
    }
    bed.clear();
    let mut daemon = bed.start(&["-f"]).unwrap();
    let front = connected(&bed.pipe().join(CONTROL), &[CREDENTIALS, &FRONT_END]);
    heard(&front);
    let ran = bed.say("quit");
    let lines = vec![unless_refused(&ran), daemon.end(), heard(&front)];
    transcript.note("the end while another front end is idle", lines);
}

/// Who may command. The daemon's user is root, and then uid 1000.
fn users(bed: &Bed, transcript: &mut Transcript) {
    const COMMANDS: [&str; 15] = [
        "get_server_list",
        "get_default_active_thread_percentage",
        "set_default_active_thread_percentage 40",
        "get_default_device_pinned_mem_limit 0",
        "set_default_device_pinned_mem_limit 0 1G",
        "get_default_client_priority",
        "set_default_client_priority 1",
        "start_server -uid 0",
        "get_server_status 1",
        "shutdown_server 1",
        "terminate_client 1 2",
        "ps",
        "foo",
        "quit",
        "quit -t 1",
    ];
    bed.clear();
    let mut daemon = bed.start(&["-f"]).unwrap();
    for command in COMMANDS {
        transcript.note(&format!("uid 1000: {command}"), vec![bed.say_as(1000, command).line()]);
    }
    transcript.note(
        "the daemon after uid 1000",
        vec![daemon.end(), bed.say("get_default_active_thread_percentage").line()],
    );
    let in_namespace = |bed: &Bed, command: &str| {
        let program = bed.program(&[]);
        let mut unshare = bed.program_as(1000, &[]);
        let own: Vec<_> = program.get_args().map(ToOwned::to_owned).collect();
        unshare = {
            let mut new = Command::new("/usr/bin/unshare");
            new.args(["--user", "--map-root-user"])
                .arg(program.get_program())
                .args(own);
            new.env_clear();
            new.envs(unshare.get_envs().filter_map(|(name, value)| Some((name, value?))));
            std::os::unix::process::CommandExt::uid(&mut new, 1000);
            std::os::unix::process::CommandExt::gid(&mut new, 1000);
            new
        };
        bed.run(unshare, &format!("{command}\n")).line()
    };
    for command in [
        "get_server_list",
        "set_default_active_thread_percentage 30",
        "start_server -uid 0",
        "quit",
    ] {
        transcript.note(
            &format!("root of a user namespace of uid 1000: {command}"),
            vec![in_namespace(bed, command)],
        );
    }
    drop(daemon);
    bed.clear();
    let _daemon = bed.start(&["-f"]).unwrap();
    fs::remove_file(bed.pipe().join(CONTROL_PRIVILEGED)).unwrap();
    for command in [
        "get_server_list",
        "set_default_active_thread_percentage 60",
        "set_default_device_pinned_mem_limit 0 1G",
        "set_default_client_priority 1",
        "start_server -uid 1000",
        "shutdown_server 1",
        "terminate_client 1 2",
        "quit",
    ] {
        let name = format!("root without control_privileged: {command}");
        transcript.note(&name, vec![bed.say(command).line()]);
    }
    fs::set_permissions(bed.pipe(), Permissions::from_mode(0o700)).unwrap();
    transcript.note(
        "uid 1000 without access to the directory",
        vec![bed.say_as(1000, "get_server_list").line()],
    );
    fs::remove_file(bed.pipe().join(CONTROL)).unwrap();
    transcript.note("root without sockets", vec![bed.say("get_server_list").line()]);
    bed.clear();
    for name in ["pipe", "log"] {
        std::os::unix::fs::chown(bed.at(name), Some(1000), Some(1000)).unwrap();
    }
    let own = bed.start_command(bed.program_as(1000, &["-f"]));
    let mut lines = vec![started(&own), bed.files("pipe")];
    for uid in [1000, 1001, 0] {
        lines.push(format!(
            "{uid}: {}",
            bed.say_as(uid, "set_default_active_thread_percentage 70").line()
        ));
        lines.push(format!(
            "{uid}: {}",
            unless_refused(&bed.say_as(uid, "start_server -uid 1001"))
        ));
    }
    transcript.note("a daemon of uid 1000", lines);
}

fn servers(bed: &Bed, transcript: &mut Transcript) {
    for uid in ["0", "1000", "99999999999", "-5x"] {
        bed.clear();
        let mut daemon = bed.start(&["-f"]).unwrap();
        let mut lines = vec![unless_refused(&bed.say(&format!("start_server -uid {uid}")))];
        std::thread::sleep(Duration::from_millis(100));
        lines.push(bed.say("get_server_list").line());
        // Which of its two threads ends the front end is left to chance, and so is its code.
        lines.push(bed.say("quit").how.replace("exit 1", "exit 0"));
        lines.push(daemon.end());
        lines.extend(bed.log(&daemon));
        transcript.note(&format!("a server of {uid} that fails"), lines);
    }
    bed.clear();
    let mut command = bed.program(&["-f"]);
    command.env("PATH", "/usr/bin:/bin");
    let daemon = bed.start_command(command).unwrap();
    let mut lines = vec![unless_refused(&bed.say("start_server -uid 0"))];
    std::thread::sleep(Duration::from_millis(100));
    lines.push(bed.say("get_server_list").line());
    lines.extend(bed.log(&daemon));
    transcript.note("a PATH without the server", lines);
    bed.clear();
    let daemon = bed.start(&["-f"]).unwrap();
    let client = connected(&bed.pipe().join(CONTROL), &[CREDENTIALS, &CLIENT]);
    let mut said = vec![heard(&client)];
    for _ in 0..3 {
        if said.last().is_some_and(|said| said != "closed") {
            said.push(heard(&client));
        }
    }
    said.dedup();
    // How often it tries is a matter of time.
    let mut log = bed.log(&daemon);
    log.iter_mut()
        .for_each(|line| *line = line.replace(&std::process::id().to_string(), "CLIENT"));
    log.dedup();
    said.extend(log.into_iter().take(5));
    transcript.note("a client without a server", said);
}

/// One server for the processes of all users: they count as root's.
fn many_users(bed: &Bed, transcript: &mut Transcript) {
    bed.clear();
    let mut lines = Vec::new();
    match bed.start(&["-f", "-multiuser-server"]) {
        Ok(daemon) => {
            let client = connected(&bed.pipe().join(CONTROL), &[CREDENTIALS, &CLIENT]);
            heard(&client);
            lines.push(heard(&client));
            lines.push(unless_refused(&bed.say("start_server -uid 1000")));
            std::thread::sleep(Duration::from_millis(100));
            lines.push(unless_refused(&bed.say_as(1000, "start_server -uid 1000")));
            std::thread::sleep(Duration::from_millis(100));
            let mut log = bed.log(&daemon);
            let own = std::process::id().to_string();
            log.retain(|line| line.contains(" user "));
            log.iter_mut().for_each(|line| *line = line.replace(&own, "CLIENT"));
            log.dedup();
            lines.extend(log);
        }
        Err(ran) => lines.push(ran.line()),
    }
    transcript.note("one server for all users", lines);
    bed.clear();
    for name in ["pipe", "log"] {
        std::os::unix::fs::chown(bed.at(name), Some(1000), Some(1000)).unwrap();
    }
    let started = bed.start_command(bed.program_as(1000, &["-f", "-multiuser-server"]));
    transcript.note(
        "one server for all users, asked for by uid 1000",
        vec![self::started(&started)],
    );
}

/// One connection after another: what one does to the others.
fn connections(bed: &Bed, transcript: &mut Transcript) {
    let length = 5_u64.to_ne_bytes();
    let unfinished: [(&str, &[&[u8]]); 7] = [
        ("nothing", &[]),
        ("its credentials", &[CREDENTIALS]),
        ("that it is a front end", &[CREDENTIALS, &FRONT_END]),
        ("the length of a command", &[CREDENTIALS, &FRONT_END, &length]),
        ("other words", &[b"hello"]),
        ("a kind that does not exist", &[CREDENTIALS, &77_u32.to_ne_bytes()]),
        ("half a kind", &[CREDENTIALS, b"x"]),
    ];
    for name in [CONTROL, CONTROL_PRIVILEGED] {
        for (what, packets) in unfinished {
            bed.clear();
            let daemon = bed.start(&["-f"]).unwrap();
            let connection = connected(&bed.pipe().join(name), packets);
            let mut lines = vec![heard(&connection)];
            // The daemon reads what was sent.
            std::thread::sleep(Duration::from_millis(20));
            let meanwhile = bed.say("get_default_active_thread_percentage");
            lines.push(format!("meanwhile {}", unless_refused(&meanwhile)));
            drop(connection);
            lines.push(format!(
                "afterwards {}",
                bed.say("get_default_active_thread_percentage").line()
            ));
            lines.extend(bed.log(&daemon));
            transcript.note(&format!("a connection to {name} that says {what}"), lines);
        }
    }
}

fn logs(bed: &Bed, transcript: &mut Transcript) {
    bed.clear();
    let mut command = bed.program(&["-d"]);
    command
        .env_remove("CUDA_MPS_LOG_DIRECTORY")
        .env("CUDA_MPS_LOG_DIRECTORY", bed.at("log"));
    bed.run(command, "");
    bed.say("set_default_active_thread_percentage 0");
    bed.say("get_default_device_pinned_mem_limit 0");
    bed.say("foo");
    bed.say("quit");
    transcript.note("control.log of -d", bed.log_lines(&bed.at("log/control.log")));
    bed.clear();
    let daemon = bed.start(&["-f"]).unwrap();
    bed.say("get_server_list\nget_default_active_thread_percentage\nfoo");
    transcript.note("the log of -f", bed.log(&daemon));
    // A record as a server writes it.
    let text = b"a line of another process";
    let mut record: Vec<u8> = Vec::new();
    let length = u32::try_from(text.len()).unwrap();
    let header = [0xabcd_e003, 42, 2031, 2, 3, 1, 4, 5, 6, 7, length, 0];
    header
        .iter()
        .for_each(|number: &u32| record.extend(number.to_ne_bytes()));
    record.extend(text);
    fs::write(bed.pipe().join(LOG), &record).unwrap();
    transcript.note("a record in the pipe", bed.log(&daemon));
}
