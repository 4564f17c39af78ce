//! `/metrics`, over the socket of the page and over an address of this machine.

use crate::page::{get, port};
use crate::scene::Scene;
use crate::support::openmetrics;
use crate::support::until::until;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

#[test]
fn the_metrics_are_valid_and_name_nobody() {
    let mut scene = Scene::new();
    let port = port();
    scene.start_with(&[&format!("--listen=127.0.0.1:{port}")]);
    scene.claim("train");
    until("the claim", || scene.spans().len() == 1);
    let open = |target: &str, host: &str| get(TcpStream::connect(("127.0.0.1", port)).unwrap(), "GET", target, host);
    let own = get(UnixStream::connect(scene.at("page")).unwrap(), "GET", "/metrics", "x");
    for answer in [
        own,
        open("/metrics", "localhost"),
        open("/metrics?names=otel", "localhost"),
    ] {
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        let series = openmetrics::read(text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        assert_eq!(series["tranche_waiters"], 0.0);
        assert!(!text.contains("train") && !text.contains("root"), "{text}");
    }
    assert!(open("/metrics", "evil.example").starts_with("HTTP/1.1 421 "));
    assert!(open("/metrics?names=nagios", "localhost").starts_with("HTTP/1.1 404 "));
}
