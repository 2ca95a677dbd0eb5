use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::time::Duration;

use super::*;

/// Doors whose metrics are somewhere on this machine.
fn doors() -> (tempfile::TempDir, Doors, SocketAddr) {
    let dir = tempfile::tempdir().unwrap();
    let mut doors = Doors::open(dir.path(), Some("127.0.0.1:0".parse().unwrap())).unwrap();
    let (served_at, listener) = doors.metrics.as_mut().unwrap();
    *served_at = listener.local_addr().unwrap();
    let address = *served_at;
    (dir, doors, address)
}

/// Half a request for the metrics.
fn half(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
    stream
}

#[test]
fn half_requests_starve_nobody() {
    let (_dir, mut doors, address) = doors();
    let now = Instant::now();
    let mut crowd = Vec::new();
    for _ in 0..40 {
        crowd.extend((0..10).map(|_| half(address)));
        doors.let_in(now);
        assert!(doors.attend(now).is_empty());
    }
    assert!(doors.visitors.len() <= CLIENT_PLACES, "{}", doors.visitors.len());
    let mut last = half(address);
    last.write_all(b" x\r\n\r\n").unwrap();
    // However slow the crowd is, and no time passes.
    doors.let_in(now);
    let visits = doors.attend(now);
    let [(visitor, Visit::Metrics)] = visits.as_slice() else { panic!("{visits:?}") };
    doors.hand_last(*visitor, b"metrics".to_vec());
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "metrics");
}

#[test]
fn one_address_leaves_places_to_others() {
    let (_dir, mut doors, address) = doors();
    let now = Instant::now();
    for _ in 0..METRICS_PLACES {
        doors.make_room("127.0.0.2".parse().unwrap());
        let (stream, _) = rustix::pipe::pipe().unwrap();
        doors.seat(Door::Metrics, Some("127.0.0.2".parse().unwrap()), stream, now);
    }
    assert_eq!(doors.visitors.len(), CLIENT_PLACES);
    let crowd: Vec<_> = (0..3 * METRICS_AT_ONCE).map(|_| half(address)).collect();
    (0..3).for_each(|_| doors.let_in(now));
    assert_eq!(doors.visitors.len(), CLIENT_PLACES + crowd.len());
    let mut more = Vec::new();
    for host in 3..200 {
        let client = IpAddr::from([127, 0, 0, host]);
        doors.make_room(client);
        let (stream, end) = rustix::pipe::pipe().unwrap();
        more.push(end);
        doors.seat(Door::Metrics, Some(client), stream, now);
    }
    assert_eq!(doors.visitors.len(), METRICS_PLACES);
}

#[test]
fn a_request_must_come_soon_and_an_answer_may_take_longer() {
    let (_dir, mut doors, address) = doors();
    let now = Instant::now();
    let _slow = half(address);
    doors.let_in(now);
    assert!(doors.attend(now).is_empty());
    let late = now + Duration::from_secs(2);
    assert_eq!(doors.next_deadline(), Some(late));
    let visits = doors.attend(late);
    assert!(matches!(visits.as_slice(), [(_, Visit::Left)]), "{visits:?}");
    assert!(doors.visitors.is_empty());

    let mut quick = half(address);
    quick.write_all(b" x\r\n\r\n").unwrap();
    doors.let_in(now);
    let (visitor, _) = doors.attend(now)[0];
    // More than the kernel takes at once.
    doors.hand_last(visitor, vec![b'x'; 64 << 20]);
    assert_eq!(doors.next_deadline(), Some(now + Duration::from_secs(5)));
}

#[test]
fn the_directory_of_another_user_is_refused() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
        eprintln!("skipped: it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(65534), None).unwrap();
    let refused = Doors::open(dir.path(), None).unwrap_err();
    assert!(matches!(refused, DoorError::Foreign { owner: 65534, .. }), "{refused}");
}
