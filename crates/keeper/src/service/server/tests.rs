use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::time::Duration;

use super::*;

/// Starts a server whose metrics are on a free port.
fn server() -> (tempfile::TempDir, Server, SocketAddr) {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::open(dir.path(), Some("127.0.0.1:0".parse().unwrap())).unwrap();
    let (served_at, listener) = server.metrics.as_mut().unwrap();
    *served_at = listener.local_addr().unwrap();
    let address = *served_at;
    (dir, server, address)
}

/// Connects and sends half a request for the metrics.
fn half(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
    stream
}

#[test]
fn half_requests_do_not_block_other_clients() {
    let (_dir, mut server, address) = server();
    let now = Instant::now();
    let mut crowd = Vec::new();
    for _ in 0..40 {
        crowd.extend((0..10).map(|_| half(address)));
        server.accept_clients(now);
        assert!(server.serve(now).is_empty());
    }
    assert!(server.clients.len() <= MAX_CLIENTS_PER_ADDRESS, "{}", server.clients.len());
    let mut last = half(address);
    last.write_all(b" x\r\n\r\n").unwrap();
    // No time passes, so that none of the others has timed out.
    server.accept_clients(now);
    let events = server.serve(now);
    let [(client, ClientEvent::Metrics)] = events.as_slice() else { panic!("{events:?}") };
    server.send_last(*client, b"metrics".to_vec());
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "metrics");
}

#[test]
fn one_address_cannot_take_all_connections() {
    let (_dir, mut server, address) = server();
    let now = Instant::now();
    for _ in 0..MAX_METRICS_CLIENTS {
        server.make_room("127.0.0.2".parse().unwrap());
        let (stream, _) = rustix::pipe::pipe().unwrap();
        server.add(Endpoint::Metrics, Some("127.0.0.2".parse().unwrap()), stream, now);
    }
    assert_eq!(server.clients.len(), MAX_CLIENTS_PER_ADDRESS);
    let crowd: Vec<_> = (0..3 * METRICS_AT_ONCE).map(|_| half(address)).collect();
    (0..3).for_each(|_| server.accept_clients(now));
    assert_eq!(server.clients.len(), MAX_CLIENTS_PER_ADDRESS + crowd.len());
    let mut more = Vec::new();
    for host in 3..200 {
        let peer = IpAddr::from([127, 0, 0, host]);
        server.make_room(peer);
        let (stream, end) = rustix::pipe::pipe().unwrap();
        more.push(end);
        server.add(Endpoint::Metrics, Some(peer), stream, now);
    }
    assert_eq!(server.clients.len(), MAX_METRICS_CLIENTS);
}

#[test]
fn requests_time_out_sooner_than_responses() {
    let (_dir, mut server, address) = server();
    let now = Instant::now();
    let _slow = half(address);
    server.accept_clients(now);
    assert!(server.serve(now).is_empty());
    let late = now + Duration::from_secs(2);
    assert_eq!(server.next_deadline(), Some(late));
    let events = server.serve(late);
    assert!(matches!(events.as_slice(), [(_, ClientEvent::Closed)]), "{events:?}");
    assert!(server.clients.is_empty());

    let mut quick = half(address);
    quick.write_all(b" x\r\n\r\n").unwrap();
    server.accept_clients(now);
    let (client, _) = server.serve(now)[0];
    // More than the socket buffer holds.
    server.send_last(client, vec![b'x'; 64 << 20]);
    assert_eq!(server.next_deadline(), Some(now + Duration::from_secs(5)));
}

#[test]
fn directory_of_another_user_is_refused() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
        eprintln!("skipped: this test needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(65534), None).unwrap();
    let refused = Server::open(dir.path(), None).unwrap_err();
    assert!(matches!(refused, ServerError::Foreign { owner: 65534, .. }), "{refused}");
}
