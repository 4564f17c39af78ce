//! The page, over its socket and over an address of this machine.

use crate::scene::Scene;
use crate::support::until::until;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU16, Ordering};

/// The answer to a request for `path`.
pub(crate) fn get(mut stream: impl Read + Write, method: &str, path: &str, host: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    // One that is closed at once has no answer.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// A port that nothing uses, and none of those that the kernel gives to a client that connects.
pub(crate) fn port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 5_000).unwrap();
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let mut ports = std::iter::repeat_with(|| first + TAKEN.fetch_add(1, Ordering::SeqCst)).take(5_000);
    ports.find(is_free).unwrap()
}

#[test]
fn the_page_names_its_reader_over_the_socket_and_nobody_over_an_address() {
    let mut scene = Scene::new();
    let port = port();
    scene.start_with(&[&format!("--listen=127.0.0.1:{port}"), "--host=gpus.example"]);
    scene.claim("train");
    until("the claim", || scene.spans().len() == 1);
    let own = get(UnixStream::connect(scene.at("page")).unwrap(), "GET", "/", "x");
    assert!(
        own.starts_with("HTTP/1.1 200 OK") && own.contains("claim train"),
        "{own}"
    );
    let style = get(UnixStream::connect(scene.at("page")).unwrap(), "GET", "/style.css", "x");
    assert!(
        style.contains("text/css") && style.contains("prefers-color-scheme: dark"),
        "{style}"
    );
    let ask = |method: &str, host: &str| get(TcpStream::connect(("127.0.0.1", port)).unwrap(), method, "/", host);
    for host in ["localhost", "gpus.example", &format!("127.0.0.1:{port}")] {
        let open = ask("GET", host);
        assert!(open.starts_with("HTTP/1.1 200 OK") && open.contains("user-"), "{open}");
        assert!(!open.contains("train") && !open.contains("root"), "{open}");
    }
    assert!(ask("HEAD", "localhost").ends_with("\r\n\r\n"));
    assert!(ask("GET", "evil.example").starts_with("HTTP/1.1 421 "));
    assert!(ask("DELETE", "localhost").starts_with("HTTP/1.1 405 "));
}

#[test]
fn a_thousand_slow_connections_keep_nobody_out_for_long() {
    let mut scene = Scene::new();
    let port = port();
    scene.start_with(&[&format!("--listen=127.0.0.1:{port}")]);
    let mut slow = Vec::new();
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // Some are closed already.
        let _ = stream.write_all(b"GET / HT");
        slow.push(stream);
    }
    until("an answer", || {
        get(UnixStream::connect(scene.at("page")).unwrap(), "GET", "/", "x").starts_with("HTTP/1.1 200 OK")
    });
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let scene = Scene::new();
    for address in ["0.0.0.0:80", "192.0.2.1:80", "localhost", "[::]:80"] {
        let refused = scene.web_command().arg(format!("--listen={address}")).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains("is not an address of this machine alone") && said.lines().count() == 1,
            "{said}"
        );
    }
}
