//! The two sides that connect to a daemon: the front end, which takes commands on standard input, and a CUDA process.

use crate::config::{Config, Fault, hang};
use crate::protocol;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use tranche_core::mps::version::{CONTROL, CONTROL_PRIVILEGED};

/// The pipe directory, or the default of CUDA.
pub(crate) fn pipe() -> PathBuf {
    std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| PathBuf::from("/tmp/nvidia-mps"), PathBuf::from)
}

/// The front end: sends each line of standard input, and prints what the daemon answers.
pub(crate) fn commands(config: &Config) -> ExitCode {
    match config.front_fault() {
        None => {}
        Some(Fault::Hung) => hang(),
        Some(Fault::Dies) => std::process::abort(),
        Some(Fault::Refuse) => {
            println!("Failed to communicate with the MPS control daemon");
            return ExitCode::FAILURE;
        }
        Some(Fault::Garbage) => {
            let _ = io::stdout().write_all(b"\xff\xfe\x00 garbage\n");
            return ExitCode::SUCCESS;
        }
        Some(Fault::Endless) => loop {
            if io::stdout().write_all(&[b'x'; 4096]).is_err() {
                return ExitCode::FAILURE;
            }
        },
    }
    // Uid 0 reaches the first one alone.
    let connected = |name| protocol::connected(&pipe().join(name), protocol::UI);
    let Ok(socket) = connected(CONTROL_PRIVILEGED).or_else(|_| connected(CONTROL)) else {
        eprintln!("Cannot find MPS control daemon process");
        return ExitCode::FAILURE;
    };
    let Ok(answers) = socket.try_clone() else {
        return ExitCode::FAILURE;
    };
    let reader = std::thread::spawn(move || print_answers(&answers));
    for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        let text = [line.split(|byte| *byte == 0).next().unwrap_or_default(), b"\n\0"].concat();
        let length = (text.len() as u64).to_ne_bytes();
        if protocol::put(&socket, &length).is_err() || protocol::put(&socket, &text).is_err() {
            eprintln!("Cannot send command to MPS control daemon process");
            return ExitCode::FAILURE;
        }
    }
    // It may have ended because it was told to.
    let _ = protocol::put(&socket, &0_u64.to_ne_bytes());
    reader.join().unwrap_or(ExitCode::FAILURE)
}

/// Prints what the daemon answers, until it says with which code to end.
fn print_answers(socket: &OwnedFd) -> ExitCode {
    while let Some(packet) = protocol::receive(socket) {
        match protocol::numbered(&packet) {
            Some((protocol::TEXT, text)) => {
                let line = [text, b"\n"].concat();
                if io::stdout().write_all(&line).is_err() {
                    return ExitCode::FAILURE;
                }
            }
            Some((protocol::END, code)) => return ExitCode::from(code.first().copied().unwrap_or(1)),
            _ => return ExitCode::FAILURE,
        }
    }
    // The real one ends with 1 or with 0 where the daemon closes the connection, as its two threads happen to run.
    ExitCode::FAILURE
}

/// A CUDA process.
pub(crate) fn run(command: &[String]) -> ExitCode {
    let Ok(socket) = protocol::connected(&pipe().join(CONTROL), protocol::CLIENT) else {
        println!("no daemon");
        return ExitCode::FAILURE;
    };
    let Some(limits) = protocol::receive(&socket) else {
        println!("not attached");
        return ExitCode::FAILURE;
    };
    println!("{}", String::from_utf8_lossy(&limits));
    if let [program, arguments @ ..] = command {
        let status = Command::new(program).args(arguments).status();
        return status.map_or(ExitCode::FAILURE, |status| {
            ExitCode::from(status.code().unwrap_or(1) as u8)
        });
    }
    // Whichever ends first: the connection, or standard input.
    std::thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match protocol::receive(&socket) {
        Some(text) => println!("{}", String::from_utf8_lossy(&text)),
        None => println!("lost the daemon"),
    }
    ExitCode::FAILURE
}
