//! The two sides that connect to a daemon: the front end, which takes commands on standard input, and a CUDA process.

use crate::config::{Config, Fault, hang};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The pipe directory, or the default of CUDA.
pub(crate) fn pipe() -> PathBuf {
    std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| PathBuf::from("/tmp/nvidia-mps"), PathBuf::from)
}

fn connected(name: &str) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(pipe().join(name))?)?;
    Ok(socket)
}

/// Receives one packet; `None` if the daemon has ended the connection.
fn answer(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    match recv(socket, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, 0)) | Err(_) => None,
        Ok((_, read)) => {
            buffer.truncate(read);
            Some(buffer)
        }
    }
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
    let Ok(socket) = connected("control_privileged") else {
        println!("Cannot find MPS control daemon process");
        return ExitCode::FAILURE;
    };
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if send(&socket, line.as_bytes(), SendFlags::NOSIGNAL).is_err() {
            println!("Failed to send a command");
            return ExitCode::FAILURE;
        }
        // Pieces of an answer, and then a packet that says that it is complete.
        loop {
            match answer(&socket) {
                None if line.starts_with("quit") => return ExitCode::SUCCESS,
                None => {
                    println!("Connection to the daemon is broken");
                    return ExitCode::FAILURE;
                }
                Some(end) if end == crate::daemon::END => break,
                Some(text) => {
                    if io::stdout().write_all(&text).is_err() {
                        return ExitCode::FAILURE;
                    }
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// A CUDA process.
pub(crate) fn run(command: &[String]) -> ExitCode {
    let Ok(socket) = connected("control") else {
        println!("no daemon");
        return ExitCode::FAILURE;
    };
    if send(&socket, crate::daemon::ATTACH.as_bytes(), SendFlags::NOSIGNAL).is_err() {
        return ExitCode::FAILURE;
    }
    let Some(limits) = answer(&socket) else {
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
    match answer(&socket) {
        Some(text) => println!("{}", String::from_utf8_lossy(&text)),
        None => println!("lost the daemon"),
    }
    ExitCode::FAILURE
}
