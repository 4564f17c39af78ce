//! What a tenant tries against the real daemon. Each attack is also made on a daemon that works in the directory of its
//! clients, as earlier versions of tranche ran it: there it must succeed.

use super::{ask, each, until};
use crate::bed::UNEQUAL;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tranche_broker::control::MachineControl;
use tranche_core::mps::connect_to;

/// A daemon as earlier versions of tranche ran it, which works in `pipe`.
struct Naive(Child);

impl Naive {
    fn start(program: &Path, pipe: &Path) -> Self {
        fs::create_dir_all(pipe).unwrap();
        let mut command = Command::new(program);
        command.arg("-f").env_clear().env("PATH", "/usr/bin");
        command
            .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
            .env("CUDA_MPS_LOG_DIRECTORY", pipe);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = Self(command.spawn().unwrap());
        until("the daemon listens", || connect_to(pipe, None).is_ok());
        daemon
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The names that the daemon opens in its directory, each as a link to a file that does not exist, or exists as root's.
fn plant(pipe: &Path, secrets: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(secrets).unwrap();
    let plant = |name: &&str| {
        let secret = secrets.join(name);
        let _ = fs::remove_file(pipe.join(name));
        let _ = symlink(&secret, pipe.join(name));
        secret
    };
    ["control_lock", "nvidia-cuda-mps-control.pid", "log"]
        .iter()
        .map(plant)
        .collect()
}

#[test]
fn a_tenant_s_links_make_the_daemon_write_no_file_of_the_host() {
    each(
        "a_tenant_s_links_make_the_daemon_write_no_file_of_the_host",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let naive = bed.at("naive");
            fs::create_dir_all(&naive).unwrap();
            let written = plant(&naive, &bed.at("of-naive"));
            drop(Naive::start(&real.control(), &naive));
            assert!(written.iter().any(|file| file.exists()), "the attack does nothing");

            let control = bed.control();
            bed.start(&control, "small");
            let secrets = bed.at("secrets");
            let stop = Arc::new(AtomicBool::new(false));
            let tenant = std::thread::spawn({
                let (stop, pipe, secrets) = (Arc::clone(&stop), bed.pipe(), secrets.clone());
                move || {
                    let mut loops = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        plant(&pipe, &secrets);
                        loops += 1;
                    }
                    loops
                }
            });
            for _ in 0..3 {
                control.restart(bed.key()).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            let loops = tenant.join().unwrap();
            assert!(loops > 100, "{loops}");
            for file in plant(&bed.pipe(), &secrets) {
                assert!(!file.exists(), "{} was written", file.display());
            }
            control.tick();
            assert_eq!(real.names(), ["control"], "what the tenant made is removed");
            assert!(
                ask(&real.control(), &bed.pipe(), 0, "get_server_list").is_some(),
                "clients are served"
            );
            println!("{}: 3 restarts, {loops} loops of links, nothing written", real.branch);
        },
    );
}

#[test]
fn a_tenant_reaches_the_socket_of_clients_and_nothing_else() {
    each(
        "a_tenant_reaches_the_socket_of_clients_and_nothing_else",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let naive = bed.at("naive");
            let daemon = Naive::start(&real.control(), &naive);
            until("the pipe of the log", || naive.join("log").exists());
            let others = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o006;
            assert_ne!(others(&naive.join("log")), 0, "a tenant can write the daemon's log");
            drop(daemon);

            let control = bed.control();
            bed.start(&control, "small");
            assert_eq!(real.names(), ["control"]);
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let is_closed = |path: &Path| mode(path) & 0o007 == 0;
            assert!(is_closed(&real.work()) && is_closed(real.work().parent().unwrap()));
            for name in [
                "log",
                "control_lock",
                "control_privileged",
                "nvidia-cuda-mps-control.pid",
            ] {
                let path = real.work().join(name);
                assert!(!path.exists() || is_closed(&path), "{name}: {:o}", mode(&path));
            }
            // The link is renewed with the daemon.
            let before = bed.pid(&control);
            control.restart(bed.key()).unwrap();
            assert_ne!(bed.pid(&control), before);
            for uid in [0, 1000] {
                let answer = ask(
                    &real.control(),
                    &bed.pipe(),
                    uid,
                    "get_default_active_thread_percentage",
                );
                assert_eq!(answer.as_deref(), Some("20.0\n"), "uid {uid}");
            }
        },
    );
}

/// How long a client of the daemon in `pipe` waits for its first word, while `tick` is called each second.
fn waits(pipe: &Path, tick: impl Fn(), most: Duration) -> Option<Duration> {
    let client: OwnedFd = connect_to(pipe, Some(Duration::from_secs(1))).unwrap();
    let (since, mut next) = (Instant::now(), Instant::now());
    loop {
        let mut buffer = [0; 64];
        match rustix::net::recv(&client, &mut buffer[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok(_) => return Some(since.elapsed()),
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => panic!("{error}"),
        }
        if since.elapsed() > most {
            return None;
        }
        if Instant::now() >= next {
            tick();
            next = Instant::now() + Duration::from_secs(1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The container of the share is this process, so that its connections are the container's.
#[test]
fn a_client_that_says_nothing_costs_its_neighbours_seconds_and_nobody_the_daemon() {
    let test = "a_client_that_says_nothing_costs_its_neighbours_seconds_and_nobody_the_daemon";
    each(test, UNEQUAL, |real| {
        let bed = &real.bed;
        let naive = bed.at("naive");
        let daemon = Naive::start(&real.control(), &naive);
        let blocker = connect_to(&naive, None).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(
            waits(&naive, || {}, Duration::from_secs(5)),
            None,
            "the attack does nothing"
        );
        assert_eq!(ask(&real.control(), &naive, 0, "get_server_list"), None);
        drop((blocker, daemon));

        let control = bed.control();
        bed.claim_by("small", std::process::id());
        control.prepare(bed.key()).unwrap();
        let pid = bed.pid(&control);
        for connections in [1, 20] {
            let blockers: Vec<OwnedFd> = (0..connections)
                .map(|_| connect_to(&bed.pipe(), Some(Duration::from_secs(1))).unwrap())
                .collect();
            std::thread::sleep(Duration::from_millis(200));
            let tick = || assert!(control.tick().is_some());
            let waited = waits(&bed.pipe(), tick, Duration::from_secs(30)).expect("the neighbour is never served");
            println!(
                "{}: {connections} idle connections: a neighbour waits {waited:?}",
                real.branch
            );
            assert!(waited < Duration::from_secs(10), "{waited:?}");
            drop(blockers);
            assert_eq!(bed.pid(&control), pid, "the daemon was replaced");
        }
        let device = bed.device(&control);
        assert!(
            device
                .problems
                .iter()
                .any(|line| line.contains("container container-sm") && line.contains(" times")),
            "{:?}",
            device.problems
        );
        assert_eq!(device.daemon.unwrap().restarts, 0);
        // A claim is granted although a client blocks the daemon.
        let blocker = connect_to(&bed.pipe(), None).unwrap();
        std::thread::sleep(Duration::from_millis(2100));
        let since = Instant::now();
        bed.claim("big");
        control.prepare(bed.key()).unwrap();
        println!("{}: a claim is granted after {:?}", real.branch, since.elapsed());
        drop(blocker);
        assert_eq!(bed.pid(&control), pid);
    });
}

/// A connection that says that it sends commands, and sends none: clients are served, and nobody's commands are.
fn front_end(pipe: &Path) -> OwnedFd {
    let connection = connect_to(pipe, Some(Duration::from_secs(1))).unwrap();
    for packet in [&b"OUTBCRED\0"[..], &4_u32.to_ne_bytes()] {
        rustix::net::send(&connection, packet, rustix::net::SendFlags::NOSIGNAL).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    connection
}

#[test]
fn a_connection_for_commands_that_sends_none_keeps_nobody_from_the_daemon() {
    let test = "a_connection_for_commands_that_sends_none_keeps_nobody_from_the_daemon";
    each(test, UNEQUAL, |real| {
        let bed = &real.bed;
        let naive = bed.at("naive");
        let daemon = Naive::start(&real.control(), &naive);
        let blocker = front_end(&naive);
        let answer = ask(&real.control(), &naive, 0, "get_default_active_thread_percentage");
        assert!(
            answer.is_none_or(|said| said.trim().is_empty()),
            "the attack does nothing"
        );
        drop((blocker, daemon));

        let control = bed.control();
        bed.claim_by("small", std::process::id());
        control.prepare(bed.key()).unwrap();
        let pid = bed.pid(&control);
        let blocker = front_end(&bed.pipe());
        // A claim with larger limits needs commands.
        let since = Instant::now();
        bed.claim("big");
        control.prepare(bed.key()).unwrap();
        println!("{}: a claim is granted after {:?}", real.branch, since.elapsed());
        assert_eq!(bed.pid(&control), pid, "the daemon was replaced");
        let problems = bed.device(&control).problems;
        let named =
            |line: &String| line.contains("container container-sm") && line.contains("its connection was closed");
        assert!(problems.iter().any(named), "{problems:?}");
        drop(blocker);
    });
}

#[test]
fn what_a_user_commands_is_undone_where_any_user_commands_the_daemon() {
    each(
        "what_a_user_commands_is_undone_where_any_user_commands_the_daemon",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let control = bed.control();
            bed.start(&control, "small");
            for uid in [1000, 0] {
                let answer = ask(
                    &real.control(),
                    &bed.pipe(),
                    uid,
                    "set_default_active_thread_percentage 100",
                )
                .unwrap();
                // Where commands are for root, root has to come by the other socket, which no container has.
                let is_obeyed = real.branch < 550;
                assert_eq!(answer == "100.0\n", is_obeyed, "uid {uid}: {answer}");
                let memory = format!("set_default_device_pinned_mem_limit 0 {}M", 1 << 20);
                ask(&real.control(), &bed.pipe(), uid, &memory).unwrap();
                std::thread::sleep(Duration::from_millis(2100));
                control.prepare(bed.key()).unwrap();
                assert_eq!(real.answer("get_default_active_thread_percentage"), "20.0", "uid {uid}");
                if real.has_memory() {
                    assert_eq!(real.answer("get_default_device_pinned_mem_limit 0"), "4G", "uid {uid}");
                }
            }
        },
    );
}
