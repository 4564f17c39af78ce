//! What a tenant tries against the real daemon. Each attack is also made on a daemon that works in the directory of its
//! clients, as earlier versions of tranche ran it: there it must succeed.

use super::{OF_NAMESPACE, RealBed, ask, attack, each, until};
use crate::bed::UNEQUAL;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tranche_broker::control::MachineControl;
use tranche_core::ledger::Claim;
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
    attack(
        "a_tenant_s_links_make_the_daemon_write_no_file_of_the_host",
        "links in the place of the files that the daemon opens at its start, in a loop, while it is restarted",
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
            let loops = Arc::new(AtomicU64::new(0));
            let tenant = std::thread::spawn({
                let (stop, pipe, secrets) = (Arc::clone(&stop), bed.pipe(), secrets.clone());
                let loops = Arc::clone(&loops);
                move || {
                    while !stop.load(Ordering::Relaxed) {
                        plant(&pipe, &secrets);
                        loops.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            // A busy machine makes fewer links in the same time.
            let mut restarts = 0;
            while restarts < 3 || loops.load(Ordering::Relaxed) <= 100 {
                control.restart(bed.key()).unwrap();
                restarts += 1;
            }
            stop.store(true, Ordering::Relaxed);
            tenant.join().unwrap();
            for file in plant(&bed.pipe(), &secrets) {
                assert!(!file.exists(), "{} was written", file.display());
            }
            control.tick();
            assert_eq!(real.names(), ["control"], "what the tenant made is removed");
            assert!(
                ask(&real.control(), &bed.pipe(), "0", "get_server_list").is_some(),
                "clients are served"
            );
            println!(
                "{}: {restarts} restarts, {loops:?} loops of links, nothing written",
                real.branch
            );
            restarts
        },
    );
}

#[test]
fn a_tenant_reaches_the_socket_of_clients_and_nothing_else() {
    attack(
        "a_tenant_reaches_the_socket_of_clients_and_nothing_else",
        "the daemon's log, lock, pid file and its socket for root are within reach of a container",
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
            for uid in ["0", "1000", OF_NAMESPACE] {
                let answer = ask(
                    &real.control(),
                    &bed.pipe(),
                    uid,
                    "get_default_active_thread_percentage",
                );
                assert_eq!(answer.as_deref(), Some("20.0\n"), "uid {uid}");
            }
            2
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
    let idea = "connections that say nothing keep neighbours and the broker from the daemon";
    attack(test, idea, UNEQUAL, |real| {
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
        assert_eq!(ask(&real.control(), &naive, "0", "get_server_list"), None);
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
        3
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
    let idea = "a connection for commands that sends none keeps everybody else from sending any";
    attack(test, idea, UNEQUAL, |real| {
        let bed = &real.bed;
        let naive = bed.at("naive");
        let daemon = Naive::start(&real.control(), &naive);
        let blocker = front_end(&naive);
        let answer = ask(&real.control(), &naive, "0", "get_default_active_thread_percentage");
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
        1
    });
}

#[test]
fn what_a_user_commands_is_undone_where_any_user_commands_the_daemon() {
    attack(
        "what_a_user_commands_is_undone_where_any_user_commands_the_daemon",
        "users command the daemon to raise its limits by the socket of clients",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let control = bed.control();
            bed.start(&control, "small");
            for uid in ["1000", "0", OF_NAMESPACE] {
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
            6
        },
    );
}

/// Removes the daemon's socket, puts something else in its place, or renames it.
const EXCHANGES: [&str; 5] = [
    "rm control && test ! -e control",
    "mv control taken && mkdir control",
    "rm -f control && ln -s /etc/passwd control",
    "touch new",
    "perl -MSocket -e 'unlink q(control); socket(S, AF_UNIX, SOCK_SEQPACKET, 0); bind(S, sockaddr_un(q(control))) or exit 1'",
];

/// As a container has the directory: mounted read-only, where root of the container cannot change that, or as a user.
fn in_container(directory: &Path, mounts: &str, user: &[&str], script: &str) -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c"]);
    command.arg(format!("{mounts} cd \"$0\" && exec \"$@\"")).arg(directory);
    command.args(user).args(["sh", "-c", script]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn a_tenant_takes_the_socket_from_nobody() {
    let test = "a_tenant_takes_the_socket_from_nobody";
    let idea = "the socket of clients is removed, renamed or replaced by another, by root and users of a container";
    attack(test, idea, UNEQUAL, |real| {
        let bed = &real.bed;
        let naive = bed.at("naive");
        for exchange in EXCHANGES {
            let _ = fs::remove_dir_all(&naive);
            let daemon = Naive::start(&real.control(), &naive);
            fs::set_permissions(&naive, fs::Permissions::from_mode(0o777)).unwrap();
            assert!(
                in_container(&naive, "", &[], exchange),
                "the attack does nothing: {exchange}"
            );
            drop(daemon);
        }

        let control = bed.control();
        bed.start(&control, "small");
        let pid = bed.pid(&control);
        let read_only = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" &&";
        let without_admin = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
        let user = ["setpriv", "--reuid=1000", "--clear-groups"];
        let namespace = [
            "setpriv",
            "--reuid=1000",
            "--clear-groups",
            "unshare",
            "--user",
            "--map-root-user",
        ];
        let mut tried = 0;
        for who in [&without_admin[..], &user, &namespace] {
            for exchange in EXCHANGES {
                assert!(
                    !in_container(&bed.pipe(), read_only, who, exchange),
                    "{who:?}: {exchange}"
                );
                tried += 1;
            }
        }
        assert_eq!(real.names(), ["control"]);
        assert!(is_served(real));
        assert_eq!(bed.pid(&control), pid);
        tried
    });
}

/// Whether the broker's daemon answers a user by the socket of its clients.
fn is_served(real: &RealBed) -> bool {
    let said = real.ask(&real.bed.pipe(), "1000", "get_default_active_thread_percentage");
    said.as_deref() == Some("20.0\n")
}

/// What a connection sends that no client sends: packets, one after another.
fn garbage() -> Vec<Vec<Vec<u8>>> {
    let hello = b"OUTBCRED\0".to_vec();
    let of_type = |kind: u32| vec![hello.clone(), kind.to_ne_bytes().to_vec()];
    vec![
        vec![vec![0]],
        vec![vec![0xff; 4096]],
        vec![hello.clone(), vec![0xff; 64 << 10]],
        of_type(0),
        of_type(u32::MAX),
        [of_type(4), vec![vec![b'%'; 4096]]].concat(),
        [of_type(4), vec![b"get_default_active_thread_percentage".to_vec(); 50]].concat(),
    ]
}

#[test]
fn a_flood_and_garbage_cost_neighbours_seconds_and_nobody_the_daemon() {
    let test = "a_flood_and_garbage_cost_neighbours_seconds_and_nobody_the_daemon";
    let idea = "hundreds of connections at once, and packets that no client sends";
    attack(test, idea, UNEQUAL, |real| {
        let bed = &real.bed;
        let flood = |pipe: &Path, number: usize| -> Vec<OwnedFd> {
            let short = Some(Duration::from_millis(20));
            (0..number).filter_map(|_| connect_to(pipe, short).ok()).collect()
        };
        let naive = bed.at("naive");
        let daemon = Naive::start(&real.control(), &naive);
        let connections = flood(&naive, 300);
        assert_eq!(
            ask(&real.control(), &naive, "0", "get_server_list"),
            None,
            "the attack does nothing"
        );
        drop((connections, daemon));

        let control = bed.control();
        bed.claim_by("small", std::process::id());
        control.prepare(bed.key()).unwrap();
        let pid = bed.pid(&control);
        let mut tried = 0;
        let mut serves = |what: &str, connections: Vec<OwnedFd>| {
            let since = Instant::now();
            until(what, || {
                control.tick();
                is_served(real)
            });
            println!(
                "{}: {what}: {} connections, {:?}",
                real.branch,
                connections.len(),
                since.elapsed()
            );
            assert_eq!(bed.pid(&control), pid, "{what}: the daemon was replaced");
            tried += 1;
        };
        serves("a flood", flood(&bed.pipe(), 300));
        for (number, packets) in garbage().into_iter().enumerate() {
            let connection = connect_to(&bed.pipe(), Some(Duration::from_secs(5))).unwrap();
            for packet in packets {
                // The daemon may have ended the connection by now, and a packet may be longer than one can be.
                let _ = rustix::net::send(
                    &connection,
                    &packet,
                    rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
                );
            }
            serves(&format!("garbage {number}"), vec![connection]);
        }
        bed.claim("big");
        control.prepare(bed.key()).unwrap();
        assert_eq!(real.answer("get_default_active_thread_percentage"), "80.0");
        tried
    });
}

/// Blocks the daemon twice, as a container whose connections are this process's.
fn block_twice(real: &RealBed, is_ended: bool) -> usize {
    let bed = &real.bed;
    let control = bed.control();
    bed.claim_by("small", std::process::id());
    bed.claim("big");
    control.prepare(bed.key()).unwrap();
    for times in 1..=2 {
        let blocker = connect_to(&bed.pipe(), Some(Duration::from_secs(1))).unwrap();
        let tick = || assert!(control.tick().is_some());
        waits(&bed.pipe(), tick, Duration::from_secs(30)).expect("the neighbour is never served");
        drop(blocker);
        let blockers = control.blockers();
        assert_eq!(
            blockers.len(),
            usize::from(is_ended && times == 2),
            "{times}: {blockers:?}"
        );
        // The holder's claim, and not its neighbour's.
        let of_holder = |claim: &Claim| {
            claim
                .process
                .as_ref()
                .is_some_and(|process| process.pid == std::process::id())
        };
        assert!(blockers.iter().all(of_holder), "{blockers:?}");
    }
    2
}

#[test]
fn who_blocks_the_daemon_again_is_to_be_ended_where_the_policy_says_so() {
    let test = "who_blocks_the_daemon_again_is_to_be_ended_where_the_policy_says_so";
    let policy = |blocked: &str| UNEQUAL.replace("  mps:\n", &format!("  mps:\n    blocked: {blocked}\n"));
    each(test, &policy("report"), |real| {
        block_twice(real, false);
    });
    let idea = "a holder that keeps the daemon from others comes again after its connection was closed";
    attack(test, idea, &policy("end"), |real| block_twice(real, true));
}
